//! Memory that a cache has registered, for as long as somebody needs it.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::Shared;
use super::places::Ticket;
use crate::{Error, MemoryRegion, RemoteMemory, Result, Segment};

/// Registered memory, as it was asked for: a part of a region that may be larger. The region stays registered, and with
/// the rights of peers where it was leased for them, until this is dropped.
///
/// Descriptors keep the region registered by themselves; the memory's owner waits for these too.
pub struct Lease {
    pub(super) cache: Arc<Shared>,
    pub(super) ticket: Ticket,
    pub(super) region: MemoryRegion,
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Peers have rights by it.
    pub(super) shared: bool,
    /// The cache keeps the region when it ends.
    pub(super) kept: bool,
}

impl Lease {
    /// The region that it is a part of.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Where it starts in the region, bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: nothing empty can be registered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of it, counted from where it starts.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the range lies beyond it, [`Error::Protection`] when the program has unmapped it.
    pub fn segment(&self, range: Range<usize>) -> Result<Segment> {
        self.check(&range)?;
        self.region.segment(self.offset + range.start..self.offset + range.end)
    }

    /// How a peer names the byte at `offset`, counted from where it starts.
    ///
    /// # Errors
    /// As [`Self::segment`].
    pub fn remote(&self, offset: usize) -> Result<RemoteMemory> {
        self.check(&(offset..offset))?;
        self.region.remote(self.offset + offset)
    }

    /// Gives peers rights by it.
    pub(super) fn share(&mut self) -> Result<()> {
        self.cache.share(self.ticket, &self.region)?;
        self.shared = true;
        Ok(())
    }

    /// Takes them back, if they have any.
    pub(super) fn withdraw(&mut self) {
        if std::mem::take(&mut self.shared) {
            self.cache.withdraw(self.ticket, &self.region);
        }
    }

    fn check(&self, range: &Range<usize>) -> Result<()> {
        if range.start <= range.end && range.end <= self.len {
            return Ok(());
        }
        Err(Error::Parameter(format!("bytes {range:?} do not lie within the leased {}", self.len)))
    }
}

impl Deref for Lease {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.withdraw();
        self.cache.give_back(self.ticket);
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("handle", &self.region.handle())
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
