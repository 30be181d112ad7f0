//! The rings of a NIC's completion queues. They are filled and emptied under the NIC's lock, which whoever reaps
//! takes anyway to drive the NIC: so they need no atomic access of their own.

use std::collections::HashSet;

use crate::Completion;
use crate::ring::Ring;

/// Names a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RingKey(u32);

impl RingKey {
    /// Of no ring.
    pub(crate) const NONE: Self = Self(u32::MAX);
    /// Of nobody who waits: no work queue has this one.
    pub(crate) const NOBODY: Self = Self(u32::MAX - 1);
}

#[derive(Default)]
pub(crate) struct Rings {
    /// None in a place that is free, or whose ring is lent.
    rings: Vec<Option<Ring<Completion>>>,
    /// Places of rings that are elsewhere for a while.
    lent: HashSet<u32>,
    free: Vec<u32>,
    /// A ring that was in its place and empty when somebody asked, and that nothing was done to since: who polls one queue
    /// over and over finds it here.
    quiet: Quiet,
}

/// The key of a ring, or of none.
struct Quiet(RingKey);

impl Default for Quiet {
    fn default() -> Self {
        Self(RingKey::NONE)
    }
}

/// Entries that a ring begins with, at most; it grows when more are in use at a time.
const FIRST: usize = 4096;

impl Rings {
    /// A new ring, with room for `capacity` completions.
    pub(crate) fn open(&mut self, capacity: usize) -> RingKey {
        let ring = Some(Ring::new(capacity.min(FIRST)));
        match self.free.pop() {
            Some(place) => {
                self.rings[place as usize] = ring;
                RingKey(place)
            }
            None => {
                self.rings.push(ring);
                RingKey(self.rings.len() as u32 - 1)
            }
        }
    }

    /// Ends a ring; answers what was in it. Its key may name another one from now on.
    pub(crate) fn close(&mut self, key: RingKey) -> Option<Ring<Completion>> {
        self.quiet = Quiet::default();
        let ring = self.rings.get_mut(key.0 as usize)?.take();
        if self.lent.remove(&key.0) || ring.is_some() {
            self.free.push(key.0);
        }
        ring
    }

    /// Takes a ring out of its place for a while; the place stays its own.
    pub(crate) fn lend(&mut self, key: RingKey) -> Option<Ring<Completion>> {
        self.quiet = Quiet::default();
        let ring = self.rings.get_mut(key.0 as usize)?.take()?;
        self.lent.insert(key.0);
        Some(ring)
    }

    /// Puts it back.
    pub(crate) fn give_back(&mut self, key: RingKey, ring: Ring<Completion>) {
        if self.lent.remove(&key.0)
            && let Some(place) = self.rings.get_mut(key.0 as usize)
        {
            *place = Some(ring);
        }
    }

    /// A ring that is in its place. A completion's entry in it was promised when its work queue was created, so that
    /// there is room.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, key: RingKey) -> Option<&mut Ring<Completion>> {
        self.quiet = Quiet::default();
        self.rings.get_mut(key.0 as usize)?.as_mut()
    }

    /// 0 if it is known of a ring that it is in its place, and that there is nothing in it.
    #[inline(always)]
    pub(crate) fn unlike_quiet(&self, key: RingKey) -> u32 {
        self.quiet.0.0 ^ key.0
    }

    /// Whether a ring is in its place, and there is nothing in it.
    #[inline(always)]
    pub(crate) fn is_empty(&mut self, key: RingKey) -> bool {
        self.quiet.0 == key || self.finds_empty(key)
    }

    #[inline(never)]
    fn finds_empty(&mut self, key: RingKey) -> bool {
        let empty = matches!(self.rings.get(key.0 as usize), Some(Some(ring)) if ring.is_empty());
        if empty {
            self.quiet = Quiet(key);
        }
        empty
    }
}
