//! Who gets what a provider has finished.

use std::collections::HashMap;

use crate::provider::Event;
use crate::rings::{RingKey, Rings};
use crate::{Completion, ConnectionLoss, Error, MacAddress, Peer, Result, ViId, WorkQueue};

/// Completions go to their rings at once; events wait here for whoever asked.
pub(crate) struct Sinks {
    /// By slot of the interface.
    vis: Vec<Option<ViSinks>>,
    pub(crate) rings: Rings,
    names: HashMap<String, Option<MacAddress>>,
}

struct ViSinks {
    id: ViId,
    send: RingKey,
    receive: RingKey,
    outcome: Option<Result<Peer>>,
    loss: Option<ConnectionLoss>,
}

impl Sinks {
    pub(crate) fn new(slots: usize) -> Self {
        Self { vis: (0..slots).map(|_| None).collect(), rings: Rings::default(), names: HashMap::new() }
    }

    /// The entry stays after the interface is gone, for completions that come late, until the slot is used again.
    pub(crate) fn open(&mut self, id: ViId, send: RingKey, receive: RingKey) {
        if let Some(slot) = self.vis.get_mut(id.slot as usize) {
            *slot = Some(ViSinks { id, send, receive, outcome: None, loss: None });
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
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion) {
        let vi = completion.vi;
        match self.vis.get(vi.slot as usize) {
            Some(Some(sinks)) if sinks.id == vi => {
                let ring = match completion.queue {
                    WorkQueue::Send => sinks.send,
                    WorkQueue::Receive => sinks.receive,
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
