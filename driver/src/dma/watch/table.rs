//! Who watches what.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::cover::Cover;
use super::{Fate, Keeper, Loss};

/// Names an entry: where it starts, and a number.
pub(super) type Key = (usize, u64);

/// A range that is watched.
pub(super) struct Entry {
    pub(super) end: usize,
    pub(super) fate: Arc<Fate>,
    pub(super) keeper: Arc<dyn Keeper>,
    /// Whether it is gone as well when its pages are emptied.
    pub(super) keeps_pages: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Table {
    numbers: u64,
    entries: BTreeMap<Key, Entry>,
    /// No entry was ever longer: what reaches into a range begins at most so far before it.
    longest: usize,
    pub(super) cover: Cover,
}

impl Table {
    /// One more.
    pub(super) fn insert(&mut self, start: usize, entry: Entry) -> Key {
        self.numbers += 1;
        self.longest = self.longest.max(entry.end - start);
        self.cover.add(start, entry.end);
        let key = (start, self.numbers);
        self.entries.insert(key, entry);
        key
    }

    /// One less; answers it, and what nobody watches any more.
    pub(super) fn remove(&mut self, key: &Key) -> Option<(Entry, Vec<Range<usize>>)> {
        let entry = self.entries.remove(key)?;
        let free = self.cover.remove(key.0, entry.end);
        Some((entry, free))
    }

    /// A range went: ends what reaches into it, and answers how many that were. Neither allocates nor frees.
    pub(super) fn lose(&self, range: &Range<usize>, loss: Loss) -> u64 {
        let mut ended = 0;
        let from = range.start.saturating_sub(self.longest);
        for (_, entry) in self.entries.range((from, 0)..(range.end, 0)) {
            // Where addresses are followed and no page is kept, what is there now is what counts. One that is gone already
            // stays in the table until it is let go of, and its place may be somebody else's by then.
            if entry.end > range.start
                && (loss == Loss::Unmapped || entry.keeps_pages)
                && !entry.fate.is_gone()
            {
                entry.fate.end();
                entry.keeper.lost();
                ended += 1;
            }
        }
        ended
    }
}
