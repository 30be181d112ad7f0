//! Rings that somebody waits for without looking: handlers, tasks, and sleepers on a file descriptor.
//!
//! While a ring is watched it is kept here, and its place among the others is empty: so a ring that nobody watches,
//! which is the usual case, costs nothing more for it.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use super::Sinks;
use crate::Completion;
use crate::callbacks::NotifyHandler;
use crate::promises::Promises;
use crate::ring::Ring;
use crate::rings::RingKey;

/// A ring, and who is to be told.
pub(crate) struct Watch {
    ring: Ring<Completion>,
    /// Of the ring: entries of completions whose interface is no more are free again once they are taken.
    promises: Arc<Promises>,
    handlers: VecDeque<NotifyHandler>,
    wakers: Vec<(Waiter, Waker)>,
    /// Signalled once, then no more until they are armed again.
    events: Vec<Arc<OwnedFd>>,
}

/// A task that waits, told apart from others, and from others' waits within the same task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter(u64);

/// What is left of a ring that is no more, to be dropped where no lock is held.
pub(crate) struct Left {
    pub(super) ring: Option<Ring<Completion>>,
    pub(super) watch: Option<Watch>,
}

impl Left {
    #[cfg(test)]
    pub(super) fn pop(&mut self) -> Option<Completion> {
        self.ring.as_mut()?.pop()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        drop((self.ring.take(), self.watch.take()));
    }
}

impl Sinks {
    fn watch(&mut self, key: RingKey, promises: &Arc<Promises>) -> Option<&mut Watch> {
        if let Some(ring) = self.rings.lend(key) {
            let watch = Watch {
                ring,
                promises: promises.clone(),
                handlers: VecDeque::new(),
                wakers: Vec::new(),
                events: Vec::new(),
            };
            self.watches.insert(key, watch);
        }
        self.watches.get_mut(&key)
    }

    /// The handler gets one completion of the ring: at once, if there is one.
    pub(crate) fn notify(&mut self, key: RingKey, promises: &Arc<Promises>, handler: NotifyHandler) {
        if let Some(watch) = self.watch(key, promises) {
            watch.handlers.push_back(handler);
        }
        self.serve(key);
    }

    /// The task is woken when there is a completion in the ring: at once, if there is one. Who waits is given a name the
    /// first time, and keeps it. Answers by what it was to be woken before, to be dropped where no lock is held.
    pub(crate) fn wake_for(
        &mut self,
        key: RingKey,
        promises: &Arc<Promises>,
        waiter: &mut Option<Waiter>,
        waker: &Waker,
    ) -> Option<Waker> {
        let name = *waiter.get_or_insert_with(|| {
            self.waiters += 1;
            Waiter(self.waiters)
        });
        let mut before = None;
        if let Some(watch) = self.watch(key, promises) {
            match watch.wakers.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) if known.will_wake(waker) => {}
                Some((_, known)) => before = Some(std::mem::replace(known, waker.clone())),
                None => watch.wakers.push((name, waker.clone())),
            }
        }
        self.serve(key);
        before
    }

    /// The task waits no more. Answers by what it was to be woken, to be dropped where no lock is held.
    pub(crate) fn wake_no_more(&mut self, key: RingKey, waiter: Waiter) -> Option<Waker> {
        let wakers = &mut self.watches.get_mut(&key)?.wakers;
        let at = wakers.iter().position(|(known, _)| *known == waiter)?;
        let (_, waker) = wakers.remove(at);
        self.serve(key);
        Some(waker)
    }

    /// Signals that file descriptor with the next completion; false, and nothing is armed, when there is one already.
    pub(crate) fn arm(&mut self, key: RingKey, promises: &Arc<Promises>, event: &Arc<OwnedFd>) -> bool {
        let Some(watch) = self.watch(key, promises) else { return false };
        let armed = watch.ring.is_empty();
        if armed && !watch.events.iter().any(|known| Arc::ptr_eq(known, event)) {
            watch.events.push(event.clone());
        }
        self.serve(key);
        armed
    }

    /// That file descriptor is signalled no more.
    pub(crate) fn disarm(&mut self, key: RingKey, event: &Arc<OwnedFd>) {
        if let Some(watch) = self.watches.get_mut(&key) {
            watch.events.retain(|armed| !Arc::ptr_eq(armed, event));
        }
        self.serve(key);
    }

    /// Signals that file descriptor with the next news of connections and names.
    pub(crate) fn arm_news(&mut self, event: &Arc<OwnedFd>) {
        if !self.news.iter().any(|known| Arc::ptr_eq(known, event)) {
            self.news.push(event.clone());
        }
    }

    /// That file descriptor is signalled no more for news.
    pub(crate) fn disarm_news(&mut self, event: &Arc<OwnedFd>) {
        self.news.retain(|armed| !Arc::ptr_eq(armed, event));
    }

    /// There is news.
    pub(crate) fn tell_news(&mut self) {
        self.news.drain(..).for_each(|event| signal(&event));
    }

    /// Changes the room of a ring; all that is in it stays.
    pub(crate) fn resize_ring(&mut self, key: RingKey, capacity: usize) {
        let ring = match self.rings.get_mut(key) {
            Some(ring) => ring,
            None => match self.watches.get_mut(&key) {
                Some(watch) => &mut watch.ring,
                None => return,
            },
        };
        let mut resized = Ring::new(capacity.max(ring.len()));
        while let Some(completion) = ring.pop() {
            resized.push(completion);
        }
        *ring = resized;
    }

    /// A completion for a ring that is not in its place: it is watched, or no more.
    #[cold]
    pub(super) fn complete_elsewhere(&mut self, key: RingKey, completion: Completion) {
        if let Some(watch) = self.watches.get_mut(&key) {
            watch.ring.push(completion);
            self.serve(key);
        }
    }

    /// The oldest completion of a ring that is not in its place.
    #[cold]
    pub(super) fn pop_elsewhere(&mut self, key: RingKey) -> Option<Completion> {
        self.watches.get_mut(&key)?.ring.pop()
    }

    /// Tells those who wait; when there is nobody left, the ring goes back to its place.
    fn serve(&mut self, key: RingKey) {
        let Some(mut watch) = self.watches.remove(&key) else { return };
        while !watch.ring.is_empty()
            && let Some(handler) = watch.handlers.pop_front()
        {
            let Some(completion) = watch.ring.pop() else { break };
            if !self.reaped(&completion) {
                watch.promises.give_back(1);
            }
            self.callbacks.notify(key, handler, completion);
        }
        if !watch.ring.is_empty() {
            watch.wakers.drain(..).for_each(|(_, waker)| self.callbacks.wake(waker));
            watch.events.drain(..).for_each(|event| signal(&event));
        }
        if watch.handlers.is_empty() && watch.wakers.is_empty() && watch.events.is_empty() {
            self.rings.give_back(key, watch.ring);
        } else {
            self.watches.insert(key, watch);
        }
    }
}

/// Makes an event file descriptor readable.
pub(crate) fn signal(event: &OwnedFd) {
    let one = 1u64;
    // SAFETY: 8 bytes of ours are read, as an event file descriptor wants; it is open, since it is owned.
    let outcome = unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
    if outcome != 8 {
        // It takes 2^64 - 2 signals that nobody consumed; it is readable then in any case.
        tracing::error!("signalling a completion queue's event: {}", std::io::Error::last_os_error());
    }
}
