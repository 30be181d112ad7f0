//! The receive queue (VIRTIO 1.2, 5.1.6.3).

use std::sync::Arc;

use super::header::HEADER;
use super::queue::{Access, Used, Virtqueue};
use crate::dma::{DmaDomain, DmaMemory, Rights};
use crate::nic::length::TAG;
use crate::nic::{NicStatistics, RxFrame};
use crate::{DeviceFault, Result};

/// Buffers shown to the device at a time while many are taken: a store, and mostly no notification.
const BATCH: usize = 32;

/// Buffers of one descriptor each, the chain with head `n` always with buffer `n`.
pub(super) struct RxQueue<Q> {
    pub(super) queue: Q,
    buffers: DmaMemory,
    buffer: usize,
    /// The longest frame that is handed on, but for a tag.
    max_frame: usize,
    /// An interrupt is wanted at the next frame.
    armed: bool,
}

impl<Q: Virtqueue<Memory = DmaMemory>> RxQueue<Q> {
    /// For frames of at most `max_frame` bytes.
    pub(super) fn new(domain: &Arc<dyn DmaDomain>, index: u16, size: u16, max_frame: usize) -> Result<Self> {
        // A byte more than the longest frame that is handed on needs: a device that cuts what does not fit is found out.
        let buffer = (HEADER + max_frame + TAG + 1).next_multiple_of(64).max(2048);
        Ok(Self {
            queue: Q::in_host(domain, index, size)?,
            buffers: DmaMemory::allocate(domain.clone(), usize::from(size) * buffer, Rights::WRITE)?,
            buffer,
            max_frame,
            armed: false,
        })
    }

    /// Asks for an interrupt at the next frame, or for none.
    pub(super) fn arm(&mut self, on: bool) {
        self.armed = on;
        if on { self.queue.listen() } else { self.queue.silence() }
    }

    /// Gives the device all buffers of a queue that was restarted.
    pub(super) fn fill(&mut self) -> Result<()> {
        self.armed = false;
        for n in 0..usize::from(self.queue.size()) {
            let buffer = self.buffers.segment(n * self.buffer..(n + 1) * self.buffer)?;
            let head = self.queue.add(1, std::iter::once((buffer, Access::DeviceWrites)));
            debug_assert_eq!(head, Some(n as u16));
        }
        self.queue.show();
        Ok(())
    }

    /// Takes up to `budget` frames; too short ones count against it too.
    #[inline]
    pub(super) fn receive(
        &mut self,
        budget: usize,
        statistics: &mut NicStatistics,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> std::result::Result<usize, DeviceFault> {
        let (mut frames, mut taken) = (0, 0);
        loop {
            let before = taken;
            while taken < budget {
                let Some(used) = self.queue.take()? else { break };
                frames += usize::from(self.pass_on(used, statistics, sink)?);
                self.queue.requeue(used.head);
                taken += 1;
                if taken % BATCH == 0 {
                    self.give_back(statistics);
                }
            }
            if taken == before {
                return Ok(frames);
            }
            self.give_back(statistics);
            if !self.armed {
                self.queue.silence();
                return Ok(frames);
            }
            // Still armed, so for the frame after these; what came before the device saw that is taken now.
            self.queue.listen();
        }
    }

    /// Checks a buffer's length, and shows the frame in it, if there is one.
    #[inline]
    fn pass_on(
        &self,
        used: Used,
        statistics: &mut NicStatistics,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> std::result::Result<bool, DeviceFault> {
        let written = used.written as usize;
        if written < HEADER || written > self.buffer {
            return Err(DeviceFault::BadValue {
                what: "a used length of",
                value: used.written.into(),
                bound: "must hold a header (12) and be no more than the buffer",
            });
        }
        let length = written - HEADER;
        let start = usize::from(used.head) * self.buffer + HEADER;
        // SAFETY: within buffer `head` of `self.buffers`, since `head` is a descriptor of ours (the queue
        // checked) and by the check of `written` above; mapped while `self` is, which outlives the call.
        let frame = unsafe { RxFrame::from_raw(self.buffers.as_ptr().add(start), length) };
        if length == 0 || !frame.fits(self.max_frame) {
            statistics.rx_errors += 1;
            return Ok(false);
        }
        statistics.rx_frames += 1;
        statistics.rx_bytes += length as u64;
        sink(frame);
        Ok(true)
    }

    /// Shows the device the buffers that were taken: free of cost, so that it is never late. A notification
    /// goes out only if the device had run dry and asks for it.
    fn give_back(&mut self, statistics: &mut NicStatistics) {
        self.queue.show();
        statistics.doorbells += u64::from(self.queue.notify());
    }
}
