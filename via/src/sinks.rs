//! Who gets what a provider has finished.

use std::collections::HashMap;

use crate::provider::Event;
use crate::ring::Ring;
use crate::rings::{RingKey, Rings};
use crate::{Completion, ConnectionLoss, Error, MacAddress, Peer, Result, ViId, WorkQueue};

/// Completions go to their rings at once; events wait here for whoever asked.
pub(crate) struct Sinks {
    /// By slot of the interface: where its completions go.
    routes: Box<[Route]>,
    /// By slot of the interface: what else is known of it.
    vis: Vec<Option<ViSinks>>,
    pub(crate) rings: Rings,
    names: HashMap<String, Option<MacAddress>>,
}

/// Read for every completion, so it is small.
#[derive(Clone, Copy)]
struct Route {
    id: ViId,
    send: RingKey,
    receive: RingKey,
}

struct ViSinks {
    id: ViId,
    outcome: Option<Result<Peer>>,
    loss: Option<ConnectionLoss>,
}

impl Sinks {
    pub(crate) fn new(slots: usize) -> Self {
        let nobody = ViId { slot: u32::MAX, generation: 0 };
        let nowhere = Route { id: nobody, send: RingKey::NONE, receive: RingKey::NONE };
        Self {
            routes: vec![nowhere; slots].into(),
            vis: (0..slots).map(|_| None).collect(),
            rings: Rings::default(),
            names: HashMap::new(),
        }
    }

    /// Ends a ring; answers what was in it. What comes for it later is dropped.
    pub(crate) fn close_ring(&mut self, key: RingKey) -> Option<Ring<Completion>> {
        for end in self.routes.iter_mut().flat_map(|route| [&mut route.send, &mut route.receive]) {
            if *end == key {
                *end = RingKey::NONE;
            }
        }
        self.rings.close(key)
    }

    /// The entry stays after the interface is gone, for completions that come late, until the slot is used again.
    pub(crate) fn open(&mut self, id: ViId, send: RingKey, receive: RingKey) {
        if let (Some(slot), Some(route)) =
            (self.vis.get_mut(id.slot as usize), self.routes.get_mut(id.slot as usize))
        {
            *route = Route { id, send, receive };
            *slot = Some(ViSinks { id, outcome: None, loss: None });
        }
    }

    fn vi(&mut self, id: ViId) -> Option<&mut ViSinks> {
        self.vis.get_mut(id.slot as usize)?.as_mut().filter(|vi| vi.id == id)
    }

    pub(crate) fn loss(&self, id: ViId) -> Option<ConnectionLoss> {
        self.vis.get(id.slot as usize)?.as_ref().filter(|vi| vi.id == id)?.loss
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
    /// Takes a descriptor that is done with; each posted one comes here exactly once.
    #[inline(always)]
    pub(crate) fn complete(&mut self, completion: Completion) {
        let vi = completion.vi;
        match self.routes.get(vi.slot as usize) {
            Some(route) if route.id == vi => {
                let ring = match completion.queue {
                    WorkQueue::Send => route.send,
                    WorkQueue::Receive => route.receive,
                };
                self.rings.push(ring, completion);
            }
            _ => unknown(vi),
        }
    }

    /// Takes news of connections and names.
    pub(crate) fn event(&mut self, event: Event) {
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
        let vi = ViId { slot: 0, generation: 0 };
        let completion = || Completion { vi, queue: WorkQueue::Send, descriptor: Descriptor::new(vec![]) };
        let mut sinks = Sinks::new(1);
        let old = sinks.rings.open(2);
        sinks.open(vi, old, RingKey::NONE);
        sinks.complete(completion());
        assert_eq!(sinks.close_ring(old).and_then(|mut ring| ring.pop()).map(|c| c.vi), Some(vi));
        let new = sinks.rings.open(2);
        sinks.complete(completion());
        assert!(sinks.rings.pop(new).is_none());
        sinks.rings.push(new, completion());
        assert!(sinks.rings.pop(new).is_some() && sinks.rings.pop(new).is_none());
        sinks.complete(Completion { vi: ViId { slot: 9, generation: 0 }, ..completion() });
    }
}
