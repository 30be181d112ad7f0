//! Registered memory of a NIC, as descriptors name it.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use uvia::{MemoryRegion, ProtectionTag, Segment};

use crate::nic::{Nic, PTAGS};
use crate::types::{Handle, MemAttributes, Return};

/// A registration.
pub(crate) struct Registered {
    address: usize,
    len: usize,
    /// The program's tag; none is memory that any interface of the program may use, and no peer.
    ptag: Option<(usize, ProtectionTag)>,
    write: bool,
    read: bool,
    region: MemoryRegion,
    /// Memory without a tag, under the tags of those who use it.
    copies: Vec<MemoryRegion>,
}

/// The registrations of an open NIC, by the slot in their handles.
#[derive(Default)]
pub(crate) struct Memory(RwLock<Vec<Option<Registered>>>);

/// The bits of a handle that are its slot (and one): as `uvia` makes them.
const SLOT: u32 = (1 << 20) - 1;

/// Why memory cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing of that handle, or not within it, or another tag's.
    Protection,
    /// It cannot be registered a second time.
    Resource,
}

/// A look at a NIC's registrations, for a descriptor's segments.
pub(crate) struct Look<'a>(RwLockReadGuard<'a, Vec<Option<Registered>>>);

impl Look<'_> {
    /// The registration of a handle with all of these bytes, unless the program has unmapped it.
    #[inline]
    fn find(&self, handle: u32, address: u64, len: usize) -> Option<(&Registered, usize)> {
        let found = self.0.get((handle & SLOT) as usize)?.as_ref()?;
        let offset = usize::try_from(address).ok()?.checked_sub(found.address)?;
        let fits = offset <= found.len && found.len - offset >= len;
        let there = fits && found.region.handle().0 == handle && !found.region.is_gone();
        there.then_some((found, offset))
    }

    /// The memory of a descriptor itself.
    #[inline]
    pub(crate) fn holds(&self, handle: u32, address: u64, len: usize) -> Option<&MemoryRegion> {
        self.find(handle, address, len).map(|(found, _)| &found.region)
    }

    /// Bytes for an interface of that tag.
    #[inline]
    pub(crate) fn segment(
        &self,
        handle: u32,
        address: u64,
        len: u32,
        tag: ProtectionTag,
    ) -> Result<Option<Segment>, Refused> {
        let (found, offset) = self.find(handle, address, len as usize).ok_or(Refused::Protection)?;
        let region = if found.region.tag() == tag {
            &found.region
        } else if found.ptag.is_some() {
            return Err(Refused::Protection);
        } else {
            match found.copies.iter().find(|copy| copy.tag() == tag) {
                Some(copy) => copy,
                None => return Ok(None),
            }
        };
        region.segment(offset..offset + len as usize).map(Some).map_err(|_| Refused::Protection)
    }
}

impl Memory {
    #[inline]
    pub(crate) fn look(&self) -> Look<'_> {
        Look(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether any of it has that tag.
    pub(crate) fn uses(&self, ptag: Handle) -> bool {
        let regions = self.look().0;
        regions.iter().flatten().any(|found| found.ptag.is_some_and(|(handle, _)| handle == ptag.addr()))
    }

    /// Forgets all of it. What a posted descriptor uses stays registered until it is done with.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner));
        drop(gone);
    }

    /// Memory without a tag is no longer registered under this one.
    pub(crate) fn unshare(&self, tag: ProtectionTag) {
        let mut regions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for found in regions.iter_mut().flatten() {
            found.copies.retain(|copy| copy.tag() != tag);
        }
    }

    /// Registers memory without a tag under one more, since an interface of that tag uses it.
    pub(crate) fn share(&self, nic: &Nic, handle: u32, tag: ProtectionTag) -> Result<(), Refused> {
        let mut regions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let found = regions.get_mut((handle & SLOT) as usize).and_then(Option::as_mut);
        let found = found.filter(|found| found.region.handle().0 == handle).ok_or(Refused::Protection)?;
        if found.copies.iter().any(|copy| copy.tag() == tag) {
            return Ok(());
        }
        let attributes = uvia::MemoryAttributes::local(tag);
        // SAFETY: the program's promise at the registration of the region, which is as long-lived.
        let copy = unsafe {
            nic.device.nic.register(
                std::ptr::with_exposed_provenance_mut(found.address),
                found.len,
                attributes,
            )
        };
        found.copies.push(copy.map_err(|_| Refused::Resource)?);
        Ok(())
    }
}

/// The tag that attributes name.
fn tag_of(nic: &Arc<Nic>, attributes: &MemAttributes) -> Result<Option<(usize, ProtectionTag)>, Return> {
    if attributes.ptag.is_null() {
        return Ok(None);
    }
    let tag = PTAGS.get(attributes.ptag).filter(|tag| tag.nic == nic.handle).ok_or(Return::InvalidPtag)?;
    Ok(Some((attributes.ptag.addr(), tag.tag)))
}

