//! Which driver is for which device.

use std::sync::Arc;

use super::{Nic, NicConfig, e1000, memory, virtio};
use crate::dma::{DmaDomain, IdentityDomain};
use crate::pci::{self, PciDevice, config};
use crate::{Error, Result};

type Constructor = fn(Arc<dyn PciDevice>, &NicConfig) -> Result<Box<dyn Nic>>;

/// One driver.
struct Driver {
    name: &'static str,
    /// Vendor and device.
    ids: &'static [(u16, u16)],
    open: Constructor,
}

/// A new driver is one more line.
const DRIVERS: &[Driver] = &[
    Driver { name: "e1000", ids: e1000::IDS, open: e1000::open },
    Driver { name: "virtio", ids: virtio::IDS, open: virtio::open },
];

/// Brings up a network adapter.
///
/// # Errors
/// [`Error::Unsupported`] for a device that no driver here is for, [`Error::Argument`] for a [`NicConfig::max_frame`] out
/// of bounds, and whatever keeps the device from working.
pub fn open(device: Arc<dyn PciDevice>, nic_config: &NicConfig) -> Result<Box<dyn Nic>> {
    nic_config.longest_frame()?;
    let (vendor, id) = config::ids(&*device)?;
    match find(vendor, id) {
        Some(driver) => (driver.open)(device, nic_config),
        None => Err(Error::Unsupported {
            device: device.name().to_owned(),
            what: format!("a device with ids {vendor:04x}:{id:04x} (driven are {})", Driven),
        }),
    }
}

/// Whether `name` is one of an adapter, without looking whether there is one: those of [`pci::check_name`], and `shm:NAME`
/// for one on shared memory of this host.
///
/// # Errors
/// [`Error::BadName`], [`Error::Argument`].
pub fn check_name(name: &str) -> Result<()> {
    match memory::segment_of(name)? {
        Some(_) => Ok(()),
        None => pci::check_name(name),
    }
}

/// Brings up the network adapter of that name (see [`check_name`]), with a domain of its own that memory for it is mapped
/// in.
///
/// # Errors
/// As [`pci::open`] and [`open`]; for shared memory, all ports are in use, or the system gives no memory.
pub fn open_named(name: &str, nic_config: &NicConfig) -> Result<(Box<dyn Nic>, Arc<dyn DmaDomain>)> {
    nic_config.longest_frame()?;
    if let Some(segment) = memory::segment_of(name)? {
        return Ok((memory::open(segment, nic_config)?, Arc::new(IdentityDomain::default())));
    }
    let device = pci::open(name)?;
    let domain = device.domain().clone();
    Ok((open(device, nic_config)?, domain))
}

/// The driver that [`open`] would use for a device with these ids.
pub fn driver_for(vendor: u16, device: u16) -> Option<&'static str> {
    find(vendor, device).map(|driver| driver.name)
}

fn find(vendor: u16, device: u16) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.ids.contains(&(vendor, device)))
}

/// The drivers and their ids, in words.
struct Driven;

impl std::fmt::Display for Driven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, driver) in DRIVERS.iter().enumerate() {
            write!(f, "{}{}", if n == 0 { "" } else { ", " }, driver.name)?;
            for (vendor, device) in driver.ids {
                write!(f, " {vendor:04x}:{device:04x}")?;
            }
        }
        Ok(())
    }
}
