//! The transmit ring.

use std::collections::VecDeque;
use std::sync::Arc;

use super::descriptor::{DD, SIZE, TxCommand, TxWord, WORD};
use super::regs;
use crate::dma::{DmaDomain, Rights};
use crate::mmio::Registers;
use crate::nic::frame::FrameSize;
use crate::nic::place::Shared;
use crate::nic::{NicStatistics, TxFrame, order};
use crate::{DeviceFault, Result};

/// Descriptors, and our own record of what we put into them: the device's copy is never read back but for the
/// DD bit.
///
/// The device is asked to report (RS) once a flush, on the last frame, and at least once a quarter of a ring:
/// it works in order, so that one report stands for all before it, and each costs it a write to memory.
pub(super) struct TxRing<M> {
    descriptors: M,
    size: usize,
    /// The next descriptor to fill.
    next: usize,
    /// What the device was last told, TDT.
    told: usize,
    /// The oldest descriptor that the device may refer to.
    clean: usize,
    /// From `clean` to `next`.
    used: usize,
    slots: Box<[Slot]>,
    /// Descriptors with RS, oldest first.
    reports: VecDeque<usize>,
    /// The last frame's last descriptor while it lacks RS, with its content.
    silent_end: Option<(usize, TxWord)>,
    /// Descriptors filled since the last one with RS.
    silent: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    token: u64,
    bytes: usize,
    /// The frame's last descriptor.
    end: bool,
}

impl<M: Shared> TxRing<M> {
    /// The device writes its reports into the ring: it needs both rights.
    pub(super) fn new(of: &M::Of, domain: &Arc<dyn DmaDomain>, device: &str, size: usize) -> Result<Self> {
        let descriptors = M::allocate(of, domain, device, size * SIZE, Rights::READ | Rights::WRITE)?;
        Ok(Self {
            descriptors,
            size,
            next: 0,
            told: 0,
            clean: 0,
            used: 0,
            slots: vec![Slot::default(); size].into(),
            reports: VecDeque::with_capacity(size),
            silent_end: None,
            silent: 0,
        })
    }

    /// Frames that fit. One descriptor stays empty: a tail that equals the head means an empty ring.
    pub(super) fn capacity(&self) -> usize {
        self.size - 1
    }

    /// The adapter memory that it lies in, where it does.
    pub(super) fn memory(&self) -> Option<&str> {
        self.descriptors.memory()
    }

    /// The device was stopped for good.
    pub(super) fn let_go(&mut self) {
        self.descriptors.set_in_use(false);
    }

    /// Sets the device's registers, and our record, to an empty ring. The device is not transmitting.
    pub(super) fn start(&mut self, regs: &Registers) {
        self.descriptors.set_in_use(true);
        for n in 0..self.size {
            self.descriptors.store(n * SIZE, 0);
            self.descriptors.store(n * SIZE + WORD, 0);
        }
        (self.next, self.told, self.clean, self.used, self.silent) = (0, 0, 0, 0, 0);
        self.reports.clear();
        self.silent_end = None;
        M::before_doorbell();
        let base = self.descriptors.iova();
        regs.write32(regs::TDBAL, base as u32);
        regs.write32(regs::TDBAH, (base >> 32) as u32);
        regs.write32(regs::TDLEN, (self.size * SIZE) as u32);
        regs.write32(regs::TDH, 0);
        regs.write32(regs::TDT, 0);
    }

