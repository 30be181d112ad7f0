//! What all connections of an engine share.

use std::collections::VecDeque;

use super::deadlines::Deadlines;
use super::directory::Directory;
use super::farewell::{Before, Farewell};
use super::held::Held;
use super::identity::Identities;
use super::paths::Paths;
use super::receiver::Run;
use super::{Counters, EngineConfig, Output, Sent, Time};
use crate::flag::Flag;
use crate::memory::{MemoryRegion, RegionTable};
use crate::wire::data;

/// Connections from which on they are a crowd, of which most are idle, where the receive ring is too small for all.
const CROWD: u32 = 64;
/// What each of a crowd is allowed.
const CROWDED_SHARE: usize = 8;
/// How long the engine waits for a full adapter before it asks to be polled again.
const FULL_RETRY: u64 = 50_000;

/// From one burst to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    pub(super) from: Time,
    pub(super) to: Time,
}

/// From which length on it is one: small against the shortest time-out.
const GAP: u64 = 1_000_000;

pub(super) struct Core {
    pub(super) config: EngineConfig,
    pub(super) regions: RegionTable,
    pub(super) held: Held,
    /// The RDMA write whose frames are coming in, until the next poll.
    pub(super) run: Option<Run>,
    pub(super) identities: Identities,
    /// What the ways to other hosts carry.
    pub(super) paths: Paths,
    /// Interfaces that found the adapter full or used up their burst, in the order of their turns.
    pub(super) active: VecDeque<u16>,
    /// The adapter had no room, and [`poll`](super::Engine::poll) was not called since.
    pub(super) full: bool,
    /// It is full, or somebody waits for a turn: nobody goes out of turn then. One look for both.
    pub(super) busy: Flag,
    /// No deadline of any connection, farewell or query is earlier.
    pub(super) next: Time,
    /// The time of the burst whose frames are being taken, or were last.
    pub(super) now: Time,
    /// The last long time in which it was not driven: what was posted then has the time of its beginning.
    pub(super) gap: Gap,
    /// When there is something to do: then, or at once while somebody waits for a turn. One look for both.
    pub(super) poll_at: Time,
    /// Of connections: an interface's own is not earlier.
    pub(super) deadlines: Deadlines,
    /// Of all else that is repeated or forgotten.
    pub(super) chores: Time,
    pub(super) directory: Directory,
    /// Live connections.
    pub(super) connections: u32,
    /// What is advertised as window: a connection's share of the receive ring.
    pub(super) share: u16,
    /// The same, where it is in the third word of a frame.
    pub(super) window: u64,
    /// Frames after which an acknowledgement is due at once: before that share is used up.
    pub(super) ack_every: u32,
    pub(super) farewells: Vec<Farewell>,
    /// For the farewell that is about to be bidden: what is to arrive before it.
    pub(super) before: Vec<Before>,
    pub(super) counters: Counters,
    /// Frames that went the short ways of long messages, in and out.
    #[cfg(test)]
    pub(super) in_runs: u64,
    #[cfg(test)]
    pub(super) sent_long: u64,
    /// Parts of frames that were sent.
    #[cfg(test)]
    pub(super) sent_parts: u64,
}

impl Core {
    pub(super) fn new(config: EngineConfig) -> Self {
        let mut core = Self {
            regions: RegionTable::new(),
            held: Held::new(config.largest, config.lossless),
            paths: Paths::new(config.largest > config.mtu),
            run: None,
            identities: Identities::new(config.seed),
            active: VecDeque::with_capacity(super::MAX_VIS),
            full: false,
            busy: false.into(),
            next: Time::NEVER,
            now: Time(0),
            gap: Gap { from: Time::NEVER, to: Time::NEVER },
            poll_at: Time::NEVER,
            deadlines: Deadlines::new(),
            chores: Time::NEVER,
            directory: Directory::default(),
            connections: 0,
            share: 0,
            window: 0,
            ack_every: 1,
            farewells: Vec::new(),
            before: Vec::new(),
            counters: Counters::default(),
            #[cfg(test)]
            in_runs: 0,
            #[cfg(test)]
            sent_long: 0,
            #[cfg(test)]
            sent_parts: 0,
            config,
        };
        core.divide();
        core
    }

    /// Divides the receive ring anew. A quarter stays for acknowledgements and management. Where there are not even two
    /// frames for each connection, the ring is theirs who use it: whether it suffices is then up to them all.
    pub(super) fn divide(&mut self) {
        let share = match self.config.rx_slots * 3 / 4 / self.connections.max(1) as usize {
            0 | 1 if self.connections > CROWD => CROWDED_SHARE,
            share => share.max(2),
        };
        self.share = share.min(self.config.tuning.window as usize) as u16;
        self.window = data::window(self.share);
        self.ack_every = self.config.tuning.ack_every.min(u32::from(self.share) / 4).max(1);
    }

    /// A burst begins.
    #[inline(always)]
    pub(super) fn begin_burst(&mut self, now: Time) {
        if now.0 > self.now.0.wrapping_add(GAP) {
            self.end_gap(now);
        }
        self.now = now;
    }

    #[cold]
    fn end_gap(&mut self, now: Time) {
        self.gap = Gap { from: self.since_burst(), to: now };
    }

    /// The time for what is posted between two bursts: that of the last one, which is as good as the present one, and a
    /// nanosecond, by which it can be told from what that burst itself has noted.
    #[inline(always)]
    pub(super) fn since_burst(&self) -> Time {
        self.now.soon_after(1)
    }

    /// Something that is no interface's is to be done then.
    #[inline]
    pub(super) fn wake(&mut self, at: Time) {
        self.chores = self.chores.min(at);
        self.look_at(at);
    }

    fn look_at(&mut self, at: Time) {
        self.next = self.next.min(at);
        self.poll_at = self.poll_at.min(at);
    }

    /// Somebody waits for a turn.
    pub(super) fn line_up(&mut self, slot: u16) {
        self.active.push_back(slot);
        self.busy = true.into();
        self.poll_at = Time(0);
    }

    /// All that was to be done was done, as far as it could be.
    pub(super) fn rest(&mut self) {
        self.busy = (self.full || !self.active.is_empty()).into();
        self.poll_at = if self.active.is_empty() { self.next } else { Time(0) };
    }

    /// An interface is to be looked at then, which is earlier than it would have been.
    #[inline(never)]
    pub(super) fn wake_vi(&mut self, slot: u16, at: Time) {
        self.deadlines.set(slot.into(), at);
        self.look_at(at);
    }

    /// Frames of this RDMA write are expected; it is let go of in the next poll, which is to come at the burst's end.
    pub(super) fn begin_run(&mut self, run: Run) {
        self.run = Some(run);
        self.poll_at = Time(0);
    }

    /// The adapter had no room.
    pub(super) fn found_full(&mut self, now: Time) {
        self.full = true;
        self.busy = true.into();
        self.look_at(now.after(FULL_RETRY));
    }

    /// Sends a management frame; false when there was no room.
    pub(super) fn control<O: Output + ?Sized>(&mut self, now: Time, frame: &[u8], out: &mut O) -> bool {
        if out.manage(frame) == Sent::Full {
            self.found_full(now);
            return false;
        }
        true
    }

    /// Puts bytes that were held to where they belong.
    pub(super) fn put_held(&mut self, slot: u16, len: usize, region: &MemoryRegion, offset: usize) -> bool {
        let placed = region.write(offset, self.held.bytes(slot, len)).is_ok();
        self.held.release(slot);
        placed
    }
}
