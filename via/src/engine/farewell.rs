//! Telling a peer that its connection is no more.
//!
//! What was sent to a peer arrives before it hears that another connection with it was left: a program may share one
//! completion queue among all of them, and take the last of these for the end. So a farewell is held back while sends that
//! were posted before it, on other reliable connections with the same peer, have not arrived.

use uvia_driver::nic::MacAddress;

use super::core::Core;
use super::{Engine, Output, Time};
use crate::{ReliabilityLevel, ViId, ViState};

/// Wait before the first repetition; doubled each time.
const FIRST: u64 = 10_000_000;
/// Repetitions; then the peer has to find out by itself, by asking for a sign of life.
const REPETITIONS: u32 = 7;
/// Most peers that are being told at a time; those beyond are told once.
const MAX_FAREWELLS: usize = 2 * super::MAX_VIS;

/// Between looks whether one that is held back may go.
const HELD: u64 = 1_000_000;

/// Sends of a connection up to a number, which are to arrive first.
pub(super) struct Before {
    slot: usize,
    /// Of the connection: another one of the same interface has another.
    identity: u64,
    number: u32,
}

/// A connection that was closed here, until the peer says that it knows.
pub(super) struct Farewell {
    peer: MacAddress,
    /// What the peer's frames carry.
    identity: u64,
    /// What ours carry.
    peer_identity: u64,
    frame: Vec<u8>,
    sent: u32,
    last: Time,
    next: Time,
    /// It is held back for these, but not for longer than until then.
    before: Vec<Before>,
    until: Time,
}

impl Core {
    /// Tells the peer, and goes on until it answers.
    pub(super) fn bid_farewell<O: Output + ?Sized>(
        &mut self,
        now: Time,
        peer: MacAddress,
        identity: u64,
        peer_identity: u64,
        frame: Vec<u8>,
        out: &mut O,
    ) {
        let mut before = std::mem::take(&mut self.before);
        let many = self.farewells.len() >= MAX_FAREWELLS;
        if many {
            before.clear();
        }
        // Frames that wait for the adapter go first: what was sent before this arrives before it, if it can.
        let sent = before.is_empty() && self.active.is_empty() && self.control(now, &frame, out);
        if many {
            return;
        }
        let next = match (sent, before.is_empty()) {
            (true, _) => now.after(FIRST),
            (false, true) => now,
            (false, false) => now.after(HELD),
        };
        let until = now.after(self.config.tuning.peer_timeout);
        self.farewells.push(Farewell {
            peer,
            identity,
            peer_identity,
            frame,
            sent: u32::from(sent),
            last: now,
            next,
            before,
            until,
        });
        self.wake(next);
    }

    /// The peer knows.
    pub(super) fn end_farewell(&mut self, peer: MacAddress, identity: u64) {
        self.farewells.retain(|f| f.identity != identity || f.peer != peer);
    }

    /// The peer does not know the connection any more.
    pub(super) fn end_farewell_to(&mut self, peer: MacAddress, peer_identity: u64) {
        self.farewells.retain(|f| f.peer_identity != peer_identity || f.peer != peer);
    }

    /// A frame came for a connection that was closed here: the peer has not heard yet, and is told again, though
    /// not for every frame that was on its way. False when there is no such connection.
    pub(super) fn remind<O: Output + ?Sized>(&mut self, now: Time, identity: u64, out: &mut O) -> bool {
        let Some(n) = self.farewells.iter().position(|f| f.identity == identity) else { return false };
        if self.farewells[n].before.is_empty() && now.since(self.farewells[n].last) >= FIRST / 10 {
            self.repeat(n, now, out);
        }
        true
    }

    /// Repeats what is due.
    pub(super) fn tend_farewells<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        let mut n = 0;
        while n < self.farewells.len() {
            if self.farewells[n].next <= now {
                if self.farewells[n].sent > REPETITIONS {
                    self.farewells.swap_remove(n);
                    continue;
                }
                self.repeat(n, now, out);
            }
            let next = self.farewells[n].next;
            self.wake(next);
            n += 1;
        }
    }

    fn repeat<O: Output + ?Sized>(&mut self, n: usize, now: Time, out: &mut O) {
        let frame = std::mem::take(&mut self.farewells[n].frame);
        let sent = self.control(now, &frame, out);
        let farewell = &mut self.farewells[n];
        farewell.frame = frame;
        farewell.last = now;
        if sent {
            farewell.sent += 1;
            farewell.next = now.after(FIRST << farewell.sent);
        } else {
            farewell.next = now.after(FIRST / 10);
        }
    }
}

impl Engine {
    /// What is to arrive at an interface's peer before that hears that the interface has left.
    pub(super) fn sent_before(&self, vi: ViId) -> Vec<Before> {
        let endpoints = || self.vis.iter().filter_map(|slot| slot.endpoint.as_deref());
        let Some(leaving) =
            endpoints().find(|endpoint| endpoint.id == vi && endpoint.state == ViState::Connected)
        else {
            return Vec::new();
        };
        // A wire that loses nothing keeps frames in order.
        if self.core.config.lossless {
            return Vec::new();
        }
        endpoints()
            .filter(|other| other.state == ViState::Connected && other.peer == leaving.peer && other.id != vi)
            .filter(|other| other.attributes.reliability != ReliabilityLevel::Unreliable)
            .filter(|other| !other.sends.is_empty())
            .map(|other| Before {
                slot: usize::from(other.slot()),
                identity: other.identity,
                number: other.sends.tail(),
            })
            .collect()
    }

    /// Lets those farewells go that have been held back for what has arrived, or for long enough.
    pub(super) fn release_farewells(&mut self, now: Time) {
        let vis = &self.vis;
        for farewell in self.core.farewells.iter_mut().filter(|farewell| !farewell.before.is_empty()) {
            farewell.before.retain(|before| {
                let endpoint = vis.get(before.slot).and_then(|slot| slot.endpoint.as_deref());
                endpoint.is_some_and(|endpoint| {
                    endpoint.state == ViState::Connected
                        && endpoint.identity == before.identity
                        && (endpoint.sends.head().wrapping_sub(before.number) as i32) < 0
                })
            });
            if now >= farewell.until {
                farewell.before.clear();
            }
            farewell.next = if farewell.before.is_empty() { now } else { now.after(HELD) };
        }
    }
}
