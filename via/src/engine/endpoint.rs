//! A virtual interface as the engine sees it.

use uvia_driver::nic::MacAddress;

use super::core::Core;
use super::directory::Listed;
use super::handshake::Handshake;
use super::hold::{Hold, Stage};
use super::not_ready::NotReady;
use super::reads::Reads;
use super::receiver::Receiver;
use super::search::Search;
use super::sender::Sender;
use super::{Event, Output, Time};
use crate::ring::Ring;
use crate::wire::control::{CloseReason, Control, Envelope, Offer, Probe, emit};
use crate::wire::data::{Expected, Route};
use crate::{
    Completion, ConnectionLoss, Descriptor, EndpointClass, Operation, Status, ViAttributes, ViId, ViState,
    WorkQueue,
};

/// A descriptor in the send queue. While it is there its length is that of the whole message, and its status that of
/// success: nothing is left to be written when it completes well.
pub(super) struct SendWork {
    pub(super) descriptor: Box<Descriptor>,
    /// Once sent: the sequence number after its last frame.
    pub(super) end: u32,
    pub(super) hold: Hold,
}

impl SendWork {
    /// A message, a write, a read or the answer to one, of `total` bytes, none of which was sent.
    pub(super) fn new(mut descriptor: Box<Descriptor>, total: u32) -> Self {
        descriptor.set_status(Status::DONE);
        descriptor.length = total;
        Self { descriptor, end: 0, hold: Hold::WAITING }
    }

    /// Bytes of all of it.
    #[inline(always)]
    pub(super) fn total(&self) -> u32 {
        self.descriptor.length
    }

    /// Whether all of it has arrived, when all frames before `una` have.
    pub(super) fn has_arrived(&self, una: u32) -> bool {
        match self.hold.stage() {
            Stage::Waiting => false,
            Stage::Sent => una.wrapping_sub(self.end) as i32 >= 0,
            Stage::Ended => true,
        }
    }

    /// Bytes of it that go out.
    #[inline]
    pub(super) fn outgoing(&self) -> u32 {
        if let Operation::RdmaRead(_) = self.descriptor.operation { 0 } else { self.total() }
    }

    /// It has come to nothing, for this reason.
    pub(super) fn fail(&mut self, status: Status) {
        self.descriptor.set_status(Status::DONE | status);
        self.descriptor.length = 0;
        self.hold.set_stage(Stage::Ended);
    }
}

/// A virtual interface.
pub(super) struct Endpoint {
    pub(super) id: ViId,
    pub(super) state: ViState,
    /// [`Endpoint::is_calm`], as far as it is known: it may be false where that is true, never the other way round.
    /// So whatever stirs clears it ([`Endpoint::stir`]), and the ways that are taken without it set it again
    /// ([`Endpoint::settle`]). While it is set, frames are sent that are noted only when it is cleared.
    pub(super) calm: bool,
    /// Frames that may be taken by a few looks; nothing unless it is calm.
    pub(super) expected: Expected,
    /// What is posted may name memory that the program has unmapped: only the ways that look are taken.
    pub(super) wary: bool,
    /// Such memory was to be sent, or memory that the peer may not read any more: the connection is to be broken, for this
    /// reason.
    pub(super) mislaid: Option<ConnectionLoss>,
    /// It is in the list of those who wait for the adapter.
    pub(super) queued: bool,
    /// Names it as the owner of a frame's payload; the work's number is added.
    pub(super) token: u64,
    /// Frames carry the end-to-end check.
    pub(super) integrity: bool,
    /// Frames to us carry it; 0 when there is no connection.
    pub(super) identity: u64,
    /// When a frame of the peer's last came.
    pub(super) last_heard: Time,
    /// Nothing is to be done before.
    pub(super) deadline: Time,
    /// Times that the peer was asked for a sign of life since it was last heard.
    pub(super) probes: u32,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) sends: Ring<SendWork>,
    pub(super) receives: Ring<Box<Descriptor>>,
    pub(super) reads: Reads,
    /// What all frames to its peer begin with.
    pub(super) route: Route,
    pub(super) attributes: ViAttributes,
    pub(super) handshake: Option<Box<Handshake>>,
    pub(super) loss: Option<ConnectionLoss>,
    pub(super) peer: MacAddress,
    pub(super) peer_slot: u16,
    pub(super) peer_identity: u64,
    /// When the first of `probes` was sent, and the last.
    pub(super) asked: Time,
    pub(super) probed: Time,
    /// The next frame has come, and waits for a receive.
    pub(super) not_ready: Option<NotReady>,
    /// It finds out whether the way to its peer carries longer frames.
    pub(super) search: Option<Search>,
    /// The probe of this connection that was answered last.
    pub(super) answered: Option<Probe>,
    /// How it can be found.
    pub(super) listed: Listed,
}

