//! Who gets what a provider has finished.

mod watch;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::batch::Batch;
use crate::callbacks::Callbacks;
use crate::credits::Credits;
use crate::engine::Finished;
use crate::posts::{self, Posts};
use crate::provider::Event;
use crate::rings::{RingKey, Rings};
use crate::{
    AsyncError, Completion, ConnectionLoss, Descriptor, Error, ErrorCode, ErrorResource, MacAddress, Peer,
    Result, ViId, WorkQueue,
};
pub(crate) use watch::Waiter;
pub(crate) use watch::signal;
use watch::{Left, Watch};

/// Completions go to their rings at once; events wait here for whoever asked.
pub(crate) struct Sinks {
    /// By slot of the interface: where its completions go.
    routes: Vec<Route>,
    /// By slot of the interface: what else is known of it.
    vis: Vec<Option<ViSinks>>,
    pub(crate) rings: Rings,
    /// Rings that somebody waits for without looking.
    watches: HashMap<RingKey, Watch>,
    /// Tasks that have waited, ever.
    waiters: u64,
    callbacks: Arc<Callbacks>,
    /// What was posted meanwhile, for the engine to ask for when it needs a receive.
    posts: Arc<Posts>,
    names: HashMap<String, Option<MacAddress>>,
    /// Who sleeps until there is news of connections and names.
    news: Vec<Arc<OwnedFd>>,
}

/// The ring that somebody waits at, which is empty: what would come into it is handed over at once, as far as the batch
/// has room.
pub(crate) struct Handed<'a> {
    pub(crate) ring: RingKey,
    pub(crate) batch: &'a mut Batch,
}

impl<'a> Handed<'a> {
    /// Where nobody waits; `nothing` has no room.
    pub(crate) fn to_nobody(nothing: &'a mut Batch) -> Self {
        Self { ring: RingKey::NOBODY, batch: nothing }
    }

    /// The same, for a part of the time.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> Handed<'_> {
        Handed { ring: self.ring, batch: self.batch }
    }
}

/// Read for every completion, so it is small, and found by a shift.
#[derive(Clone)]
#[repr(align(32))]
struct Route {
    id: ViId,
    /// None when the interface is gone.
    credits: Option<Arc<Credits>>,
    send: RingKey,
    receive: RingKey,
    /// Where both go to the same ring: that one.
    both: RingKey,
}

impl Route {
    /// Where a completion of its interface goes.
    #[inline(always)]
    fn ring(&self, completion: &Completion) -> RingKey {
        // Whoever completes has the interface still, so that the slot was not given to another one.
        debug_assert!(self.id == completion.vi);
        match completion.queue {
            WorkQueue::Send => self.send,
            WorkQueue::Receive => self.receive,
        }
    }
}

struct ViSinks {
    id: ViId,
    /// The number of who opened the NIC, by whose handle it was created.
    owner: u32,
    outcome: Option<Result<Peer>>,
    loss: Option<ConnectionLoss>,
}

impl Sinks {
    pub(crate) fn new() -> Self {
        Self {
            routes: Vec::new(),
            vis: Vec::new(),
            rings: Rings::default(),
            watches: HashMap::new(),
            waiters: 0,
            callbacks: Arc::default(),
            posts: Arc::new(posts::queue()),
            names: HashMap::new(),
            news: Vec::new(),
        }
    }

    /// Ends a ring; answers what was in it. What comes for it later is dropped.
    pub(crate) fn close_ring(&mut self, key: RingKey) -> Left {
        for end in self.routes.iter_mut().flat_map(|r| [&mut r.send, &mut r.receive, &mut r.both]) {
            if *end == key {
                *end = RingKey::NONE;
            }
        }
        Left { ring: self.rings.close(key), watch: self.watches.remove(&key) }
    }

    /// The calls of handlers that come of what happens here.
    pub(crate) fn callbacks(&self) -> &Arc<Callbacks> {
        &self.callbacks
    }

    /// What is posted while somebody holds the engine.
    pub(crate) fn posts(&self) -> &Arc<Posts> {
        &self.posts
    }

    /// Errors of that interface are told to who opened the NIC by that number.
    pub(crate) fn set_owner(&mut self, id: ViId, owner: u32) {
        if let Some(vi) = self.vi(id) {
            vi.owner = owner;
        }
    }

