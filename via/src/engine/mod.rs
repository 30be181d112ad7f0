//! The VI engine: the protocol, with nothing of the world in it.
//!
//! Frames and the time go in; frames (a header and a gather list over registered memory), completions, events
//! and the next deadline come out. There is no clock, no socket and no thread in here, and no randomness but
//! from the seed that it is made with, so that two engines joined by a simulated wire run the same way each time.

mod attributes;
mod config;
mod congestion;
mod core;
mod deadlines;
mod directory;
mod endpoint;
mod errors;
mod farewell;
mod handshake;
mod held;
mod identity;
mod listener;
mod names;
mod not_ready;
mod output;
mod reads;
mod receiver;
mod sender;
#[cfg(test)]
pub(crate) mod simulation;
mod time;
mod timers;
mod unreliable;

use std::collections::VecDeque;

use uvia_driver::nic::{MacAddress, RxFrame};

pub use config::*;
pub use output::*;
pub use time::Time;

use self::core::Core;
use self::endpoint::Endpoint;
use self::handshake::Handshake;
use self::listener::{Arrival, Listeners, check_private_data};
use self::names::Names;
use self::receiver::Refusal;
use crate::attributes::check_discriminator;
use crate::memory::RegionTable;
use crate::wire::control::{CloseReason, Control, Envelope, MAX_CONTROL, Offer, emit, parse};
use crate::wire::data::{self, Extensions, Fixed};
use crate::wire::{self, FIXED, Words};
use crate::{
    ConnectionLoss, Descriptor, EndpointClass, Error, NetAddress, ReliabilityLevel, Result, ViAttributes,
    ViId, ViState, WorkQueue,
};

/// How long a request is kept that its sender no longer repeats, in peer time-outs.
const REQUEST_LIFE: u64 = 1;
/// In a frame's token: it is part of an answer to a read, and its number is that of the answer.
const ANSWER: u64 = 1 << 63;
/// Most interfaces whose time has come that one poll looks at.
const TEND_BURST: usize = 64;
/// Most frames that one poll sends for those who wait for the adapter.
const POLL_BURST: u32 = 8;

/// The protocol engine of one NIC.
pub(crate) struct Engine {
    core: Core,
    vis: Vec<Slot>,
    /// Places in the table that are free; the one that has been so for longest is used first.
    free: VecDeque<u16>,
    listeners: Listeners,
    names: Names,
}

/// A place in the table of interfaces.
struct Slot {
    generation: u32,
    endpoint: Option<Box<Endpoint>>,
}

impl Engine {
    /// An engine with no interface.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a configuration that cannot work.
    pub fn new(mut config: EngineConfig) -> Result<Self> {
        names::check_name(&config.name)?;
        let window = config.tuning.window;
        if config.mtu < MIN_MTU || config.max_segments == 0 || !(2..=64).contains(&window) {
            return Err(Error::Parameter(format!(
                "an MTU of {} bytes (at least {MIN_MTU}), {} payload segments (at least 1) or a window of \
                 {window} frames (2 to 64) is no configuration to work with",
                config.mtu, config.max_segments
            )));
        }
        // Lengths in frames have 16 bits.
        config.mtu = config.mtu.min(u16::MAX as usize);
        Ok(Self {
            core: Core::new(config),
            vis: Vec::new(),
            free: VecDeque::new(),
            listeners: Listeners::default(),
            names: Names::default(),
        })
    }

    /// The registered regions.
    pub fn regions(&mut self) -> &mut RegionTable {
        &mut self.core.regions
    }

    /// Frames that were dropped.
    pub fn counters(&self) -> Counters {
        self.core.counters
    }

