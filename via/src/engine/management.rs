//! Frames that manage connections and names.

use uvia_driver::nic::{MacAddress, RxFrame};

use super::core::Core;
use super::endpoint::Endpoint;
use super::listener::Arrival;
use super::{ConnectFailure, Engine, Event, Output, REQUEST_LIFE, Slot, Time};
use crate::wire::control::{CloseReason, Control, Envelope, MAX_CONTROL, Offer, emit, parse};
use crate::wire::{self, Words};
use crate::{ConnectionLoss, ViState};

impl Engine {
    /// A frame of a connection that is no more, or never was. The peer is told, so that it need not wait for its
    /// time-outs.
    #[cold]
    pub(super) fn stale<O: Output + ?Sized>(&mut self, now: Time, head: &Words, identity: u64, out: &mut O) {
        let ((us, to), from) = (wire::stations(head), self.core.config.mac.0);
        let live =
            self.core.directory.find(identity).and_then(|slot| self.vis.get(slot)?.endpoint.as_deref());
        // A live identity at the wrong place was damaged on its way: a reset would end what is well.
        if us != from
            || to[0] & 1 != 0
            || live.is_some_and(|endpoint| endpoint.identity == identity)
            || self.core.remind(now, identity, out)
        {
            return;
        }
        let envelope = Envelope { to, from, slot: 0, identity, sender: 0 };
        self.core.control(now, &emit(&envelope, &Control::Reset), out);
    }

    #[cold]
    pub(super) fn receive_control<O: Output + ?Sized>(
        &mut self,
        now: Time,
        frame: &RxFrame<'_>,
        out: &mut O,
    ) {
        let mut copy = [0; MAX_CONTROL];
        let copy = &mut copy[..frame.len().min(MAX_CONTROL)];
        if !frame.read(0, copy) {
            return;
        }
        let Some((envelope, control)) = parse(copy) else {
            self.core.counters.unsound += 1;
            return;
        };
        let mac = self.core.config.mac;
        if let Control::Query { name } = control {
            if name == self.core.config.name && envelope.from != mac.0 {
                let answer = Envelope {
                    to: envelope.from,
                    from: mac.0,
                    slot: 0,
                    identity: envelope.sender,
                    sender: 0,
                };
                self.core.control(now, &emit(&answer, &Control::Answer { name }), out);
            }
            return;
        }
        if envelope.to != mac.0 {
            return;
        }
        let peer = MacAddress(envelope.from);
        match control {
            Control::Query { .. } => {}
            Control::Answer { name } => self.names.answered(envelope.identity, name, peer, out),
            Control::Request(offer) => self.requested(now, &envelope, &offer, out),
            Control::Accept(offer) => self.accepted(now, &envelope, &offer, out),
            Control::Peer(offer) => self.asked_by_peer(now, &envelope, &offer, out),
            Control::Cancel => self.listeners.cancel(peer, envelope.sender),
            Control::Reject { private_data } => {
                let reason = ConnectFailure::Rejected { private_data: private_data.to_vec() };
                self.refused(&envelope, reason, out);
            }
            Control::NoMatch => self.refused(&envelope, ConnectFailure::NoMatch, out),
            Control::Close { reason, ack } => self.closed(now, &envelope, reason, ack, out),
            Control::Closed => self.core.end_farewell(peer, envelope.identity),
            Control::Reset => self.reset(now, &envelope, out),
            Control::Probe(probe) => self.asked_for_length(now, &envelope, probe, frame.len(), out),
            Control::Probed(probe) => self.length_came(now, &envelope, probe),
        }
    }

    fn requested<O: Output + ?Sized>(
        &mut self,
        now: Time,
        envelope: &Envelope,
        offer: &Offer<'_>,
        out: &mut O,
    ) {
        let peer = MacAddress(envelope.from);
        match self.listeners.arrive(now, envelope, offer) {
            Arrival::Known => {}
            Arrival::Waits(listener) => {
                self.core.wake(now.after(REQUEST_LIFE * self.core.config.tuning.peer_timeout));
                out.event(Event::Request { listener });
            }
            Arrival::NoMatch => {
                let answer = Envelope {
                    to: envelope.from,
                    from: self.core.config.mac.0,
                    slot: offer.slot,
                    identity: envelope.sender,
                    sender: 0,
                };
                self.core.control(now, &emit(&answer, &Control::NoMatch), out);
            }
            Arrival::Rejected(frame) => {
                self.core.control(now, &frame, out);
            }
            Arrival::Accepted => {
                if let Some((core, endpoint)) = self.connected_to(peer, envelope.sender) {
                    endpoint.repeat_handshake(core, now, out);
                }
            }
        }
    }

    /// The interface whose connection a peer calls so.
    fn connected_to(&mut self, peer: MacAddress, identity: u64) -> Option<(&mut Core, &mut Endpoint)> {
        let slot = self.core.directory.find_peer(peer, identity)?;
        let endpoint = self.vis.get_mut(slot)?.endpoint.as_deref_mut()?;
        (endpoint.peer_identity == identity && endpoint.peer == peer).then_some((&mut self.core, endpoint))
    }

