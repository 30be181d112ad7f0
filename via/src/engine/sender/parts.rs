//! Frames that are too long for a way that has come to carry less (a black hole, to RFC 8899): they have their numbers, and are
//! sent again in parts.

use super::{Flight, Place, Way};
use crate::engine::congestion::FLOOR;
use crate::engine::core::Core;
use crate::engine::endpoint::Endpoint;
use crate::engine::sender::Sender;
use crate::engine::{Output, Time};
use crate::wire::FIXED;
use crate::wire::data;

/// How much of a frame went into the adapter's ring in parts, where that had no room for all of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Parts {
    sequence: u32,
    done: u32,
    place: Place,
}

impl Sender {
    /// The way carries only what any network does: new frames are no longer, and longer ones go in parts. It is looked for
    /// longer ones again at `look_at`.
    pub(in crate::engine) fn shrink(&mut self, look_at: Time) {
        self.way = Way::Shrunk;
        self.room = self.span.room(self.span.sure);
        self.parts = Parts::default();
        self.look_at = look_at;
    }

    /// Frames that may be in flight for one more to be sent again. Those that go in parts are many each.
    pub(super) fn again_window(&self) -> u32 {
        if self.way == Way::Shrunk { self.window.size.min(FLOOR) } else { self.window.size }
    }

    /// Payload of a part of that frame, if it has to go in parts.
    pub(super) fn part_room(&self, flight: &Flight) -> Option<u32> {
        let room = self.span.room(self.span.sure).saturating_sub((data::MAX_HEADER - FIXED) as u32).max(1);
        (self.way == Way::Shrunk && flight.len > room).then_some(room)
    }

    /// How long nothing new was acknowledged, nanoseconds, and since when: once the time-out has run out several times.
    pub(in crate::engine) fn stall(&self, now: Time) -> Option<(u64, Time)> {
        let stalled = self.stalled(now);
        (stalled != 0).then_some((stalled, self.progress))
    }
}

impl Endpoint {
    /// Sends a frame again in parts of `room` bytes; false when the adapter has no room for all of them: the next call goes
    /// on where this one has ended.
    #[cold]
    pub(super) fn send_parts<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        flight: &Flight,
        sequence: u32,
        room: u32,
        out: &mut O,
    ) -> bool {
        let begun = self.sender.parts;
        let mut parts = match begun.sequence == sequence && begun.done != 0 {
            true => begun,
            false => Parts { sequence, done: 0, place: flight.place },
        };
        while parts.done < flight.len {
            let left = flight.len - parts.done;
            let mut part = Flight {
                offset: flight.offset + parts.done,
                len: left.min(room),
                place: parts.place,
                ..*flight
            };
            let flags = data::PART | if left > room { data::MORE } else { data::NOW };
            let Some(next) = self.transmit(core, &mut part, sequence, flags, out) else {
                self.sender.parts = parts;
                return false;
            };
            // A part has no more segments than all of its frame, which went out.
            debug_assert_eq!(part.len, left.min(room));
            #[cfg(test)]
            {
                core.sent_parts += 1;
            }
            parts.done += part.len;
            parts.place = next;
        }
        self.sender.parts = Parts::default();
        true
    }
}