impl Endpoint {
    pub(super) fn new(id: ViId, attributes: &ViAttributes, core: &mut Core) -> Self {
        Self {
            wary: core.regions.has_lost(),
            mislaid: None,
            id,
            state: ViState::Idle,
            calm: false,
            expected: Expected::NOTHING,
            queued: false,
            token: (id.slot() as u64) << 48 | u64::from(id.generation() & 0xffff) << 32,
            integrity: false,
            identity: 0,
            last_heard: Time(0),
            deadline: Time::NEVER,
            probes: 0,
            sender: Sender::new(&core.config.tuning),
            receiver: Receiver::new(),
            sends: Ring::new(attributes.send_depth),
            receives: Ring::new(attributes.receive_depth),
            reads: Reads::new(),
            route: Route::default(),
            attributes: *attributes,
            handshake: None,
            loss: None,
            peer: MacAddress::default(),
            peer_slot: 0,
            peer_identity: 0,
            asked: Time(0),
            probed: Time(0),
            not_ready: None,
            search: None,
            answered: None,
            listed: Listed::default(),
        }
    }

    /// Whether it is connected, reliably, and nothing is out of the ordinary: no handshake under way, no frame lost or
    /// early, no message begun, nothing posted that waits, no RDMA read to be answered, no end-to-end check, no sign of life
    /// asked for, and no memory gone. What is posted or arrives may then take the short way.
    fn is_calm(&self) -> bool {
        self.is_undisturbed() && self.sender.has_begun_all(self.sends.tail())
    }

    /// All of [`Endpoint::is_calm`] that is to be seen while it is.
    pub(super) fn is_undisturbed(&self) -> bool {
        self.state == ViState::Connected
            && !self.is_unreliable()
            && !self.wary
            && self.handshake.is_none()
            && !self.integrity
            && self.probes == 0
            && self.sender.has_no_gap()
            && !self.has_answers_to_send()
            && self.receiver.is_between_messages()
    }

    /// Before a way that is not the short one: what that has left to be noted is noted.
    #[inline(always)]
    pub(super) fn stir(&mut self) {
        if self.calm {
            self.leave_calm();
        }
    }

    #[inline(never)]
    fn leave_calm(&mut self) {
        self.calm = false;
        self.expected = Expected::NOTHING;
        self.sender.end_calm(&self.sends);
    }

    /// After a way that was not the short one: sees whether the next can be.
    pub(super) fn settle(&mut self) {
        self.stir();
        if self.is_calm() {
            self.sender.begin_calm();
            self.calm = true;
            self.expected = Expected::new(self.peer.0, self.slot(), self.sender.peer_window);
        }
    }

