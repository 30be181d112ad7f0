//! Intel 82540EM, QEMU's `e1000`.
//!
//! Legacy descriptors, one ring a direction, interrupts by INTx. The data path reads no register: what the
//! device has done is seen in the descriptors that it writes back, and what we did it learns by one write of a
//! tail register for many.

mod chip;
mod descriptor;
mod regs;
mod rx;
mod tx;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rx::RxRing;
use tx::TxRing;

use super::event::Event;
use super::health::Health;
use super::length::MTU;
use super::place::Shared;
use super::{Link, Nic, NicConfig, NicProperties, NicStatistics, RingPlace, RxFilter, RxFrame, TxFrame};
use crate::dma::DmaMemory;
use crate::mmio::Registers;
use crate::pci::{InterruptKind, PciDevice, config};
use crate::pio::RingMemory;
use crate::{DeviceFault, Result};

/// The ids that this driver is for.
pub(super) const IDS: &[(u16, u16)] = &[(0x8086, 0x100e)];

/// A frame of more segments would mostly be descriptors. Rings of 32 and more take as many.
const MAX_SEGMENTS: usize = 16;

/// The vendor of QEMU's subsystems.
const QEMU: u16 = 0x1af4;
/// QEMU's receiver takes nothing for 1 s after each write of RCTL, and what comes meanwhile waits. Others hear at once.
const DEAF_IN_QEMU: Duration = Duration::from_millis(1100);

/// An opened 82540EM.
struct E1000<M: Shared> {
    properties: NicProperties,
    regs: Registers,
    tx: TxRing<M>,
    rx: RxRing,
    statistics: NicStatistics,
    health: Health,
    /// Tokens of frames that a reset dropped, until they are reclaimed.
    dropped: Vec<u64>,
    event: Option<Event>,
    /// When the receiver was switched on (RCTL), and whether it has taken a frame since.
    listening: Instant,
    heard: bool,
    /// How long after that it takes nothing.
    deaf: Duration,
    /// Frames received and sent when the chip was last looked after.
    seen: u64,
    // Last: the device goes when nothing of it is in use, and its handle closes behind the rings' memory.
    device: Arc<dyn PciDevice>,
}

/// Brings the chip up.
pub(super) fn open(device: Arc<dyn PciDevice>, wanted: &NicConfig) -> Result<Box<dyn Nic>> {
    match &wanted.tx_ring_place {
        RingPlace::Host => build::<DmaMemory>(device, wanted, &()),
        RingPlace::Adapter(memory) => build::<RingMemory>(device, wanted, memory),
    }
}

/// Brings the chip up, with its transmit ring in such memory.
fn build<M: Shared + 'static>(
    device: Arc<dyn PciDevice>,
    wanted: &NicConfig,
    of: &M::Of,
) -> Result<Box<dyn Nic>> {
    let health = Health::new(device.name());
    let regs = Registers::open(&device, 0)?;
    if regs.len() < regs::LENGTH {
        let what = format!("BAR 0 has {:#x} bytes; the registers need {:#x}", regs.len(), regs::LENGTH);
        return Err(health.error(DeviceFault::Layout(what)));
    }
    chip::reset(&regs).map_err(|fault| health.error(fault))?;
    let mac = chip::station_address(&regs).map_err(|fault| health.error(fault))?;
    let deaf = match config::read_u16(&*device, config::SUBSYSTEM_VENDOR_ID)? {
        QEMU => DEAF_IN_QEMU,
        _ => Duration::ZERO,
    };
    let tx = TxRing::<M>::new(of, device.domain(), device.name(), ring_size(wanted.tx_ring))?;
    let rx = RxRing::new(device.domain(), ring_size(wanted.rx_ring), wanted.longest_frame()?)?;
    let event = (wanted.interrupts && device.interrupts().intx > 0).then(Event::new).transpose()?;
    let properties = NicProperties {
        device: device.name().to_owned(),
        driver: "e1000",
        mac,
        mtu: MTU,
        max_frame: rx.max_frame(),
        tx_slots: tx.capacity(),
        rx_slots: rx.capacity(),
        max_segments: MAX_SEGMENTS.min(tx.capacity()),
        tx_ring_memory: tx.memory().map(str::to_owned),
        lossless: false,
    };
    let mut nic = E1000 {
        dropped: Vec::with_capacity(tx.capacity()),
        properties,
        regs,
        tx,
        rx,
        statistics: NicStatistics::default(),
        health,
        event,
        listening: Instant::now(),
        heard: false,
        deaf,
        seen: 0,
        device,
    };
    nic.start()?;
    Ok(Box::new(nic))
}

/// Descriptors of a ring: its bytes are a multiple of 128 (13.4.27), which is 8 of them, at most 4096.
fn ring_size(wanted: usize) -> usize {
    wanted.clamp(8, 4096).next_multiple_of(8)
}

