//! A domain that keeps pages, as an IOMMU does, for devices that are code in this process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use uvia_driver::Result;
use uvia_driver::dma::{DmaDomain, DomainLimits, Rights};

/// Shared memory is mapped a second time, and that is its I/O address: devices reach the pages that were mapped,
/// whatever the program does with its own addresses. Private memory, of which there is no second view, is mapped at its
/// own.
#[derive(Default)]
pub struct PinnedDomain {
    /// The second views, with their lengths.
    views: Mutex<BTreeMap<u64, usize>>,
}

impl PinnedDomain {
    /// Second views there are.
    pub fn views(&self) -> usize {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl DmaDomain for PinnedDomain {
    unsafe fn map(&self, address: *mut u8, len: usize, _rights: Rights) -> Result<u64> {
        // SAFETY: an old length of 0 leaves the old mapping as it is, and makes one more where it is shared.
        let view = unsafe { libc::mremap(address.cast(), 0, len, libc::MREMAP_MAYMOVE) };
        if view == libc::MAP_FAILED {
            return Ok(address as u64);
        }
        self.views.lock().unwrap_or_else(PoisonError::into_inner).insert(view as u64, len);
        Ok(view as u64)
    }

    fn unmap(&self, iova: u64, _len: usize) -> Result<()> {
        if let Some(len) = self.views.lock().unwrap_or_else(PoisonError::into_inner).remove(&iova) {
            // SAFETY: the view made above, which no device refers to any more.
            unsafe { libc::munmap(iova as *mut libc::c_void, len) };
        }
        Ok(())
    }

    fn limits(&self) -> DomainLimits {
        DomainLimits { apertures: vec![0..=u64::MAX], max_mappings: None, page_size: 4096 }
    }
}
