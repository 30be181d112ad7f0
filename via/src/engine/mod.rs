//! The VI engine: the protocol, with nothing of the world in it.
//!
//! Frames and the time go in; frames (a header and a gather list over registered memory), completions, events
//! and the next deadline come out. There is no clock, no socket and no thread in here, and no randomness but
//! from the seed that it is made with, so that two engines joined by a simulated wire run the same way each time.

mod attributes;
mod config;
mod congestion;
mod connections;
mod core;
mod deadlines;
mod directory;
mod endpoint;
mod errors;
mod farewell;
mod gone;
mod handshake;
mod held;
mod hold;
mod identity;
mod listener;
mod management;
mod names;
mod not_ready;
mod output;
pub(crate) mod paths;
mod poll;
mod reads;
mod receiver;
pub(crate) mod search;
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

pub(crate) use self::endpoint::Finished;

use self::core::Core;
use self::endpoint::Endpoint;
use self::hold::Hold;
use self::listener::Listeners;
use self::names::Names;
use self::receiver::Refusal;
use crate::memory::RegionTable;
use crate::wire::control::CloseReason;
use crate::wire::data::{self, Extensions, Fixed};
use crate::wire::{self, FIXED, Words};
use crate::{
    ConnectionLoss, Descriptor, Error, ReliabilityLevel, Result, ViAttributes, ViId, ViState, WorkQueue,
};

/// How long a request is kept that its sender no longer repeats, in peer time-outs.
const REQUEST_LIFE: u64 = 1;
/// In a frame's token: it is part of an answer to a read, and its number is that of the answer.
const ANSWER: u64 = 1 << 63;

/// The protocol engine of one NIC.
pub(crate) struct Engine {
    core: Core,
    vis: Vec<Slot>,
    /// Places in the table that are free; the one that has been so for longest is used first.
    free: VecDeque<u16>,
    listeners: Listeners,
    names: Names,
}

/// A message that is one frame, made of the fixed header and one segment, on its way into the adapter.
pub(crate) struct PlainSend<'a> {
    core: &'a mut Core,
    endpoint: &'a mut Endpoint,
}

