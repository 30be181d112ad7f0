//! The chip apart from its rings: reset, station address, link, filters, interrupts, counters.

use std::time::{Duration, Instant};

use super::regs::{self, ALL_ONES, Cause, Ctrl, Eerd, Rctl, Status, Tctl};
use crate::DeviceFault;
use crate::mmio::Registers;
use crate::nic::{Link, MacAddress, RxFilter};

/// How long [`Ctrl::RST`] and EEPROM reads may take; the manual's figures are below 20 ms.
const PATIENCE: Duration = Duration::from_millis(100);

/// Stops both rings and all interrupts, then resets the chip.
///
/// QEMU's model takes the reset bit and does nothing, which is why everything is stopped by its own register
/// too, and set up anew afterwards without trust in defaults.
pub(super) fn reset(regs: &Registers) -> Result<(), DeviceFault> {
    status(regs)?;
    regs.write32(regs::IMC, regs::ALL_CAUSES);
    regs.write32(regs::RCTL, 0);
    regs.write32(regs::TCTL, 0);
    // Only power-on divides the packet buffer anew, and a driver before us may have done so; what is written here counts
    // from the reset on (13.4.16).
    regs.write32(regs::PBA, regs::PBA_DEFAULT);
    let ctrl = Ctrl::from_bits_retain(regs.read32(regs::CTRL));
    regs.write32(regs::CTRL, (ctrl | Ctrl::RST).bits());
    // Registers must not be touched for 1 us (13.4.1); the EEPROM's content is loaded meanwhile.
    std::thread::sleep(Duration::from_millis(2));
    wait("a reset of the chip", || {
        Ok((!Ctrl::from_bits_retain(live(regs, regs::CTRL)?).contains(Ctrl::RST)).then_some(()))
    })?;
    regs.write32(regs::IMC, regs::ALL_CAUSES);
    regs.read32(regs::ICR);
    Ok(())
}

/// Asks for the link, and sets what both directions share.
pub(super) fn set_up(regs: &Registers, mac: MacAddress) {
    let ctrl = Ctrl::from_bits_retain(regs.read32(regs::CTRL));
    let off = Ctrl::LRST | Ctrl::ILOS | Ctrl::FRCSPD | Ctrl::FRCDPLX | Ctrl::PHY_RST | Ctrl::VME;
    regs.write32(regs::CTRL, ((ctrl | Ctrl::SLU | Ctrl::ASDE | Ctrl::FD) - off).bits());
    let [a, b, c, d, e, f] = mac.0;
    regs.write32(regs::RAL, u32::from_le_bytes([a, b, c, d]));
    regs.write32(regs::RAH, u32::from_le_bytes([e, f, 0, 0]) | regs::RAH_AV);
    for n in 0..regs::MTA_WORDS {
        regs.write32(regs::MTA + 4 * n, 0);
    }
    // Interrupts at once: they are on only while somebody sleeps.
    for delay in [regs::RDTR, regs::RADV, regs::ITR] {
        regs.write32(delay, 0);
    }
    // Counters of before.
    for counter in [regs::MPC, regs::CRCERRS, regs::RXERRC, regs::ROC] {
        regs.read32(counter);
    }
    regs.write32(regs::TIPG, regs::TIPG_COPPER);
}

/// Starts the transmitter.
pub(super) fn enable_transmit(regs: &Registers) {
    regs.write32(regs::TCTL, (Tctl::EN | Tctl::PSP | Tctl::CT | Tctl::COLD).bits());
}

/// Starts the receiver; `frames` is what RCTL has of their length and the buffers'. In QEMU it is deaf for a second after
/// each such write.
pub(super) fn enable_receive(regs: &Registers, filter: RxFilter, frames: Rctl) {
    let mut rctl = Rctl::EN | Rctl::BAM | Rctl::SECRC | frames;
    rctl.set(Rctl::UPE, filter.promiscuous);
    rctl.set(Rctl::MPE, filter.promiscuous || filter.all_multicast);
    regs.write32(regs::RCTL, rctl.bits());
}

