//! Those who wait for requests, and the requests that wait.

use std::collections::VecDeque;

use uvia_driver::nic::MacAddress;

use super::{
    ListenerId, MAX_BACKLOG, MAX_LISTENERS, MAX_PRIVATE_DATA, RemoteAttributes, Request, RequestId, Time,
};
use crate::wire::control::{Control, Envelope, Offer, emit};
use crate::{Error, NetAddress, Result};

/// Requests of all listeners together, those included that were handed out and not decided yet.
const MAX_REQUESTS: usize = 4096;
/// Requests that were decided and are remembered, since they may come again; and as many that found nobody, apart, so that
/// strangers push out only what strangers asked.
const REMEMBERED: usize = 256;

struct Listener {
    discriminator: Vec<u8>,
    backlog: usize,
}

/// A request that waits for a decision.
pub(super) struct Pending {
    id: RequestId,
    listener: ListenerId,
    handed_out: bool,
    heard: Time,
    pub(super) peer: MacAddress,
    pub(super) identity: u64,
    slot: u16,
    window: u16,
    mtu: u16,
    first_sequence: u32,
    pub(super) attributes: RemoteAttributes,
    local: Vec<u8>,
    private_data: Vec<u8>,
}

impl Pending {
    /// What was offered, as far as a connection needs it.
    pub(super) fn offer(&self) -> Offer<'_> {
        Offer {
            slot: self.slot,
            level: self.attributes.reliability,
            rdma_write: self.attributes.rdma_write,
            rdma_read: self.attributes.rdma_read,
            integrity: self.attributes.integrity,
            max_transfer_size: self.attributes.max_transfer_size,
            qos: self.attributes.qos,
            first_sequence: self.first_sequence,
            window: self.window,
            mtu: self.mtu,
            local: &self.local,
            remote: &[],
            private_data: &self.private_data,
        }
    }

    /// A rejection of it.
    fn rejection(&self, mac: MacAddress, private_data: &[u8]) -> Vec<u8> {
        let envelope =
            Envelope { to: self.peer.0, from: mac.0, slot: self.slot, identity: self.identity, sender: 0 };
        emit(&envelope, &Control::Reject { private_data })
    }
}

/// A request that was decided.
struct Decided {
    peer: MacAddress,
    identity: u64,
    /// The rejection; none when it was accepted or given up.
    rejection: Option<Vec<u8>>,
}

/// What is to be done about a request that came in.
pub(super) enum Arrival {
    /// Nothing: it is known, or there is no room.
    Known,
    /// It waits at this listener.
    Waits(ListenerId),
    /// Nobody waits for it.
    NoMatch,
    /// It was rejected before.
    Rejected(Vec<u8>),
    /// It was accepted before.
    Accepted,
}

/// The listeners of a NIC.
#[derive(Default)]
pub(super) struct Listeners {
    slots: Vec<(u32, Option<Listener>)>,
    requests: Vec<Pending>,
    decided: VecDeque<Decided>,
    /// Those that found nobody, or were given up before they were heard: who asked is told so for each copy, and has been
    /// told already. Should somebody listen there now, the copy is nothing to him.
    unmatched: VecDeque<(MacAddress, u64)>,
    counter: u64,
}

impl Listeners {
    pub(super) fn listen(&mut self, discriminator: &[u8], backlog: usize) -> Result<ListenerId> {
        crate::attributes::check_discriminator(discriminator)?;
        if backlog == 0 || backlog > MAX_BACKLOG {
            return Err(Error::Parameter(format!(
                "a backlog of {backlog} requests is not within 1 to {MAX_BACKLOG}"
            )));
        }
        if self.find(discriminator).is_some() {
            return Err(Error::InUse("the discriminator"));
        }
        let listener = Listener { discriminator: discriminator.to_vec(), backlog };
        if let Some(slot) = self.slots.iter().position(|(_, listener)| listener.is_none()) {
            let (generation, entry) = &mut self.slots[slot];
            *generation += 1;
            *entry = Some(listener);
            return Ok(ListenerId { slot: slot as u32, generation: *generation });
        }
        if self.slots.len() == MAX_LISTENERS {
            return Err(Error::Resource { what: "listeners", limit: MAX_LISTENERS });
        }
        self.slots.push((0, Some(listener)));
        Ok(ListenerId { slot: self.slots.len() as u32 - 1, generation: 0 })
    }

