//! Path MTU discovery by probing (RFC 8899): whether the way to a peer carries longer frames than any network does.
//!
//! A connection that has a long message to send tries it, with a frame of the length in question that carries nothing; data
//! goes on meanwhile in frames of which it is sure. What was found is kept for other connections ([`super::paths`]). Nothing
//! but an answer of the peer's tells that a frame came, so that routers and switches need to say nothing.
//!
//! Not on Unreliable connections: where nothing is acknowledged, nobody would notice that the way carries less than it did.

use super::core::Core;
use super::endpoint::Endpoint;
use super::paths::{AGE, Path};
use super::{Engine, Output, Sent, Slot, Time};
use crate::ViState;
use crate::wire::ETHERNET;
use crate::wire::control::{Control, Envelope, Probe, emit};
use crate::wire::data;

/// Lengths that are tried when the longest does not come: what Ethernet with jumbo frames carries, and FDDI (RFC 1191,
/// table 7-1).
pub(crate) const RUNGS: [u16; 2] = [9000, 4352];
/// Probes of one length, in which one has to be answered.
pub(crate) const TRIES: u8 = 4;
/// Wait for the answer to the first of them; doubled each time.
const WAIT: u64 = 20_000_000;
/// Wait when the adapter has no room.
const NO_ROOM: u64 = 1_000_000;
/// All tries of one length take less, unless the adapter has no room for them.
const LONGEST: u64 = 2_000_000_000;
/// When a connection looks again for what another is finding out.
const LOOK_AGAIN: u64 = 10_000_000;

/// A length that is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// What is asked for. Its number tells an answer from one to another probe.
    probe: Probe,
    /// Probes that were sent.
    tries: u8,
    /// When the next is sent, or the length is given up.
    next: Time,
}

impl Endpoint {
    /// A connection begins: with the longest frames that are known to come to its peer.
    pub(super) fn begin_path(&mut self, core: &Core, now: Time) {
        self.search = None;
        self.answered = None;
        self.sender.look_at = Time::NEVER;
        let (sure, most) = self.sender.bounds();
        if most <= sure || self.is_unreliable() {
            return;
        }
        if self.peer == core.config.mac {
            // There is no network in between.
            return self.sender.carry(most, Time::NEVER);
        }
        match core.paths.find(self.peer, now) {
            Some(Path { mtu: Some(mtu), until }) => self.sender.carry(mtu, until),
            _ => self.sender.look_at = Time(0),
        }
    }