    /// The interface that asks for a peer which asks for it.
    fn asking_for(&mut self, envelope: &Envelope, offer: &Offer<'_>) -> Option<(&mut Core, &mut Endpoint)> {
        let (core, vis) = (&mut self.core, &mut self.vis);
        let mut found = None;
        core.directory.meeting.retain(|slot| {
            let Some(endpoint) =
                vis.get_mut(usize::from(*slot)).and_then(|slot| slot.endpoint.as_deref_mut())
            else {
                return false;
            };
            if found.is_none() && endpoint.is_asked_by(envelope, offer) {
                found = Some(usize::from(*slot));
            }
            endpoint.listed.meeting = endpoint.state == ViState::ConnectPending;
            endpoint.listed.meeting
        });
        let endpoint = vis.get_mut(found?)?.endpoint.as_deref_mut()?;
        Some((core, endpoint))
    }

    fn accepted<O: Output + ?Sized>(
        &mut self,
        now: Time,
        envelope: &Envelope,
        offer: &Offer<'_>,
        out: &mut O,
    ) {
        if let Some(Slot { endpoint: Some(endpoint), .. }) = self.vis.get_mut(envelope.slot as usize)
            && endpoint.accepted(&mut self.core, now, envelope, offer, out)
        {
            return;
        }
        self.disown(now, envelope, offer, out);
    }

    /// Nobody here asks any more for what the peer took up. Or we have left again before a second copy came.
    fn disown<O: Output + ?Sized>(&mut self, now: Time, envelope: &Envelope, offer: &Offer<'_>, out: &mut O) {
        if !self.core.remind(now, envelope.identity, out) {
            let answer = Envelope {
                to: envelope.from,
                from: self.core.config.mac.0,
                slot: offer.slot,
                identity: envelope.identity,
                sender: 0,
            };
            self.core.control(now, &emit(&answer, &Control::Reset), out);
        }
    }

    /// A peer asks for one that asks it. Where nobody does (yet) there is nothing to say: it asks again.
    fn asked_by_peer<O: Output + ?Sized>(
        &mut self,
        now: Time,
        envelope: &Envelope,
        offer: &Offer<'_>,
        out: &mut O,
    ) {
        if let Some((core, endpoint)) = self.connected_to(MacAddress(envelope.from), envelope.sender)
            && endpoint.state == ViState::Connected
        {
            return endpoint.meet(core, now, envelope, offer, out);
        }
        if let Some((core, endpoint)) = self.asking_for(envelope, offer) {
            return endpoint.meet(core, now, envelope, offer, out);
        }
        if envelope.identity != 0 {
            self.disown(now, envelope, offer, out);
        }
    }

    fn refused<O: Output + ?Sized>(&mut self, envelope: &Envelope, reason: ConnectFailure, out: &mut O) {
        if let Some(Slot { endpoint: Some(endpoint), .. }) = self.vis.get_mut(envelope.slot as usize)
            && endpoint.state == ViState::ConnectPending
            && endpoint.identity == envelope.identity
            && endpoint.peer.0 == envelope.from
        {
            endpoint.fail_request(reason, out);
        }
    }

    fn closed<O: Output + ?Sized>(
        &mut self,
        now: Time,
        envelope: &Envelope,
        reason: CloseReason,
        ack: u32,
        out: &mut O,
    ) {
        let answer = Envelope {
            to: envelope.from,
            from: self.core.config.mac.0,
            slot: 0,
            identity: envelope.sender,
            sender: 0,
        };
        self.core.control(now, &emit(&answer, &Control::Closed), out);
        let core = &mut self.core;
        let Some(Slot { endpoint: Some(endpoint), .. }) = self.vis.get_mut(envelope.slot as usize) else {
            return;
        };
        if endpoint.identity != envelope.identity || endpoint.peer.0 != envelope.from {
            return;
        }
        match endpoint.state {
            // It was accepted, which we did not hear, and left again.
            ViState::ConnectPending => {
                endpoint.fail_request(ConnectFailure::Rejected { private_data: Vec::new() }, out);
            }
            ViState::Connected => {
                endpoint.stir();
                endpoint.sender.acknowledge(ack, 0, now, &core.config.tuning);
                let loss = match reason {
                    CloseReason::Disconnected => ConnectionLoss::PeerDisconnected,
                    CloseReason::ReceiveQueueEmpty => ConnectionLoss::PeerReceiveQueueEmpty,
                    CloseReason::Length => ConnectionLoss::Length,
                    CloseReason::RdmaProtection => ConnectionLoss::RdmaProtection,
                    CloseReason::Protocol => ConnectionLoss::Protocol,
                    CloseReason::Silent => ConnectionLoss::PeerSilent,
                    CloseReason::MemoryGone => ConnectionLoss::PeerMemoryGone,
                };
                endpoint.break_off(core, now, loss, None, out);
            }
            ViState::Idle | ViState::Error => {}
        }
    }

    fn reset<O: Output + ?Sized>(&mut self, now: Time, envelope: &Envelope, out: &mut O) {
        let peer = MacAddress(envelope.from);
        self.core.end_farewell_to(peer, envelope.identity);
        if let Some((core, endpoint)) = self.connected_to(peer, envelope.identity)
            && endpoint.state == ViState::Connected
        {
            // Without a frame of its since we said yes, it had given up before.
            let loss = match endpoint.handshake {
                Some(_) => ConnectionLoss::RequesterGone,
                None => ConnectionLoss::PeerReset,
            };
            endpoint.break_off(core, now, loss, None, out);
        }
    }
}