    fn find(&self, discriminator: &[u8]) -> Option<ListenerId> {
        self.slots.iter().enumerate().find_map(|(slot, (generation, listener))| {
            let listener = listener.as_ref()?;
            (listener.discriminator == discriminator)
                .then_some(ListenerId { slot: slot as u32, generation: *generation })
        })
    }

    /// Takes a listener away, and answers the rejections of what waited there.
    pub(super) fn unlisten(&mut self, id: ListenerId, mac: MacAddress) -> Vec<Vec<u8>> {
        if let Some((generation, listener)) = self.slots.get_mut(id.slot as usize)
            && *generation == id.generation
        {
            *listener = None;
        }
        let waiting: Vec<_> =
            self.requests.iter().filter(|r| r.listener == id && !r.handed_out).map(|r| r.id).collect();
        waiting.into_iter().filter_map(|request| self.reject(request, mac, &[]).ok()).collect()
    }

    /// Forgets the requests that wait at a listener and were not handed out: their senders ask again.
    pub(super) fn overhear(&mut self, id: ListenerId) {
        self.requests.retain(|r| r.listener != id || r.handed_out);
    }

    /// Rejects all requests.
    pub(super) fn reject_all(&mut self, mac: MacAddress) -> Vec<Vec<u8>> {
        let all: Vec<_> = self.requests.iter().map(|r| r.id).collect();
        all.into_iter().filter_map(|request| self.reject(request, mac, &[]).ok()).collect()
    }

    /// A request came in.
    pub(super) fn arrive(&mut self, now: Time, envelope: &Envelope, offer: &Offer<'_>) -> Arrival {
        let peer = MacAddress(envelope.from);
        if let Some(known) =
            self.requests.iter_mut().find(|r| r.identity == envelope.sender && r.peer == peer)
        {
            known.heard = now;
            return Arrival::Known;
        }
        if let Some(known) = self.decided.iter().find(|d| d.identity == envelope.sender && d.peer == peer) {
            return match &known.rejection {
                Some(frame) => Arrival::Rejected(frame.clone()),
                None => Arrival::Accepted,
            };
        }
        if self.unmatched.contains(&(peer, envelope.sender)) {
            return Arrival::NoMatch;
        }
        let Some(listener) = self.find(offer.remote) else {
            self.remember_unmatched(peer, envelope.sender);
            return Arrival::NoMatch;
        };
        let waiting = self.requests.iter().filter(|r| r.listener == listener && !r.handed_out).count();
        let backlog = self.slots[listener.slot as usize].1.as_ref().map_or(0, |l| l.backlog);
        // Even when there is no room in all, who waits in vain elsewhere keeps nobody from a place of its own here.
        let full = waiting >= backlog || self.requests.len() >= MAX_REQUESTS && waiting > 0;
        let end = self.requests.len() >= MAX_REQUESTS + MAX_LISTENERS;
        if (full || end) && !self.displace(listener, peer) {
            return Arrival::Known;
        }
        self.counter += 1;
        self.requests.push(Pending {
            id: RequestId(self.counter),
            listener,
            handed_out: false,
            heard: now,
            peer,
            identity: envelope.sender,
            slot: offer.slot,
            window: offer.window,
            mtu: offer.mtu,
            first_sequence: offer.first_sequence,
            attributes: offer.into(),
            local: offer.local.to_vec(),
            private_data: offer.private_data.to_vec(),
        });
        Arrival::Waits(listener)
    }

    /// Makes room for a request of `peer` where another host has at least two more waiting: its latest one has to come
    /// again. So however many one host asks for, others have their turn.
    #[cold]
    fn displace(&mut self, listener: ListenerId, peer: MacAddress) -> bool {
        let waits = |request: &Pending| request.listener == listener && !request.handed_out;
        let mut peers: Vec<_> = self.requests.iter().filter(|r| waits(r)).map(|r| r.peer).collect();
        peers.sort_unstable();
        let own = peers.iter().filter(|other| **other == peer).count();
        let most = peers.chunk_by(|a, b| a == b).max_by_key(|run| run.len());
        let Some(greedy) = most.filter(|run| run.len() > own + 1).map(|run| run[0]) else { return false };
        let latest = self.requests.iter().rposition(|r| waits(r) && r.peer == greedy);
        latest.map(|n| self.requests.remove(n)).is_some()
    }