/// VipRegisterMem.
pub(crate) fn register(
    nic: &Arc<Nic>,
    address: *mut u8,
    len: usize,
    attributes: Option<MemAttributes>,
) -> Result<u32, Return> {
    if address.is_null() || len == 0 || address.addr().checked_add(len).is_none() {
        return Err(Return::InvalidParameter);
    }
    let attributes = attributes.unwrap_or(MemAttributes {
        ptag: std::ptr::null_mut(),
        enable_rdma_write: 0,
        enable_rdma_read: 0,
    });
    let ptag = tag_of(nic, &attributes)?;
    let (write, read) = (attributes.enable_rdma_write != 0, attributes.enable_rdma_read != 0);
    check_mapped(address, len)?;
    let wanted = uvia::MemoryAttributes {
        tag: ptag.map_or(nic.tag, |(_, tag)| tag),
        rdma_write: write,
        rdma_read: read,
    };
    // SAFETY: VIPL's contract: registered memory stays mapped until it is deregistered, and what a posted descriptor
    // names is left alone. That it is mapped now was checked; where the system permits, it is known when it is not any
    // more.
    let region = unsafe { nic.device.nic.register(address, len, wanted) }.map_err(|e| {
        tracing::warn!("registering {len} bytes: {e}");
        Return::ErrorResource
    })?;
    let handle = region.handle().0;
    // Descriptors are written back to through addresses that come from there.
    let address = address.expose_provenance();
    let mut regions = nic.memory.0.write().unwrap_or_else(PoisonError::into_inner);
    let slot = (handle & SLOT) as usize;
    if regions.len() <= slot {
        regions.resize_with(slot + 1, || None);
    }
    regions[slot] = Some(Registered { address, len, ptag, write, read, region, copies: Vec::new() });
    Ok(handle)
}

/// Whether all pages are there, so that what is no memory is refused and not met later by a fault.
fn check_mapped(address: *mut u8, len: usize) -> Result<(), Return> {
    const PAGE: usize = 4096;
    const MANY: usize = 1 << 15;
    let start = address.addr() & !(PAGE - 1);
    let end = address.addr().checked_add(len).ok_or(Return::InvalidParameter)?;
    let pages = (end - start).div_ceil(PAGE);
    let mut present = vec![0u8; pages.min(MANY)];
    for first in (0..pages).step_by(MANY) {
        let count = (pages - first).min(MANY);
        // SAFETY: mincore looks at the page tables alone, and writes a byte a page into our array, which has as many.
        let outcome = unsafe {
            libc::mincore(
                std::ptr::without_provenance_mut(start + first * PAGE),
                count * PAGE,
                present.as_mut_ptr(),
            )
        };
        if outcome != 0 {
            return Err(Return::InvalidParameter);
        }
    }
    Ok(())
}

/// VipDeregisterMem. Refused while a posted descriptor uses it.
pub(crate) fn deregister(nic: &Arc<Nic>, address: *mut u8, handle: u32) -> Result<(), Return> {
    // Descriptors that have completed and were not asked for yet use nothing any more.
    crate::vi::collect(nic);
    let mut regions = nic.memory.0.write().unwrap_or_else(PoisonError::into_inner);
    // While this is held, no descriptor gets to know memory anew (see `post`).
    crate::vi::forget_memory(nic);
    let slot = regions.get_mut((handle & SLOT) as usize).ok_or(Return::InvalidParameter)?;
    let found = slot
        .as_ref()
        .filter(|found| found.region.handle().0 == handle && found.address == address.addr())
        .ok_or(Return::InvalidParameter)?;
    // Copies are for interfaces of the program's own, which get to know none while the lock is held.
    if found.copies.iter().any(|copy| copy.users() > 1) {
        return Err(Return::ErrorResource);
    }
    let Some(found) = slot.take() else { return Err(Return::InvalidParameter) };
    let Registered { region, copies, .. } = found;
    // Peers may take hold of it until the NIC ends it.
    match nic.device.nic.deregister(region) {
        Ok(()) => {
            drop(regions);
            drop(copies);
            Ok(())
        }
        Err((region, _)) => {
            *slot = Some(Registered { region, copies, ..found });
            Err(Return::ErrorResource)
        }
    }
}

/// VipQueryMem.
pub(crate) fn query(nic: &Arc<Nic>, address: *mut u8, handle: u32) -> Result<MemAttributes, Return> {
    let look = nic.memory.look();
    // Any address within the region names it.
    let (found, _) = look.find(handle, address.addr() as u64, 1).ok_or(Return::InvalidParameter)?;
    Ok(MemAttributes {
        ptag: std::ptr::without_provenance_mut(found.ptag.map_or(0, |(handle, _)| handle)),
        enable_rdma_write: found.write.into(),
        enable_rdma_read: found.read.into(),
    })
}

/// VipSetMemAttributes.
pub(crate) fn set(
    nic: &Arc<Nic>,
    address: *mut u8,
    handle: u32,
    attributes: MemAttributes,
) -> Result<(), Return> {
    let ptag = tag_of(nic, &attributes)?;
    let mut regions = nic.memory.0.write().unwrap_or_else(PoisonError::into_inner);
    let slot = regions.get_mut((handle & SLOT) as usize).and_then(Option::as_mut);
    let found = slot
        .filter(|found| found.region.handle().0 == handle && found.address == address.addr())
        .ok_or(Return::InvalidParameter)?;
    let wanted = uvia::MemoryAttributes {
        tag: ptag.map_or(nic.tag, |(_, tag)| tag),
        rdma_write: attributes.enable_rdma_write != 0,
        rdma_read: attributes.enable_rdma_read != 0,
    };
    nic.device.nic.set_memory_attributes(&found.region, wanted).map_err(|_| Return::InvalidPtag)?;
    // Copies are for memory without a tag.
    crate::vi::forget_memory(nic);
    found.copies.clear();
    (found.ptag, found.write, found.read) = (ptag, wanted.rdma_write, wanted.rdma_read);
    Ok(())
}
