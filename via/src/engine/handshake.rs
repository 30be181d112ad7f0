//! Asking for a connection, and saying yes: frames that are repeated until the other end has answered.

use uvia_driver::nic::MacAddress;

use super::core::Core;
use super::endpoint::Endpoint;
use super::{ConnectFailure, Event, Output, RemoteAttributes, Time};
use crate::wire::control::{CloseReason, Control, Envelope, Offer, emit};
use crate::{ConnectionLoss, Error, Result, Status, ViState};

/// Wait before the first repetition; doubled each time.
const FIRST: u64 = 20_000_000;
/// Longest wait.
const LONGEST: u64 = 320_000_000;
/// Wait when the adapter has no room.
const NO_ROOM: u64 = 1_000_000;

/// What is repeated until the other end answers.
pub(super) struct Handshake {
    /// When to send it again.
    pub(super) next: Time,
    interval: u64,
    expires: Time,
    frame: Vec<u8>,
    /// Of a request to a peer that asks too: our discriminator, and its.
    meeting: Option<(Vec<u8>, Vec<u8>)>,
}

impl Handshake {
    pub(super) fn new(now: Time, life: u64, frame: Vec<u8>) -> Box<Self> {
        Box::new(Self { next: now, interval: FIRST, expires: now.after(life), frame, meeting: None })
    }

    fn send<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        if core.control(now, &self.frame, out) {
            self.next = now.after(self.interval);
            self.interval = (self.interval * 2).min(LONGEST);
        } else {
            self.next = now.after(NO_ROOM);
        }
        self.next = self.next.min(self.expires);
    }
}

impl From<&Offer<'_>> for RemoteAttributes {
    fn from(offer: &Offer<'_>) -> Self {
        Self {
            reliability: offer.level,
            max_transfer_size: offer.max_transfer_size,
            qos: offer.qos,
            rdma_write: offer.rdma_write,
            rdma_read: offer.rdma_read,
            integrity: offer.integrity,
        }
    }
}

impl Endpoint {
    /// Chooses identity and first sequence number for a connection to come.
    pub(super) fn begin(&mut self, core: &mut Core) {
        self.identity = core.identities.next();
        let slot = self.slot();
        core.directory.list(&mut self.listed, slot, self.identity);
        let first = core.config.tuning.first_sequence.unwrap_or(core.identities.next() as u32);
        self.sender.begin(first);
    }