    /// The levels offered. The two reliable ones are the same here: a frame is acknowledged after its bytes are in their
    /// place.
    pub const RELIABILITY_LEVELS: &'static [ReliabilityLevel] = &[
        ReliabilityLevel::Unreliable,
        ReliabilityLevel::ReliableDelivery,
        ReliabilityLevel::ReliableReception,
    ];

    /// Bytes of a message without immediate data that fit into one frame.
    pub fn native_mtu(&self) -> usize {
        let check = if self.core.config.tuning.integrity { data::extension_bytes(data::CRC) } else { 0 };
        self.core.config.mtu - (FIXED - wire::ETHERNET) - check
    }

    /// Creates an interface.
    ///
    /// # Errors
    /// [`Error::ReliabilityLevel`] for a level that is not offered, [`Error::Resource`], [`Error::Parameter`].
    pub fn create_vi(&mut self, attributes: &ViAttributes) -> Result<ViId> {
        if !Self::RELIABILITY_LEVELS.contains(&attributes.reliability) {
            return Err(Error::ReliabilityLevel(attributes.reliability));
        }
        if attributes.class != EndpointClass::Dma {
            return Err(Error::ClassUnavailable {
                class: attributes.class,
                why: "the engine has no adapter memory to store into".to_owned(),
            });
        }
        let depths = 1..=MAX_DEPTH;
        if !depths.contains(&attributes.send_depth) || !depths.contains(&attributes.receive_depth) {
            return Err(Error::Parameter(format!(
                "queues of {} and {} descriptors are not within 1 to {MAX_DEPTH}",
                attributes.send_depth, attributes.receive_depth
            )));
        }
        if attributes.max_transfer_size > MAX_TRANSFER {
            return Err(Error::TooLong {
                length: attributes.max_transfer_size.into(),
                limit: MAX_TRANSFER.into(),
            });
        }
        let slot = match self.free.pop_front() {
            Some(slot) => usize::from(slot),
            None if self.vis.len() < MAX_VIS => {
                self.vis.push(Slot { generation: 0, endpoint: None });
                self.core.deadlines.reserve(self.vis.len());
                self.vis.len() - 1
            }
            None => return Err(Error::Resource { what: "virtual interfaces", limit: MAX_VIS }),
        };
        let entry = &mut self.vis[slot];
        let id = ViId::new(slot as u32, entry.generation);
        entry.endpoint = Some(Box::new(Endpoint::new(id, attributes, &self.core)));
        Ok(id)
    }

    /// Destroys an idle interface.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle, [`Error::InUse`] while descriptors have not come back
    /// ([`Engine::disconnect`] flushes them), [`Error::Parameter`] for one that is no more.
    pub fn destroy_vi(&mut self, vi: ViId) -> Result<()> {
        let (core, endpoint) = self.vi(vi)?;
        if endpoint.state != ViState::Idle {
            return Err(Error::State(endpoint.state));
        }
        if !endpoint.is_empty() {
            return Err(Error::InUse("the virtual interface"));
        }
        let place = endpoint.slot();
        core.directory.strike(&mut endpoint.listed, place);
        let slot = &mut self.vis[vi.slot()];
        slot.endpoint = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(place);
        Ok(())
    }

    /// The interface and what it works with.
    fn vi(&mut self, vi: ViId) -> Result<(&mut Core, &mut Endpoint)> {
        self.live(vi).ok_or_else(no_such_vi)
    }

    /// As [`Engine::vi`]; none for an interface that is no more.
    #[inline(always)]
    fn live(&mut self, vi: ViId) -> Option<(&mut Core, &mut Endpoint)> {
        match self.vis.get_mut(vi.slot())?.endpoint.as_deref_mut() {
            Some(endpoint) if endpoint.id == vi => Some((&mut self.core, endpoint)),
            _ => None,
        }
    }

    fn look(&self, vi: ViId) -> Option<&Endpoint> {
        let slot = self.vis.get(vi.slot())?;
        slot.endpoint.as_deref().filter(|_| slot.generation == vi.generation())
    }

    /// Its state; none for an interface that is no more.
    pub fn state(&self, vi: ViId) -> Option<ViState> {
        self.look(vi).map(|endpoint| endpoint.state)
    }

    /// Why its connection was lost, in state Error.
    #[cfg(test)]
    fn loss(&self, vi: ViId) -> Option<ConnectionLoss> {
        self.look(vi).and_then(|endpoint| endpoint.loss)
    }

    /// Posts to the send queue. The caller has checked the descriptor: tags, bounds, lengths, the queue's depth.
    /// Where nothing can be sent it completes flushed.
    #[inline(never)]
    pub fn post_send<O: Output + ?Sized>(
        &mut self,
        now: Time,
        vi: ViId,
        descriptor: Box<Descriptor>,
        out: &mut O,
    ) {
        let descriptor = if descriptor.is_plain_send() {
            let len = descriptor.segment_bytes() as u32;
            match self.begin_plain_send(now, vi, descriptor, len) {
                Ok(PlainFrame { header, segment, token }) => {
                    let sent = out.transmit(&wire::bytes(&header), &[PayloadPart::whole(segment)], token);
                    return self.plain_sent(now, vi, sent);
                }
                Err(descriptor) => descriptor,
            }
        } else {
            descriptor
        };
        let Some((core, endpoint)) = self.live(vi) else { return };
        if endpoint.state == ViState::Connected {
            endpoint.post_any(core, now, descriptor, out);
        } else {
            endpoint.flush_posted(WorkQueue::Send, descriptor, out);
        }
    }

    /// Takes a send of one segment, of `len` bytes, without immediate data or fence, that goes out at once: its frame is to
    /// be offered to the adapter, and what became of it told by [`Engine::plain_sent`] unless its bytes were copied. It
    /// is accounted for as sent already, so that nothing has to be kept meanwhile. Gives the descriptor back when it is
    /// another case: then [`Engine::post_send`] takes it.
    #[inline(always)]
    pub fn begin_plain_send(
        &mut self,
        now: Time,
        vi: ViId,
        descriptor: Box<Descriptor>,
        len: u32,
    ) -> std::result::Result<PlainFrame<'_>, Box<Descriptor>> {
        match self.live(vi) {
            Some((core, endpoint)) if endpoint.may_post_short(core, len) => {
                Ok(endpoint.post_short(core, now, descriptor, len))
            }
            _ => Err(descriptor),
        }
    }

    /// What became of the frame of the last [`Engine::begin_plain_send`].
    #[inline(never)]
    pub fn plain_sent(&mut self, now: Time, vi: ViId, sent: Sent) {
        if let Some((core, endpoint)) = self.live(vi) {
            endpoint.short_sent(core, now, sent);
        }
    }

    /// Posts to the receive queue, where the receive is simply kept; gives it back else.
    #[inline(always)]
    pub fn keep_receive(
        &mut self,
        vi: ViId,
        descriptor: Box<Descriptor>,
    ) -> std::result::Result<(), Box<Descriptor>> {
        match self.live(vi) {
            Some((_, endpoint)) if endpoint.state != ViState::Error && endpoint.receives.has_room() => {
                endpoint.receives.push(descriptor);
                Ok(())
            }
            _ => Err(descriptor),
        }
    }

    /// Posts to the receive queue; as for [`Engine::post_send`], but receives are kept in any state but Error.
    #[inline(always)]
    pub fn post_receive<O: Output + ?Sized>(&mut self, vi: ViId, descriptor: Box<Descriptor>, out: &mut O) {
        let Some((_, endpoint)) = self.live(vi) else { return };
        if endpoint.state == ViState::Error {
            return endpoint.flush_posted(WorkQueue::Receive, descriptor, out);
        }
        endpoint.receives.push(descriptor);
    }

    /// Takes a frame from the wire.
    #[inline(always)]
    pub fn receive<O: Output + ?Sized>(&mut self, now: Time, frame: &RxFrame<'_>, out: &mut O) {
        let Some(head) = frame.words() else { return };
        let fixed = Fixed::read(&head);
        if wire::kind(&head) == Some(data::DATA)
            && let Some(Slot { endpoint: Some(endpoint), .. }) = self.vis.get_mut(fixed.slot as usize)
            && endpoint.identity == fixed.identity
            && endpoint.take_short(&mut self.core, now, &fixed, frame, out)
        {
            return;
        }
        self.receive_any(now, frame, out);
    }

    /// Takes a frame: all that [`Endpoint::take_short`] does not. It is read again, so that nothing has to be kept for
    /// this; should it have changed since, what is here counts.
    #[inline(never)]
    fn receive_any<O: Output + ?Sized>(&mut self, now: Time, frame: &RxFrame<'_>, out: &mut O) {
        let Some(head) = frame.words() else { return };
        match wire::kind(&head) {
            Some(kind @ (data::DATA | data::ACK)) => self.receive_connected(now, kind, &head, frame, out),
            Some(_) => self.receive_control(now, frame, out),
            None => {}
        }
    }

    fn receive_connected<O: Output + ?Sized>(
        &mut self,
        now: Time,
        kind: u8,
        head: &Words,
        frame: &RxFrame<'_>,
        out: &mut O,
    ) {
        let fixed = &Fixed::read(head);
        let endpoint = match self.vis.get_mut(fixed.slot as usize) {
            Some(Slot { endpoint: Some(endpoint), .. }) if endpoint.identity == fixed.identity => endpoint,
            _ => return self.stale(now, head, fixed.identity, out),
        };
        if endpoint.state != ViState::Connected {
            return;
        }
        if !fixed.is_sound(kind, frame.len()) {
            self.core.counters.unsound += 1;
            return;
        }
        if endpoint.integrity && !data::verify(fixed, frame) {
            self.core.counters.damaged += 1;
            return;
        }
        endpoint.calm = false;
        let core = &mut self.core;
        let extensions = match data::extension_bytes(fixed.flags) {
            0 => Extensions::default(),
            _ => match Extensions::read(fixed.flags, frame) {
                Some(extensions) => extensions,
                None => return,
            },
        };
        endpoint.last_heard = now;
        endpoint.probes = 0;
        endpoint.sender.peer_window = u32::from(fixed.window);
        if endpoint.handshake.is_some() {
            // Whoever knows our identity has seen our acceptance.
            endpoint.handshake = None;
        }
        if endpoint.sender.acknowledge(fixed.ack, extensions.sack, now, &core.config.tuning) {
            endpoint.complete_sends(out);
        }
        if kind == data::DATA {
            if let Err(refusal) = endpoint.take_frame(core, now, fixed, &extensions, frame, out) {
                return endpoint.refuse(core, now, refusal, out);
            }
        } else {
            if fixed.flags & data::NOW != 0 {
                endpoint.receiver.owe();
            }
            if fixed.flags & data::NOT_READY != 0 {
                endpoint.sender.peer_not_ready(now);
            }
        }
        endpoint.proceed(core, now, out);
        endpoint.settle();
    }

    /// A frame of a connection that is no more, or never was. The peer is told, so that it need not wait for its
    /// time-outs.
    #[cold]
    fn stale<O: Output + ?Sized>(&mut self, now: Time, head: &Words, identity: u64, out: &mut O) {
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
    fn receive_control<O: Output + ?Sized>(&mut self, now: Time, frame: &RxFrame<'_>, out: &mut O) {
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
                endpoint.calm = false;
                endpoint.sender.acknowledge(ack, 0, now, &core.config.tuning);
                let loss = match reason {
                    CloseReason::Disconnected => ConnectionLoss::PeerDisconnected,
                    CloseReason::ReceiveQueueEmpty => ConnectionLoss::PeerReceiveQueueEmpty,
                    CloseReason::Length => ConnectionLoss::Length,
                    CloseReason::RdmaProtection => ConnectionLoss::RdmaProtection,
                    CloseReason::Protocol => ConnectionLoss::Protocol,
                    CloseReason::Silent => ConnectionLoss::PeerSilent,
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
            endpoint.break_off(core, now, ConnectionLoss::PeerReset, None, out);
        }
    }

    /// The adapter no longer refers to the payload of a frame.
    #[inline]
    pub fn transmitted<O: Output + ?Sized>(&mut self, token: FrameToken, out: &mut O) {
        let slot = ((token.0 & !ANSWER) >> 48) as usize;
        let Some(Slot { generation, endpoint: Some(endpoint) }) = self.vis.get_mut(slot) else {
            return;
        };
        if *generation & 0xffff != (token.0 >> 32) as u32 & 0xffff {
            return;
        }
        if token.0 & ANSWER != 0 {
            return endpoint.answer_transmitted(token.0 as u32);
        }
        if let Some(work) = endpoint.sends.get_mut(token.0 as u32) {
            work.references = work.references.saturating_sub(1);
            if work.references == 0 {
                endpoint.complete_sends(out);
            }
        }
    }

    /// Whether [`Engine::poll`] has something to do now.
    #[inline]
    pub fn wants_poll(&self, now: Time) -> bool {
        now >= self.core.poll_at
    }

    /// Timers, acknowledgements that are due, and what found the adapter full.
    #[inline]
    pub fn poll<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        if now >= self.core.next {
            self.core.full = false;
            self.tend(now, out);
        }
        if !self.core.active.is_empty() {
            self.core.full = false;
            self.take_turns(now, out);
        }
        self.core.rest();
    }

    #[cold]
    fn tend<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        let core = &mut self.core;
        core.next = Time::NEVER;
        for _ in 0..TEND_BURST {
            let Some(slot) = core.deadlines.due(now) else { break };
            let endpoint = self.vis.get_mut(slot).and_then(|slot| slot.endpoint.as_deref_mut());
            // A deadline is moved only where it comes earlier: what is found here may be over long since.
            let at = endpoint.as_ref().map_or(Time::NEVER, |endpoint| endpoint.deadline);
            core.deadlines.set(slot, if at > now { at } else { Time::NEVER });
            if let Some(endpoint) = endpoint.filter(|_| at <= now) {
                endpoint.on_time(core, now, out);
            }
        }
        if core.chores <= now {
            core.chores = Time::NEVER;
            core.tend_farewells(now, out);
            self.names.tend(core, now, out);
            let requests = self.listeners.expire(now, REQUEST_LIFE * core.config.tuning.peer_timeout);
            core.wake(requests);
        }
        core.next = core.next.min(core.deadlines.earliest()).min(core.chores);
    }

    /// Lets those send who wait, in turn.
    #[cold]
    fn take_turns<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        let core = &mut self.core;
        for _ in 0..core.active.len().min(POLL_BURST as usize) {
            if core.full {
                break;
            }
            let Some(slot) = core.active.pop_front() else { break };
            let Some(endpoint) =
                self.vis.get_mut(slot as usize).and_then(|slot| slot.endpoint.as_deref_mut())
            else {
                continue;
            };
            endpoint.queued = false;
            // What it waited with may be gone with its connection; what was posted since is only to be flushed.
            if endpoint.state == ViState::Connected {
                endpoint.proceed(core, now, out);
                endpoint.settle();
            }
        }
    }

    /// When [`Engine::poll`] has something to do at the latest; at once, while interfaces wait for their turn.
    pub fn deadline(&self) -> Option<Time> {
        if !self.core.full && !self.core.active.is_empty() {
            return Some(Time(0));
        }
        (self.core.next != Time::NEVER).then_some(self.core.next)
    }

    /// Whether nothing is under way: nothing to be sent or acknowledged, no farewell without answer.
    pub fn is_quiet(&self) -> bool {
        self.core.farewells.is_empty()
            && self.vis.iter().filter_map(|slot| slot.endpoint.as_deref()).all(|e| e.sends.is_empty())
    }

    /// Whether all that was kept for later is let go of.
    #[cfg(test)]
    fn holds_nothing(&self) -> bool {
        let endpoints = self.vis.iter().filter_map(|slot| slot.endpoint.as_deref());
        self.core.held.is_unused()
            && self.core.connections == 0
            && self.core.farewells.is_empty()
            && endpoints.into_iter().all(|e| e.sender.is_idle() && e.is_empty())
    }

    /// Waits for requests to a discriminator.
    ///
    /// # Errors
    /// [`Error::InUse`] when somebody does already, [`Error::Resource`], [`Error::Parameter`].
    pub fn listen(&mut self, discriminator: &[u8], backlog: usize) -> Result<ListenerId> {
        self.listeners.listen(discriminator, backlog)
    }

    /// Forgets the requests that wait at a listener and were not handed out; their senders ask again.
    pub fn overhear(&mut self, listener: ListenerId) {
        self.listeners.overhear(listener);
    }

    /// Waits no more; the requests that wait there are rejected.
    pub fn unlisten<O: Output + ?Sized>(&mut self, now: Time, listener: ListenerId, out: &mut O) {
        for frame in self.listeners.unlisten(listener, self.core.config.mac) {
            self.core.control(now, &frame, out);
        }
    }

    /// The next request that waits there. It stays in the engine's care until it is accepted or rejected.
    pub fn next_request(&mut self, listener: ListenerId) -> Option<Request> {
        self.listeners.next(listener)
    }

    /// Connects an idle interface to who asked.
    ///
    /// # Errors
    /// [`Error::ReliabilityMismatch`], [`Error::TransferSizeMismatch`]: the request stays, and nothing was sent.
    /// [`Error::State`] of the interface, [`Error::Parameter`] for a request that is no more.
    pub fn accept<O: Output + ?Sized>(
        &mut self,
        now: Time,
        request: RequestId,
        vi: ViId,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        check_private_data(private_data)?;
        let Some(Slot { generation, endpoint: Some(endpoint) }) = self.vis.get_mut(vi.slot()) else {
            return Err(no_such_vi());
        };
        if *generation != vi.generation() {
            return Err(no_such_vi());
        }
        let core = &mut self.core;
        let pending = self.listeners.get(request)?;
        if endpoint.state != ViState::Idle {
            return Err(Error::State(endpoint.state));
        }
        let theirs = pending.attributes;
        if theirs.reliability != endpoint.attributes.reliability {
            return Err(Error::ReliabilityMismatch {
                local: endpoint.attributes.reliability,
                remote: theirs.reliability,
            });
        }
        if theirs.max_transfer_size != endpoint.attributes.max_transfer_size {
            return Err(Error::TransferSizeMismatch {
                local: endpoint.attributes.max_transfer_size,
                remote: theirs.max_transfer_size,
            });
        }
        endpoint.begin(core);
        let offer = endpoint.offer(core, &[], &[], private_data);
        let envelope = Envelope {
            to: pending.peer.0,
            from: core.config.mac.0,
            slot: pending.offer().slot,
            identity: pending.identity,
            sender: endpoint.identity,
        };
        let frame = emit(&envelope, &Control::Accept(offer));
        endpoint.establish(core, now, pending.peer, pending.identity, &pending.offer());
        let life = core.config.tuning.peer_timeout;
        endpoint.start_handshake(core, now, Handshake::new(now, life, frame), out);
        self.listeners.accept(request);
        Ok(())
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub fn reject<O: Output + ?Sized>(
        &mut self,
        now: Time,
        request: RequestId,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        let frame = self.listeners.reject(request, self.core.config.mac, private_data)?;
        self.core.control(now, &frame, out);
        Ok(())
    }

    /// Asks for a connection. What came of it is told by [`Event::Connected`] or [`Event::ConnectFailed`].
    ///
    /// # Errors
    /// [`Error::State`] of the interface, [`Error::Parameter`].
    #[allow(clippy::too_many_arguments)] // The architecture's request has them.
    pub fn connect<O: Output + ?Sized>(
        &mut self,
        now: Time,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout_ns: u64,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        self.check_request(local_discriminator, remote, timeout_ns)?;
        check_private_data(private_data)?;
        let (core, endpoint) = self.vi(vi)?;
        endpoint.request(
            core,
            now,
            local_discriminator,
            remote.host,
            remote.discriminator(),
            timeout_ns,
            private_data,
            out,
        )
    }

    /// Asks a peer that asks too: each names its own discriminator and the other's, and they are connected when these
    /// match crosswise. Told as for [`Engine::connect`].
    ///
    /// # Errors
    /// [`Error::State`] of the interface, [`Error::Parameter`].
    pub fn connect_peer<O: Output + ?Sized>(
        &mut self,
        now: Time,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout_ns: u64,
        out: &mut O,
    ) -> Result<()> {
        self.check_request(local_discriminator, remote, timeout_ns)?;
        let (core, endpoint) = self.vi(vi)?;
        endpoint.request_peer(
            core,
            now,
            local_discriminator,
            remote.host,
            remote.discriminator(),
            timeout_ns,
            out,
        )
    }

    fn check_request(&self, local_discriminator: &[u8], remote: &NetAddress, timeout_ns: u64) -> Result<()> {
        check_discriminator(local_discriminator)?;
        if timeout_ns == 0 {
            return Err(Error::Parameter("a connection request needs a time-out over 0".to_owned()));
        }
        if !remote.host.is_unicast() {
            return Err(Error::Parameter(format!(
                "{} is no host: it does not name one station",
                remote.host
            )));
        }
        Ok(())
    }

    /// Leaves a connection, gives up a request, or clears an error: the interface is idle, and what was posted
    /// completes flushed as soon as the adapter refers to it no more.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an interface that is no more.
    pub fn disconnect<O: Output + ?Sized>(&mut self, now: Time, vi: ViId, out: &mut O) -> Result<()> {
        let (core, endpoint) = self.vi(vi)?;
        endpoint.disconnect(core, now, out);
        Ok(())
    }

    /// Leaves all connections and rejects all requests. Peers that do not answer are told again as time goes by,
    /// until [`Engine::is_quiet`].
    pub fn disconnect_all<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        for frame in self.listeners.reject_all(self.core.config.mac) {
            self.core.control(now, &frame, out);
        }
        for endpoint in self.vis.iter_mut().filter_map(|slot| slot.endpoint.as_deref_mut()) {
            endpoint.disconnect(&mut self.core, now, out);
        }
    }

    /// Adds a name to the table of hosts.
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::Resource`].
    pub fn add_host(&mut self, name: &str, mac: MacAddress) -> Result<()> {
        self.names.add(name, mac)
    }

    /// Looks for a name: in the table, then on the wire. Told by [`Event::Resolved`] or [`Event::Unresolved`].
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::Resource`].
    pub fn resolve<O: Output + ?Sized>(
        &mut self,
        now: Time,
        name: &str,
        timeout_ns: u64,
        out: &mut O,
    ) -> Result<()> {
        self.names.resolve(&mut self.core, now, name, timeout_ns, out)
    }
}

