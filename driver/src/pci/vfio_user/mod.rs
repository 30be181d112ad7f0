//! PCI functions that another process serves over a UNIX socket, by the vfio-user protocol: no kernel driver, no
//! IOMMU and no privileges.
//!
//! What is mapped in a [`VfioUserDomain`] is made known to each device opened into it, together with the file that it
//! lies in, so that the serving process maps the same memory. Memory without a file is read and written by messages,
//! which a thread of the connection answers ([`memory`]), unless it can be given a file in place ([`anonymous`]).
//!
//! A device whose process is gone, or was given up, behaves as one that was pulled out: registers read all-ones.

mod anonymous;
mod device;
mod domain;
mod freeze;
mod memory;
mod name;
mod shared;

pub use domain::VfioUserDomain;
pub(super) use name::PREFIX;
pub(crate) use shared::{describe_bar, takes_clients};

use crate::Result;

/// Whether `name` is one of a device that is served.
pub(super) fn check_name(name: &str) -> Result<()> {
    name::Place::parse(name).map(drop)
}
