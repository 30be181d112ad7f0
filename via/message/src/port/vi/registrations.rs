//! Registered memory of the program's. What was last put from, and what peers could last reach, stays at hand: a program
//! tends to use the same buffers, and nothing is looked up for them then.

use uvia::{
    CacheLimits, CacheState, Lease, MemoryAttributes, Nic, ProtectionTag, RegistrationCache, Resting,
};

use crate::Result;
use crate::span::Span;

/// The lease of memory once more, if it is what rests.
///
/// # Safety
/// As for [`RegistrationCache::lease`].
#[inline]
unsafe fn again(resting: Option<Resting>, memory: Span, shared: bool) -> Option<Lease> {
    let resting = resting.filter(|resting| resting.is_of(memory.start, memory.len))?;
    // SAFETY: the caller's promise.
    unsafe { resting.lease(shared) }
}

/// The registrations of a port.
pub(super) struct Registrations {
    cache: RegistrationCache,
    /// What was put from, or got into.
    source: Option<Resting>,
    /// What peers could reach.
    place: Option<Resting>,
}

impl Registrations {
    /// None yet.
    pub(super) fn new(nic: &Nic, tag: ProtectionTag) -> Result<Self> {
        let cache = RegistrationCache::new(nic, MemoryAttributes::remote(tag), CacheLimits::default())?;
        Ok(Self { cache, source: None, place: None })
    }

    /// Whether memory stays registered.
    pub(super) fn state(&self) -> CacheState {
        self.cache.state()
    }

    /// Memory that is put from, or got into.
    ///
    /// # Safety
    /// As for [`RegistrationCache::lease`].
    pub(super) unsafe fn source(&mut self, memory: Span) -> Result<Lease> {
        // SAFETY: the caller's promise.
        match unsafe { again(self.source.take(), memory, false) } {
            Some(lease) => Ok(lease),
            // SAFETY: the caller's promise.
            None => unsafe { self.private(memory) },
        }
    }

    /// Memory that peers may reach.
    ///
    /// # Safety
    /// As for [`RegistrationCache::lease`].
    pub(super) unsafe fn place(&mut self, memory: Span) -> Result<Lease> {
        // SAFETY: the caller's promise.
        match unsafe { again(self.place.take(), memory, true) } {
            Some(lease) => Ok(lease),
            // SAFETY: the caller's promise.
            None => unsafe { self.shared(memory) },
        }
    }

    /// Memory that peers may reach, looked up.
    ///
    /// # Safety
    /// As for [`RegistrationCache::lease`].
    #[cold]
    unsafe fn shared(&mut self, memory: Span) -> Result<Lease> {
        // SAFETY: the caller's promise.
        if let Some(lease) = unsafe { self.registered(memory)? }
            // SAFETY: the caller's promise.
            && let Some(lease) = unsafe { again(lease.rest(), memory, true) }
        {
            return Ok(lease);
        }
        self.let_go();
        // SAFETY: the caller's promise.
        Ok(unsafe { self.cache.lease(memory.start, memory.len)? })
    }

    /// Memory that peers do not reach, looked up.
    ///
    /// # Safety
    /// As for [`RegistrationCache::lease`].
    #[cold]
    pub(super) unsafe fn private(&mut self, memory: Span) -> Result<Lease> {
        // SAFETY: the caller's promise.
        if let Some(lease) = unsafe { self.registered(memory)? } {
            return Ok(lease);
        }
        self.let_go();
        // SAFETY: the caller's promise.
        Ok(unsafe { self.cache.lease_private(memory.start, memory.len)? })
    }

