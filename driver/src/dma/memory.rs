//! Memory of our own that devices share: rings, receive buffers, headers.

use std::ops::Range;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};
use uvia_vfio_user::memory::SharedMemory;

use super::region::checked_segment;
use super::{DeviceAccess, DmaDomain, DmaRegion, DmaSegment, Rights, copy};
use crate::{Error, Result};

/// The pages that are worth asking for: one entry of the IOMMU each where small ones take 512, and under an
/// emulated IOMMU some fifty times faster to map.
const HUGE_PAGE: usize = 2 << 20;
const HUGE_PAGE_BITS: u8 = HUGE_PAGE.trailing_zeros() as u8;

/// From this size on a huge page is worth what it wastes.
const HUGE_FROM: usize = HUGE_PAGE / 2;

/// What kind of pages memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Pages of 2 MiB from the system's reserve (`/proc/sys/vm/nr_hugepages`).
    Huge,
    /// Small pages; larger ones behind the scenes where the kernel had some at hand.
    Ordinary,
}

/// Zeroed, page-aligned memory, mapped into a domain until dropped; backed by 2 MiB pages where the system has
/// some free and the size is worth it.
///
/// A device may write it at any time, so that no reference to its bytes is ever made: all access is volatile,
/// by offset, and checked. A child process does not get it: copy-on-write after a fork would otherwise leave
/// the device with the old page and us with the new one.
///
/// # Before it is dropped
/// Whoever gave it to a device has made sure that the device is done with it. NIC drivers own their rings and
/// buffers and quiesce the device in their own drop, before their fields go; and a closed
/// [`PciDevice`](crate::pci::PciDevice) can no longer master the bus. Memory and devices keep their domain
/// alive, so that they may be dropped in any order. Where all of this fails, the IOMMU blocks the access, or
/// (when unmapping failed) the pages stay pinned and are nobody else's.
pub struct DmaMemory {
    // Declared first, so dropped first: unmapped from the domain before the memory is freed.
    region: DmaRegion,
    _pages: Pages,
    kind: PageKind,
}

/// What the memory is made of, kept until it is dropped.
enum Pages {
    /// Of no file.
    Anonymous { _map: MmapRaw },
    /// Of a file that other processes can map too.
    File { _memory: SharedMemory },
}

impl DmaMemory {
    /// Allocates at least `len` bytes and maps them.
    ///
    /// # Errors
    /// No memory, or all that [`DmaDomain::map`] may answer.
    pub fn allocate(domain: Arc<dyn DmaDomain>, len: usize, rights: Rights) -> Result<Self> {
        let page = domain.limits().page_size as usize;
        if domain.prefers_files() {
            return Self::in_file(domain, len.max(1), page, rights);
        }
        let (map, start, len, kind) = anonymous(len.max(1), page)?;
        // Best effort, as are all advices: memory that a fork shares is a hazard only to programs that fork.
        if let Err(e) = map.advise(Advice::DontFork) {
            tracing::warn!("a forked child will share DMA memory: {e}");
        }
        // SAFETY: `map` is ours alone, lives as long as the region (it is dropped after it), and is reached
        // only by the volatile accessors below. `start` and `len` lie within it.
        let region = unsafe { DmaRegion::register(domain, map.as_mut_ptr().add(start), len, rights)? };
        Ok(Self { region, _pages: Pages::Anonymous { _map: map }, kind })
    }

    /// As [`Self::allocate`], in a file that a process that serves a device can map: sealed, so that it dares to.
    fn in_file(domain: Arc<dyn DmaDomain>, len: usize, page: usize, rights: Rights) -> Result<Self> {
        let size = len
            .checked_next_multiple_of(page)
            .ok_or_else(|| Error::Argument { what: format!("{len} bytes are more than can be allocated") })?;
        let memory = SharedMemory::create("uvia-dma", size)
            .map_err(|e| Error::io(format!("allocating {len} bytes for DMA"), e))?;
        // SAFETY: changes no byte of a mapping that is ours. A child that had it could write what devices read.
        if unsafe { libc::madvise(memory.as_ptr().cast(), size, libc::MADV_DONTFORK) } != 0 {
            tracing::warn!("a forked child will share DMA memory: {}", std::io::Error::last_os_error());
        }
        // SAFETY: `memory` is ours alone, lives as long as the region (it is dropped after it), is reached only by
        // the volatile accessors below, and is a mapping of its file from the beginning.
        let region =
            unsafe { DmaRegion::register_file(domain, memory.as_ptr(), size, rights, memory.fd(), 0)? };
        Ok(Self { region, _pages: Pages::File { _memory: memory }, kind: PageKind::Ordinary })
    }

