//! PCI functions reached from user space.

mod address;
pub mod config;
mod device;
#[cfg(test)]
mod fake;
mod sysfs;

pub use address::PciAddress;
pub use device::{
    DeviceDomain, InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome,
};
pub use sysfs::{Function, Sysfs};
