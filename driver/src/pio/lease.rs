//! The right to windows, for as long as it is held.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use super::memory::AdapterMemory;

/// Windows of an adapter memory that are ours: a lock on their bytes, which the kernel takes back when this process dies.
pub(super) struct Lease {
    memory: Arc<AdapterMemory>,
    windows: Range<usize>,
    /// A NIC may still reach for them: then they are not given back in order.
    pub(super) in_use: bool,
    /// Has their lock: until it is given back, or this is closed everywhere, nobody else is given the windows.
    file: File,
    /// Whose they are: a child that was forked has this too, and must not give them back.
    process: u32,
}

impl Lease {
    /// `file` has the windows' lock.
    pub(super) fn new(memory: Arc<AdapterMemory>, windows: Range<usize>, file: File) -> Self {
        Self { memory, windows, in_use: false, file, process: std::process::id() }
    }

    /// Neighbours, at least one.
    pub(super) fn windows(&self) -> Range<usize> {
        self.windows.clone()
    }

    pub(super) fn memory(&self) -> &Arc<AdapterMemory> {
        &self.memory
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // What was in flight was unmapped meanwhile, and the NIC has stopped. Should it not have, whoever is given the
        // window next finds out whether it has.
        if !self.in_use {
            self.memory.give_back(self.windows());
        }
        // A child that was just forked has the file too, until it runs its program: closing alone would not do.
        self.memory.unlock(&self.file, self.windows());
    }
}
