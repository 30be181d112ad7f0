//! VIPL: the C interface of the VI Architecture, over uvia. `include/vipl.h` is its other side.
//!
//! Programs hand in addresses and handles; nothing of that is believed. Handles are names that are looked up
//! (`handles`), and an argument that cannot be right is answered by the architecture's code for it. A posted
//! descriptor is the program's memory: it is read once, checked, and made into a [`uvia::Descriptor`]; what became of it
//! is written back when it completes (`queue`).

pub mod abi;
mod config;
mod connect;
mod cq;
mod device;
mod entries;
mod errors;
mod handles;
mod lock;
mod memory;
mod names;
mod nic;
mod notify;
mod pio;
mod post;
mod queue;
mod seats;
mod templates;
mod types;
mod vi;
mod waits;

pub use types::*;