    /// There is a message that would go in fewer frames: looks what is known, or finds it out.
    #[cold]
    pub(super) fn look_for_path<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        match core.paths.find(self.peer, now) {
            Some(Path { mtu: Some(mtu), until }) => self.sender.carry(mtu, until),
            Some(Path { mtu: None, until }) => self.sender.look_at = until.min(now.after(LOOK_AGAIN)),
            None => {
                let (_, most) = self.sender.bounds();
                self.try_length(core, now, most, out);
            }
        }
    }

    fn try_length<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, mtu: u16, out: &mut O) {
        let number = core.identities.next() as u32;
        self.search = Some(Search { probe: Probe { number, mtu }, tries: 0, next: now });
        self.sender.look_at = Time::NEVER;
        core.paths.search(self.peer, now.after(LONGEST));
        self.tend_search(core, now, out);
    }

    /// Sends the probe that is due, tries the next length, or gives it up.
    pub(super) fn tend_search<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        let Some(mut search) = self.search else { return };
        if search.next <= now {
            if search.tries == TRIES {
                return self.length_is_too_long(core, now, search.probe.mtu, out);
            }
            let frame = emit(&self.envelope(core), &Control::Probe(search.probe));
            if out.probe(&frame, ETHERNET + usize::from(search.probe.mtu)) == Sent::Full {
                search.next = now.after(NO_ROOM);
            } else {
                search.next = now.after(WAIT << search.tries);
                search.tries += 1;
            }
            self.search = Some(search);
        }
        self.wake(core, search.next);
    }

    /// No probe of that length was answered.
    fn length_is_too_long<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, mtu: u16, out: &mut O) {
        let (sure, _) = self.sender.bounds();
        match RUNGS.into_iter().find(|rung| (sure + 1..mtu).contains(rung)) {
            Some(rung) => self.try_length(core, now, rung, out),
            None => self.found(core, now, sure),
        }
    }

    /// Frames of that length come to the peer, and longer ones do not, or need not.
    fn found(&mut self, core: &mut Core, now: Time, mtu: u16) {
        self.search = None;
        core.paths.learn(self.peer, mtu, now);
        self.sender.carry(mtu, now.after(AGE));
    }

    /// The connection is no more: another may find out what it was about to.
    pub(super) fn give_search_up(&mut self, core: &mut Core) {
        if self.search.take().is_some() {
            core.paths.forget(self.peer);
        }
    }

    /// Frames were sent again and again in vain. Where the peer is heard all the same, and waits for one that not any network
    /// carries, the way is taken for one that carries no more than any. It is asked by a short frame, since it may be in the
    /// same case: then neither is heard otherwise.
    pub(super) fn look_for_black_hole<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        out: &mut O,
    ) {
        let Some((stalled, since)) = self.sender.stall(now) else { return };
        let tuning = &core.config.tuning;
        if stalled < tuning.keep_alive || !self.sender.is_stuck_with_long() {
            return;
        }
        if self.last_heard.since(since) < tuning.rto_max {
            return self.send_ack(core, now, data::NOW, out);
        }
        // A length in between may come all the same: it is looked for when this is forgotten, and not before.
        let (sure, _) = self.sender.bounds();
        core.paths.learn(self.peer, sure, now);
        self.sender.shrink(now.after(AGE));
    }

    /// The connection is about to be given up, since nothing is heard. Whether long frames come to such a peer nobody knows.
    pub(super) fn doubt_path(&self, core: &mut Core) {
        if self.sender.is_stuck_with_long() {
            core.paths.forget(self.peer);
        }
    }

    /// Of frames that manage this connection.
    fn envelope(&self, core: &Core) -> Envelope {
        Envelope {
            to: self.peer.0,
            from: core.config.mac.0,
            slot: self.peer_slot,
            identity: self.peer_identity,
            sender: self.identity,
        }
    }

    /// Whether a frame that manages was sent by its peer, about this connection.
    fn is_meant_by(&self, envelope: &Envelope) -> bool {
        self.state == ViState::Connected
            && self.identity == envelope.identity
            && self.peer.0 == envelope.from
            && self.peer_identity == envelope.sender
    }
}

impl Engine {
    /// A probe has come, in a frame of `len` bytes: all that it asks is to be told so.
    pub(super) fn asked_for_length<O: Output + ?Sized>(
        &mut self,
        now: Time,
        envelope: &Envelope,
        probe: Probe,
        len: usize,
        out: &mut O,
    ) {
        if !probe.is_whole(len) {
            // What was cut short on its way, or never as long, shows nothing.
            self.core.counters.unsound += 1;
            return;
        }
        if let Some(Slot { endpoint: Some(endpoint), .. }) = self.vis.get(usize::from(envelope.slot))
            && endpoint.is_meant_by(envelope)
        {
            let frame = emit(&endpoint.envelope(&self.core), &Control::Probed(probe));
            self.core.control(now, &frame, out);
        }
    }

    /// A probe was answered. What was not asked, or not so, is an answer to nothing. The answer that was taken may come again:
    /// each copy of the probe that arrives is answered.
    pub(super) fn length_came(&mut self, now: Time, envelope: &Envelope, probe: Probe) {
        if let Some(Slot { endpoint: Some(endpoint), .. }) = self.vis.get_mut(usize::from(envelope.slot))
            && endpoint.is_meant_by(envelope)
        {
            if endpoint.search.is_some_and(|search| search.probe == probe && search.tries > 0) {
                endpoint.answered = Some(probe);
                return endpoint.found(&mut self.core, now, probe.mtu);
            }
            if endpoint.answered == Some(probe) {
                return;
            }
        }
        self.core.counters.unsound += 1;
    }
}
