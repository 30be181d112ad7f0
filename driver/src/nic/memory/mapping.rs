//! Memory that other processes write at any time.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

/// A mapped part of a segment's file, which is sealed: it neither shrinks nor grows, so that no access faults.
///
/// Its bytes are reached by atomic words and by raw copies, never by reference: to the language, another process is a
/// thread that keeps no rules.
pub(super) struct Mapping {
    map: MmapRaw,
}

impl Mapping {
    /// Maps `len` bytes from `offset` on, which is a multiple of pages.
    pub(super) fn new(file: &File, offset: usize, len: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().offset(offset as u64).len(len).map_raw(file)? })
    }

    /// The word at `offset`, a multiple of 8.
    ///
    /// # Panics
    /// When it does not lie within.
    #[inline(always)]
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.map.len() && self.map.len() - offset >= 8);
        // SAFETY: within the mapping (checked), which lives as long as `self` and begins at a page; it is reached by
        // atomic accesses alone, here as in every process that keeps the rules. One that does not makes values that are
        // wrong, which whoever reads them checks.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// Asks the processor for the line at `offset`, which is about to be read. Nothing is read by it: an offset that does not
    /// lie within does no harm.
    #[inline(always)]
    pub(super) fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which neither faults nor changes what any access sees, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.map.as_ptr().wrapping_add(offset).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// `len` bytes at `offset`, for raw copies.
    ///
    /// # Panics
    /// When they do not lie within.
    #[inline(always)]
    pub(super) fn bytes(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.map.len() && self.map.len() - offset >= len);
        self.map.as_mut_ptr().wrapping_add(offset)
    }
}
