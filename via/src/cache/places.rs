//! What is registered where, and who leases it.

use std::collections::BTreeMap;

use uvia_driver::dma::watch;

use super::{CacheLimits, CacheStatistics};
use crate::MemoryRegion;

/// A registered range.
pub(super) struct Entry {
    start: usize,
    end: usize,
    region: MemoryRegion,
    leases: u32,
    /// Those of them with which peers have rights.
    shared: u32,
    /// When it was leased last, by a clock that counts leases.
    used: u64,
    /// It can be found; otherwise it goes with its last lease.
    listed: bool,
}

impl Entry {
    pub(super) fn new(start: usize, end: usize, region: MemoryRegion) -> Self {
        Self { start, end, region, leases: 0, shared: 0, used: 0, listed: false }
    }

    fn bytes(&self) -> u64 {
        (self.end - self.start) as u64
    }
}

/// Names an entry that is leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(usize);

/// All entries. Those that are listed do not overlap.
#[derive(Default)]
pub(super) struct Places {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// Those that are listed, by their first byte.
    listed: BTreeMap<usize, usize>,
    clock: u64,
    /// Losses in this process that were looked for already.
    pub(super) losses: u64,
    pub(super) statistics: CacheStatistics,
}

/// Regions that are let go of once no lock is held: that takes system calls.
pub(super) type Gone = Vec<Entry>;

impl Places {
    /// The entry that has all of the range.
    pub(super) fn find(&self, start: usize, end: usize) -> Option<Ticket> {
        let (_, &at) = self.listed.range(..=start).next_back()?;
        let entry = self.entries.get(at)?.as_ref()?;
        (entry.end >= end && !entry.region.is_gone()).then_some(Ticket(at))
    }

    /// One more lease; answers the region, its first byte, and whether the entry can be found.
    pub(super) fn lease(&mut self, ticket: Ticket) -> (MemoryRegion, usize, bool) {
        self.clock += 1;
        self.statistics.leases += 1;
        let clock = self.clock;
        // A ticket is made of an entry under the same lock, or counts as a lease of it.
        let Some(entry) = self.entries.get_mut(ticket.0).and_then(Option::as_mut) else { unreachable!() };
        entry.used = clock;
        entry.leases += 1;
        (entry.region.clone(), entry.start, entry.listed)
    }

    /// One lease more of those that there are is shared with peers; answers whether it is the only one.
    pub(super) fn share(&mut self, ticket: Ticket) -> bool {
        let Some(entry) = self.entries.get_mut(ticket.0).and_then(Option::as_mut) else { return false };
        entry.shared += 1;
        entry.shared == 1
    }

