//! Telling a peer that its connection is no more.

use uvia_driver::nic::MacAddress;

use super::core::Core;
use super::{Output, Time};

/// Wait before the first repetition; doubled each time.
const FIRST: u64 = 10_000_000;
/// Repetitions; then the peer has to find out by itself, by asking for a sign of life.
const REPETITIONS: u32 = 7;
/// Most peers that are being told at a time; those beyond are told once.
const MAX_FAREWELLS: usize = 2 * super::MAX_VIS;

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
        // Frames that wait for the adapter go first: what was sent before this arrives before it, if it can.
        let sent = self.active.is_empty() && self.control(now, &frame, out);
        if self.farewells.len() >= MAX_FAREWELLS {
            return;
        }
        let next = if sent { now.after(FIRST) } else { now };
        self.farewells.push(Farewell {
            peer,
            identity,
            peer_identity,
            frame,
            sent: u32::from(sent),
            last: now,
            next,
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
        if now.since(self.farewells[n].last) >= FIRST / 10 {
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