impl<M: Shared> E1000<M> {
    /// From a chip that was reset to one that sends and receives.
    fn start(&mut self) -> Result<()> {
        if let Some(event) = &self.event {
            self.device.enable_interrupts(InterruptKind::Intx, &[event.as_fd()])?;
        }
        chip::set_up(&self.regs, self.properties.mac);
        self.tx.start(&self.regs);
        self.rx.start(&self.regs);
        self.device.set_bus_master(true)?;
        chip::enable_transmit(&self.regs);
        self.listen(RxFilter::default());
        Ok(())
    }

    fn listen(&mut self, filter: RxFilter) {
        chip::enable_receive(&self.regs, filter, self.rx.frames());
        self.listening = Instant::now();
        self.heard = false;
    }

    /// Makes sure that the device touches no memory: by its own registers, then by the bus.
    fn quiesce(&mut self) -> Result<()> {
        let stopped = chip::reset(&self.regs);
        let silent = self.device.disable_interrupts(InterruptKind::Intx);
        let off_the_bus = self.device.set_bus_master(false);
        self.health.note(stopped).and(silent).and(off_the_bus)
    }

    fn count_by_registers(&mut self) {
        self.statistics.rx_missed += chip::counted(&self.regs, regs::MPC);
        for counter in [regs::CRCERRS, regs::RXERRC, regs::ROC] {
            self.statistics.rx_errors += chip::counted(&self.regs, counter);
        }
    }
}

impl<M: Shared> Nic for E1000<M> {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    fn link(&mut self) -> Result<Link> {
        self.health.check()?;
        let link = chip::link(&self.regs);
        self.health.note(link)
    }

    fn ready(&mut self) -> Result<bool> {
        Ok(self.link()?.up && (self.heard || self.listening.elapsed() >= self.deaf))
    }

    #[inline]
    fn transmit(&mut self, frame: &TxFrame<'_>) -> Result<bool> {
        self.health.check()?;
        let size = frame.check(&self.properties)?;
        if self.tx.put(frame, size) {
            return Ok(true);
        }
        // The device must know of what fills the ring, or waiting for room would be for ever.
        self.tx.flush(&self.regs, &mut self.statistics);
        Ok(false)
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        self.health.check()?;
        self.tx.flush(&self.regs, &mut self.statistics);
        Ok(())
    }

    #[inline]
    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> Result<usize> {
        self.health.check()?;
        let mut count = 0;
        while let Some(token) = self.dropped.pop() {
            done(token);
            count += 1;
        }
        let reclaimed = self.tx.reclaim(&mut self.statistics, done);
        Ok(count + self.health.note(reclaimed)?)
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Result<usize> {
        self.health.check()?;
        let received = self.rx.receive(budget, &self.regs, &mut self.statistics, sink);
        let frames = self.health.note(received)?;
        if frames == 0 && self.device.is_gone() {
            return Err(self.health.fail(DeviceFault::Gone));
        }
        self.heard |= frames > 0;
        Ok(frames)
    }

    fn look_after(&mut self) -> Result<()> {
        let frames = self.statistics.rx_frames.wrapping_add(self.statistics.tx_frames);
        match std::mem::replace(&mut self.seen, frames) == frames {
            true => {
                self.health.check()?;
                let runs = chip::check(&self.regs);
                self.health.note(runs)
            }
            false => self.health.check(),
        }
    }

    fn statistics(&mut self) -> NicStatistics {
        self.count_by_registers();
        self.statistics
    }

    /// Rewrites RCTL, after which QEMU's receiver is deaf for a second: [`Nic::ready`] is false until then.
    fn set_filter(&mut self, filter: RxFilter) -> Result<()> {
        self.health.check()?;
        self.listen(filter);
        Ok(())
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    fn arm(&mut self, on: bool) -> Result<()> {
        self.health.check()?;
        let Some(event) = &self.event else { return Ok(()) };
        // In this order: once the line is down and the counter 0, only what comes from here on is signalled.
        chip::mask(&self.regs);
        event.drain();
        if on {
            chip::unmask(&self.regs);
            self.device.unmask_intx()?;
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        self.count_by_registers();
        self.health.resetting();
        // A device that no longer answers its registers can still come back by a reset of the function.
        let quiet = self.quiesce();
        self.device.reset()?;
        if quiet.is_err() {
            let again = chip::reset(&self.regs);
            self.health.note(again)?;
        }
        self.tx.abandon(&mut self.dropped);
        self.start()?;
        self.health.recovered();
        Ok(())
    }
}

impl<M: Shared> Drop for E1000<M> {
    /// Before any field goes: no memory of the rings is given up that the device could still touch.
    fn drop(&mut self) {
        match self.quiesce() {
            Ok(()) => self.tx.let_go(),
            Err(e) => tracing::warn!(device = self.health.device(), "while closing: {e}"),
        }
    }
}