    pub(super) fn next(&mut self, listener: ListenerId) -> Option<Request> {
        let request = self.requests.iter_mut().find(|r| r.listener == listener && !r.handed_out)?;
        let remote = NetAddress::new(request.peer, request.local.clone()).ok()?;
        request.handed_out = true;
        Some(Request {
            id: request.id,
            remote,
            attributes: request.attributes,
            private_data: request.private_data.clone(),
        })
    }

    pub(super) fn get(&self, id: RequestId) -> Result<&Pending> {
        self.requests.iter().find(|r| r.id == id).ok_or_else(gone)
    }

    /// A request is decided: it was accepted.
    pub(super) fn accept(&mut self, id: RequestId) {
        if let Some(n) = self.requests.iter().position(|r| r.id == id) {
            // Those that wait keep their order.
            let request = self.requests.remove(n);
            self.remember(request.peer, request.identity, None);
        }
    }

    /// A request is decided: answers the frame that says no.
    pub(super) fn reject(&mut self, id: RequestId, mac: MacAddress, private_data: &[u8]) -> Result<Vec<u8>> {
        check_private_data(private_data)?;
        let n = self.requests.iter().position(|r| r.id == id).ok_or_else(gone)?;
        // Those that wait keep their order.
        let request = self.requests.remove(n);
        let frame = request.rejection(mac, private_data);
        self.remember(request.peer, request.identity, Some(frame.clone()));
        Ok(frame)
    }

    /// The peer no longer asks.
    pub(super) fn cancel(&mut self, peer: MacAddress, identity: u64) {
        let before = self.requests.len();
        self.requests.retain(|r| r.identity != identity || r.peer != peer);
        if self.requests.len() != before {
            self.remember(peer, identity, None);
        } else if !self.decided.iter().any(|d| d.identity == identity && d.peer == peer) {
            self.remember_unmatched(peer, identity);
        }
    }

    fn remember_unmatched(&mut self, peer: MacAddress, identity: u64) {
        if self.unmatched.contains(&(peer, identity)) {
            return;
        }
        if self.unmatched.len() == REMEMBERED {
            self.unmatched.pop_front();
        }
        self.unmatched.push_back((peer, identity));
    }

    fn remember(&mut self, peer: MacAddress, identity: u64, rejection: Option<Vec<u8>>) {
        if self.decided.len() == REMEMBERED {
            self.decided.pop_front();
        }
        self.decided.push_back(Decided { peer, identity, rejection });
    }

    /// Forgets requests whose sender was not heard any more. Answers when to look again.
    pub(super) fn expire(&mut self, now: Time, life: u64) -> Time {
        self.requests.retain(|r| r.handed_out || now.since(r.heard) < life);
        self.requests
            .iter()
            .filter(|r| !r.handed_out)
            .map(|r| r.heard.after(life))
            .min()
            .unwrap_or(Time::NEVER)
    }
}

fn gone() -> Error {
    Error::Parameter("the connection request is no more".to_owned())
}