/// The station address: as the chip was told it (receive address 0), or as its EEPROM has it.
pub(super) fn station_address(regs: &Registers) -> Result<MacAddress, DeviceFault> {
    let (low, high) = (regs.read32(regs::RAL), regs.read32(regs::RAH));
    let ([a, b, c, d], [e, f, ..]) = (low.to_le_bytes(), high.to_le_bytes());
    let loaded = MacAddress([a, b, c, d, e, f]);
    if high & regs::RAH_AV != 0 && loaded.is_unicast() {
        return Ok(loaded);
    }
    let mut bytes = [0; 6];
    for (word, pair) in bytes.chunks_exact_mut(2).enumerate() {
        pair.copy_from_slice(&eeprom_word(regs, word as u8)?.to_le_bytes());
    }
    let stored = MacAddress(bytes);
    if stored.is_unicast() {
        Ok(stored)
    } else {
        Err(DeviceFault::Layout(format!("the EEPROM's station address is {stored}, which names no station")))
    }
}

fn eeprom_word(regs: &Registers, word: u8) -> Result<u16, DeviceFault> {
    regs.write32(regs::EERD, Eerd::START.bits() | u32::from(word) << 8);
    wait("reading the EEPROM", || {
        let value = live(regs, regs::EERD)?;
        Ok(Eerd::from_bits_retain(value).contains(Eerd::DONE).then_some((value >> 16) as u16))
    })
}

/// The link, by the status register.
pub(super) fn link(regs: &Registers) -> Result<Link, DeviceFault> {
    let status = status(regs)?;
    let speed = if status.contains(Status::SPEED_1000) {
        1000
    } else if status.contains(Status::SPEED_100) {
        100
    } else {
        10
    };
    let up = status.contains(Status::LU);
    Ok(Link { up, speed: up.then_some(speed), full_duplex: up.then_some(status.contains(Status::FD)) })
}

/// Checks that the receiver is on, as it is from start to stop: a reset, by whomever, switches it off.
pub(super) fn check(regs: &Registers) -> Result<(), DeviceFault> {
    let rctl = live(regs, regs::RCTL).map(Rctl::from_bits_retain)?;
    if rctl.contains(Rctl::EN) { Ok(()) } else { Err(DeviceFault::WasReset) }
}

/// Enables the interrupts of a received frame and of a link change; what was latched is gone.
pub(super) fn unmask(regs: &Registers) {
    regs.read32(regs::ICR);
    regs.write32(regs::IMS, (Cause::RXT0 | Cause::RXO | Cause::RXDMT0 | Cause::LSC).bits());
}

/// Disables all interrupts, and takes the line down.
pub(super) fn mask(regs: &Registers) {
    regs.write32(regs::IMC, regs::ALL_CAUSES);
    regs.read32(regs::ICR);
}

/// A counter that reading clears. All-ones is no count, but a device that cannot be reached.
pub(super) fn counted(regs: &Registers, counter: usize) -> u64 {
    match regs.read32(counter) {
        ALL_ONES => 0,
        count => count.into(),
    }
}

fn status(regs: &Registers) -> Result<Status, DeviceFault> {
    live(regs, regs::STATUS).map(Status::from_bits_retain)
}

/// A register that is never all-ones.
fn live(regs: &Registers, register: usize) -> Result<u32, DeviceFault> {
    match regs.read32(register) {
        ALL_ONES => Err(DeviceFault::Gone),
        value => Ok(value),
    }
}

fn wait<T>(what: &str, mut poll: impl FnMut() -> Result<Option<T>, DeviceFault>) -> Result<T, DeviceFault> {
    let start = Instant::now();
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
        }
        if start.elapsed() > PATIENCE {
            return Err(DeviceFault::Layout(format!(
                "{what} did not end within {} ms",
                PATIENCE.as_millis()
            )));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