    /// Tells of an error that no descriptor can carry.
    pub(crate) fn error(&mut self, id: ViId, code: ErrorCode) {
        let owner = self.vi(id).map_or(0, |vi| vi.owner);
        self.callbacks.error(owner, AsyncError { code, resource: ErrorResource::Vi(id) });
    }

    /// Takes the oldest completion of a ring.
    #[inline(always)]
    pub(crate) fn pop(&mut self, key: RingKey) -> Option<Completion> {
        match self.rings.get_mut(key) {
            Some(ring) => ring.pop(),
            None => self.pop_elsewhere(key),
        }
    }

    /// The entry stays after the interface is gone, for completions that come late, until the slot is used again.
    pub(crate) fn open(&mut self, id: ViId, credits: Arc<Credits>, send: RingKey, receive: RingKey) {
        if id.slot() >= self.routes.len() {
            let nobody = ViId::new(u32::MAX, 0);
            let none = RingKey::NONE;
            let nowhere = Route { id: nobody, credits: None, send: none, receive: none, both: none };
            self.routes.resize(id.slot() + 1, nowhere);
            self.vis.resize_with(id.slot() + 1, || None);
        }
        if let (Some(slot), Some(route)) = (self.vis.get_mut(id.slot()), self.routes.get_mut(id.slot())) {
            let both = if send == receive { send } else { RingKey::NONE };
            *route = Route { id, credits: Some(credits), send, receive, both };
            *slot = Some(ViSinks { id, owner: 0, outcome: None, loss: None });
        }
    }

    /// The interface is gone: its completions are no longer counted back.
    pub(crate) fn close(&mut self, id: ViId) {
        if let Some(route) = self.routes.get_mut(id.slot()).filter(|route| route.id == id) {
            route.credits = None;
        }
    }

    /// A completion was reaped: counts it back; false when its interface is gone.
    #[inline(always)]
    pub(crate) fn reaped(&self, completion: &Completion) -> bool {
        let route = self.routes.get(completion.vi.slot()).filter(|route| route.id == completion.vi);
        let credits = route.and_then(|route| route.credits.as_ref());
        if let Some(credits) = credits {
            credits.give(completion.queue);
        }
        credits.is_some()
    }

    fn vi(&mut self, id: ViId) -> Option<&mut ViSinks> {
        self.vis.get_mut(id.slot())?.as_mut().filter(|vi| vi.id == id)
    }

    pub(crate) fn loss(&self, id: ViId) -> Option<ConnectionLoss> {
        self.vis.get(id.slot())?.as_ref().filter(|vi| vi.id == id)?.loss
    }

    pub(crate) fn forget_outcome(&mut self, id: ViId) {
        if let Some(vi) = self.vi(id) {
            vi.outcome = None;
            vi.loss = None;
        }
    }

    pub(crate) fn take_outcome(&mut self, id: ViId) -> Option<Result<Peer>> {
        self.vi(id)?.outcome.take()
    }

    pub(crate) fn forget_name(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// `Some(None)`: it was looked for and not found.
    pub(crate) fn take_name(&mut self, name: &str) -> Option<Option<MacAddress>> {
        self.names.remove(name)
    }
}

impl Sinks {
    /// Takes a descriptor that is done with, while somebody waits at a ring; each posted one comes here, or to
    /// [`Sinks::complete_message`], exactly once.
    #[inline(always)]
    pub(crate) fn complete(&mut self, handed: &mut Handed<'_>, completion: Completion) {
        let Some(route) = self.routes.get(completion.vi.slot()) else { return unknown(completion.vi) };
        let ring = route.ring(&completion);
        if ring == handed.ring
            && let Some(credits) = &route.credits
            && let Some(place) = handed.batch.place()
        {
            let queue = completion.queue;
            place.fill(completion);
            return credits.give(queue);
        }
        match self.rings.get_mut(ring) {
            Some(ring) => {
                ring.push(completion);
            }
            None => self.complete_elsewhere(ring, completion),
        }
    }

