//! How many entries a completion queue has, and how many of them work queues were promised.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Capacity in the upper half, what is promised in the lower: one word, so that neither can pass the other by.
/// Relaxed throughout: it orders nothing else.
pub(crate) struct Promises(AtomicU64);

const fn word(capacity: usize, promised: usize) -> u64 {
    (capacity as u64) << 32 | promised as u64
}

const fn parts(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, word as u32 as usize)
}

impl Promises {
    /// Of a queue with so many entries, less than 2^32.
    pub(crate) fn new(capacity: usize) -> Self {
        Self(AtomicU64::new(word(capacity, 0)))
    }

    fn change(
        &self,
        change: impl Fn(usize, usize) -> Option<(usize, usize)>,
    ) -> std::result::Result<(), (usize, usize)> {
        let change = |now| {
            let (capacity, promised) = parts(now);
            change(capacity, promised).map(|(capacity, promised)| word(capacity, promised))
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).map(drop).map_err(parts)
    }

    /// Entries.
    pub(crate) fn capacity(&self) -> usize {
        parts(self.0.load(Ordering::Relaxed)).0
    }

    /// Entries that are promised.
    pub(crate) fn promised(&self) -> usize {
        parts(self.0.load(Ordering::Relaxed)).1
    }

    /// Promises `depth` entries to a work queue.
    pub(crate) fn take(&self, depth: usize) -> Result<()> {
        self.change(|capacity, promised| {
            let sum = promised.checked_add(depth).filter(|sum| *sum <= capacity)?;
            Some((capacity, sum))
        })
        .map_err(|(limit, _)| Error::Resource { what: "entries of the completion queue", limit })
    }

    /// Takes a promise back.
    pub(crate) fn give_back(&self, depth: usize) {
        let _ = self.change(|capacity, promised| Some((capacity, promised.saturating_sub(depth))));
    }

    /// Changes the number of entries, to no fewer than are promised.
    pub(crate) fn resize(&self, capacity: usize) -> Result<()> {
        self.change(|_, promised| (promised <= capacity).then_some((capacity, promised)))
            .map_err(|(_, promised)| Error::Promised { promised })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_promised_than_there_is_whichever_changes() {
        let promises = Promises::new(4);
        promises.take(3).unwrap();
        assert!(matches!(promises.take(2), Err(Error::Resource { limit: 4, .. })));
        assert!(matches!(promises.take(usize::MAX), Err(Error::Resource { .. })));
        assert!(matches!(promises.resize(2), Err(Error::Promised { promised: 3 })));
        promises.resize(5).unwrap();
        promises.take(2).unwrap();
        promises.give_back(4);
        promises.resize(1).unwrap();
        assert!(promises.capacity() == 1 && promises.take(1).is_err());
    }
}
