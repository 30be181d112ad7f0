//! Configuration space: the registers that every function has, and the walk along its capabilities.
//!
//! Offsets and bits are those of the PCI Local Bus Specification 3.0, chapter 6. What a device says is not
//! trusted: the walk is bounded, and a list that loops or points into the header is a fault of the device.

use super::PciDevice;
use crate::{DeviceFault, Error, Result};

/// Vendor id, 16 bits.
pub const VENDOR_ID: u16 = 0x00;
/// Device id, 16 bits.
pub const DEVICE_ID: u16 = 0x02;
/// Command register, 16 bits; see the `COMMAND_` bits.
pub const COMMAND: u16 = 0x04;
/// Status register, 16 bits; see the `STATUS_` bits.
pub const STATUS: u16 = 0x06;
/// Revision, 8 bits.
pub const REVISION: u16 = 0x08;
/// Programming interface, subclass and class, 8 bits each, ascending.
pub const CLASS: u16 = 0x09;
/// Subsystem vendor id, 16 bits.
pub const SUBSYSTEM_VENDOR_ID: u16 = 0x2c;
/// Subsystem id, 16 bits.
pub const SUBSYSTEM_ID: u16 = 0x2e;
/// Offset of the first capability, 8 bits.
pub const CAPABILITIES: u16 = 0x34;
/// Interrupt pin, 8 bits: 0 for none, 1 for INTA.
pub const INTERRUPT_PIN: u16 = 0x3d;

/// The function answers I/O port accesses.
pub const COMMAND_IO: u16 = 1 << 0;
/// The function answers memory accesses.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// The function may read and write memory.
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// INTx is not asserted.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;
/// There is a list of capabilities.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;

/// Capability: power management.
pub const CAPABILITY_POWER: u8 = 0x01;
/// Capability: message signalled interrupts.
pub const CAPABILITY_MSI: u8 = 0x05;
/// Capability: vendor specific (virtio describes its structures by these).
pub const CAPABILITY_VENDOR: u8 = 0x09;
/// Capability: PCI Express.
pub const CAPABILITY_EXPRESS: u8 = 0x10;
/// Capability: extended message signalled interrupts.
pub const CAPABILITY_MSIX: u8 = 0x11;
/// Capability: advanced features of conventional PCI (function-level reset).
pub const CAPABILITY_ADVANCED: u8 = 0x13;

/// Where the header ends and capabilities may begin.
const HEADER_END: u8 = 0x40;
/// Four bytes each in the 192 bytes behind the header: more there cannot be.
const MOST_CAPABILITIES: usize = (256 - HEADER_END as usize) / 4;

/// One entry of a function's list of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Which: one of the `CAPABILITY_` constants, or another of the PCI code and id assignments.
    pub id: u8,
    /// Where in configuration space it begins (with its id).
    pub offset: u16,
}

/// Reads 8 bits of configuration space.
///
/// # Errors
/// As [`PciDevice::config_read`].
pub fn read_u8(device: &dyn PciDevice, offset: u16) -> Result<u8> {
    let mut bytes = [0];
    device.config_read(offset, &mut bytes)?;
    Ok(bytes[0])
}

