//! The transmit queue (VIRTIO 1.2, 5.1.6.2).

use std::sync::Arc;

use super::header::HEADER;
use super::queue::{Access, Virtqueue};
use crate::dma::{DmaDomain, DmaMemory, DmaSegment, Rights};
use crate::nic::frame::FrameSize;
use crate::nic::place::Shared;
use crate::nic::{NicStatistics, TxFrame};
use crate::{DeviceFault, Result};

/// A chain a frame: the header, then the caller's segments.
pub(super) struct TxQueue<Q> {
    pub(super) queue: Q,
    /// Twelve zero bytes: the header of every frame, since all are alike.
    _zeros: DmaMemory,
    header: DmaSegment,
    /// By head of chain.
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    token: u64,
    bytes: usize,
    parts: u16,
}

impl<Q: Virtqueue> TxQueue<Q> {
    pub(super) fn new(
        of: &<Q::Memory as Shared>::Of,
        domain: &Arc<dyn DmaDomain>,
        device: &str,
        index: u16,
        size: u16,
    ) -> Result<Self> {
        let zeros = DmaMemory::allocate(domain.clone(), HEADER, Rights::READ)?;
        Ok(Self {
            queue: Q::new(of, domain, device, index, size)?,
            header: zeros.segment(0..HEADER)?,
            _zeros: zeros,
            slots: vec![Slot::default(); size.into()].into(),
        })
    }

    /// Frames of one segment that fit.
    pub(super) fn capacity(&self) -> usize {
        usize::from(self.queue.size()) / 2
    }

    /// Puts a frame of checked size; false when it does not fit.
    #[inline]
    pub(super) fn put(&mut self, frame: &TxFrame<'_>, size: FrameSize) -> bool {
        // At most max_segments, and a header.
        let parts = size.segments as u16 + 1;
        let segments = frame.segments.iter().filter(|s| !s.is_empty());
        let buffers = std::iter::once(&self.header).chain(segments).map(|s| (*s, Access::DeviceReads));
        let Some(head) = self.queue.add(parts, buffers) else { return false };
        self.slots[usize::from(head)] = Slot { token: frame.token, bytes: size.bytes, parts };
        true
    }

    /// Shows the device what was put, and notifies it if it wants that.
    #[inline]
    pub(super) fn flush(&mut self, statistics: &mut NicStatistics) {
        self.queue.show();
        statistics.doorbells += u64::from(self.queue.notify());
    }

    /// Hands back the tokens of frames done with, in the device's order.
    #[inline]
    pub(super) fn reclaim(
        &mut self,
        statistics: &mut NicStatistics,
        done: &mut dyn FnMut(u64),
    ) -> std::result::Result<usize, DeviceFault> {
        let mut frames = 0;
        // The length says nothing: there is nothing in the chain that the device could have written.
        while let Some(used) = self.queue.take()? {
            let slot = self.slots[usize::from(used.head)];
            self.queue.release(used.head, slot.parts);
            frames += 1;
            statistics.tx_frames += 1;
            statistics.tx_bytes += slot.bytes as u64;
            done(slot.token);
        }
        if frames > 0 {
            self.queue.silence();
        }
        Ok(frames)
    }

    /// Tokens of all frames in the queue, which then is empty: after the device was reset.
    pub(super) fn abandon(&mut self, dropped: &mut Vec<u64>) {
        dropped.extend(self.queue.heads().map(|head| self.slots[usize::from(head)].token));
        self.queue.restart(false);
    }
}
