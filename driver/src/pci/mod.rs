//! PCI functions reached from user space.

mod address;
pub mod config;
mod device;
#[cfg(test)]
mod fake;
mod kernel;
mod sysfs;

use std::sync::Arc;

pub use address::PciAddress;
pub use device::{
    DeviceDomain, InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome,
};
pub use kernel::KernelDomain;
pub use sysfs::{Function, Sysfs};

use crate::Result;

/// A new, empty domain of the kind that the device called `name` can be opened into. A PCI address is a device
/// that the kernel owns, reached through VFIO.
///
/// # Errors
/// [`crate::Error::BadName`], and what keeps that device from being opened.
pub fn new_domain(name: &str) -> Result<Arc<dyn DeviceDomain>> {
    Ok(KernelDomain::for_device(name.parse()?)?)
}

/// Opens a device into a domain of its own.
///
/// # Errors
/// As [`new_domain`] and [`DeviceDomain::open`].
pub fn open(name: &str) -> Result<Arc<dyn PciDevice>> {
    new_domain(name)?.open(name)
}
