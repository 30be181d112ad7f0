//! The receive ring.

use std::sync::Arc;

use super::descriptor::{DD, EOP, RxError, RxWord, SIZE, WORD};
use super::regs;
use crate::dma::{DmaDomain, DmaMemory, Rights};
use crate::mmio::Registers;
use crate::nic::{NicStatistics, RxFrame, order};
use crate::{DeviceFault, Result};

/// Bytes of a receive buffer: what RCTL asks for with BSIZE and BSEX 0.
const BUFFER: usize = 2048;

/// Descriptors given back at a time, at most. Each write of RDT wakes QEMU's main loop, which then contends
/// for the lock that the next register write needs: many at a time make frames cheaper. A small ring gives
/// back a quarter of itself at a time, so that the device always has three quarters.
const BATCH: usize = 32;

/// Descriptors, each with its own buffer for good.
pub(super) struct RxRing {
    descriptors: DmaMemory,
    buffers: DmaMemory,
    size: usize,
    /// The next descriptor that the device will write.
    next: usize,
    /// What the device was last told, RDT: the one descriptor that it may not use.
    tail: usize,
    /// Descriptors taken and not yet given back: those behind `tail`.
    taken: usize,
    batch: usize,
    /// In the middle of a frame that is longer than a buffer, which is dropped.
    overlong: bool,
}

impl RxRing {
    pub(super) fn new(domain: &Arc<dyn DmaDomain>, size: usize) -> Result<Self> {
        Ok(Self {
            descriptors: DmaMemory::allocate(domain.clone(), size * SIZE, Rights::READ | Rights::WRITE)?,
            buffers: DmaMemory::allocate(domain.clone(), size * BUFFER, Rights::WRITE)?,
            size,
            next: 0,
            tail: 0,
            taken: 0,
            batch: BATCH.min(size / 4).max(1),
            overlong: false,
        })
    }

    /// Buffers that the device can have at a time: a tail that equals the head means none.
    pub(super) fn capacity(&self) -> usize {
        self.size - 1
    }

    /// Sets the device's registers, and our record, to a ring of empty buffers. The device is not receiving.
    pub(super) fn start(&mut self, regs: &Registers) {
        for n in 0..self.size {
            let buffer = self.buffers.iova() + (n * BUFFER) as u64;
            self.descriptors.write(n * SIZE, buffer.to_le());
            self.descriptors.write(n * SIZE + WORD, 0u64);
        }
        (self.next, self.tail, self.taken, self.overlong) = (0, self.size - 1, 0, false);
        order::before_doorbell();
        let base = self.descriptors.iova();
        regs.write32(regs::RDBAL, base as u32);
        regs.write32(regs::RDBAH, (base >> 32) as u32);
        regs.write32(regs::RDLEN, (self.size * SIZE) as u32);
        regs.write32(regs::RDH, 0);
        regs.write32(regs::RDT, self.tail as u32);
    }

    /// Takes up to `budget` frames. Descriptors with frames in error count against it too, so that a device
    /// that writes nothing else does not keep us here.
    #[inline]
    pub(super) fn receive(
        &mut self,
        budget: usize,
        regs: &Registers,
        statistics: &mut NicStatistics,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> std::result::Result<usize, DeviceFault> {
        let mut frames = 0;
        for _ in 0..budget {
            let at = self.next;
            let word = RxWord::from_memory(self.descriptors.read(at * SIZE + WORD));
            if word.status & DD == 0 {
                break;
            }
            order::after_done();
            let length = usize::from(word.length.get());
            if length == 0 || length > BUFFER {
                return Err(DeviceFault::BadValue {
                    what: "a receive length of",
                    value: length as u64,
                    bound: "must be 1 to 2048, a buffer's size",
                });
            }
            let end = word.status & EOP != 0;
            if self.overlong || !end {
                // Counted once, at its end.
                statistics.rx_errors += u64::from(end);
                self.overlong = !end;
            } else if RxError::from_bits_truncate(word.errors).is_empty() {
                statistics.rx_frames += 1;
                statistics.rx_bytes += length as u64;
                frames += 1;
                // SAFETY: buffer `at` of `self.buffers`, BUFFER bytes long, of which `length` are at most all;
                // mapped while `self` is, which outlives the call.
                sink(unsafe { RxFrame::from_raw(self.buffers.as_ptr().add(at * BUFFER), length) });
            } else {
                statistics.rx_errors += 1;
            }
            self.descriptors.write(at * SIZE + WORD, 0u64);
            self.next = self.after(at, 1);
            self.taken += 1;
            if self.taken >= self.batch {
                self.give_back(regs, statistics)?;
            }
        }
        Ok(frames)
    }

    /// Gives all taken buffers back to the device.
    fn give_back(
        &mut self,
        regs: &Registers,
        statistics: &mut NicStatistics,
    ) -> std::result::Result<(), DeviceFault> {
        let gap = self.tail;
        if RxWord::from_memory(self.descriptors.read(gap * SIZE + WORD)).status & DD != 0 {
            return Err(DeviceFault::BadValue {
                what: "done (DD) on receive descriptor",
                value: gap as u64,
                bound: "it was not given",
            });
        }
        self.tail = self.after(gap, self.taken);
        self.taken = 0;
        order::before_doorbell();
        regs.write32(regs::RDT, self.tail as u32);
        statistics.doorbells += 1;
        Ok(())
    }

    fn after(&self, at: usize, count: usize) -> usize {
        let n = at + count;
        if n >= self.size { n - self.size } else { n }
    }
}
