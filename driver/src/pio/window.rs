//! A window, and its slots.

use std::ops::Range;
use std::sync::Arc;

use super::lease::Lease;
use super::memory::{AdapterMemory, SLOT, SLOTS};
use super::store::{self, WORD};
use crate::dma::{DmaRegion, DmaSegment};

/// A window of adapter memory that is ours, mapped for our NIC to fetch from. Given back when dropped.
///
/// # Before it is dropped
/// The NIC is done with all frames of it, or quiet: as for [`crate::dma::DmaMemory`]. Where frames are in flight still,
/// it is unmapped all the same, and given to others only once it is seen that the NIC has stopped.
pub struct Window {
    // Unmapped for the NIC first, and then given back.
    region: DmaRegion,
    lease: Lease,
    /// A bit a slot: a NIC may fetch from it.
    flying: u16,
}

const _: () = assert!(SLOTS == u16::BITS as usize && SLOT.is_multiple_of(64));

impl Window {
    pub(super) fn new(region: DmaRegion, lease: Lease) -> Self {
        Self { region, lease, flying: 0 }
    }

    /// Which of the memory's windows it is.
    pub fn number(&self) -> usize {
        self.lease.windows().start
    }

    /// Where in the memory it begins, bytes: for whoever looks at the memory from its other side.
    pub fn offset(&self) -> usize {
        self.memory().window_at(self.number())
    }

    /// The memory that it is a window of.
    pub fn memory(&self) -> &Arc<AdapterMemory> {
        self.lease.memory()
    }

    /// A slot to write a frame into; `None` while one that was put there is in flight, and where there is no such slot.
    #[inline(always)]
    pub fn slot(&mut self, number: usize) -> Option<Slot<'_>> {
        if number >= SLOTS || self.flying & 1 << number != 0 {
            return None;
        }
        let offset = number * SLOT;
        Some(Slot {
            at: self.region.as_ptr().wrapping_add(offset),
            iova: self.region.iova() + offset as u64,
            bit: 1 << number,
            flying: &mut self.flying,
        })
    }

    /// Whether a frame in that slot is in flight.
    pub fn is_flying(&self, number: usize) -> bool {
        number < SLOTS && self.flying & 1 << number != 0
    }

    /// The NIC was reset, or closed: it fetches from none of the slots any more.
    pub fn quieted(&mut self) {
        self.flying = 0;
    }

    /// The NIC is done with the frame in that slot ([`crate::nic::Nic::reclaim`] gave its token back): it may be written
    /// again.
    #[inline(always)]
    pub fn landed(&mut self, number: usize) {
        if number < SLOTS {
            self.flying &= !(1 << number);
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.lease.in_use = self.flying != 0;
    }
}

/// A slot that no NIC fetches from now. Its memory is written by whole words and never read.
pub struct Slot<'a> {
    at: *mut u8,
    iova: u64,
    bit: u16,
    flying: &'a mut u16,
}

impl Slot<'_> {
    /// Stores little-endian words.
    ///
    /// # Panics
    /// When `at` is no multiple of 8, or they do not fit.
    #[inline(always)]
    pub fn put_words<const N: usize>(&mut self, at: usize, words: &[u64; N]) {
        self.check(at, N * WORD);
        // SAFETY: within the slot, as was checked, which lies within the window, mapped while `self` borrows it; slots
        // begin at multiples of their size from the start of a page.
        unsafe { store::words(self.at.add(at), words) }
    }

    /// Stores bytes; the last word is filled up with zeros.
    ///
    /// # Panics
    /// When `at` is no multiple of 8, or they do not fit.
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: a slice is mapped.
        unsafe { self.put_from(at, bytes.as_ptr(), bytes.len()) }
    }

    /// As [`Slot::put`], from raw memory.
    ///
    /// # Panics
    /// As [`Slot::put`].
    ///
    /// # Safety
    /// `[from, from + len)` is mapped, and no part of the window.
    #[inline(always)]
    pub unsafe fn put_from(&mut self, at: usize, from: *const u8, len: usize) {
        self.check(at, len);
        // SAFETY: as for `put_words`: a slot is made of whole words, so that the last one fits too. The caller vouches for
        // the source.
        unsafe { store::bytes(self.at.add(at), from, len) }
    }

    /// Stores bytes that end at `end`; the first word is filled up with zeros. Answers where they begin.
    ///
    /// # Panics
    /// When `end` is no multiple of 8, or they do not fit before it.
    #[inline]
    pub fn put_before(&mut self, end: usize, bytes: &[u8]) -> usize {
        let whole = bytes.len().next_multiple_of(WORD);
        assert!(whole <= end, "{} bytes do not fit before {end}", bytes.len());
        self.check(end - whole, whole);
        let (first, rest) = bytes.split_at(bytes.len() % WORD);
        if !first.is_empty() {
            let mut word = [0; WORD];
            word[WORD - first.len()..].copy_from_slice(first);
            self.put_words(end - whole, &[u64::from_le_bytes(word)]);
        }
        self.put(end - rest.len(), rest);
        end - bytes.len()
    }

    /// The slot's bytes of this range, for a NIC's descriptor. All that was stored is on its way to the memory before this
    /// returns, and the slot is in flight from now on, until [`Window::landed`].
    ///
    /// # Panics
    /// When the range does not lie within the slot.
    #[inline(always)]
    pub fn send(self, range: Range<usize>) -> DmaSegment {
        assert!(range.start <= range.end && range.end <= SLOT);
        store::fence();
        *self.flying |= self.bit;
        DmaSegment::new(self.iova + range.start as u64, (range.end - range.start) as u32)
    }

    #[inline(always)]
    fn check(&self, at: usize, len: usize) {
        assert!(at.is_multiple_of(WORD) && at <= SLOT && len <= SLOT - at);
    }
}
