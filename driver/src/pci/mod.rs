//! PCI functions reached from user space.

mod address;
mod device;

pub use address::PciAddress;
pub use device::{
    DeviceDomain, InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome,
};
