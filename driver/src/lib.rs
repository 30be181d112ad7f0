//! PCI network adapters driven from user space.
//!
//! Three doors, each a trait, and nothing behind a door is known in front of it:
//!
//! * [`pci::PciDevice`] — configuration space, regions, interrupts and reset of one function,
//! * [`dma::DmaDomain`] — the I/O address space that devices are opened into,
//! * [`nic::Nic`] — what every Ethernet adapter does: burst transmit and receive, link, statistics, reset.
//!
//! Beside them, [`pio`]: memory of an adapter that the processor stores frames into, for NICs to fetch from there.

pub mod dma;
mod error;
mod locks;
pub mod mmio;
pub mod nic;
pub mod pci;
pub mod pio;
mod sync;
pub mod text;

pub use error::{DeviceFault, Error, Result};
