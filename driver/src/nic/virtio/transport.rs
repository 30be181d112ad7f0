//! The common configuration structure (VIRTIO 1.2, 4.1.4.3) and the steps of initialization (3.1.1).

use std::time::{Duration, Instant};

use bitflags::bitflags;

use super::capability::Structures;
use super::features::Features;
use super::queue::Virtqueue;
use crate::DeviceFault;
use crate::mmio::Registers;

const DEVICE_FEATURE_SELECT: usize = 0x00;
const DEVICE_FEATURE: usize = 0x04;
const DRIVER_FEATURE_SELECT: usize = 0x08;
const DRIVER_FEATURE: usize = 0x0c;
const CONFIG_MSIX_VECTOR: usize = 0x10;
const NUM_QUEUES: usize = 0x12;
const DEVICE_STATUS: usize = 0x14;
const CONFIG_GENERATION: usize = 0x15;
const QUEUE_SELECT: usize = 0x16;
const QUEUE_SIZE: usize = 0x18;
const QUEUE_MSIX_VECTOR: usize = 0x1a;
const QUEUE_ENABLE: usize = 0x1c;
const QUEUE_NOTIFY_OFF: usize = 0x1e;
const QUEUE_DESC: usize = 0x20;
const QUEUE_DRIVER: usize = 0x28;
const QUEUE_DEVICE: usize = 0x30;

/// Slots of a packed queue are numbered by 15 bits (2.8.10.1).
const LARGEST_PACKED: u16 = 1 << 15;

/// VIRTIO_MSI_NO_VECTOR.
const NO_VECTOR: u16 = 0xffff;

/// A reset ends when the status reads 0; devices that tear down back-ends take their time.
const RESET_PATIENCE: Duration = Duration::from_secs(3);

bitflags! {
    /// Device status (2.1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Status: u8 {
        const ACKNOWLEDGE = 1;
        const DRIVER = 2;
        const DRIVER_OK = 4;
        const FEATURES_OK = 8;
        const DEVICE_NEEDS_RESET = 64;
        const FAILED = 128;
    }
}

/// The one MSI-X vector, for receiving and configuration changes, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vector {
    First,
    None,
}

impl Vector {
    fn number(self) -> u16 {
        match self {
            Self::First => 0,
            Self::None => NO_VECTOR,
        }
    }
}

/// Checks that the device is there, runs, and is content.
pub(super) fn check(common: &Registers) -> Result<(), DeviceFault> {
    let status = common.read8(DEVICE_STATUS);
    if status == 0xff {
        return Err(DeviceFault::Gone);
    }
    if Status::from_bits_retain(status).contains(Status::DEVICE_NEEDS_RESET) {
        return Err(DeviceFault::NeedsReset { status: status.into() });
    }
    if !Status::from_bits_retain(status).contains(Status::DRIVER_OK) {
        return Err(DeviceFault::WasReset);
    }
    Ok(())
}

