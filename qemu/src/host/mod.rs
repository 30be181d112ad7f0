//! The host's side of running guests.

pub mod child;
pub mod console;
pub mod devices;
pub mod emulator;
pub mod guest;
pub(crate) mod monitor;
pub mod process;
pub mod session;
pub mod signals;
pub mod sink;
