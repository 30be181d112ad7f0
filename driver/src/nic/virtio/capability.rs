//! Where a device's register structures lie: its vendor capabilities (VIRTIO 1.2, 4.1.4).

use std::sync::Arc;

use crate::mmio::Registers;
use crate::pci::{PciDevice, config};
use crate::{DeviceFault, Error, Result};

/// cfg_type: common configuration.
const COMMON_CFG: u8 = 1;
/// cfg_type: notifications.
const NOTIFY_CFG: u8 = 2;
/// cfg_type: interrupt status.
const ISR_CFG: u8 = 3;
/// cfg_type: device-specific configuration.
const DEVICE_CFG: u8 = 4;

/// `struct virtio_pci_cap`, its bytes; the notification capability has four more, the multiplier.
const CAP_LENGTH: u8 = 16;
const NOTIFY_CAP_LENGTH: u8 = 20;

/// Bytes of the common configuration that this driver uses: through queue_device (4.1.4.3).
const COMMON_LENGTH: usize = 0x38;

/// A device's structures.
pub(super) struct Structures {
    pub(super) common: Registers,
    pub(super) notify: Registers,
    /// Bytes between the notification addresses of offset 0 and 1.
    pub(super) notify_off_multiplier: u32,
    pub(super) isr: Registers,
    /// The network device's configuration.
    pub(super) device: Registers,
}

/// Walks the capabilities. Of several structures of one type, the first that can be used is taken, as the
/// specification has it: devices list them by preference.
pub(super) fn find(device: &Arc<dyn PciDevice>) -> Result<Structures> {
    let bad =
        |what: String| Error::Device { device: device.name().to_owned(), fault: DeviceFault::Layout(what) };
    let mut found: [Option<Registers>; 5] = Default::default();
    let mut multiplier = 0;
    for capability in config::capabilities(&**device)? {
        if capability.id != config::CAPABILITY_VENDOR {
            continue;
        }
        let at = capability.offset;
        let length = config::read_u8(&**device, at + 2)?;
        let kind = config::read_u8(&**device, at + 3)?;
        let needed = if kind == NOTIFY_CFG { NOTIFY_CAP_LENGTH } else { CAP_LENGTH };
        let Some(slot) = found.get_mut(usize::from(kind)).filter(|s| kind != 0 && s.is_none()) else {
            continue; // a type that later versions define, or one that we have
        };
        if length < needed || usize::from(at) + usize::from(needed) > 256 {
            return Err(bad(format!("the capability at {at:#x} (type {kind}) is only {length} bytes long")));
        }
        let bar = config::read_u8(&**device, at + 4)?;
        if bar > 5 {
            continue; // reserved values are to be ignored
        }
        let offset = config::read_u32(&**device, at + 8)? as usize;
        let len = config::read_u32(&**device, at + 12)? as usize;
        // Alignment as 4.1.4.1 has it; what is read as a word must not straddle words.
        let align = match kind {
            NOTIFY_CFG => 2,
            ISR_CFG => 1,
            _ => 4,
        };
        if !offset.is_multiple_of(align) {
            return Err(bad(format!(
                "the structure of type {kind} lies at {offset:#x}, which is not aligned"
            )));
        }
        let registers = Registers::open(device, bar)?;
        if offset.checked_add(len).is_none_or(|end| end > registers.len()) {
            return Err(bad(format!(
                "the structure of type {kind}, {offset:#x}+{len:#x}, lies beyond BAR {bar} of {:#x} bytes",
                registers.len()
            )));
        }
        if kind == NOTIFY_CFG {
            multiplier = config::read_u32(&**device, at + 16)?;
        }
        *slot = Some(registers.window(offset, len)?);
    }
    let mut need = |kind: u8, what: &str, least: usize| {
        let registers = found[usize::from(kind)].take().ok_or_else(|| {
            bad(format!(
                "the device has no {what} structure: it is a legacy device (QEMU: disable-legacy=on)"
            ))
        })?;
        if registers.len() < least {
            return Err(bad(format!("the {what} structure has {} bytes of {least}", registers.len())));
        }
        Ok(registers)
    };
    Ok(Structures {
        common: need(COMMON_CFG, "common configuration", COMMON_LENGTH)?,
        notify: need(NOTIFY_CFG, "notification", 2)?,
        notify_off_multiplier: multiplier,
        isr: need(ISR_CFG, "interrupt status", 1)?,
        device: need(DEVICE_CFG, "network configuration", 0)?,
    })
}

impl Structures {
    /// The register that a queue is notified by (4.1.4.4), its place checked.
    pub(super) fn notify_register(
        &self,
        queue_notify_off: u16,
    ) -> std::result::Result<Registers, DeviceFault> {
        let offset = u64::from(queue_notify_off) * u64::from(self.notify_off_multiplier);
        usize::try_from(offset)
            .ok()
            .filter(|offset| offset.is_multiple_of(2))
            .and_then(|offset| self.notify.window(offset, 2).ok())
            .ok_or(DeviceFault::BadValue {
                what: "a notification address at offset",
                value: offset,
                bound: "lies beyond the notification structure, or is odd",
            })
    }
}
