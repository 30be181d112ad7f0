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

    #[test]
    fn buffers_that_are_used_in_turn_are_looked_up_once() {
        let device = format!("shm:registrations-{}", std::process::id());
        let options = NicOptions::default();
        let (adapter, domain) = uvia_driver::nic::open_named(&device, &options.adapter).unwrap();
        let nic = Nic::with_adapter(adapter, domain, options).unwrap();
        let mut registrations = Registrations::new(&nic, nic.create_tag().unwrap()).unwrap();
        if let CacheState::Off(why) = registrations.state() {
            return eprintln!("skipped: {why}");
        }
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
