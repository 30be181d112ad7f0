//! The door to an I/O address space.

use std::ops::{Range, RangeInclusive};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::watch::Fate;
use crate::Result;

bitflags::bitflags! {
    /// What devices may do with a mapping.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rights: u32 {
        /// Fetch from it (transmit).
        const READ = 1;
        /// Store into it (receive).
        const WRITE = 2;
    }
}

/// How devices get at memory that is mapped for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAccess {
    /// By themselves.
    Direct,
    /// By asking this process, which copies: correct, and slow.
    Messages,
    /// Some of it by themselves, and the pages at its ends, which it shares with other data, by asking.
    DirectButEnds,
}

/// What an I/O address space can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainLimits {
    /// Usable ranges of I/O virtual addresses: the aperture less the reserved windows, ascending.
    pub apertures: Vec<RangeInclusive<u64>>,
    /// Most mappings at a time, where there is a limit.
    pub max_mappings: Option<u64>,
    /// The granularity of mappings, bytes; a power of two.
    pub page_size: u64,
}

/// An I/O address space: what is mapped here, the devices opened into it can reach, and nothing else.
pub trait DmaDomain: Send + Sync {
    /// Pins `[address, address + len)` and maps it at an I/O virtual address of the domain's choice, which is
    /// returned. Contiguous: byte `n` of the memory lies at the returned address plus `n`.
    ///
    /// # Errors
    /// Unaligned or empty ranges, memory that cannot be pinned with these rights, and every limit by its name.
    ///
    /// # Safety
    /// Devices may read (and with [`Rights::WRITE`] write) the memory at any time until [`Self::unmap`]
    /// returns: until then the caller keeps it from being used for anything that this would break, and
    /// reaches it by volatile or atomic access only.
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64>;

    /// As [`Self::map`], for whole pages around memory of a caller's, which is `inner`, by offset: what else lies on
    /// the first and the last page is somebody else's.
    ///
    /// # Errors
    /// As [`Self::map`].
    ///
    /// # Safety
    /// As for [`Self::map`]; and while this and [`Self::unmap`] run, the kernel has no direct I/O into the memory under
    /// way: a domain may replace its pages by others of the same contents.
    unsafe fn map_around(
        &self,
        address: *mut u8,
        len: usize,
        rights: Rights,
        inner: Range<usize>,
    ) -> Result<u64> {
        let _ = inner;
        // SAFETY: the caller's promise is the same.
        unsafe { self.map(address, len, rights) }
    }

    /// Whether memory that lies in a file is better reached by devices than other memory: then [`Self::map_file`]
    /// is for memory that was allocated for them.
    fn prefers_files(&self) -> bool {
        false
    }

    /// As [`Self::map`], for memory that is a mapping of the file `fd` from `offset` on.
    ///
    /// # Errors
    /// As [`Self::map`].
    ///
    /// # Safety
    /// As for [`Self::map`].
    unsafe fn map_file(
        &self,
        address: *mut u8,
        len: usize,
        rights: Rights,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<u64> {
        let _ = (fd, offset);
        // SAFETY: the caller's promise is the same.
        unsafe { self.map(address, len, rights) }
    }

    /// How devices get at what [`Self::map`] mapped at `iova`.
    fn device_access(&self, iova: u64) -> DeviceAccess {
        let _ = iova;
        DeviceAccess::Direct
    }

    /// Whether devices keep to the pages that the memory had when it was mapped: then it is lost to them when the program
    /// empties it (MADV_DONTNEED), though its addresses stay.
    fn keeps_pages(&self) -> bool {
        true
    }

    /// The memory that is mapped at `iova` may go away under the mapping. Who follows its addresses for devices, in this
    /// process, asks this first.
    fn bind(&self, iova: u64, fate: &Arc<Fate>) {
        let _ = (iova, fate);
    }

    /// Takes a whole mapping away, by what [`Self::map`] returned and its length. The caller has made sure
    /// that no device has work in hand that refers to it.
    fn unmap(&self, iova: u64, len: usize) -> Result<()>;

    /// What the space can hold.
    fn limits(&self) -> DomainLimits;
}
