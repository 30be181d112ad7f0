//! The host's side of running guests.

pub mod console;
pub mod guest;
pub mod process;
pub mod qemu;
pub mod session;
pub mod signals;
pub mod sink;