/// Reads 16 bits of configuration space.
///
/// # Errors
/// As [`PciDevice::config_read`].
pub fn read_u16(device: &dyn PciDevice, offset: u16) -> Result<u16> {
    let mut bytes = [0; 2];
    device.config_read(offset, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

/// Reads 32 bits of configuration space.
///
/// # Errors
/// As [`PciDevice::config_read`].
pub fn read_u32(device: &dyn PciDevice, offset: u16) -> Result<u32> {
    let mut bytes = [0; 4];
    device.config_read(offset, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Writes 16 bits of configuration space.
///
/// # Errors
/// As [`PciDevice::config_write`].
pub fn write_u16(device: &dyn PciDevice, offset: u16, value: u16) -> Result<()> {
    device.config_write(offset, &value.to_le_bytes())
}

/// Sets and clears bits of the command register; all others stay as they are.
///
/// # Errors
/// As [`PciDevice::config_read`] and [`PciDevice::config_write`].
pub fn change_command(device: &dyn PciDevice, set: u16, clear: u16) -> Result<()> {
    let before = read_u16(device, COMMAND)?;
    let after = (before | set) & !clear;
    if after == before { Ok(()) } else { write_u16(device, COMMAND, after) }
}

/// Vendor and device id.
///
/// # Errors
/// As [`PciDevice::config_read`]; [`DeviceFault::Gone`] where nothing answers.
pub fn ids(device: &dyn PciDevice) -> Result<(u16, u16)> {
    let vendor = read_u16(device, VENDOR_ID)?;
    if vendor == 0xffff {
        return Err(fault(device, DeviceFault::Gone));
    }
    Ok((vendor, read_u16(device, DEVICE_ID)?))
}

/// The function's capabilities in the order of its list; none where it says that it has no list.
///
/// # Errors
/// As [`PciDevice::config_read`]; a list that loops or leaves its place is [`DeviceFault::Layout`].
pub fn capabilities(device: &dyn PciDevice) -> Result<Vec<Capability>> {
    let status = read_u16(device, STATUS)?;
    if status == 0xffff {
        return Err(fault(device, DeviceFault::Gone));
    }
    let mut found = Vec::new();
    if status & STATUS_CAPABILITIES == 0 {
        return Ok(found);
    }
    // The two low bits of every pointer are reserved: to be masked, says the specification.
    let mut next = read_u8(device, CAPABILITIES)? & !3;
    while next != 0 {
        if next < HEADER_END {
            let what = format!("the capability list points to {next:#04x}, inside the header");
            return Err(fault(device, DeviceFault::Layout(what)));
        }
        if found.len() == MOST_CAPABILITIES {
            return Err(fault(device, DeviceFault::Layout("the capability list loops".to_owned())));
        }
        let head = read_u16(device, next.into())?.to_le_bytes();
        found.push(Capability { id: head[0], offset: next.into() });
        next = head[1] & !3;
    }
    Ok(found)
}

/// The first capability with this id.
///
/// # Errors
/// As [`capabilities`].
pub fn find(device: &dyn PciDevice, id: u8) -> Result<Option<Capability>> {
    Ok(capabilities(device)?.into_iter().find(|capability| capability.id == id))
}

fn fault(device: &dyn PciDevice, fault: DeviceFault) -> Error {
    Error::Device { device: device.name().to_owned(), fault }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::dma::{DmaDomain, IdentityDomain};
    use crate::pci::{InterruptCounts, InterruptKind, RegionInfo, RegionMapping, ResetOutcome};

    /// A device that is nothing but configuration space.
    struct Paper {
        config: Mutex<[u8; 256]>,
        domain: Arc<dyn DmaDomain>,
    }

    impl Paper {
        fn new(bytes: &[(u16, u8)]) -> Self {
            let mut config = [0; 256];
            for (offset, byte) in bytes {
                config[usize::from(*offset)] = *byte;
            }
            Self { config: Mutex::new(config), domain: Arc::new(IdentityDomain::default()) }
        }
    }

    impl PciDevice for Paper {
        fn name(&self) -> &str {
            "paper"
        }
        fn domain(&self) -> &Arc<dyn DmaDomain> {
            &self.domain
        }
        fn config_read(&self, offset: u16, into: &mut [u8]) -> Result<()> {
            let offset = usize::from(offset);
            into.copy_from_slice(&self.config.lock().unwrap()[offset..offset + into.len()]);
            Ok(())
        }
        fn config_write(&self, offset: u16, from: &[u8]) -> Result<()> {
            let offset = usize::from(offset);
            self.config.lock().unwrap()[offset..offset + from.len()].copy_from_slice(from);
            Ok(())
        }
        fn region(&self, _bar: u8) -> Result<RegionInfo> {
            Ok(RegionInfo::default())
        }
        fn region_read(&self, _bar: u8, _offset: u64, _into: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn region_write(&self, _bar: u8, _offset: u64, _from: &[u8]) -> Result<()> {
            Ok(())
        }
        fn map_region(&self, _bar: u8) -> Result<Option<Arc<RegionMapping>>> {
            Ok(None)
        }
        fn interrupts(&self) -> InterruptCounts {
            InterruptCounts::default()
        }
        fn enable_interrupts(&self, _kind: InterruptKind, _vectors: &[BorrowedFd<'_>]) -> Result<()> {
            Ok(())
        }
        fn disable_interrupts(&self, _kind: InterruptKind) -> Result<()> {
            Ok(())
        }
        fn unmask_intx(&self) -> Result<()> {
            Ok(())
        }
        fn set_bus_master(&self, _on: bool) -> Result<()> {
            Ok(())
        }
        fn reset(&self) -> Result<ResetOutcome> {
            Ok(ResetOutcome::Unsupported)
        }
    }

    #[test]
    fn walks_a_list() {
        let paper = Paper::new(&[
            (STATUS, 0x10),
            (CAPABILITIES, 0xdf), // reserved bits set: 0xdc is meant
            (0xdc, CAPABILITY_MSIX),
            (0xdd, 0x40),
            (0x40, CAPABILITY_VENDOR),
            (0x41, 0),
        ]);
        let list = capabilities(&paper).unwrap();
        assert_eq!(
            list,
            [
                Capability { id: CAPABILITY_MSIX, offset: 0xdc },
                Capability { id: CAPABILITY_VENDOR, offset: 0x40 }
            ]
        );
        assert_eq!(find(&paper, CAPABILITY_VENDOR).unwrap().unwrap().offset, 0x40);
        assert_eq!(find(&paper, CAPABILITY_MSI).unwrap(), None);
    }

    #[test]
    fn without_the_status_bit_there_is_no_list() {
        let paper = Paper::new(&[(CAPABILITIES, 0x40), (0x40, CAPABILITY_MSI)]);
        assert_eq!(capabilities(&paper).unwrap(), []);
    }

    #[test]
    fn a_list_that_loops_is_a_fault() {
        let paper =
            Paper::new(&[(STATUS, 0x10), (CAPABILITIES, 0x40), (0x40, 9), (0x41, 0x50), (0x51, 0x40)]);
        let error = capabilities(&paper).unwrap_err();
        assert!(error.to_string().contains("loops"), "{error}");
    }

    #[test]
    fn a_list_that_points_into_the_header_is_a_fault() {
        let paper = Paper::new(&[(STATUS, 0x10), (CAPABILITIES, 0x10)]);
        assert!(matches!(capabilities(&paper), Err(Error::Device { fault: DeviceFault::Layout(_), .. })));
    }

    #[test]
    fn a_device_that_is_gone_is_told_from_one_without_capabilities() {
        let paper = Paper { config: Mutex::new([0xff; 256]), domain: Arc::new(IdentityDomain::default()) };
        assert!(matches!(capabilities(&paper), Err(Error::Device { fault: DeviceFault::Gone, .. })));
        assert!(matches!(ids(&paper), Err(Error::Device { fault: DeviceFault::Gone, .. })));
    }

    #[test]
    fn command_bits_change_alone() {
        let paper = Paper::new(&[(COMMAND, 0x03), (COMMAND + 1, 0x04)]);
        change_command(&paper, COMMAND_BUS_MASTER, COMMAND_INTX_DISABLE).unwrap();
        assert_eq!(read_u16(&paper, COMMAND).unwrap(), 0x0007);
    }
}