    /// Whether nothing that was posted, and no answer to a read, waits for anything.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.reads.answers.is_empty()
    }

    /// Its place in the table of interfaces.
    pub(super) fn slot(&self) -> u16 {
        self.id.slot() as u16
    }

    /// Lets it have a turn in the next poll.
    #[inline]
    pub(super) fn enqueue(&mut self, core: &mut Core) {
        if !self.queued {
            self.queued = true;
            core.line_up(self.slot());
        }
    }

    /// Lets the engine look at it then.
    #[inline]
    pub(super) fn wake(&mut self, core: &mut Core, at: Time) {
        if at < self.deadline {
            self.deadline = at;
            core.wake_vi(self.slot(), at);
        }
    }

    /// What it offers to its peer.
    pub(super) fn offer<'a>(
        &self,
        core: &Core,
        local: &'a [u8],
        remote: &'a [u8],
        private_data: &'a [u8],
    ) -> Offer<'a> {
        Offer {
            slot: self.slot(),
            level: self.attributes.reliability,
            rdma_write: self.attributes.rdma_write,
            rdma_read: self.attributes.rdma_read,
            integrity: core.config.tuning.integrity,
            max_transfer_size: self.attributes.max_transfer_size,
            qos: self.attributes.qos,
            first_sequence: self.sender.next,
            window: core.share,
            mtu: core.config.largest as u16,
            local,
            remote,
            private_data,
        }
    }

    /// Takes up the connection that both ends agreed on.
    pub(super) fn establish(
        &mut self,
        core: &mut Core,
        now: Time,
        peer: MacAddress,
        peer_identity: u64,
        theirs: &Offer<'_>,
    ) {
        self.state = ViState::Connected;
        self.stir();
        self.loss = None;
        self.peer = peer;
        self.peer_slot = theirs.slot;
        self.peer_identity = peer_identity;
        let slot = self.slot();
        core.directory.list_peer(&mut self.listed, slot, peer, peer_identity);
        self.integrity = core.config.tuning.integrity || theirs.integrity;
        self.last_heard = now;
        self.probes = 0;
        self.not_ready = None;
        self.route = Route::new(peer.0, core.config.mac.0, theirs.slot, peer_identity);
        let firsts = [self.sends.tail(), self.reads.answers.tail()];
        let most = self.attributes.max_transfer_size;
        self.sender.establish(&core.config, theirs, self.integrity, most, firsts);
        if self.attributes.class == EndpointClass::Pio {
            self.sender.limit(self.attributes.send_depth);
        }
        self.begin_path(core, now);
        self.receiver.establish(theirs.first_sequence, self.receives.head(), most);
        self.reads.reset();
        core.connections += 1;
        core.divide();
        self.wake(core, now.after(core.config.tuning.keep_alive));
    }

    /// Gives back what is done with, in order.
    #[inline(always)]
    pub(super) fn complete_sends<O: Output + ?Sized>(&mut self, out: &mut O) {
        let (una, vi) = (self.sender.acknowledged(), self.id);
        for descriptor in (Finished { sends: &mut self.sends, una }) {
            out.complete(Completion { vi, queue: WorkQueue::Send, descriptor });
        }
    }

    /// Ends all posted descriptors. Of the sends, the first that was not acknowledged gets `first`, the others
    /// are flushed; each comes back when the adapter refers to it no more.
    fn flush<O: Output + ?Sized>(&mut self, first: Status, out: &mut O) {
        let mut status = first;
        let mut number = self.sends.head();
        while let Some(work) = self.sends.get_mut(number) {
            let stage = work.hold.stage();
            let delivered =
                stage == Stage::Sent && self.sender.has_acknowledged(work.end) && !work.hold.is_unanswered();
            work.hold.answered();
            if delivered {
                work.hold.set_stage(Stage::Ended);
            } else if stage != Stage::Ended {
                work.fail(status);
                status = Status::FLUSHED;
            }
            number = number.wrapping_add(1);
        }
        self.complete_sends(out);
        while let Some(mut descriptor) = self.receives.pop() {
            descriptor.set_status(Status::DONE | Status::FLUSHED);
            descriptor.length = 0;
            out.complete(Completion { vi: self.id, queue: WorkQueue::Receive, descriptor });
        }
    }

    /// Gives a descriptor back that was posted where nothing can be sent or received.
    #[cold]
    pub(super) fn flush_posted<O: Output + ?Sized>(
        &mut self,
        queue: WorkQueue,
        mut descriptor: Box<Descriptor>,
        out: &mut O,
    ) {
        match queue {
            WorkQueue::Send => {
                self.sends.push(SendWork::new(descriptor, 0)).fail(Status::FLUSHED);
                self.complete_sends(out);
            }
            WorkQueue::Receive => {
                descriptor.set_status(Status::DONE | Status::FLUSHED);
                descriptor.length = 0;
                out.complete(Completion { vi: self.id, queue, descriptor });
            }
        }
    }

    /// Ends the connection or request, if there is one: the peer is told why, where there is a reason to tell,
    /// and all that was posted is flushed.
    pub(super) fn leave<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        tell: Option<CloseReason>,
        first: Status,
        out: &mut O,
    ) {
        if self.state == ViState::Connected {
            core.connections -= 1;
            core.divide();
            self.receiver.forget(core);
            self.give_search_up(core);
            if let Some(reason) = tell {
                let envelope = Envelope {
                    to: self.peer.0,
                    from: core.config.mac.0,
                    slot: self.peer_slot,
                    identity: self.peer_identity,
                    sender: self.identity,
                };
                let close = Control::Close { reason, ack: self.receiver.next };
                let frame = emit(&envelope, &close);
                core.bid_farewell(now, self.peer, self.identity, self.peer_identity, frame, out);
            }
        }
        self.stir();
        self.mislaid = None;
        self.identity = 0;
        self.peer_identity = 0;
        self.handshake = None;
        self.deadline = Time::NEVER;
        self.reads.reset();
        self.sender.abandon(self.sends.tail(), self.reads.answers.tail());
        self.flush(first, out);
    }

    /// The connection is no more, and not because we left it.
    #[cold]
    pub(super) fn break_off<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        loss: ConnectionLoss,
        tell: Option<CloseReason>,
        out: &mut O,
    ) {
        let first = match loss {
            ConnectionLoss::RdmaProtection if tell.is_none() => Status::RDMA_PROTECTION_ERROR,
            ConnectionLoss::Length
            | ConnectionLoss::PeerReceiveQueueEmpty
            | ConnectionLoss::PeerMemoryGone
                if tell.is_none() =>
            {
                Status::REMOTE_DESCRIPTOR_ERROR
            }
            ConnectionLoss::PeerSilent
            | ConnectionLoss::PeerReset
            | ConnectionLoss::RequesterGone
            | ConnectionLoss::Adapter => Status::TRANSPORT_ERROR,
            _ => Status::FLUSHED,
        };
        self.report_loss(loss, out);
        self.leave(core, now, tell, first, out);
        self.state = ViState::Error;
        self.loss = Some(loss);
        out.event(Event::Broken { vi: self.id, loss });
    }
}

/// Descriptors that come out of a send queue, when all frames before `una` have arrived.
pub(crate) struct Finished<'a> {
    pub(super) sends: &'a mut Ring<SendWork>,
    pub(super) una: u32,
}

impl Finished<'_> {
    /// Whether a work is done with.
    #[inline(always)]
    fn is_done(work: &SendWork, una: u32) -> bool {
        // Its frames have arrived if that is no negative number.
        let ahead = una.wrapping_sub(work.end);
        work.hold.unlike_sent() | ahead >> 31 == 0 || has_ended(work)
    }

    /// Whether another one comes.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.sends.front().is_some_and(|work| Self::is_done(work, self.una))
    }
}

impl Iterator for Finished<'_> {
    type Item = Box<Descriptor>;

    #[inline(always)]
    fn next(&mut self) -> Option<Box<Descriptor>> {
        let front = self.sends.front_slot()?;
        if Self::is_done(front.get(), self.una) { Some(front.take().descriptor) } else { None }
    }
}

#[cold]
fn has_ended(work: &SendWork) -> bool {
    work.hold == Hold::ENDED
}