impl Endpoint {
    /// The adapter no longer refers to the memory of a frame of an answer.
    fn answer_transmitted(&mut self, number: u32) {
        if let Some(answer) = self.reads.answers.get_mut(number) {
            answer.references = answer.references.saturating_sub(1);
        }
        self.reads.release(self.sender.acknowledged());
    }

    /// Sends what may be sent now, or takes its place among those who wait.
    #[inline(always)]
    pub(super) fn proceed<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        if !self.has_work() {
            return;
        }
        if core.full {
            self.enqueue(core);
        } else {
            self.pump(core, now, timers::BURST, out);
        }
    }

    /// A frame that is next in order cannot be taken: that ends the connection at both ends.
    #[cold]
    fn refuse<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, refusal: Refusal, out: &mut O) {
        let (loss, tell) = match refusal {
            Refusal::Empty => (ConnectionLoss::ReceiveQueueEmpty, CloseReason::ReceiveQueueEmpty),
            Refusal::Length => {
                self.complete_too_short(out);
                (ConnectionLoss::Length, CloseReason::Length)
            }
            Refusal::RdmaWrite | Refusal::RdmaRead => {
                (ConnectionLoss::RdmaProtection, CloseReason::RdmaProtection)
            }
            Refusal::Protocol => (ConnectionLoss::Protocol, CloseReason::Protocol),
        };
        self.report(refusal, out);
        self.break_off(core, now, loss, Some(tell), out);
    }
}

fn no_such_vi() -> Error {
    Error::Parameter("the virtual interface is no more".to_owned())
}
