//! PCI functions reached from user space.

mod address;
pub mod config;
mod device;

pub use address::PciAddress;
pub use device::{
    DeviceDomain, InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome,
};