    /// One less, which stays a lease; answers whether it was the last.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let Some(entry) = self.entries.get_mut(ticket.0).and_then(Option::as_mut) else { return false };
        entry.shared -= 1;
        entry.shared == 0
    }

    /// One less, which peers have no rights by; answers what goes with the last of all.
    pub(super) fn give_back(&mut self, ticket: Ticket) -> Option<Entry> {
        self.statistics.leases -= 1;
        let entry = self.entries.get_mut(ticket.0).and_then(Option::as_mut)?;
        entry.leases -= 1;
        if entry.leases != 0 || entry.listed { None } else { self.remove(ticket.0) }
    }

    /// Keeps an entry, to be found. Nothing listed overlaps it.
    pub(super) fn insert(&mut self, mut entry: Entry) -> Ticket {
        entry.listed = true;
        let start = entry.start;
        let ticket = self.insert_unlisted(entry);
        self.listed.insert(start, ticket.0);
        ticket
    }

    /// Keeps an entry for the lease that follows.
    pub(super) fn insert_unlisted(&mut self, entry: Entry) -> Ticket {
        self.statistics.regions += 1;
        self.statistics.bytes += entry.bytes();
        match self.free.pop() {
            Some(at) => {
                self.entries[at] = Some(entry);
                Ticket(at)
            }
            None => {
                self.entries.push(Some(entry));
                Ticket(self.entries.len() - 1)
            }
        }
    }

    fn remove(&mut self, at: usize) -> Option<Entry> {
        let entry = self.entries[at].take()?;
        self.statistics.regions -= 1;
        self.statistics.bytes -= entry.bytes();
        self.free.push(at);
        Some(entry)
    }

    /// Is not found any more; answers it if nobody leases it.
    fn unlist(&mut self, at: usize) -> Option<Entry> {
        let entry = self.entries[at].as_mut()?;
        if entry.listed {
            entry.listed = false;
            self.listed.remove(&entry.start);
        }
        if entry.leases == 0 { self.remove(at) } else { None }
    }

    /// Lets go of what is gone. What is leased goes with its last lease.
    #[cold]
    pub(super) fn sweep(&mut self) {
        self.losses = watch::losses();
        let gone: Vec<usize> = self.listed_where(|entry| entry.region.is_gone());
        self.statistics.losses += gone.len() as u64;
        for at in gone {
            drop(self.unlist(at));
        }
    }

    fn listed_where(&self, what: impl Fn(&Entry) -> bool) -> Vec<usize> {
        let is = |at: &&usize| self.entries[**at].as_ref().is_some_and(&what);
        self.listed.values().filter(is).copied().collect()
    }

    /// The range with all that overlaps or touches it, if that has no more than `room` bytes.
    pub(super) fn union(&self, start: usize, end: usize, room: u64) -> (usize, usize) {
        let (mut from, mut to) = (start, end);
        // Those that are listed do not overlap, so that no more than one reaches in from before.
        if let Some((&first, &at)) = self.listed.range(..start).next_back()
            && self.entries[at].as_ref().is_some_and(|entry| entry.end >= start)
        {
            from = first;
        }
        for (_, &at) in self.listed.range(start..=end) {
            to = to.max(self.entries[at].as_ref().map_or(0, |entry| entry.end));
        }
        if (to - from) as u64 <= room { (from, to) } else { (start, end) }
    }

    /// Takes out what lies within the range and nobody leases.
    pub(super) fn take_within(&mut self, from: usize, to: usize) -> Gone {
        let within = self.listed_where(|entry| entry.leases == 0 && from <= entry.start && entry.end <= to);
        within.into_iter().filter_map(|at| self.unlist(at)).collect()
    }

    /// Takes out what overlaps the range. What is leased stays until its last lease ends, and is not found meanwhile.
    pub(super) fn take_overlapping(&mut self, from: usize, to: usize) -> Gone {
        let over = self.listed_where(|entry| entry.start < to && from < entry.end);
        over.into_iter().filter_map(|at| self.unlist(at)).collect()
    }

    /// Takes out all that nobody leases.
    pub(super) fn take_idle(&mut self) -> Gone {
        self.take_within(0, usize::MAX)
    }

    /// Whether so many bytes more are within the limits.
    pub(super) fn fits(&self, bytes: u64, limits: CacheLimits) -> bool {
        self.statistics.regions < limits.regions
            && self.statistics.bytes.saturating_add(bytes) <= limits.bytes
    }

    /// Takes out what was not leased for longest, until so many bytes more are within the limits, or all is leased.
    pub(super) fn make_room(&mut self, bytes: u64, limits: CacheLimits) -> Gone {
        let mut gone = Gone::new();
        while !self.fits(bytes, limits) {
            let idle = self
                .listed
                .values()
                .copied()
                .filter(|at| self.entries[*at].as_ref().is_some_and(|entry| entry.leases == 0));
            let oldest = idle.min_by_key(|at| self.entries[*at].as_ref().map_or(0, |entry| entry.used));
            let Some(entry) = oldest.and_then(|at| self.unlist(at)) else { break };
            self.statistics.evictions += 1;
            gone.push(entry);
        }
        gone
    }
}
