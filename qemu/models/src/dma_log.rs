//! What a function did to memory: counted always, recorded where a test wants to see it.

use std::collections::VecDeque;

use crate::bus::DmaFault;

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaAccess {
    /// I/O virtual address.
    pub address: u64,
    /// Bytes.
    pub len: usize,
    /// Stored, rather than fetched.
    pub write: bool,
    /// Why it was blocked, if it was.
    pub fault: Option<DmaFault>,
}

/// The last blocked accesses that are kept in any case.
const BLOCKED: usize = 256;

/// Accesses to memory of one function.
#[derive(Debug, Clone, Default)]
pub struct DmaLog {
    accesses: u64,
    blocked: u64,
    last_blocked: VecDeque<DmaAccess>,
    recorded: VecDeque<DmaAccess>,
    capacity: usize,
}

impl DmaLog {
    /// From now on the last `capacity` accesses are recorded; with 0 none.
    pub fn record(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.recorded.truncate(capacity);
    }

    /// How many accesses there were, blocked ones included.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// How many were blocked.
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// The last of those that were blocked, oldest first.
    pub fn last_blocked(&self) -> impl Iterator<Item = &DmaAccess> {
        self.last_blocked.iter()
    }

    /// The recorded ones, oldest first.
    pub fn recorded(&self) -> impl Iterator<Item = &DmaAccess> {
        self.recorded.iter()
    }

    #[inline]
    pub(crate) fn note(&mut self, access: DmaAccess) {
        self.accesses += 1;
        if access.fault.is_some() || self.capacity > 0 {
            self.keep(access);
        }
    }

    #[cold]
    fn keep(&mut self, access: DmaAccess) {
        if access.fault.is_some() {
            self.blocked += 1;
            push(&mut self.last_blocked, access, BLOCKED);
        }
        push(&mut self.recorded, access, self.capacity);
    }
}

fn push(to: &mut VecDeque<DmaAccess>, access: DmaAccess, most: usize) {
    if to.len() >= most {
        to.pop_front();
    }
    if most > 0 {
        to.push_back(access);
    }
}
