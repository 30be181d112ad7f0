//! Completion queues: bounded, lock-free, and never overrun.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam::queue::ArrayQueue;

use crate::nic::Shared;
use crate::{Completion, Error, Result};

/// Where the NIC puts what it has finished. A queue can serve any mix of the work queues of one NIC.
///
/// It cannot be overrun: a work queue that is tied to it takes as many of its entries as it is deep, at
/// creation, and fails to be created when there are not that many.
#[derive(Clone)]
pub struct CompletionQueue {
    nic: Arc<Shared>,
    ring: Arc<Ring>,
}

/// The part that the NIC's provider holds.
pub(crate) struct Ring {
    entries: ArrayQueue<Completion>,
    /// Entries promised to work queues.
    promised: AtomicUsize,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { entries: ArrayQueue::new(capacity.max(1)), promised: AtomicUsize::new(0) })
    }

    /// Puts a completion in. Each was promised an entry when its work queue was created.
    #[inline]
    pub(crate) fn push(&self, completion: Completion) {
        if let Err(lost) = self.entries.push(completion) {
            // Cannot be, while posts are counted against the depth that was promised; losing it silently
            // would be worse than saying so.
            tracing::error!(vi = ?lost.vi, queue = ?lost.queue, "a completion found its queue full");
        }
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<Completion> {
        self.entries.pop()
    }

    /// Promises `depth` entries to a work queue.
    pub(crate) fn promise(&self, depth: usize) -> Result<()> {
        let capacity = self.entries.capacity();
        self.promised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                now.checked_add(depth).filter(|sum| *sum <= capacity)
            })
            .map(|_| ())
            .map_err(|_| Error::Resource { what: "entries of the completion queue", limit: capacity })
    }

    /// Takes a promise back.
    pub(crate) fn release(&self, depth: usize) {
        self.promised.fetch_sub(depth, Ordering::Relaxed);
    }
}

impl CompletionQueue {
    pub(crate) fn new(nic: Arc<Shared>, ring: Arc<Ring>) -> Self {
        Self { nic, ring }
    }

    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    pub(crate) fn belongs_to(&self, nic: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.nic, nic)
    }

    /// Entries.
    pub fn capacity(&self) -> usize {
        self.ring.entries.capacity()
    }

    /// The next completion, if there is one; drives the NIC when there is not. Never blocks.
    ///
    /// # Errors
    /// A fault of the adapter.
    #[inline]
    pub fn poll(&self) -> Result<Option<Completion>> {
        self.nic.reap(&self.ring)
    }

    /// The next completion; waits for it up to `timeout`: polls for a moment, then sleeps on the adapter's
    /// interrupt.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Completion>> {
        self.nic.wait(timeout, || self.nic.reap(&self.ring))
    }
}
