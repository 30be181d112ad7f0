//! Slots of one size in memory that devices share: headers, small frames.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{DmaDomain, DmaMemory, DmaSegment, Rights, copy};
use crate::Result;

/// Slots of `SIZE` bytes, one behind the other. A slot is found with one check; what is then done within it is
/// checked against a constant.
///
/// A clone is another handle to the same slots: two layers that make one frame write into one slot, in turn.
#[derive(Clone)]
pub struct DmaSlots<const SIZE: usize> {
    /// The first slot.
    at: *mut u8,
    iova: u64,
    count: usize,
    /// Bytes before the first slot.
    room: usize,
    /// Where they lie; kept, and not looked at.
    _memory: Arc<DmaMemory>,
}

// SAFETY: the pointer is into the memory, which is Send and Sync and lives as long; it is followed as that memory's own
// is, by volatile accesses.
unsafe impl<const SIZE: usize> Send for DmaSlots<SIZE> {}
// SAFETY: as above.
unsafe impl<const SIZE: usize> Sync for DmaSlots<SIZE> {}

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
        Self::allocate_with_room(domain, count, 0)
    }

    /// As [`DmaSlots::allocate`], with `room` bytes before each slot that may be sent with it: those before the first
    /// slot, and the last ones of the slot before for the others. Whoever uses them leaves these free.
    ///
    /// # Errors
    /// As [`DmaMemory::allocate`].
    ///
    /// # Panics
    /// When the room is no multiple of 8, or larger than a slot.
    pub fn allocate_with_room(domain: Arc<dyn DmaDomain>, count: usize, room: usize) -> Result<Self> {
        let () = Self::SOUND;
        assert!(room.is_multiple_of(8) && room <= SIZE);
        let bytes = count.saturating_mul(SIZE).saturating_add(room);
        let memory = DmaMemory::allocate(domain, bytes, Rights::READ)?;
        let at = memory.as_ptr().wrapping_add(room);
        let iova = memory.iova() + room as u64;
        Ok(Self { at, iova, count, room, _memory: Arc::new(memory) })
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
        let at = self.at.wrapping_add(offset);
        Some(DmaSlot { at, iova: self.iova + offset as u64, _memory: PhantomData })
    }

    /// Writes bytes right before a slot; answers these and the slot's first `len` bytes, for a NIC's descriptor.
    /// `None` when there are not so many slots.
    ///
    /// # Panics
    /// When there is no such room, or the slot is shorter.
    #[inline]
    pub fn put_before(&self, number: usize, bytes: &[u8], len: usize) -> Option<DmaSegment> {
        let slot = self.get(number)?;
        assert!(bytes.len() <= self.room && len <= SIZE);
        // SAFETY: the room lies within the memory: before the first slot as allocated, and before the others since a
        // slot is at least as large. A slice is no part of memory that is never referenced.
        unsafe { copy::copy(bytes.as_ptr(), slot.at.sub(bytes.len()), bytes.len()) };
        Some(DmaSegment::new(slot.iova - bytes.len() as u64, (bytes.len() + len) as u32))
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

    /// Copies its first bytes out.
    ///
    /// # Panics
    /// When it is shorter.
    #[inline]
    pub fn read_bytes(&self, into: &mut [u8]) {
        assert!(into.len() <= SIZE);
        // SAFETY: the source lies within the slot, and the target is a slice, no part of memory that is never
        // referenced.
        unsafe { copy::copy(self.at, into.as_mut_ptr(), into.len()) }
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
            assert_eq!(slot.segment(64).iova(), slots._memory.iova() + 64 * n);
        }
        slots.get(1).unwrap().write_bytes(63, &[9]);
        let bytes: Vec<u8> = (0..192).map(|n| slots._memory.read::<u8>(n)).collect();
        assert_eq!((bytes[63], bytes[64], bytes[127], bytes[128]), (0, 1, 9, 2));
        assert!(slots.get(3).is_none() && slots.count() == 3);
    }

    #[test]
    fn what_is_put_before_a_slot_goes_with_it() {
        let slots = DmaSlots::<64>::allocate_with_room(Arc::new(IdentityDomain::default()), 3, 16).unwrap();
        let memory = slots.clone()._memory;
        for n in 0..3 {
            slots.get(n).unwrap().write_bytes(0, &[n as u8 + 1; 48]);
            let segment = slots.put_before(n, &[0xb0 + n as u8; 10], 20).unwrap();
            assert_eq!((segment.iova(), segment.len()), (memory.iova() + 64 * n as u64 + 6, 30));
        }
        for n in 0..3 {
            let bytes: Vec<u8> = (0..64).map(|at| memory.read::<u8>(64 * n + at)).collect();
            assert_eq!(bytes[6..16], [0xb0 + n as u8; 10]);
            assert_eq!(bytes[16..], [n as u8 + 1; 48]);
            let mut read = [0; 48];
            slots.get(n).unwrap().read_bytes(&mut read);
            assert_eq!(read, [n as u8 + 1; 48]);
        }
        assert!(slots.put_before(3, &[], 0).is_none());
    }

    #[test]
    #[should_panic(expected = "self.room")]
    fn nothing_is_put_before_what_has_no_room() {
        let slots = DmaSlots::<64>::allocate(Arc::new(IdentityDomain::default()), 2).unwrap();
        let _ = slots.put_before(1, &[0], 1);
    }

    #[test]
    #[should_panic(expected = "len <= SIZE")]
    fn nothing_is_written_behind_a_slot() {
        let slots = DmaSlots::<64>::allocate(Arc::new(IdentityDomain::default()), 2).unwrap();
        slots.get(0).unwrap().write_bytes(60, &[0; 5]);
    }
}
