//! Registered memory that is the program's again, and at hand for its next lease.

use uvia_driver::dma::watch;

use super::Lease;

/// A lease that rests: the memory is the program's, to free, unmap or use otherwise as it likes, no peer has rights by it,
/// and it can be leased once more ([`Resting::lease`]) without being looked up. To the cache it is leased: it lets go of
/// the region no sooner than this is dropped.
#[derive(Debug)]
pub struct Resting(Lease);

impl Lease {
    /// Gives the memory back to the program, as the end of the lease does, and keeps it at hand. `None`: the cache would
    /// not keep its region either, or could not know when the memory goes away; then the lease has ended.
    pub fn rest(mut self) -> Option<Resting> {
        self.withdraw();
        (self.kept && self.region.is_watched()).then_some(Resting(self))
    }
}

impl Resting {
    /// Whether it is what was leased as these `len` bytes.
    #[inline]
    pub fn is_of(&self, address: *const u8, len: usize) -> bool {
        let Lease { region, offset, len: leased, .. } = &self.0;
        *leased == len && region.as_ptr().addr() + offset == address.addr()
    }

    /// The lease of these bytes once more, with the rights of peers where it is `shared` with them. `None`: the program has
    /// unmapped them meanwhile, so that whatever lies there now is to be leased anew; or this is a forked child.
    ///
    /// # Safety
    /// As for [`RegistrationCache::lease`](super::RegistrationCache::lease).
    pub unsafe fn lease(self, shared: bool) -> Option<Lease> {
        let Self(mut lease) = self;
        if lease.cache.is_forked() {
            return None;
        }
        // What was unmapped before this call is known to be.
        watch::settle();
        if lease.region.is_gone() {
            return None;
        }
        if shared {
            lease.share().ok()?;
        }
        Some(lease)
    }
}
