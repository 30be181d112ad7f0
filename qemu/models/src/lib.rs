//! Models of PCI network adapters: register level, pure and deterministic, and able to lie.
//!
//! A [`model::Model`] is a chip. It knows a bus and a port and nothing else, so that the same model is served
//! to a driver in the same process, over a socket to another one, or to a virtual machine. A
//! [`function::Function`] puts it behind configuration space, and checks and records what it does to memory. A
//! [`faults::Plan`] says what goes wrong, by a seed.

mod adapter_memory;
pub mod bus;
pub mod config;
mod dma_log;
mod e1000;
pub mod faults;
pub mod function;
pub mod inprocess;
pub mod machine;
pub mod model;
pub mod port;
pub mod random;
pub mod serve;
pub mod shared;
pub mod switch;
mod virtio;

pub use adapter_memory::AdapterMemory;
pub use dma_log::{DmaAccess, DmaLog};
pub use e1000::E1000;
pub use virtio::VirtioNet;
