//! When frames are taken for lost because nothing was heard, and how what is lost is sent again.

use super::{Sender, WINDOW};
use crate::engine::core::{Core, Gap};
use crate::engine::endpoint::Endpoint;
use crate::engine::{Output, Time, Tuning};
use crate::wire::data;

impl Sender {
    /// What was posted while the engine was not driven counts from when it is again, once: nothing could be heard before.
    pub(in crate::engine) fn skip(&mut self, gap: Gap) {
        if self.timer_from == gap.from {
            self.timer_from = gap.to;
        }
    }

    /// When a frame will be taken for lost because nothing was heard.
    pub(in crate::engine) fn timer(&self, tuning: &Tuning) -> Option<Time> {
        (self.outstanding() != 0).then(|| self.timeout.at(self.timer_from, tuning))
    }

    /// How long nothing new was acknowledged, though it was asked for again and again.
    pub(in crate::engine) fn stalled(&self, now: Time) -> u64 {
        if self.outstanding() != 0 && self.timeout.expiries() > 5 { now.since(self.progress) } else { 0 }
    }

    /// Nothing was heard for too long: all that has not arrived is sent again.
    pub(in crate::engine) fn expire(&mut self, now: Time) {
        if self.timeout.expiries() == 0 {
            self.progress = self.timer_from;
        }
        self.timer_from = now;
        if self.lost != 0 && self.pipe() == 0 {
            // The last time-out's frames still wait for the adapter.
            return;
        }
        self.timeout.expired();
        self.window.timed_out();
        self.lost = self.in_flight() & !self.sacked;
        self.recovery = self.next;
        self.recovering = true;
        self.stop_measuring();
    }

    /// The peer has what is next, and no receive for it: frames are not lost, and it is asked again soon.
    #[cold]
    pub(in crate::engine) fn peer_not_ready(&mut self, now: Time) {
        self.timeout.progress();
        self.progress = now;
        self.window.excused();
    }
}

impl Endpoint {
    /// Sends the first frame that was lost once more; false when the adapter has no room.
    #[cold]
    pub(super) fn send_again<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) -> bool {
        let n = self.sender.lost.trailing_zeros();
        let sequence = self.sender.una.wrapping_add(n);
        let mut flight = self.sender.flights[sequence as usize % WINDOW];
        flight.order = self.sender.order.wrapping_add(1);
        let sent = match self.sender.part_room(&flight) {
            None => self.transmit(core, &mut flight, sequence, data::NOW, out).is_some(),
            Some(room) => self.send_parts(core, &flight, sequence, room, out),
        };
        if !sent {
            return false;
        }
        let sender = &mut self.sender;
        sender.order = flight.order;
        sender.flights[sequence as usize % WINDOW] = flight;
        sender.lost &= !(1 << n);
        // An answer could be to either copy (Karn).
        sender.stop_measuring();
        if n == 0 {
            sender.timer_from = now;
        }
        let at = sender.timeout.at(sender.timer_from, &core.config.tuning);
        self.wake(core, at);
        true
    }
}
