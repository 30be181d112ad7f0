//! An I/O address space over this process's memory.

use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};

use parking_lot::RwLock;
use uvia_driver::dma::{DomainLimits, IovaSpace, Rights, copy};
use uvia_driver::{Error, Result};

use crate::bus::DmaFault;

const PAGE: u64 = 4096;
/// As of an IOMMU of 39 bits. Addresses are never those of the process: a model that mixed them up would be
/// found out.
const APERTURE: std::ops::RangeInclusive<u64> = 0x10_0000..=0x7f_ffff_ffff;

/// Mappings, by their first address.
pub(super) struct Space {
    inner: RwLock<Inner>,
}

struct Inner {
    free: IovaSpace,
    mappings: BTreeMap<u64, Mapping>,
}

#[derive(Clone, Copy)]
struct Mapping {
    address: usize,
    len: usize,
    rights: Rights,
}

impl Default for Space {
    fn default() -> Self {
        let inner = Inner { free: IovaSpace::new(&[APERTURE], PAGE), mappings: BTreeMap::new() };
        Self { inner: RwLock::new(inner) }
    }
}

impl Inner {
    /// Where a range lies in the process. Neighbouring mappings are not one: devices that cross from one to
    /// the next would get through an IOMMU, drivers never ask them to.
    fn reach(&self, address: u64, len: usize, right: Rights) -> std::result::Result<*mut u8, DmaFault> {
        let (start, mapping) = self.mappings.range(..=address).next_back().ok_or(DmaFault::NotMapped)?;
        let offset = usize::try_from(address - start).map_err(|_| DmaFault::NotMapped)?;
        if offset > mapping.len || mapping.len - offset < len {
            return Err(DmaFault::NotMapped);
        }
        if !mapping.rights.contains(right) {
            return Err(DmaFault::Forbidden);
        }
        Ok((mapping.address as *mut u8).wrapping_add(offset))
    }
}

impl Space {
    /// # Safety
    /// As for `DmaDomain::map`.
    pub(super) unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        if !(address as u64).is_multiple_of(PAGE) || len == 0 || !(len as u64).is_multiple_of(PAGE) {
            return Err(Error::Argument { what: format!("{len} bytes at {address:p} are no whole pages") });
        }
        let mut inner = self.inner.write();
        let iova = inner.free.allocate(len as u64, address as u64).ok_or_else(|| {
            Error::ApertureExceeded { len: len as u64, apertures: format!("{APERTURE:x?}") }
        })?;
        inner.mappings.insert(iova, Mapping { address: address as usize, len, rights });
        Ok(iova)
    }

    pub(super) fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        // Waits for accesses that are under way.
        let mut inner = self.inner.write();
        if inner.mappings.get(&iova).is_none_or(|mapping| mapping.len != len) {
            return Err(Error::Argument { what: format!("{iova:#x}+{len:#x} was not mapped") });
        }
        inner.mappings.remove(&iova);
        inner.free.free(iova, len as u64);
        Ok(())
    }

    pub(super) fn limits(&self) -> DomainLimits {
        DomainLimits { apertures: vec![APERTURE], max_mappings: None, page_size: PAGE }
    }

    pub(super) fn mapped(&self) -> usize {
        self.inner.read().mappings.len()
    }

    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> std::result::Result<(), DmaFault> {
        let inner = self.inner.read();
        let from = inner.reach(address, into.len(), Rights::READ)?;
        // SAFETY: within a mapping, whose owner keeps it valid until it is unmapped, which waits for `inner`;
        // `into` is ours, and no mapping: that memory is never referenced.
        unsafe { copy::copy(from, into.as_mut_ptr(), into.len()) };
        fence(Ordering::Acquire);
        Ok(())
    }

    pub(super) fn write(&self, address: u64, from: &[u8]) -> std::result::Result<(), DmaFault> {
        let inner = self.inner.read();
        let to = inner.reach(address, from.len(), Rights::WRITE)?;
        fence(Ordering::Release);
        // SAFETY: as for reading.
        unsafe { copy::copy(from.as_ptr(), to, from.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mapped_is_reached_and_only_as_it_may_be() {
        let space = Space::default();
        let mut memory = memmap2::MmapMut::map_anon(8192).unwrap();
        let address = memory.as_mut_ptr();
        // SAFETY: the memory lives to the end of this test, and is reached by the space only.
        let iova = unsafe { space.map(address, 8192, Rights::READ) }.unwrap();
        assert_ne!(iova, address as u64);
        let mut bytes = [1; 16];
        assert_eq!(space.read(iova + 8176, &mut bytes), Ok(()));
        assert_eq!(bytes, [0; 16]);
        assert_eq!(space.write(iova, &bytes), Err(DmaFault::Forbidden));
        for wrong in [iova + 8177, iova - 1, iova + 8192, 0, u64::MAX, u64::MAX - 15] {
            assert_eq!(space.read(wrong, &mut bytes), Err(DmaFault::NotMapped));
        }
        // SAFETY: refused, whatever the addresses.
        unsafe {
            assert!(space.map(address.wrapping_add(1), 4096, Rights::READ).is_err());
            assert!(space.map(address, 0, Rights::READ).is_err());
        }
        assert!(space.unmap(iova, 4096).is_err());
        space.unmap(iova, 8192).unwrap();
        assert_eq!((space.read(iova, &mut bytes), space.mapped()), (Err(DmaFault::NotMapped), 0));
    }
}
