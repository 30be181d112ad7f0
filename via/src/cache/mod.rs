//! A cache of registrations: long buffers are registered once, and stay so for the next time.
//!
//! Registering memory takes system calls and pins it; a program that sends from the same buffers again and again should
//! pay for that once. So the cache keeps what was registered, by address, until it is the least recently used beyond the
//! limits. What makes that sound is that memory is watched ([`MemoryRegion::is_watched`]): a buffer that the program has
//! given back to the system is forgotten before that call returns, and is never taken for whatever lies there later.
//! Where memory cannot be watched the cache is off: it registers for each lease anew, and says so.

mod lease;
mod places;
mod resting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uvia_driver::dma::watch::{self, Mark};

pub use lease::Lease;
use places::{Entry, Places, Ticket};
pub use resting::Resting;

use crate::{Error, MemoryAttributes, MemoryRegion, Nic, Result};

/// How much a cache keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Bytes registered, those that are leased included.
    pub bytes: u64,
    /// Regions, those that are leased included.
    pub regions: usize,
}

impl Default for CacheLimits {
    /// 1 GiB in 1024 regions.
    fn default() -> Self {
        Self { bytes: 1 << 30, regions: 1024 }
    }
}

/// Whether a cache keeps anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheState {
    /// It does.
    On,
    /// It cannot know when memory goes away, for this reason: each lease is a registration of its own.
    Off(String),
}

/// What a cache has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatistics {
    /// Leases of memory that was registered.
    pub hits: u64,
    /// Leases for which memory was registered.
    pub misses: u64,
    /// Of these, those that took in neighbours or parts of what was registered.
    pub merges: u64,
    /// Regions that were let go of for others.
    pub evictions: u64,
    /// Regions that were let go of since the program had unmapped, moved or emptied their memory.
    pub losses: u64,
    /// Leases that were registered for themselves alone: the cache is off, or what it holds is all leased.
    pub uncached: u64,
    /// Regions registered now.
    pub regions: usize,
    /// Bytes of these.
    pub bytes: u64,
    /// Leases that are out.
    pub leases: usize,
}

/// Registrations that are kept. Clones share them; the NIC stays open as long.
#[derive(Clone)]
pub struct RegistrationCache(Arc<Shared>);

struct Shared {
    nic: Nic,
    attributes: MemoryAttributes,
    limits: CacheLimits,
    places: Mutex<Places>,
    /// Of the process that it is of use in; none where the system has no such mark, and then it is taken for that.
    process: Option<Mark>,
}

impl RegistrationCache {
    /// An empty cache on a NIC. All that it registers has these attributes; rights of peers are in force only while
    /// somebody leases the memory ([`RegistrationCache::lease`]), and then for all of the region that the lease is a part
    /// of.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a tag of another NIC, or for limits of nothing.
    pub fn new(nic: &Nic, attributes: MemoryAttributes, limits: CacheLimits) -> Result<Self> {
        nic.check_tag(attributes.tag)?;
        if limits.bytes == 0 || limits.regions == 0 {
            return Err(Error::Parameter(
                "a registration cache of no bytes or no regions keeps nothing: register by yourself"
                    .to_owned(),
            ));
        }
        Ok(Self(Arc::new(Shared {
            nic: nic.clone(),
            attributes,
            limits,
            places: Mutex::default(),
            process: Mark::new().ok(),
        })))
    }

    /// The NIC that it registers with.
    pub fn nic(&self) -> &Nic {
        &self.0.nic
    }

    /// Whether it keeps anything.
    pub fn state(&self) -> CacheState {
        match watch::availability() {
            Ok(()) => CacheState::On,
            Err(e) => CacheState::Off(e.to_string()),
        }
    }