/// Resets the device; afterwards it touches no queue (2.4.1).
pub(super) fn reset(common: &Registers) -> Result<(), DeviceFault> {
    common.write8(DEVICE_STATUS, 0);
    let start = Instant::now();
    loop {
        match common.read8(DEVICE_STATUS) {
            0 => return Ok(()),
            0xff => return Err(DeviceFault::Gone),
            status if start.elapsed() > RESET_PATIENCE => {
                return Err(DeviceFault::BadValue {
                    what: "status",
                    value: status.into(),
                    bound: "must read 0 within 1 s of a reset",
                });
            }
            _ => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

fn add_status(common: &Registers, status: Status) -> u8 {
    let now = common.read8(DEVICE_STATUS) | status.bits();
    common.write8(DEVICE_STATUS, now);
    common.read8(DEVICE_STATUS)
}

/// Steps 2 to 6: says that a driver is there, and agrees on features.
pub(super) fn agree(
    common: &Registers,
    choose: impl FnOnce(Features) -> Result<Features, DeviceFault>,
) -> Result<Features, DeviceFault> {
    add_status(common, Status::ACKNOWLEDGE | Status::DRIVER);
    let mut offered = 0;
    for half in 0..2 {
        common.write32(DEVICE_FEATURE_SELECT, half);
        offered |= u64::from(common.read32(DEVICE_FEATURE)) << (32 * half);
    }
    if offered == u64::MAX {
        return Err(DeviceFault::Gone);
    }
    let taken = match choose(Features::from_bits_retain(offered)) {
        Ok(taken) => taken,
        Err(fault) => {
            add_status(common, Status::FAILED);
            return Err(fault);
        }
    };
    for half in 0..2 {
        common.write32(DRIVER_FEATURE_SELECT, half);
        common.write32(DRIVER_FEATURE, (taken.bits() >> (32 * half)) as u32);
    }
    let status = add_status(common, Status::FEATURES_OK);
    if Status::from_bits_retain(status).contains(Status::FEATURES_OK) {
        Ok(taken)
    } else {
        add_status(common, Status::FAILED);
        Err(DeviceFault::Layout(format!("the device refused the features {:#x}", taken.bits())))
    }
}

/// Step 8: the device may use its queues.
pub(super) fn go(common: &Registers) -> Result<(), DeviceFault> {
    add_status(common, Status::DRIVER_OK);
    check(common)
}

/// The queue's size: the most that the device allows, no more than wanted; a power of two (2.7) where the queue is not
/// `packed`, or the device allows it.
pub(super) fn queue_size(
    common: &Registers,
    index: u16,
    wanted: usize,
    packed: bool,
) -> Result<u16, DeviceFault> {
    let queues = common.read16(NUM_QUEUES);
    if index >= queues {
        return Err(DeviceFault::BadValue {
            what: "a number of queues of",
            value: queues.into(),
            bound: "is less than its features need",
        });
    }
    common.write16(QUEUE_SELECT, index);
    let most = common.read16(QUEUE_SIZE);
    let right = if packed { most <= LARGEST_PACKED } else { most.is_power_of_two() };
    if most < 4 || !right {
        let bound = match packed {
            true => "must be 32768 at most, and 4 at least for frames of two parts",
            false => "must be a power of two, and 4 at least for frames of two parts",
        };
        return Err(DeviceFault::BadValue { what: "a queue size of", value: most.into(), bound });
    }
    Ok((wanted.clamp(4, 4096).next_power_of_two() as u16).min(most))
}

/// Step 7, one queue: tells the device where it lies, and enables it.
pub(super) fn enable_queue(
    structures: &Structures,
    queue: &impl Virtqueue,
    vector: Vector,
) -> Result<Registers, DeviceFault> {
    let common = &structures.common;
    common.write16(QUEUE_SELECT, queue.index());
    common.write16(QUEUE_SIZE, queue.size());
    common.write16(QUEUE_MSIX_VECTOR, vector.number());
    if common.read16(QUEUE_MSIX_VECTOR) != vector.number() {
        return Err(no_vector());
    }
    for (register, address) in [
        (QUEUE_DESC, queue.descriptor_area()),
        (QUEUE_DRIVER, queue.driver_area()),
        (QUEUE_DEVICE, queue.device_area()),
    ] {
        // 64-bit fields are written as two words (4.1.3.1).
        common.write32(register, address as u32);
        common.write32(register + 4, (address >> 32) as u32);
    }
    let notify = structures.notify_register(common.read16(QUEUE_NOTIFY_OFF))?;
    common.write16(QUEUE_ENABLE, 1);
    Ok(notify)
}

/// The vector of configuration changes.
pub(super) fn route_config(common: &Registers, vector: Vector) -> Result<(), DeviceFault> {
    common.write16(CONFIG_MSIX_VECTOR, vector.number());
    if common.read16(CONFIG_MSIX_VECTOR) == vector.number() { Ok(()) } else { Err(no_vector()) }
}

fn no_vector() -> DeviceFault {
    DeviceFault::Layout("the device has no resources for an MSI-X vector".to_owned())
}

/// Reads what is longer than a word of the device's configuration, all of one generation (4.1.4.3.1).
pub(super) fn consistent<T>(common: &Registers, read: impl Fn() -> T) -> Result<T, DeviceFault> {
    for _ in 0..100 {
        let before = common.read8(CONFIG_GENERATION);
        let value = read();
        if common.read8(CONFIG_GENERATION) == before {
            return Ok(value);
        }
    }
    Err(DeviceFault::Layout("the device's configuration does not stop changing".to_owned()))
}
