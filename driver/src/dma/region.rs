//! Callers' memory, registered for DMA.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use super::watch::{self, Keeper, Watched};
use super::{DeviceAccess, DmaDomain, Rights};
use crate::{Error, Result};

/// Bytes in reach of devices, as a NIC's descriptor names them. Made by [`DmaRegion::segment`] and
/// [`super::DmaMemory::segment`], which check the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DmaSegment {
    iova: u64,
    len: u32,
}

impl DmaSegment {
    /// A segment that nobody checked.
    ///
    /// # Safety
    /// The device will fetch from (or store to) these I/O addresses. With an IOMMU a wrong one is blocked, or
    /// hits something else that is mapped in the domain.
    pub unsafe fn unchecked(iova: u64, len: u32) -> Self {
        Self { iova, len }
    }

    #[inline(always)]
    pub(crate) fn new(iova: u64, len: u32) -> Self {
        Self { iova, len }
    }

    /// First I/O virtual address.
    #[inline]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it names no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A range of this process's memory, pinned and mapped into a domain until dropped.
///
/// Whole pages are mapped, since an IOMMU knows nothing smaller: devices of the domain reach the rest of the
/// first and the last page too.
pub struct DmaRegion {
    domain: Arc<dyn DmaDomain>,
    address: *mut u8,
    len: usize,
    rights: Rights,
    /// What is mapped: the range widened to pages.
    mapped: usize,
    mapped_iova: u64,
    iova: u64,
    watched: OnceLock<Watched>,
}

// SAFETY: the pointer is only handed out, never followed here; the mapping belongs to the process.
unsafe impl Send for DmaRegion {}
// SAFETY: as above; all methods that take `&self` only read fields.
unsafe impl Sync for DmaRegion {}

impl DmaRegion {
    /// Registers `[address, address + len)`; `len` is at least 1.
    ///
    /// # Errors
    /// An empty or wrapping range, and all that [`DmaDomain::map`] may answer.
    ///
    /// # Safety
    /// As for [`DmaDomain::map`], until this is dropped. While this and the drop run, the kernel has no direct I/O
    /// (O_DIRECT, registered buffers of io_uring) into the memory under way: its pages may be replaced by others of the
    /// same contents, see [`DmaDomain::map_around`]. Other threads may go on using it.
    pub unsafe fn register(
        domain: Arc<dyn DmaDomain>,
        address: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Self> {
        let page = domain.limits().page_size as usize;
        let start = address as usize & !(page - 1);
        let end = (address as usize).checked_add(len).and_then(|end| end.checked_next_multiple_of(page));
        let Some(end) = end.filter(|_| len > 0) else {
            return Err(Error::Argument {
                what: format!("{len} bytes at {address:p} are no range to register"),
            });
        };
        // SAFETY: the caller vouches for the range; the rest of its first and last page is mapped too, which
        // is why a region's pages should hold nothing that a broken device may not see.
        let inner = address as usize - start..address as usize - start + len;
        // SAFETY: as above.
        let mapped_iova = unsafe { domain.map_around(start as *mut u8, end - start, rights, inner)? };
        let iova = mapped_iova + (address as usize - start) as u64;
        Ok(Self {
            domain,
            address,
            len,
            rights,
            mapped: end - start,
            mapped_iova,
            iova,
            watched: OnceLock::new(),
        })
    }

    /// Registers whole pages that lie in a file.
    ///
    /// # Safety
    /// As [`Self::register`]; and the memory is a mapping of `fd` from `offset` on.
    pub(crate) unsafe fn register_file(
        domain: Arc<dyn DmaDomain>,
        address: *mut u8,
        len: usize,
        rights: Rights,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<Self> {
        // SAFETY: the caller's promise is the same.
        let iova = unsafe { domain.map_file(address, len, rights, fd, offset)? };
        Ok(Self {
            domain,
            address,
            len,
            rights,
            mapped: len,
            mapped_iova: iova,
            iova,
            watched: OnceLock::new(),
        })
    }

    /// Has it watched from now on: should the program unmap it meanwhile, [`Self::is_gone`] says so from before that
    /// call of the program's returns on. Once; later calls do nothing.
    ///
    /// # Errors
    /// [`Error::Unwatchable`] where it cannot be: then an unmapping is like the use of memory after it was freed.
    pub fn watch(&self, keeper: Arc<dyn Keeper>) -> Result<()> {
        if self.watched.get().is_none() {
            let watched =
                watch::watch(self.address as usize, self.len, keeper, &*self.domain, self.mapped_iova)?;
            // Of two that come at once the later one goes again.
            let _ = self.watched.set(watched);
        }
        Ok(())
    }

    /// Whether it is watched.
    pub fn is_watched(&self) -> bool {
        self.watched.get().is_some()
    }

    /// Whether the program has unmapped it, or a part of it, as far as is known.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.watched.get().is_some_and(Watched::is_gone)
    }

    /// How devices get at it.
    pub fn device_access(&self) -> DeviceAccess {
        self.domain.device_access(self.mapped_iova)
    }

    /// The I/O virtual address of the first byte.
    #[inline]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// First byte in this process.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: an empty range cannot be registered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What devices may do with it.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// A part of it, for a NIC's descriptor.
    ///
    /// # Errors
    /// When the range lies beyond the region or is over 4 GiB.
    pub fn segment(&self, range: Range<usize>) -> Result<DmaSegment> {
        checked_segment(self.iova, self.len, range)
    }
}

impl Drop for DmaRegion {
    fn drop(&mut self) {
        // First: the domain may move the pages back to where they came from, which is not the program's doing.
        let gone = self.watched.take();
        drop(gone);
        if let Err(e) = self.domain.unmap(self.mapped_iova, self.mapped) {
            tracing::error!(iova = self.mapped_iova, len = self.mapped, "DMA memory stays mapped: {e}");
        }
    }
}

pub(super) fn checked_segment(iova: u64, len: usize, range: Range<usize>) -> Result<DmaSegment> {
    match u32::try_from(range.end.wrapping_sub(range.start)) {
        Ok(bytes) if range.start <= range.end && range.end <= len => {
            Ok(DmaSegment::new(iova + range.start as u64, bytes))
        }
        _ => Err(Error::Argument {
            what: format!("bytes {range:?} do not lie within the {len} registered ones"),
        }),
    }
}