    /// Memory of the program's, registered: kept from an earlier lease, or now. Where it is kept, this takes neither a
    /// system call nor an allocation. Its region may be larger: should the program unmap a part of that which nobody leases
    /// any more, the region is gone as a whole, and a transfer that is under way with this lease fails.
    ///
    /// # Errors
    /// As [`Nic::register`]; [`Error::Parameter`] in a child of a process that was forked, where no NIC works.
    ///
    /// # Safety
    /// Until the lease is dropped, and all descriptors with segments of it have come back, the memory stays mapped, and
    /// is reached by volatile or atomic access only while such a descriptor is posted or a peer may write it. Then it is
    /// the program's again, to free, unmap or use otherwise as it likes, with no word to the cache: a read of a peer's that
    /// is not wholly answered then ends with its connection.
    pub unsafe fn lease(&self, address: *mut u8, len: usize) -> Result<Lease> {
        // SAFETY: the caller's promise.
        unsafe { self.lease_for(address, len, true) }
    }

    /// As [`Self::lease`], for descriptors of the program's own: peers get no rights by it.
    ///
    /// # Errors
    /// As [`Self::lease`].
    ///
    /// # Safety
    /// As for [`Self::lease`].
    pub unsafe fn lease_private(&self, address: *mut u8, len: usize) -> Result<Lease> {
        // SAFETY: the caller's promise.
        unsafe { self.lease_for(address, len, false) }
    }

    /// A lease, with the rights of peers where it is `shared` with them.
    ///
    /// # Safety
    /// As for [`Self::lease`].
    unsafe fn lease_for(&self, address: *mut u8, len: usize, shared: bool) -> Result<Lease> {
        let Some(end) = (address as usize).checked_add(len).filter(|_| len != 0) else {
            return Err(Error::Parameter(format!("{len} bytes at {address:p} are no range to register")));
        };
        let start = address.expose_provenance();
        if self.0.is_forked() {
            return Err(Error::Parameter(
                "a forked child has no use of its parent's NIC: open it in the child".to_owned(),
            ));
        }
        // What was unmapped before this call is known to be.
        watch::settle();
        let mut places = self.0.places();
        if places.losses != watch::losses() {
            places.sweep();
        }
        if let Some(ticket) = places.find(start, end) {
            places.statistics.hits += 1;
            return self.grant(places, ticket, start, len, shared);
        }
        drop(places);
        // SAFETY: the caller's promise is the same.
        unsafe { self.register(start, end, shared) }
    }

    /// As [`Self::lease_private`], where the memory is registered already; `None` where it is not, or is only in parts.
    ///
    /// # Errors
    /// As [`Self::lease`].
    ///
    /// # Safety
    /// As for [`Self::lease`].
    pub unsafe fn lease_registered(&self, address: *mut u8, len: usize) -> Result<Option<Lease>> {
        let Some(end) = (address as usize).checked_add(len).filter(|_| len != 0) else { return Ok(None) };
        if self.0.is_forked() {
            return Ok(None);
        }
        let start = address.expose_provenance();
        watch::settle();
        let mut places = self.0.places();
        if places.losses != watch::losses() {
            places.sweep();
        }
        let Some(ticket) = places.find(start, end) else { return Ok(None) };
        places.statistics.hits += 1;
        self.grant(places, ticket, start, len, false).map(Some)
    }

    /// Lets go of all that nobody leases.
    pub fn clear(&self) {
        let mut places = self.0.places();
        let gone = places.take_idle();
        drop(places);
        drop(gone);
    }

    /// What it has counted.
    pub fn statistics(&self) -> CacheStatistics {
        watch::settle();
        let mut places = self.0.places();
        if places.losses != watch::losses() {
            places.sweep();
        }
        places.statistics
    }