/// Refuses private data that does not fit a frame.
pub(super) fn check_private_data(private_data: &[u8]) -> Result<()> {
    if private_data.len() > MAX_PRIVATE_DATA {
        return Err(Error::Parameter(format!(
            "private data of {} bytes is over the limit of {MAX_PRIVATE_DATA}",
            private_data.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReliabilityLevel;

    fn offer(remote: &[u8]) -> Offer<'_> {
        Offer {
            slot: 0,
            level: ReliabilityLevel::ReliableDelivery,
            rdma_write: false,
            rdma_read: false,
            integrity: false,
            max_transfer_size: 4096,
            qos: 0,
            first_sequence: 0,
            window: 8,
            mtu: 1500,
            local: b"here",
            remote,
            private_data: &[],
        }
    }

    fn host(n: u32) -> MacAddress {
        let [a, b, c, d] = n.to_be_bytes();
        MacAddress([2, 0, a, b, c, d])
    }

    fn arrive(listeners: &mut Listeners, from: u32, identity: u64, to: &[u8]) -> bool {
        let envelope = Envelope { to: [2; 6], from: host(from).0, slot: 0, identity: 0, sender: identity };
        matches!(listeners.arrive(Time(0), &envelope, &offer(to)), Arrival::Waits(_))
    }

    #[test]
    fn a_flood_at_some_places_keeps_nobody_from_another_and_is_bounded() {
        let mut listeners = Listeners::default();
        let places: Vec<[u8; 2]> = (0..100u16).map(u16::to_le_bytes).collect();
        let ids: Vec<_> = places.iter().map(|place| listeners.listen(place, MAX_BACKLOG).unwrap()).collect();
        // From as many hosts as there are requests, several times as many as there is room for.
        const FLOOD: u32 = 5 * MAX_REQUESTS as u32;
        for n in 0..FLOOD {
            arrive(&mut listeners, n, n.into(), &places[n as usize % 40]);
        }
        assert_eq!(listeners.requests.len(), MAX_REQUESTS);
        for (n, place) in places.iter().enumerate().skip(40) {
            assert!(arrive(&mut listeners, 1, 1 << 32 | n as u64, place), "place {n} is kept from its first");
        }
        for n in 0..FLOOD {
            arrive(&mut listeners, n, 1 << 40 | u64::from(n), &places[n as usize % 100]);
            // And who takes them without deciding does not get more for ever.
            if let Some(request) = listeners.next(ids[n as usize % 100]) {
                assert!(listeners.get(request.id).is_ok());
            }
        }
        assert!(listeners.requests.len() <= MAX_REQUESTS + MAX_LISTENERS, "{}", listeners.requests.len());
    }

    #[test]
    fn a_flood_of_one_host_makes_room_for_others() {
        let mut listeners = Listeners::default();
        let id = listeners.listen(b"there", 8).unwrap();
        for n in 0..1000 {
            assert_eq!(arrive(&mut listeners, 1, n, b"there"), n < 8);
        }
        // Each further host gets its share of what those before it have.
        for (from, share) in [(2, 4), (3, 2), (4, 2)] {
            let taken =
                (0..1000).filter(|n| arrive(&mut listeners, from, u64::from(from) << 32 | n, b"there"));
            assert_eq!(taken.count(), share, "host {from}");
        }
        let hosts: Vec<_> =
            std::iter::from_fn(|| listeners.next(id)).map(|request| request.remote.host).collect();
        assert_eq!(hosts, [1, 1, 2, 2, 3, 3, 4, 4].map(host), "in the order in which they came");
    }

    #[test]
    fn a_copy_of_what_found_nobody_finds_nobody() {
        let mut listeners = Listeners::default();
        let comes = |listeners: &mut Listeners, identity: u64| {
            let envelope = Envelope { to: [2; 6], from: host(1).0, slot: 0, identity: 0, sender: identity };
            listeners.arrive(Time(0), &envelope, &offer(b"there"))
        };
        assert!(matches!(comes(&mut listeners, 1), Arrival::NoMatch));
        // Given up before it has come.
        listeners.cancel(host(1), 2);
        let id = listeners.listen(b"there", 8).unwrap();
        for identity in [1, 2, 1] {
            assert!(matches!(comes(&mut listeners, identity), Arrival::NoMatch), "{identity}");
        }
        assert!(listeners.next(id).is_none(), "a client that has been turned away waits");
        // Who asks again is another, and what another host calls so is.
        assert!(matches!(comes(&mut listeners, 3), Arrival::Waits(_)));
        assert!(arrive(&mut listeners, 2, 1, b"there"));
        // One that was decided stays so, whatever its sender says later.
        let request = listeners.next(id).unwrap();
        listeners.accept(request.id);
        listeners.cancel(host(1), 3);
        assert!(matches!(comes(&mut listeners, 3), Arrival::Accepted));
        // Strangers are many, and remembered for a while.
        for n in 0..10 * REMEMBERED as u64 {
            assert!(!arrive(&mut listeners, 3, n, b"nowhere"));
        }
        assert_eq!(listeners.unmatched.len(), REMEMBERED);
        assert!(matches!(comes(&mut listeners, 3), Arrival::Accepted));
    }
}
