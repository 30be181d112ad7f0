//! What an acknowledgement tells: which frames have arrived, and which of the others are lost.

use super::{Sender, WINDOW};
use crate::engine::{Time, Tuning};

/// Frames that must have arrived of those sent later, for one to be taken for lost.
const REORDERING: u32 = 3;

impl Sender {
    /// Takes an acknowledgement. Answers whether it is news.
    pub(in crate::engine) fn acknowledge(&mut self, ack: u32, sack: u64, now: Time, tuning: &Tuning) -> bool {
        let advance = ack.wrapping_sub(self.una);
        if advance == 0 && sack == 0 {
            return false;
        }
        if advance > self.outstanding() {
            // Older than what we know, or of frames that were never sent.
            return false;
        }
        if advance != 0 {
            self.close_gaps(advance);
            self.timeout.progress();
            self.advance(advance, now, tuning);
            if self.recovering && self.una.wrapping_sub(self.recovery) as i32 >= 0 {
                self.recovering = false;
            }
        }
        if sack != 0 {
            self.select(sack, tuning);
        }
        true
    }

    /// So many frames more are acknowledged: what follows of it in any case.
    pub(super) fn advance(&mut self, frames: u32, now: Time, tuning: &Tuning) {
        if let Some(took) = self.round_trip.end(self.una, frames, self.next, now) {
            self.timeout.measured(took, tuning);
        }
        self.una = self.una.wrapping_add(frames);
        self.timer_from = now;
        if self.window.is_open() {
            return;
        }
        self.window.acknowledged(frames);
        self.widen_reach();
    }

    /// So many frames are no longer in flight.
    fn close_gaps(&mut self, frames: u32) {
        for n in 0..frames {
            self.saw(self.una.wrapping_add(n));
        }
        self.sacked = self.sacked.checked_shr(frames).unwrap_or(0);
        self.lost = self.lost.checked_shr(frames).unwrap_or(0);
    }

    /// A frame is known to have arrived.
    #[inline]
    fn saw(&mut self, sequence: u32) {
        let order = self.flights[sequence as usize % WINDOW].order;
        if order.wrapping_sub(self.arrived) as i32 > 0 {
            self.arrived = order;
        }
    }

    /// Frames behind a gap have arrived. What was sent well before them, and has not, is lost.
    #[cold]
    fn select(&mut self, sack: u64, _tuning: &Tuning) {
        let mut news = (sack << 1) & self.in_flight() & !self.sacked;
        self.sacked |= news;
        self.lost &= !self.sacked;
        while news != 0 {
            self.saw(self.una.wrapping_add(news.trailing_zeros()));
            news &= news - 1;
        }
        let mut missing = self.in_flight() & !self.sacked & !self.lost;
        let mut found = false;
        while missing != 0 {
            let n = missing.trailing_zeros();
            missing &= missing - 1;
            let order = self.flights[self.una.wrapping_add(n) as usize % WINDOW].order;
            if self.arrived.wrapping_sub(order) as i32 >= REORDERING as i32 {
                self.lost |= 1 << n;
                found = true;
            }
        }
        if found && !self.recovering {
            self.recovering = true;
            self.recovery = self.next;
            self.window.lost();
        }
        if found {
            self.stop_measuring();
        }
    }
}