    /// As [`Registrations::private`], where it is registered already.
    ///
    /// # Safety
    /// As for [`RegistrationCache::lease`].
    pub(super) unsafe fn registered(&self, memory: Span) -> Result<Option<Lease>> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.cache.lease_registered(memory.start, memory.len)? })
    }

    /// Looks up memory that is to be put from.
    ///
    /// # Safety
    /// As for [`RegistrationCache::lease`], while this is called.
    pub(super) unsafe fn prepare(&mut self, memory: Span) {
        if self.source.as_ref().is_none_or(|resting| !resting.is_of(memory.start, memory.len)) {
            // SAFETY: the caller's promise. What is wrong with it the put tells.
            if let Ok(lease) = unsafe { self.private(memory) } {
                self.sent(lease);
            }
        }
    }

    /// What was put is the program's again.
    pub(super) fn sent(&mut self, lease: Lease) {
        self.source = lease.rest();
    }

    /// What peers could reach is the program's again: they have no rights when this returns.
    pub(super) fn concealed(&mut self, lease: Lease) {
        self.place = lease.rest();
    }

    /// Something is to be registered. What rests is leased, and would be in the way of a region of which it is a part.
    fn let_go(&mut self) {
        (self.source, self.place) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use uvia::NicOptions;

    use super::*;

    /// Registrations on a NIC of their own, unless memory cannot be watched.
    fn registrations(name: &str) -> Option<Registrations> {
        let device = format!("shm:registrations-{name}-{}", std::process::id());
        let options = NicOptions::default();
        let (adapter, domain) = uvia_driver::nic::open_named(&device, &options.adapter).unwrap();
        let nic = Nic::with_adapter(adapter, domain, options).unwrap();
        let registrations = Registrations::new(&nic, nic.create_tag().unwrap()).unwrap();
        if let CacheState::Off(why) = registrations.state() {
            eprintln!("skipped: {why}");
            return None;
        }
        Some(registrations)
    }

    /// The rights of what one place names are no other's to end, nor to leave behind.
    #[test]
    fn one_buffer_may_be_put_from_and_reached_and_rest_in_any_order() {
        let Some(mut registrations) = registrations("order") else { return };
        let mut bytes = vec![1u8; 1 << 16];
        let all = Span::of_mut(&mut bytes);
        let half = all.first(1 << 15);
        // SAFETY: the buffer lives longer than the registrations, and nobody touches it.
        unsafe {
            let source = registrations.source(all).unwrap();
            let region = source.region().clone();
            let may_write = || region.attributes().rdma_write;
            registrations.sent(source);
            for _ in 0..3 {
                let places = [half, all, half].map(|span| registrations.place(span).unwrap());
                assert!(places.iter().all(|place| place.handle() == region.handle()));
                // What is put from meanwhile gives no rights, and takes none.
                let source = registrations.source(all).unwrap();
                let [first, second, third] = places;
                registrations.concealed(second);
                registrations.sent(source);
                registrations.concealed(first);
                assert!(may_write(), "the third is there still");
                registrations.concealed(third);
                assert!(!may_write(), "nobody has rights any more");
                let again = registrations.place(half).unwrap();
                assert!(may_write());
                drop(again);
                assert!(!may_write());
            }
            let statistics = registrations.cache.statistics();
            assert_eq!((statistics.regions, statistics.misses), (1, 1));
            assert!(statistics.leases <= 2, "{statistics:?}");
        }
    }

    #[test]
    fn buffers_that_are_used_in_turn_are_looked_up_once() {
        let Some(mut registrations) = registrations("turns") else { return };
        let mut buffers = [vec![1u8; 1 << 16], vec![2u8; 1 << 16]];
        let [from, into] = buffers.each_mut().map(|bytes| Span::of_mut(bytes));
        let mut lookups = Vec::new();
        for _ in 0..10 {
            // SAFETY: the buffers live longer than the registrations, and nobody touches them.
            unsafe {
                registrations.prepare(from);
                let lease = registrations.source(from).unwrap();
                assert!(!lease.attributes().rdma_write);
                registrations.sent(lease);
                let lease = registrations.place(into).unwrap();
                assert!(lease.attributes().rdma_write);
                let region = lease.region().clone();
                registrations.concealed(lease);
                assert!(!region.attributes().rdma_write, "nobody has rights any more");
            }
            let statistics = registrations.cache.statistics();
            lookups.push(statistics.hits + statistics.misses);
        }
        // What is registered first may become a part of what both are.
        assert_eq!(lookups[2], lookups[9], "{lookups:?}");
        drop(registrations);
    }
}
