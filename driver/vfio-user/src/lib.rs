//! The vfio-user protocol: a PCI device that one process serves and another drives, over a UNIX socket.
//!
//! Everything that the kernel's VFIO does has its message: configuration space and BARs, interrupts by eventfd,
//! DMA to what the client has mapped and to nothing else, reset. So a driver written for VFIO works unchanged, with
//! no privileges, no IOMMU and no virtual machine; and QEMU can attach what is served here to a guest.
//!
//! * [`client::Client`] is the side of the driver,
//! * [`server::Server`] the side of the device, which is a [`server::Device`],
//! * [`framing`] and [`wire`] are the protocol itself, without any I/O,
//! * [`memory`] is memory that both sides have mapped.
//!
//! Neither side trusts the other. Sizes are capped, replies are held against their requests, waits end, and memory
//! of the peer's is mapped only where the peer can no longer take it away; see [`memory`].

pub mod client;
mod connection;
mod error;
pub mod framing;
pub mod fuzz;
pub mod memory;
pub mod server;
pub mod socket_file;
pub mod wire;

pub use error::{Error, Result};

bitflags::bitflags! {
    /// What a device may do with memory, and what a client may do with a region.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Rights: u32 {
        /// May be read.
        const READ = 1;
        /// May be written.
        const WRITE = 2;
    }
}