    /// How devices get at it.
    pub fn device_access(&self) -> DeviceAccess {
        self.region.device_access()
    }

    /// What kind of pages it got. [`PageKind::Ordinary`] for all that is too small to be worth huge ones.
    pub fn page_kind(&self) -> PageKind {
        self.kind
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// The I/O virtual address of byte 0.
    #[inline]
    pub fn iova(&self) -> u64 {
        self.region.iova()
    }

    /// Byte 0 in this process; for volatile or atomic access only.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
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

    /// Copies bytes in from raw memory.
    ///
    /// # Panics
    /// When the range lies beyond the memory.
    ///
    /// # Safety
    /// `[from, from + len)` is mapped, and no part of this memory.
    #[inline]
    pub unsafe fn copy_from(&self, offset: usize, from: *const u8, len: usize) {
        assert!(offset <= self.len() && self.len() - offset >= len);
        // SAFETY: the target was checked above; the caller vouches for the source.
        unsafe { copy::copy(from, self.as_ptr().add(offset), len) }
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

/// Memory for `len` bytes: the mapping, where in it they start, how many there are, and what they are made of.
fn anonymous(len: usize, page: usize) -> Result<(MmapRaw, usize, usize, PageKind)> {
    let round = |unit: usize| {
        len.checked_next_multiple_of(unit)
            .ok_or_else(|| Error::Argument { what: format!("{len} bytes are more than can be allocated") })
    };
    let failed = |e| Error::io(format!("allocating {len} bytes for DMA"), e);
    if len < HUGE_FROM || page > HUGE_PAGE {
        let len = round(page)?;
        let map = MmapOptions::new().len(len).map_anon().map_err(failed)?;
        return Ok((map.into(), 0, len, PageKind::Ordinary));
    }
    let huge = round(HUGE_PAGE)?;
    match MmapOptions::new().len(huge).huge(Some(HUGE_PAGE_BITS)).map_anon() {
        Ok(map) => return Ok((map.into(), 0, huge, PageKind::Huge)),
        Err(e) => tracing::debug!("no huge pages for {len} bytes of DMA memory, small ones will do: {e}"),
    }
    // The kernel may still have large pages at hand for memory that is aligned to them. What is left over at
    // either end is never touched, and so takes no memory.
    let len = round(page)?;
    let space = len.checked_add(HUGE_PAGE).ok_or_else(|| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    let map: MmapRaw = MmapOptions::new().len(space).map_anon().map_err(failed)?.into();
    let _ = map.advise(Advice::HugePage); // refused where the kernel has none
    let start = (map.as_ptr() as usize).wrapping_neg() & (HUGE_PAGE - 1);
    Ok((map, start, len, PageKind::Ordinary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::IdentityDomain;

    #[test]
    fn zeroed_whole_pages_of_every_size() {
        let domain = Arc::new(IdentityDomain::default());
        for len in [0, 1, 4096, 4097, HUGE_FROM - 1, HUGE_FROM, HUGE_PAGE + 1, 3 * HUGE_PAGE] {
            let memory = DmaMemory::allocate(domain.clone(), len, Rights::READ | Rights::WRITE).unwrap();
            assert!(memory.len() >= len.max(1) && memory.len().is_multiple_of(4096));
            assert!((memory.as_ptr() as usize).is_multiple_of(4096));
            if len >= HUGE_FROM {
                assert!((memory.as_ptr() as usize).is_multiple_of(HUGE_PAGE));
            } else {
                assert_eq!(memory.page_kind(), PageKind::Ordinary);
            }
            assert_eq!(memory.read::<u64>(memory.len() - 8), 0);
            memory.write(memory.len() - 8, u64::MAX);
            assert_eq!(memory.read::<u64>(memory.len() - 8), u64::MAX);
        }
        assert_eq!(domain.mapped(), 0);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        let domain = Arc::new(IdentityDomain::default());
        for len in [usize::MAX, usize::MAX - 4096, 1 << 60] {
            assert!(DmaMemory::allocate(domain.clone(), len, Rights::READ).is_err());
        }
    }

    #[test]
    fn a_forked_child_does_not_get_it() {
        let domain = Arc::new(IdentityDomain::default());
        let memory = DmaMemory::allocate(domain, 4096, Rights::READ).unwrap();
        memory.write(0, 1u8); // present, so that the kernel lists it
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = memory.as_ptr() as u64;
        let mut lines = maps.lines().skip_while(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            !range.is_some_and(|(from, to)| {
                let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
                (number(from)..number(to)).contains(&start)
            })
        });
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    }
}
