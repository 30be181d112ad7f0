//! Adapter memory that a NIC's transmit ring lies in.

use super::lease::Lease;
use super::store::{self, WORD};
use crate::dma::DmaRegion;

/// Neighbouring windows of an adapter memory, for a ring: all zeros at first. Written by whole, aligned words, out of a
/// copy in the host's memory where a part of a word changes: what the driver wrote is never read back. What the device
/// wrote there can be read, and each read waits for the bus.
///
/// # Before it is dropped
/// As for a window ([`super::Window`]); [`RingMemory::set_in_use`] says when a NIC may reach for it.
pub struct RingMemory {
    // Unmapped for the NIC first, and then given back.
    region: DmaRegion,
    lease: Lease,
    /// What was stored last.
    shadow: Box<[u64]>,
}

impl RingMemory {
    pub(super) fn new(region: DmaRegion, lease: Lease) -> Self {
        let shadow = vec![0; region.len() / WORD].into();
        Self { region, lease, shadow }
    }

    /// The I/O virtual address of its first byte.
    pub fn iova(&self) -> u64 {
        self.region.iova()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Where in the adapter memory it begins, bytes: for whoever looks at the memory from its other side.
    pub fn offset(&self) -> usize {
        self.lease.memory().window_at(self.lease.windows().start)
    }

    /// The adapter memory's name.
    pub fn memory(&self) -> &str {
        self.lease.memory().name()
    }

    /// Whether a NIC may reach for it. One that is dropped while it may is given to others only once it is seen that the
    /// NIC has stopped.
    pub fn set_in_use(&mut self, in_use: bool) {
        self.lease.in_use = in_use;
    }

    /// Stores a word, little-endian.
    ///
    /// # Panics
    /// When `at` is no multiple of 8, or lies beyond the end.
    #[inline]
    pub fn store(&mut self, at: usize, word: u64) {
        assert!(at.is_multiple_of(WORD));
        self.shadow[at / WORD] = word;
        self.put(at);
    }

    /// Stores two bytes, little-endian, by a word that has the others as they were stored last.
    ///
    /// # Panics
    /// When `at` is no multiple of 2, or lies beyond the end.
    #[inline]
    pub fn store16(&mut self, at: usize, value: u16) {
        assert!(at.is_multiple_of(2));
        let shift = at % WORD * 8;
        let word = &mut self.shadow[at / WORD];
        *word = *word & !(0xffff << shift) | u64::from(value) << shift;
        self.put(at / WORD * WORD);
    }

    #[inline]
    fn put(&mut self, at: usize) {
        // SAFETY: the shadow has as many words as the region, and was indexed; the region is mapped while `self` is, and
        // begins at a page.
        unsafe { store::words(self.region.as_ptr().add(at), &[self.shadow[at / WORD]]) }
    }

    /// Loads a word that the device writes, little-endian: a round trip over the bus.
    ///
    /// # Panics
    /// When `at` is no multiple of 8, or lies beyond the end.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(WORD) && at < self.region.len());
        // SAFETY: within the region, whose length is a multiple of the page size, and aligned.
        u64::from_le(unsafe { self.region.as_ptr().add(at).cast::<u64>().read_volatile() })
    }

    /// All that was stored is on its way to the memory before anything that is stored after this.
    #[inline]
    pub fn fence() {
        store::fence();
    }
}
