//! The right to a window, for as long as it is held.

use std::fs::File;
use std::sync::Arc;

use super::memory::AdapterMemory;

/// A window of an adapter memory that is ours: a lock on its bytes, which the kernel takes back when this process dies.
pub(super) struct Lease {
    memory: Arc<AdapterMemory>,
    number: usize,
    /// Some frame of the window may still be in flight: then it is not given back in order.
    pub(super) in_use: bool,
    /// Closed last: until then nobody else is given the window.
    _file: File,
}

impl Lease {
    /// `file` has the window's lock.
    pub(super) fn new(memory: Arc<AdapterMemory>, number: usize, file: File) -> Self {
        Self { memory, number, in_use: false, _file: file }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn memory(&self) -> &Arc<AdapterMemory> {
        &self.memory
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What was in flight was unmapped meanwhile, and the NIC has stopped. Should it not have, whoever is given the
        // window next finds out whether it has.
        if !self.in_use {
            self.memory.give_back(self.number);
        }
    }
}