impl PlainSend<'_> {
    /// The longest payload that it may have, bytes: such as an adapter is given a copy of.
    pub const MOST: u32 = 128;

    /// Its header, for `len` bytes.
    #[inline(always)]
    pub fn header(&self, len: u32) -> Words {
        self.endpoint.short_header(self.core, len)
    }

    /// The adapter has a copy of it. Where it has none nothing has happened. The time is asked for now and then only: else
    /// the last burst's ([`Engine::begin_burst`]) is good enough.
    #[inline(always)]
    pub fn sent(self, now: impl FnOnce() -> Time, descriptor: Box<Descriptor>, len: u32) {
        self.endpoint.sent_short(self.core, Core::since_burst, now, descriptor, len, Hold::SENT);
    }
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
        config.largest = config.largest.clamp(config.mtu, u16::MAX as usize);
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
        // None is in use that nobody names.
        self.core.run = None;
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
        entry.endpoint = Some(Box::new(Endpoint::new(id, attributes, &mut self.core)));
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

    /// Bytes of a message that go with one frame of its connection, as far as the way to the peer is known; none without a
    /// connection.
    pub fn path_mtu(&self, vi: ViId) -> Option<usize> {
        let endpoint = self.look(vi).filter(|endpoint| endpoint.state == ViState::Connected)?;
        Some(endpoint.sender.room as usize)
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
        let Some((core, endpoint)) = self.live(vi) else { return };
        if let [segment] = &descriptor.segments[..]
            && descriptor.is_plain_send()
            && endpoint.may_post_short(core, segment.len())
        {
            let (len, token) = (segment.len(), endpoint.next_token());
            let header = wire::bytes(&endpoint.short_header(core, len));
            let hold = match out.transmit(&header, &[PayloadPart::whole(segment)], token) {
                Sent::Copied => Some(Hold::SENT),
                Sent::Referenced => Some(Hold::REFERRED_TO),
                // It is offered again below, and waits there, or the memory is found to be gone.
                Sent::Full | Sent::Gone => None,
            };
            if let Some(hold) = hold {
                return endpoint.sent_short(core, |_| now, || now, descriptor, len, hold);
            }
        }
        if endpoint.state == ViState::Connected {
            endpoint.post_any(core, now, descriptor, out);
        } else {
            endpoint.flush_posted(WorkQueue::Send, descriptor, out);
        }
    }

    /// For a send of one segment, of 1 to [`PlainSend::MOST`] bytes, without immediate data or fence, that may go out at
    /// once; else [`Engine::post_send`] takes it.
    #[inline(always)]
    pub fn plain_send(&mut self, vi: ViId) -> Option<PlainSend<'_>> {
        let core = &mut self.core;
        let endpoint = self.vis.get_mut(vi.slot())?.endpoint.as_deref_mut()?;
        let barred = u64::from(endpoint.bars_plain(core));
        if endpoint.id.differs(vi) | barred == 0 { Some(PlainSend { core, endpoint }) } else { None }
    }

    /// The number that the next descriptor of a send queue will have, where a message of `len` bytes is sent as it lies: the
    /// interface is connected, one frame has all of it, and nothing is computed of its payload each time.
    #[inline]
    pub fn next_send(&self, vi: ViId, len: usize) -> Option<u32> {
        let endpoint = self.look(vi)?;
        let whole = endpoint.state == ViState::Connected && endpoint.sender.fits(len) && !endpoint.integrity;
        whole.then(|| endpoint.sends.tail())
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

    /// As [`Engine::keep_receive`], for several; false where they are all still to be posted.
    #[inline(always)]
    #[expect(clippy::vec_box, reason = "they move by the box")]
    pub fn keep_receives(&mut self, vi: ViId, descriptors: &mut Vec<Box<Descriptor>>) -> bool {
        match self.live(vi) {
            Some((_, endpoint)) if endpoint.state != ViState::Error => {
                endpoint.receives.push_all(descriptors)
            }
            _ => false,
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

    /// A burst begins, at this time: whoever receives frames says so before.
    #[inline(always)]
    pub fn begin_burst(&mut self, now: Time) {
        self.core.begin_burst(now);
    }

    /// Takes a frame from the wire, at the time at which the burst began ([`Engine::begin_burst`]).
    #[inline(always)]
    pub fn receive<O: Output + ?Sized>(&mut self, frame: RxFrame<'_>, out: &mut O) {
        let Some(head) = frame.words() else { return };
        let fixed = Fixed::read(&head);
        if let Some(Slot { endpoint: Some(endpoint), .. }) = self.vis.get_mut(fixed.slot as usize)
            && endpoint.expects(&head)
            && endpoint.take_short(&mut self.core, &fixed, &frame, out)
        {
            return;
        }
        self.receive_any(frame, out);
    }

    /// Takes a frame: all that [`Endpoint::take_short`] does not. It is read again, so that nothing has to be kept for
    /// this; should it have changed since, what is here counts.
    #[inline(never)]
    fn receive_any<O: Output + ?Sized>(&mut self, frame: RxFrame<'_>, out: &mut O) {
        let (now, frame) = (self.core.now, &frame);
        if self.core.run.is_some() && self.take_of_run(now, frame, out) {
            return;
        }
        let Some(head) = frame.words() else { return };
        match wire::kind(&head) {
            Some(kind @ (data::DATA | data::ACK)) => {
                if kind == data::DATA && self.lacks_receive(&Fixed::read(&head)) {
                    self.post_meanwhile(now, out);
                }
                self.receive_connected(now, kind, &head, frame, out);
            }
            Some(_) => self.receive_control(now, frame, out),
            None => {}
        }
    }

    /// Whether a frame's interface has no receive posted, and the frame may be for one.
    fn lacks_receive(&self, fixed: &Fixed) -> bool {
        const OTHERS: u16 = data::WRITE | data::READ | data::ANSWER;
        if fixed.flags & data::IMMEDIATE == 0 && fixed.flags & OTHERS != 0 {
            return false;
        }
        match self.vis.get(fixed.slot as usize) {
            Some(Slot { endpoint: Some(endpoint), .. }) => {
                endpoint.identity == fixed.identity && endpoint.receives.is_empty()
            }
            _ => false,
        }
    }

    /// Takes what was posted since the engine was taken. A program posts a receive and then lets its peer know; the message
    /// that comes of it may be in the same burst, and must find the receive.
    #[cold]
    fn post_meanwhile<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        while let Some((vi, queue, descriptor)) = out.posted_meanwhile() {
            match queue {
                WorkQueue::Send => self.post_send(now, vi, descriptor, out),
                WorkQueue::Receive => self.post_receive(vi, descriptor, out),
            }
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
        endpoint.stir();
        let core = &mut self.core;
        endpoint.wary = endpoint.wary && core.regions.has_lost();
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

    /// The adapter no longer refers to the payload of so many frames that were offered with this token.
    #[inline]
    pub fn transmitted<O: Output + ?Sized>(&mut self, token: FrameToken, count: u32, out: &mut O) {
        let slot = ((token.0 & !ANSWER) >> 48) as usize;
        let Some(Slot { generation, endpoint: Some(endpoint) }) = self.vis.get_mut(slot) else {
            return;
        };
        if *generation & 0xffff != (token.0 >> 32) as u32 & 0xffff {
            return;
        }
        if token.0 & ANSWER != 0 {
            return endpoint.answer_transmitted(token.0 as u32, count);
        }
        if let Some(work) = endpoint.sends.get_mut(token.0 as u32) {
            work.hold.let_go(count);
            if work.hold.is_free() {
                endpoint.complete_sends(out);
            }
        }
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
    /// The adapter no longer refers to the memory of so many frames of an answer.
    fn answer_transmitted(&mut self, number: u32, count: u32) {
        if let Some(answer) = self.reads.answers.get_mut(number) {
            answer.hold.let_go(count);
        }
        self.reads.release(self.sender.acknowledged());
    }

    /// Sends what may be sent now, or takes its place among those who wait.
    #[inline(always)]
    pub(super) fn proceed<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        self.stir();
        if !self.has_work() {
            return;
        }
        if core.full {
            self.enqueue(core);
        } else {
            // Where nobody waits for a turn nobody has to be let in.
            let burst = if core.active.is_empty() { sender::WINDOW as u32 } else { timers::BURST };
            self.pump(core, now, burst, out);
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
            Refusal::Memory => {
                self.complete_unreachable(out);
                (ConnectionLoss::MemoryGone, CloseReason::MemoryGone)
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
