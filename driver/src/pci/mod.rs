//! PCI functions reached from user space.

mod address;
pub mod bind;
pub mod config;
mod departed;
mod device;
#[cfg(test)]
pub(crate) mod fake;
mod kernel;
mod sysfs;
mod vfio_user;

use std::sync::Arc;

pub use address::PciAddress;
pub(crate) use departed::has_let_go;
pub use device::{
    DeviceDomain, InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome,
};
pub use kernel::KernelDomain;
pub use sysfs::{Function, Sysfs};
pub use vfio_user::VfioUserDomain;
pub(crate) use vfio_user::describe_bar;

use crate::Result;

/// How the device called by a name is reached.
pub(crate) enum Way {
    /// A function of this machine, through the kernel's VFIO.
    Kernel(PciAddress),
    /// Served by another process.
    VfioUser,
}

pub(crate) fn way(name: &str) -> Result<Way> {
    match name.starts_with(vfio_user::PREFIX) {
        true => vfio_user::check_name(name).map(|()| Way::VfioUser),
        false => name.parse().map(Way::Kernel),
    }
}

/// Whether `name` is one of a device, without looking whether there is one: a PCI address such as `0000:01:00.0` for
/// a function that the kernel's VFIO has, `vfio-user:PATH` for one that is served at a socket, `vfio-user:fd:N` for
/// one at the other end of an inherited socket.
///
/// # Errors
/// [`crate::Error::BadName`].
pub fn check_name(name: &str) -> Result<()> {
    way(name).map(drop)
}

/// A new, empty domain of the kind that the device called `name` (see [`check_name`]) can be opened into.
///
/// # Errors
/// [`crate::Error::BadName`], and what keeps that device from being opened.
pub fn new_domain(name: &str) -> Result<Arc<dyn DeviceDomain>> {
    Ok(match way(name)? {
        Way::Kernel(address) => KernelDomain::for_device(address)?,
        Way::VfioUser => VfioUserDomain::new(),
    })
}

/// Opens a device into a domain of its own.
///
/// # Errors
/// As [`new_domain`] and [`DeviceDomain::open`].
pub fn open(name: &str) -> Result<Arc<dyn PciDevice>> {
    new_domain(name)?.open(name)
}
