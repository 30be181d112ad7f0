//! Memory of our own that devices share: rings, receive buffers, headers.

use std::ops::Range;
use std::sync::Arc;

use super::region::checked_segment;
use super::{DmaDomain, DmaRegion, DmaSegment, Rights, copy};
use crate::{Error, Result};

/// Zeroed, page-aligned memory, mapped into a domain until dropped; backed by 2 MiB pages where the system has
/// some free and the size is worth it.
///
/// A device may write it at any time, so that no reference to its bytes is ever made: all access is volatile,
/// by offset, and checked.
pub struct DmaMemory {
    // Declared first, so dropped first: unmapped from the domain before the memory is freed.
    region: DmaRegion,
    map: memmap2::MmapRaw,
}

impl DmaMemory {
    /// Allocates at least `len` bytes and maps them.
    ///
    /// # Errors
    /// No memory, or all that [`DmaDomain::map`] may answer.
    pub fn allocate(domain: Arc<dyn DmaDomain>, len: usize, rights: Rights) -> Result<Self> {
        let page = domain.limits().page_size as usize;
        let len = len
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or_else(|| Error::Argument { what: format!("{len} bytes are more than can be allocated") })?;
        let map: memmap2::MmapRaw = memmap2::MmapMut::map_anon(len)
            .map_err(|e| Error::io(format!("allocating {len} bytes for DMA"), e))?
            .into();
        // SAFETY: `map` is ours alone, lives as long as the region (it is dropped after it), and is reached
        // only by the volatile accessors below.
        let region = unsafe { DmaRegion::register(domain, map.as_mut_ptr(), len, rights)? };
        Ok(Self { region, map })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// The I/O virtual address of byte 0.
    pub fn iova(&self) -> u64 {
        self.region.iova()
    }

    /// Byte 0 in this process; for volatile or atomic access only.
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// A part of it, for a NIC's descriptor.
    ///
    /// # Errors
    /// When the range lies beyond the memory.
    pub fn segment(&self, range: Range<usize>) -> Result<DmaSegment> {
        checked_segment(self.iova(), self.len(), range)
    }

    /// Where a value of type `T` lies, if it is aligned and within the memory.
    ///
    /// # Panics
    /// When it is not: offsets are computed by drivers from checked indices, so that this is a driver's bug.
    #[inline]
    fn cell<T>(&self, offset: usize) -> *mut T {
        let size = size_of::<T>();
        assert!(
            offset.is_multiple_of(align_of::<T>()) && offset <= self.len() && self.len() - offset >= size
        );
        self.as_ptr().wrapping_add(offset) as *mut T
    }

    /// Reads a value that a device may be writing, in one access for integers.
    #[inline]
    pub fn read<T: zerocopy::FromBytes + Copy>(&self, offset: usize) -> T {
        // SAFETY: `cell` checked bounds and alignment, the memory lives as long as `self`, and every bit
        // pattern is a `T`.
        unsafe { self.cell::<T>(offset).read_volatile() }
    }

    /// Writes a value that a device may be reading, in one access for integers.
    #[inline]
    pub fn write<T: zerocopy::IntoBytes + Copy>(&self, offset: usize, value: T) {
        // SAFETY: `cell` checked bounds and alignment, and the memory lives as long as `self`.
        unsafe { self.cell::<T>(offset).write_volatile(value) }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When the range lies beyond the memory.
    pub fn read_bytes(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.len() && self.len() - offset >= into.len());
        // SAFETY: checked above; `into` is ours and cannot overlap memory that is never referenced.
        unsafe { copy::copy(self.as_ptr().add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When the range lies beyond the memory.
    #[inline]
    pub fn write_bytes(&self, offset: usize, from: &[u8]) {
        assert!(offset <= self.len() && self.len() - offset >= from.len());
        // SAFETY: as for `read_bytes`.
        unsafe { copy::copy(from.as_ptr(), self.as_ptr().add(offset), from.len()) }
    }
}
