//! Slots of one size in memory that devices share: headers, small frames.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{DmaDomain, DmaMemory, DmaSegment, Rights, copy};
use crate::Result;

/// Slots of `SIZE` bytes, one behind the other. A slot is found with one check; what is then done within it is
/// checked against a constant.
pub struct DmaSlots<const SIZE: usize> {
    memory: DmaMemory,
    count: usize,
}

/// One slot.
#[derive(Clone, Copy)]
pub struct DmaSlot<'a, const SIZE: usize> {
    at: *mut u8,
    iova: u64,
    _memory: PhantomData<&'a DmaMemory>,
}

impl<const SIZE: usize> DmaSlots<SIZE> {
    /// Slots lie at multiples of 8, and a segment of one fits its 32 bits.
    const SOUND: () = assert!(SIZE.is_multiple_of(8) && SIZE > 0 && SIZE <= u32::MAX as usize);

    /// Allocates `count` slots, for devices to fetch from.
    ///
    /// # Errors
    /// As [`DmaMemory::allocate`].
    pub fn allocate(domain: Arc<dyn DmaDomain>, count: usize) -> Result<Self> {
        let () = Self::SOUND;
        let memory = DmaMemory::allocate(domain, count.saturating_mul(SIZE), Rights::READ)?;
        Ok(Self { memory, count })
    }

    /// Slots.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A slot; `None` when there are not so many.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<DmaSlot<'_, SIZE>> {
        if number >= self.count {
            return None;
        }
        let offset = number * SIZE;
        let at = self.memory.as_ptr().wrapping_add(offset);
        Some(DmaSlot { at, iova: self.memory.iova() + offset as u64, _memory: PhantomData })
    }
}

impl<const SIZE: usize> DmaSlot<'_, SIZE> {
    /// Writes little-endian words at the slot's start: a header that was made in registers.
    #[inline(always)]
    pub fn write_words<const N: usize>(&self, words: &[u64; N]) {
        const { assert!(N * 8 <= SIZE) };
        // SAFETY: `get` made this slot within the memory, which outlives it; the words fit into it, and slots lie at
        // multiples of 8 from the start of a page.
        unsafe { copy::write_words(self.at, words) }
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Panics
    /// When they do not fit.
    #[inline]
    pub fn write_bytes(&self, offset: usize, from: &[u8]) {
        // SAFETY: a slice is mapped, and no part of memory that is never referenced.
        unsafe { self.copy_from(offset, from.as_ptr(), from.len()) }
    }

    /// Copies bytes in from raw memory, from `offset` on.
    ///
    /// # Panics
    /// When they do not fit.
    ///
    /// # Safety
    /// `[from, from + len)` is mapped, and no part of the slots.
    #[inline(always)]
    pub unsafe fn copy_from(&self, offset: usize, from: *const u8, len: usize) {
        assert!(offset <= SIZE && len <= SIZE - offset);
        // SAFETY: the target lies within the slot, as was checked, which lies within the memory; slots lie at multiples of
        // 8; the caller vouches for the source.
        unsafe {
            if offset.is_multiple_of(8) {
                copy::copy_aligned(from, self.at.add(offset), len);
            } else {
                copy::copy(from, self.at.add(offset), len);
            }
        }
    }

    /// Its first `len` bytes, for a NIC's descriptor.
    ///
    /// # Panics
    /// When it is shorter.
    #[inline(always)]
    pub fn segment(&self, len: usize) -> DmaSegment {
        assert!(len <= SIZE);
        DmaSegment::new(self.iova, len as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::IdentityDomain;

    #[test]
    fn slots_do_not_overlap_and_end() {
        let slots = DmaSlots::<64>::allocate(Arc::new(IdentityDomain::default()), 3).unwrap();
        for n in 0..3u64 {
            let slot = slots.get(n as usize).unwrap();
            slot.write_words(&[n; 8]);
            assert_eq!(slot.segment(64).iova(), slots.memory.iova() + 64 * n);
        }
        slots.get(1).unwrap().write_bytes(63, &[9]);
        let bytes: Vec<u8> = (0..192).map(|n| slots.memory.read::<u8>(n)).collect();
        assert_eq!((bytes[63], bytes[64], bytes[127], bytes[128]), (0, 1, 9, 2));
        assert!(slots.get(3).is_none() && slots.count() == 3);
    }

    #[test]
    #[should_panic(expected = "len <= SIZE")]
    fn nothing_is_written_behind_a_slot() {
        let slots = DmaSlots::<64>::allocate(Arc::new(IdentityDomain::default()), 2).unwrap();
        slots.get(0).unwrap().write_bytes(60, &[0; 5]);
    }
}
