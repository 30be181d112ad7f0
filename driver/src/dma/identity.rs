//! A domain for devices that are code in this process: I/O virtual addresses are the process's own.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{DmaDomain, DomainLimits, Rights};
use crate::Result;

/// Maps every range at its own address and pins nothing. For NICs made of memory, and for simulations.
#[derive(Debug, Default)]
pub struct IdentityDomain {
    mapped: AtomicUsize,
}

impl IdentityDomain {
    /// Mappings in force.
    pub fn mapped(&self) -> usize {
        self.mapped.load(Ordering::Relaxed)
    }
}

impl DmaDomain for IdentityDomain {
    unsafe fn map(&self, address: *mut u8, _len: usize, _rights: Rights) -> Result<u64> {
        self.mapped.fetch_add(1, Ordering::Relaxed);
        Ok(address as u64)
    }

    fn keeps_pages(&self) -> bool {
        false
    }

    fn unmap(&self, _iova: u64, _len: usize) -> Result<()> {
        self.mapped.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn limits(&self) -> DomainLimits {
        DomainLimits { apertures: vec![0..=u64::MAX], max_mappings: None, page_size: 4096 }
    }
}
