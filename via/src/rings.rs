//! The rings of a NIC's completion queues. They are filled and emptied under the NIC's lock, which whoever reaps
//! takes anyway to drive the NIC: so they need no atomic access of their own.

use crate::Completion;
use crate::ring::Ring;

/// Names a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingKey(u32);

impl RingKey {
    /// Of no ring.
    pub(crate) const NONE: Self = Self(u32::MAX);
    /// Of nobody who waits: no work queue has this one.
    pub(crate) const NOBODY: Self = Self(u32::MAX - 1);
}

/// None in a place that is free; those places.
#[derive(Default)]
pub(crate) struct Rings(Vec<Option<Ring<Completion>>>, Vec<u32>);

impl Rings {
    /// A new ring, with room for `capacity` completions.
    pub(crate) fn open(&mut self, capacity: usize) -> RingKey {
        let ring = Some(Ring::new(capacity));
        match self.1.pop() {
            Some(place) => {
                self.0[place as usize] = ring;
                RingKey(place)
            }
            None => {
                self.0.push(ring);
                RingKey(self.0.len() as u32 - 1)
            }
        }
    }

    /// Ends a ring; answers what was in it. Its key may name another one from now on.
    pub(crate) fn close(&mut self, key: RingKey) -> Option<Ring<Completion>> {
        let ring = self.0.get_mut(key.0 as usize)?.take()?;
        self.1.push(key.0);
        Some(ring)
    }

    /// Puts a completion in. Its entry was promised when its work queue was created, so that there is room. Those
    /// that come after their ring has gone are dropped: nobody is left to reap them.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: RingKey, completion: Completion) {
        if let Some(Some(ring)) = self.0.get_mut(key.0 as usize) {
            ring.push(completion);
        }
    }

    /// Whether there is nothing in a ring.
    #[inline(always)]
    pub(crate) fn is_empty(&self, key: RingKey) -> bool {
        !matches!(self.0.get(key.0 as usize), Some(Some(ring)) if !ring.is_empty())
    }

    /// Takes the oldest completion.
    #[inline(always)]
    pub(crate) fn pop(&mut self, key: RingKey) -> Option<Completion> {
        self.0.get_mut(key.0 as usize)?.as_mut()?.pop()
    }
}