    /// Sends the frame, and again until [`Endpoint::handshake`] is cleared.
    pub(super) fn start_handshake<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        mut handshake: Box<Handshake>,
        out: &mut O,
    ) {
        handshake.send(core, now, out);
        let next = handshake.next;
        self.handshake = Some(handshake);
        self.stir();
        self.wake(core, next);
    }

    /// Repeats the handshake's frame now, since the other end seems not to have seen it.
    pub(super) fn repeat_handshake<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        if let Some(handshake) = &mut self.handshake {
            handshake.send(core, now, out);
        }
    }

    /// Repeats the handshake's frame if it is time. False when it has been waited for in vain.
    pub(super) fn tend_handshake<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        out: &mut O,
    ) -> bool {
        let Some(handshake) = &mut self.handshake else { return true };
        if handshake.expires <= now {
            if self.state == ViState::Connected {
                let tell = Some(CloseReason::Silent);
                self.break_off(core, now, ConnectionLoss::RequesterGone, tell, out);
            } else {
                self.give_up(core, now, out);
                self.fail_request(ConnectFailure::Timeout, out);
            }
            return false;
        }
        if handshake.next <= now {
            handshake.send(core, now, out);
        }
        let next = handshake.next;
        self.wake(core, next);
        true
    }

    /// Tells the other end that we no longer ask; once, since a late yes is answered by a reset.
    pub(super) fn give_up<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        let envelope = Envelope {
            to: self.peer.0,
            from: core.config.mac.0,
            slot: 0,
            identity: 0,
            sender: self.identity,
        };
        core.control(now, &emit(&envelope, &Control::Cancel), out);
    }

    /// A request came to nothing: the interface is idle again. Receives stay posted.
    pub(super) fn fail_request<O: Output + ?Sized>(&mut self, reason: ConnectFailure, out: &mut O) {
        self.identity = 0;
        self.handshake = None;
        self.deadline = Time::NEVER;
        self.state = ViState::Idle;
        out.event(Event::ConnectFailed { vi: self.id, reason });
    }

    /// From idle to pending.
    fn begin_request(&mut self, core: &mut Core, peer: MacAddress) -> Result<()> {
        if self.state != ViState::Idle {
            return Err(Error::State(self.state));
        }
        self.begin(core);
        self.peer = peer;
        self.state = ViState::ConnectPending;
        Ok(())
    }

    /// Asks for a connection.
    #[allow(clippy::too_many_arguments)] // The architecture's request has them.
    pub(super) fn request<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        local: &[u8],
        peer: MacAddress,
        remote: &[u8],
        life: u64,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        self.begin_request(core, peer)?;
        let offer = self.offer(core, local, remote, private_data);
        let envelope =
            Envelope { to: peer.0, from: core.config.mac.0, slot: 0, identity: 0, sender: self.identity };
        let frame = emit(&envelope, &Control::Request(offer));
        self.start_handshake(core, now, Handshake::new(now, life, frame), out);
        Ok(())
    }

    /// Asks a peer that asks too.
    #[allow(clippy::too_many_arguments)] // The architecture's request has them.
    pub(super) fn request_peer<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        local: &[u8],
        peer: MacAddress,
        remote: &[u8],
        life: u64,
        out: &mut O,
    ) -> Result<()> {
        self.begin_request(core, peer)?;
        let mut handshake = Handshake::new(now, life, self.peer_frame(core, local, remote, 0, 0));
        handshake.meeting = Some((local.to_vec(), remote.to_vec()));
        if !std::mem::replace(&mut self.listed.meeting, true) {
            core.directory.meeting.push(self.slot());
        }
        self.start_handshake(core, now, handshake, out);
        Ok(())
    }

    fn peer_frame(&self, core: &Core, local: &[u8], remote: &[u8], slot: u16, identity: u64) -> Vec<u8> {
        let offer = self.offer(core, local, remote, &[]);
        let (to, from) = (self.peer.0, core.config.mac.0);
        let envelope = Envelope { to, from, slot, identity, sender: self.identity };
        emit(&envelope, &Control::Peer(offer))
    }

    /// Whether a peer's request is for this interface: it asks that peer, and the discriminators match crosswise; or it
    /// has met that peer already.
    pub(super) fn is_asked_by(&self, envelope: &Envelope, offer: &Offer<'_>) -> bool {
        // On our own station, what we ask comes back to us too.
        let same = self.peer.0 == envelope.from && self.identity != envelope.sender;
        same && match self.state {
            ViState::Connected => self.peer_identity == envelope.sender,
            ViState::ConnectPending => {
                let meeting = self.handshake.as_ref().and_then(|handshake| handshake.meeting.as_ref());
                meeting.is_some_and(|(local, remote)| local == offer.remote && remote == offer.local)
            }
            ViState::Idle | ViState::Error => false,
        }
    }

    /// Whether what has to be the same at both ends is so.
    fn fits(&self, offer: &Offer<'_>) -> bool {
        offer.level == self.attributes.reliability
            && offer.max_transfer_size == self.attributes.max_transfer_size
            && offer.qos == self.attributes.qos
    }

    /// The peer asks too: the two are connected.
    pub(super) fn meet<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        envelope: &Envelope,
        offer: &Offer<'_>,
        out: &mut O,
    ) {
        if self.state == ViState::Connected {
            // It has not heard yet that we have met.
            return self.confirm(core, now, out);
        }
        if !self.fits(offer) {
            return self.fail_request(ConnectFailure::Mismatch { theirs: offer.into() }, out);
        }
        let frame = self.peer_frame(core, offer.remote, offer.local, offer.slot, envelope.sender);
        self.handshake = None;
        self.establish(core, now, MacAddress(envelope.from), envelope.sender, offer);
        // Repeated until something comes for this connection: then the peer has met us too.
        let life = core.config.tuning.peer_timeout;
        self.start_handshake(core, now, Handshake::new(now, life, frame), out);
        out.event(Event::Connected { vi: self.id, attributes: offer.into(), private_data: Vec::new() });
    }

    /// Lets the other end know that we have heard it. An adapter that is receiving has no room: then it is owed, and sent
    /// in the next turn.
    fn confirm<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        self.receiver.owe();
        self.send_ack(core, now, 0, out);
    }

    /// The other end said yes. False when this is not the connection that it means.
    pub(super) fn accepted<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        envelope: &Envelope,
        offer: &Offer<'_>,
        out: &mut O,
    ) -> bool {
        if self.identity != envelope.identity || self.peer.0 != envelope.from {
            return false;
        }
        match self.state {
            ViState::ConnectPending => {
                if !self.fits(offer) {
                    return false;
                }
                self.handshake = None;
                self.establish(core, now, MacAddress(envelope.from), envelope.sender, offer);
                self.confirm(core, now, out);
                out.event(Event::Connected {
                    vi: self.id,
                    attributes: offer.into(),
                    private_data: offer.private_data.to_vec(),
                });
                true
            }
            ViState::Connected if self.peer_identity == envelope.sender => {
                // Our confirmation was lost.
                self.confirm(core, now, out);
                true
            }
            _ => false,
        }
    }

    /// Leaves whatever there is: the interface is idle.
    pub(super) fn disconnect<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        if self.state == ViState::ConnectPending {
            self.give_up(core, now, out);
        }
        self.leave(core, now, Some(CloseReason::Disconnected), Status::FLUSHED, out);
        self.state = ViState::Idle;
        self.loss = None;
    }
}