    /// Those that `sends` gives are done with, of an interface's send queue, and then one of its receive queue. Where both
    /// go to the ring that somebody waits at, which is usual, its interface is looked for once.
    #[inline(always)]
    pub(crate) fn complete_message(
        &mut self,
        handed: &mut Handed<'_>,
        vi: ViId,
        mut sends: Finished<'_>,
        receive: Box<Descriptor>,
    ) {
        let receive = Completion { vi, queue: WorkQueue::Receive, descriptor: receive };
        if let Some(Route { credits: Some(credits), both, .. }) = self.routes.get(vi.slot())
            && *both == handed.ring
        {
            let credits: &Credits = credits;
            if let Some(places) = handed.batch.two_places() {
                let place = match sends.next() {
                    Some(descriptor) => {
                        credits.give(WorkQueue::Send);
                        places.fill_first(Completion { vi, queue: WorkQueue::Send, descriptor })
                    }
                    None => places.first(),
                };
                // Usually one message acknowledges one.
                if !sends.has_more() {
                    place.fill(receive);
                    return credits.give(WorkQueue::Receive);
                }
            }
        }
        self.complete_each(handed, vi, sends, receive);
    }

    #[inline(never)]
    fn complete_each(&mut self, handed: &mut Handed<'_>, vi: ViId, sends: Finished<'_>, receive: Completion) {
        for descriptor in sends {
            self.complete(handed, Completion { vi, queue: WorkQueue::Send, descriptor });
        }
        self.complete(handed, receive);
    }

    /// Takes news of connections and names.
    pub(crate) fn event(&mut self, event: Event) {
        self.tell_news();
        match event {
            Event::Connected(id, peer) => self.outcome(id, Ok(peer)),
            Event::ConnectFailed(id, error) => self.outcome(id, Err(error)),
            Event::Broken(id, loss) => {
                if let Some(vi) = self.vi(id) {
                    vi.loss = Some(loss);
                }
            }
            Event::Resolved(name, mac) => {
                self.names.insert(name, Some(mac));
            }
            Event::Unresolved(name) => {
                self.names.insert(name, None);
            }
        }
    }
}

impl Sinks {
    fn outcome(&mut self, id: ViId, outcome: std::result::Result<Peer, Error>) {
        if let Some(vi) = self.vi(id) {
            vi.outcome = Some(outcome);
        }
    }
}

#[cold]
fn unknown(vi: ViId) {
    tracing::error!(?vi, "a completion of an interface that nobody knows");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Descriptor;

    #[test]
    fn a_late_completion_does_not_get_into_another_ring() {
        let vi = ViId::new(0, 0);
        let completion = || Completion { vi, queue: WorkQueue::Send, descriptor: Descriptor::new(vec![]) };
        let mut sinks = Sinks::new();
        let old = sinks.rings.open(2);
        let credits = Arc::new(Credits::default());
        sinks.open(vi, credits.clone(), old, RingKey::NONE);
        sinks.complete(&mut Handed::to_nobody(&mut Batch::nothing()), completion());
        assert_eq!(sinks.close_ring(old).pop().map(|c| c.vi), Some(vi));
        let new = sinks.rings.open(2);
        sinks.complete(&mut Handed::to_nobody(&mut Batch::nothing()), completion());
        assert!(sinks.pop(new).is_none());
        sinks.rings.get_mut(new).unwrap().push(completion());
        assert!(sinks.pop(new).is_some() && sinks.pop(new).is_none());
        sinks.complete(
            &mut Handed::to_nobody(&mut Batch::nothing()),
            Completion { vi: ViId::new(9, 0), ..completion() },
        );
    }

    #[test]
    fn a_late_completion_is_not_counted_for_the_successor() {
        let completion = |vi| Completion { vi, queue: WorkQueue::Send, descriptor: Descriptor::new(vec![]) };
        let (old, new) = (ViId::new(0, 7), ViId::new(0, 8));
        let [of_old, of_new] = [(); 2].map(|()| Arc::new(Credits::default()));
        let mut sinks = Sinks::new();
        sinks.open(old, of_old.clone(), RingKey::NONE, RingKey::NONE);
        assert!(of_old.take(WorkQueue::Send, 2) && of_old.take(WorkQueue::Send, 2));
        assert!(sinks.reaped(&completion(old)));
        assert_eq!(of_old.out(WorkQueue::Send), 1);
        sinks.close(old);
        assert!(!sinks.reaped(&completion(old)));
        sinks.open(new, of_new.clone(), RingKey::NONE, RingKey::NONE);
        assert!(of_new.take(WorkQueue::Send, 1));
        assert!(!sinks.reaped(&completion(old)));
        assert_eq!((of_old.out(WorkQueue::Send), of_new.out(WorkQueue::Send)), (1, 1));
    }
}
