//! Builds a guest image and runs commands in QEMU guests.
//!
//! The pieces, from the outside in: [`Settings`] says what to boot, [`Session::boot`] boots one guest or
//! several, and a [`Guest`] then runs any number of commands, one after another or at once. The kernel,
//! its modules and busybox come from [`fetch`]; [`image`] packs them with our tools into an initramfs;
//! [`agent`] is the other side, process 1 of the guest.

pub mod accel;
pub mod agent;
pub mod cli;
pub mod command;
mod error;
pub mod fetch;
mod host;
pub mod image;
pub mod machine;
pub mod nic;
pub mod output;
pub mod paths;
mod settings;
mod status;
pub mod wire;

pub use error::{Error, Result};
pub use host::guest::Guest;
pub use host::process::{Outcome, Process, Task};
pub use host::session::Session;
pub use host::{signals, sink};
pub use nic::NicKind;
pub use settings::{Accel, Settings};
pub use status::Status;
