//! Completion queues: bounded, and never overrun.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::callbacks::NotifyHandler;
use crate::handle::Handle;
use crate::promises::Promises;
use crate::rings::RingKey;
use crate::{Completion, Error, Result};

/// Most completion queues of a NIC.
pub(crate) const MAX_CQS: usize = 4096;

/// Where the NIC puts what it has finished. A queue can serve any mix of the work queues of one NIC.
///
/// It cannot be overrun: a work queue that is tied to it takes as many of its entries as it is deep, at
/// creation, and fails to be created when there are not that many.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Ring>);

/// Completions that were taken together, by [`CompletionQueue::poll_into`]. Made once, filled and emptied many times.
pub struct Completions(pub(crate) Batch);

impl Completions {
    /// Room for `capacity` completions, at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Batch::new(capacity.max(1)))
    }

    /// The oldest of them.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        self.0.pop()
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

/// A ring of the NIC's, held by the queue's handles and by the interfaces that use it.
pub(crate) struct Ring {
    nic: Handle,
    key: RingKey,
    /// Of a completion queue, and not of a work queue that has none.
    is_cq: bool,
    promises: Arc<Promises>,
}

impl Ring {
    /// A ring of a work queue's own.
    pub(crate) fn new(nic: &Handle, capacity: usize) -> Arc<Self> {
        let key = nic.core().sinks.rings.open(capacity);
        Self::at(nic, key, false, capacity)
    }

    /// The ring of a completion queue.
    fn of_cq(nic: &Handle, capacity: usize) -> Result<Arc<Self>> {
        let mut core = nic.core();
        if core.cqs == MAX_CQS {
            return Err(Error::Resource { what: "completion queues", limit: MAX_CQS });
        }
        core.cqs += 1;
        let key = core.sinks.rings.open(capacity);
        drop(core);
        Ok(Self::at(nic, key, true, capacity))
    }

    fn at(nic: &Handle, key: RingKey, is_cq: bool, capacity: usize) -> Arc<Self> {
        let promises = Arc::new(Promises::new(capacity));
        Arc::new(Self { nic: nic.clone(), key, is_cq, promises })
    }

    pub(crate) fn nic(&self) -> &Handle {
        &self.nic
    }

    pub(crate) fn promises(&self) -> &Arc<Promises> {
        &self.promises
    }

    /// Calls the handler with the next completion.
    pub(crate) fn notify(&self, handler: NotifyHandler) -> Result<()> {
        self.nic.start_handlers()?;
        self.nic.core().sinks.notify(self.key, &self.promises, handler);
        self.nic.kick();
        Ok(())
    }

    #[inline]
    pub(crate) fn key(&self) -> RingKey {
        self.key
    }

    /// Promises `depth` entries to a work queue.
    pub(crate) fn promise(&self, depth: usize) -> Result<()> {
        self.promises.take(depth)
    }

    /// Takes a promise back.
    pub(crate) fn release(&self, depth: usize) {
        self.promises.give_back(depth);
    }

    /// The next completion; drives the NIC when there is none.
    #[inline]
    pub(crate) fn reap(&self, patient: bool) -> Result<Option<Completion>> {
        self.nic.reap(self, patient)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What was not reaped goes after the lock is free: descriptors may hold the last use of things.
        let mut core = self.nic.core();
        core.cqs -= usize::from(self.is_cq);
        let left = core.sinks.close_ring(self.key);
        let calls = core.sinks.callbacks().cancel(self.key);
        drop(core);
        drop((left, calls));
    }
}

impl CompletionQueue {
    pub(crate) fn new(nic: &Handle, capacity: usize) -> Result<Self> {
        Ring::of_cq(nic, capacity).map(Self)
    }

    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.0
    }

    pub(crate) fn belongs_to(&self, nic: &Handle) -> bool {
        self.0.nic.is(nic)
    }

    /// Entries.
    pub fn capacity(&self) -> usize {
        self.0.promises.capacity()
    }

    /// As [`CompletionQueue::poll`], for all that has completed, as far as the batch has room: takes the NIC once for
    /// many. Answers how many came.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn poll_into(&self, into: &mut Completions) -> Result<usize> {
        self.0.nic.reap_into(&self.0, into)
    }

    /// The next completion, if there is one; drives the NIC when there is not. Never blocks: while another
    /// thread drives the NIC there is none.
    ///
    /// # Errors
    /// A fault of the adapter.
    #[inline]
    pub fn poll(&self) -> Result<Option<Completion>> {
        self.0.reap(false)
    }

    /// As [`CompletionQueue::poll`], but waits for its turn while another thread drives the NIC.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn poll_patiently(&self) -> Result<Option<Completion>> {
        self.0.reap(true)
    }

    /// The next completion; waits for it up to `timeout`: polls for a moment, then sleeps on the adapter's
    /// interrupt.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Completion>> {
        self.0.nic.wait(timeout, |patient| self.0.reap(patient))
    }
}