    /// Puts a frame of checked size; false when it does not fit.
    #[inline]
    pub(super) fn put(&mut self, frame: &TxFrame<'_>, size: FrameSize) -> bool {
        if self.capacity() - self.used < size.segments {
            return false;
        }
        let mut left = size.segments;
        for segment in frame.segments.iter().filter(|s| !s.is_empty()) {
            left -= 1;
            let end = left == 0;
            let command = if end { TxCommand::IFCS | TxCommand::EOP } else { TxCommand::IFCS };
            let word = TxWord {
                // The whole frame is at most 8188 bytes: checked.
                length: (segment.len() as u16).into(),
                cmd: command.bits(),
                ..TxWord::default()
            };
            let at = self.next;
            self.descriptors.store(at * SIZE, segment.iova());
            self.descriptors.store(at * SIZE + WORD, u64::from_le(word.to_memory()));
            self.slots[at] = Slot { token: frame.token, bytes: size.bytes, end };
            if end {
                self.silent_end = Some((at, word));
            }
            self.next = self.after(at);
        }
        self.used += size.segments;
        self.silent += size.segments;
        if self.silent >= self.size / 4 {
            self.ask_for_report();
        }
        true
    }

    /// Sets RS on the last frame, which the device has not been told of yet.
    fn ask_for_report(&mut self) {
        if let Some((at, mut word)) = self.silent_end.take() {
            word.cmd |= TxCommand::RS.bits();
            self.descriptors.store(at * SIZE + WORD, u64::from_le(word.to_memory()));
            self.reports.push_back(at);
            self.silent = 0;
        }
    }

    /// Tells the device, if there is something to tell.
    #[inline]
    pub(super) fn flush(&mut self, regs: &Registers, statistics: &mut NicStatistics) {
        if self.told == self.next {
            return;
        }
        self.ask_for_report();
        M::before_doorbell();
        regs.write32(regs::TDT, self.next as u32);
        self.told = self.next;
        statistics.doorbells += 1;
    }

    /// Hands back the tokens of all frames that a report covers.
    #[inline]
    pub(super) fn reclaim(
        &mut self,
        statistics: &mut NicStatistics,
        done: &mut dyn FnMut(u64),
    ) -> std::result::Result<usize, DeviceFault> {
        let mut frames = 0;
        while let Some(&report) = self.reports.front() {
            if !self.is_done(report) {
                return Ok(frames);
            }
            if !self.is_told(report) {
                return Err(unasked(report));
            }
            self.reports.pop_front();
            // So that a DD seen here later is one that the device had no reason to write.
            self.descriptors.store(report * SIZE + WORD, 0);
            loop {
                let at = self.clean;
                let slot = self.slots[at];
                self.clean = self.after(at);
                self.used -= 1;
                if slot.end {
                    frames += 1;
                    statistics.tx_frames += 1;
                    statistics.tx_bytes += slot.bytes as u64;
                    done(slot.token);
                }
                if at == report {
                    break;
                }
            }
        }
        // Where looking costs a round trip over the bus, a lie of this kind is found out when there is a reason to look.
        if M::NEAR && self.used == 0 && self.is_done(self.clean) {
            return Err(unasked(self.clean));
        }
        Ok(frames)
    }

    /// Tokens of all frames in the ring, which then is empty: after the device was reset.
    pub(super) fn abandon(&mut self, dropped: &mut Vec<u64>) {
        while self.used > 0 {
            let slot = self.slots[self.clean];
            if slot.end {
                dropped.push(slot.token);
            }
            self.clean = self.after(self.clean);
            self.used -= 1;
        }
    }

    fn is_done(&self, at: usize) -> bool {
        let word = TxWord::from_memory(self.descriptors.load(at * SIZE + WORD).to_le());
        order::after_done();
        word.status & DD != 0
    }

    /// Whether the tail that the device knows lies beyond the descriptor, which is one in use.
    fn is_told(&self, at: usize) -> bool {
        let from_clean = |n: usize| if n >= self.clean { n - self.clean } else { n + self.size - self.clean };
        from_clean(at) < from_clean(self.told)
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.size { 0 } else { at + 1 }
    }
}

fn unasked(at: usize) -> DeviceFault {
    DeviceFault::BadValue {
        what: "done (DD) on transmit descriptor",
        value: at as u64,
        bound: "it was not asked to send",
    }
}
