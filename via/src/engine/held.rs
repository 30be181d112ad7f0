//! Frames of RDMA writes that came early.
//!
//! A program may watch memory for what its peer writes, so that writes become visible in order, even where a
//! frame got lost. What came too early is kept here (and copied once more: it happens on a bad wire only); when
//! there is no room the frame is forgotten, and comes again.

use uvia_driver::nic::RxFrame;

/// Payloads of a few frames, of all connections together.
pub(super) struct Held {
    memory: Vec<u8>,
    size: usize,
    free: Vec<u16>,
}

/// Most frames that are kept.
const SLOTS: usize = 128;

impl Held {
    /// Room for frames of `size` bytes, or for none on a wire that keeps them in order.
    pub(super) fn new(size: usize, lossless: bool) -> Self {
        let slots = if lossless { 0 } else { SLOTS };
        Self { memory: vec![0; slots * size], size, free: (0..slots as u16).rev().collect() }
    }

    /// Keeps a frame's payload.
    pub(super) fn keep(&mut self, frame: &RxFrame<'_>, from: usize, len: usize) -> Option<u16> {
        if len > self.size {
            return None;
        }
        let slot = self.free.pop()?;
        let start = slot as usize * self.size;
        if frame.read(from, &mut self.memory[start..start + len]) {
            return Some(slot);
        }
        self.free.push(slot);
        None
    }

    /// What is kept there.
    pub(super) fn bytes(&self, slot: u16, len: usize) -> &[u8] {
        let start = slot as usize * self.size;
        &self.memory[start..start + len]
    }

    /// No longer needed.
    pub(super) fn release(&mut self, slot: u16) {
        self.free.push(slot);
    }

    #[cfg(test)]
    pub(super) fn is_unused(&self) -> bool {
        self.free.len() * self.size == self.memory.len()
    }
}
