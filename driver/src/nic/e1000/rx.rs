//! The receive ring.

use std::sync::Arc;

use super::descriptor::{DD, EOP, RxError, RxWord, SIZE, WORD};
use super::regs::{self, Rctl};
use crate::dma::{DmaDomain, DmaMemory, Rights};
use crate::mmio::Registers;
use crate::nic::length::{ETHERNET_HEADER, MTU, TAG};
use crate::nic::{NicStatistics, RxFrame, order};
use crate::{DeviceFault, Result};

/// Bytes of receive buffers, and how RCTL asks for them (13.4.22).
const BUFFERS: [(usize, Rctl); 3] = [
    (2048, Rctl::empty()),
    (4096, Rctl::BSEX.union(Rctl::BSIZE_4096)),
    (8192, Rctl::BSEX.union(Rctl::BSIZE_8192)),
];
/// Large buffers lie a cache line further apart than they are long: otherwise the first lines of all of them, where short
/// frames lie, would share a few places of the cache.
const LINE: usize = 64;

/// Descriptors given back at a time, at most. Each write of RDT wakes QEMU's main loop, which then contends
/// for the lock that the next register write needs: many at a time make frames cheaper. A small ring gives
/// back a quarter of itself at a time, so that the device always has three quarters.
const BATCH: usize = 32;

/// Descriptors, each with its own buffer for good.
pub(super) struct RxRing {
    descriptors: DmaMemory,
    buffers: DmaMemory,
    /// Bytes of a buffer, and those from one to the next.
    buffer: usize,
    stride: usize,
    /// What RCTL has of all that.
    frames: Rctl,
    /// The longest frame that is handed on, but for a tag.
    max_frame: usize,
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
    /// With buffers for frames of at most `max_frame` bytes, which is no more than the largest kind holds.
    pub(super) fn new(domain: &Arc<dyn DmaDomain>, size: usize, max_frame: usize) -> Result<Self> {
        let [usual, .., largest] = BUFFERS;
        let fitting = BUFFERS.into_iter().find(|(bytes, _)| max_frame + TAG <= *bytes);
        let (buffer, mut frames) = fitting.unwrap_or(largest);
        let stride = if buffer == usual.0 { buffer } else { buffer + LINE };
        frames.set(Rctl::LPE, max_frame > MTU + ETHERNET_HEADER);
        Ok(Self {
            descriptors: DmaMemory::allocate(domain.clone(), size * SIZE, Rights::READ | Rights::WRITE)?,
            buffers: DmaMemory::allocate(domain.clone(), size * stride, Rights::WRITE)?,
            buffer,
            stride,
            frames,
            max_frame: max_frame.min(buffer - TAG),
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

    /// The longest frame that there is room for.
    pub(super) fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// What RCTL has of the length of frames and of buffers.
    pub(super) fn frames(&self) -> Rctl {
        self.frames
    }

    /// Sets the device's registers, and our record, to a ring of empty buffers. The device is not receiving.
    pub(super) fn start(&mut self, regs: &Registers) {
        for n in 0..self.size {
            let buffer = self.buffers.iova() + (n * self.stride) as u64;
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
            if length == 0 || length > self.buffer {
                return Err(DeviceFault::BadValue {
                    what: "a receive length of",
                    value: length as u64,
                    bound: "must be 1 to a buffer's size (2048, 4096 or 8192)",
                });
            }
            let end = word.status & EOP != 0;
            // SAFETY: buffer `at` of `self.buffers`, of which `length` bytes are at most all (checked above); mapped while
            // `self` is, which outlives the call.
            let frame = unsafe { RxFrame::from_raw(self.buffers.as_ptr().add(at * self.stride), length) };
            if self.overlong || !end {
                // Counted once, at its end.
                statistics.rx_errors += u64::from(end);
                self.overlong = !end;
            } else if RxError::from_bits_truncate(word.errors).is_empty() && frame.fits(self.max_frame) {
                statistics.rx_frames += 1;
                statistics.rx_bytes += length as u64;
                frames += 1;
                sink(frame);
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
