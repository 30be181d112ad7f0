//! Which driver is for which device.

use std::sync::Arc;

use super::{Nic, NicConfig, e1000};
use crate::pci::PciDevice;
use crate::{Error, Result};

type Constructor = fn(Arc<dyn PciDevice>, &NicConfig) -> Result<Box<dyn Nic>>;

/// Name, (vendor, device) ids, constructor. A new driver is one more line.
const DRIVERS: &[(&str, &[(u16, u16)], Constructor)] = &[("e1000", e1000::IDS, e1000::open)];

/// Brings up a network adapter.
///
/// # Errors
/// [`Error::Unsupported`] for a device that no driver here is for, and whatever keeps the device from working.
pub fn open(device: Arc<dyn PciDevice>, config: &NicConfig) -> Result<Box<dyn Nic>> {
    let mut ids = [0; 4];
    device.config_read(0, &mut ids)?;
    let vendor = u16::from_le_bytes([ids[0], ids[1]]);
    let function = u16::from_le_bytes([ids[2], ids[3]]);
    match find(vendor, function) {
        Some((.., constructor)) => constructor(device, config),
        None => Err(Error::Unsupported {
            device: device.name().to_owned(),
            what: format!("a device with ids {vendor:04x}:{function:04x} (driven are {})", Driven),
        }),
    }
}

/// The driver that [`open`] would use for a device with these ids.
pub fn driver_for(vendor: u16, device: u16) -> Option<&'static str> {
    find(vendor, device).map(|(name, ..)| *name)
}

fn find(vendor: u16, device: u16) -> Option<&'static (&'static str, &'static [(u16, u16)], Constructor)> {
    DRIVERS.iter().find(|(_, ids, _)| ids.contains(&(vendor, device)))
}

/// The drivers and their ids, in words.
struct Driven;

impl std::fmt::Display for Driven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, (name, ids, _)) in DRIVERS.iter().enumerate() {
            write!(f, "{}{name}", if n == 0 { "" } else { ", " })?;
            for (vendor, device) in *ids {
                write!(f, " {vendor:04x}:{device:04x}")?;
            }
        }
        Ok(())
    }
}