    /// Registers memory that is not, or not as a whole.
    ///
    /// # Safety
    /// As for [`Self::lease`].
    #[cold]
    unsafe fn register(&self, start: usize, end: usize, shared: bool) -> Result<Lease> {
        let room = self.0.limits.bytes.min(self.0.nic.properties().max_region_bytes);
        let mut places = self.0.places();
        // What another thread has leased meanwhile is found by the next; here it is merged, or registered once more.
        let (from, to) = places.union(start, end, room);
        // What lies within the new region is let go of first: memory that was moved for devices can then be again.
        let inner = places.take_within(from, to);
        drop(places);
        let merged = !inner.is_empty() || (from, to) != (start, end);
        drop(inner);
        // SAFETY: the caller's promise for its own range. What the union has beyond it was registered until just now, and
        // is only ever used for a lease that has all of this promise of its own.
        let mut region = unsafe { self.map(from, to) };
        let mut exact = (from, to) == (start, end);
        if !exact && !region.as_ref().is_ok_and(|region| region.is_watched() && !region.is_gone()) {
            // SAFETY: the caller's promise.
            region = unsafe { self.map(start, end) };
            exact = true;
        }
        let region = region?;
        let (from, to) = if exact { (start, end) } else { (from, to) };
        let mut places = self.0.places();
        places.statistics.misses += 1;
        let mut gone = places.make_room((to - from) as u64, self.0.limits);
        let keeps = region.is_watched() && places.fits((to - from) as u64, self.0.limits);
        let entry = Entry::new(from, to, region);
        let ticket = if keeps {
            places.statistics.merges += u64::from(merged);
            gone.append(&mut places.take_overlapping(from, to));
            places.insert(entry)
        } else {
            places.statistics.uncached += 1;
            places.insert_unlisted(entry)
        };
        let lease = self.grant(places, ticket, start, end - start, shared);
        drop(gone);
        lease
    }

    /// # Safety
    /// As for [`Nic::register`].
    unsafe fn map(&self, from: usize, to: usize) -> Result<MemoryRegion> {
        let address = std::ptr::with_exposed_provenance_mut(from);
        let idle = MemoryAttributes::local(self.0.attributes.tag);
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.nic.register(address, to - from, idle) }
    }

    /// A lease of a place, which was looked up under this lock.
    fn grant(
        &self,
        mut places: MutexGuard<'_, Places>,
        ticket: Ticket,
        start: usize,
        len: usize,
        shared: bool,
    ) -> Result<Lease> {
        let (region, from, kept) = places.lease(ticket);
        // What follows takes the lock by itself.
        drop(places);
        let mut lease =
            Lease { cache: self.0.clone(), ticket, region, offset: start - from, len, shared: false, kept };
        if shared {
            lease.share()?;
        }
        Ok(lease)
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_forked(&self) -> bool {
        self.process.as_ref().is_some_and(Mark::is_forked)
    }

    fn has_rights(&self) -> bool {
        self.attributes.rdma_read || self.attributes.rdma_write
    }

    /// A lease is shared with peers from now on. Under the lock, so that the end of the last that was shared does not take
    /// back what this one is given.
    fn share(&self, ticket: Ticket, region: &MemoryRegion) -> Result<()> {
        let mut places = self.places();
        if places.share(ticket) && self.has_rights() {
            self.nic.set_memory_attributes(region, self.attributes).inspect_err(|_| {
                places.withdraw(ticket);
            })?;
        }
        Ok(())
    }

    /// A lease is shared with peers no more.
    fn withdraw(&self, ticket: Ticket, region: &MemoryRegion) {
        let mut places = self.places();
        if places.withdraw(ticket) && self.has_rights() {
            // Refused for memory that is gone, to which nobody has any right.
            let _ = self.nic.set_memory_attributes(region, MemoryAttributes::local(self.attributes.tag));
        }
    }

    /// A lease ends, by which peers have no rights.
    fn give_back(&self, ticket: Ticket) {
        let gone = self.places().give_back(ticket);
        drop(gone);
    }
}

impl std::fmt::Debug for RegistrationCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistrationCache")
            .field("limits", &self.0.limits)
            .field("statistics", &self.0.places().statistics)
            .finish_non_exhaustive()
    }
}
