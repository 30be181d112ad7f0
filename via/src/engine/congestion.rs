//! How much may be in flight, and how long to wait for an answer.

use super::{Time, Tuning};

/// Frames that are in flight at least, however bad the wire is: enough for a loss among them to be seen by what
/// arrives behind it.
pub(super) const FLOOR: u32 = 4;

/// The window: additive growth, and a cut to two thirds at a loss, once per window. A VI's frames stay within one
/// network, and losses are mostly full rings: there the advertised window is the better limit, so that the cut is
/// milder than TCP's.
pub(super) struct Window {
    /// Frames.
    pub(super) size: u32,
    limit: u32,
    threshold: u32,
    credit: u32,
}

impl Window {
    pub(super) fn new(limit: u32) -> Self {
        Self { size: limit, limit, threshold: limit, credit: 0 }
    }

    /// Whether it is as large as it may be.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.size >= self.limit
    }

    /// So many frames were acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, frames: u32) {
        if self.size < self.limit {
            self.grow(frames);
        }
    }

    #[cold]
    fn grow(&mut self, frames: u32) {
        if self.size < self.threshold {
            self.size = (self.size + frames).min(self.threshold);
            return;
        }
        self.credit += frames;
        if self.credit >= self.size {
            self.credit -= self.size;
            self.size = (self.size + 1).min(self.limit);
        }
    }

    /// Frames were lost in between.
    pub(super) fn lost(&mut self) {
        self.size = (self.size * 2 / 3).max(FLOOR.min(self.limit));
        self.threshold = self.size;
        self.credit = 0;
    }

    /// What was taken for a loss was none: it may grow again as if there had been none.
    pub(super) fn excused(&mut self) {
        self.threshold = self.limit;
    }

    /// Nothing was heard for the retransmission time-out.
    pub(super) fn timed_out(&mut self) {
        self.threshold = (self.size / 2).max(FLOOR.min(self.limit));
        self.size = FLOOR.min(self.limit);
        self.credit = 0;
    }
}

/// The retransmission time-out (RFC 6298).
pub(super) struct Timeout {
    smoothed: u64,
    variation: u64,
    base: u64,
    backoff: u32,
    /// How often it ran out in all.
    expired: u32,
}

impl Timeout {
    pub(super) fn new(tuning: &Tuning) -> Self {
        Self { smoothed: 0, variation: 0, base: tuning.rto_initial, backoff: 0, expired: 0 }
    }

    /// A round trip was measured on a frame that was sent once.
    #[cold]
    pub(super) fn measured(&mut self, round_trip: u64, tuning: &Tuning) {
        if self.smoothed == 0 {
            self.smoothed = round_trip.max(1);
            self.variation = round_trip / 2;
        } else {
            let error = self.smoothed.abs_diff(round_trip);
            self.variation = self.variation - self.variation / 4 + error / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + round_trip / 8;
        }
        self.base = (self.smoothed + 4 * self.variation).clamp(tuning.rto_min, tuning.rto_max);
    }

    /// Something new was acknowledged.
    #[inline]
    pub(super) fn progress(&mut self) {
        self.backoff = 0;
    }

    /// It ran out.
    pub(super) fn expired(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
        self.expired = self.expired.wrapping_add(1);
    }

    /// How often it ran out since the last progress.
    pub(super) fn expiries(&self) -> u32 {
        self.backoff
    }

    /// When it runs out, counted from `from`, with nothing lost since the last progress.
    #[inline(always)]
    pub(super) fn first_at(&self, from: Time) -> Time {
        debug_assert!(self.backoff == 0);
        from.soon_after(self.base)
    }

    /// When it runs out, counted from `from`.
    #[inline]
    pub(super) fn at(&self, from: Time, tuning: &Tuning) -> Time {
        if self.backoff == 0 { from.soon_after(self.base) } else { self.backed_off(from, tuning) }
    }

    #[cold]
    fn backed_off(&self, from: Time, tuning: &Tuning) -> Time {
        let wait = (self.base << self.backoff).min(tuning.rto_max);
        // Up to a quarter less, differently each time: whatever fails in a rhythm is not to be met in step.
        from.after(wait - wait / 64 * (u64::from(self.expired) * 7 % 16))
    }
}
