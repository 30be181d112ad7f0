//! The measurement of round trips: on one frame in so many, and none on a frame that was sent twice.

use super::Sender;
use crate::engine::Time;

/// It is measured on one frame in so many, at most.
const MEASURED: u32 = 8;

/// The measurement that is under way, or the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrip {
    under_way: bool,
    /// The frame that it is measured on, and when that was sent.
    frame: u32,
    since: Time,
    /// The frame on which it is measured next; one that has gone by, while it is measured.
    next: u32,
}

impl RoundTrip {
    /// It is measured on this frame.
    pub(super) fn on(next: u32) -> Self {
        Self { under_way: false, frame: 0, since: Time(0), next }
    }

    /// Whether it is to be measured on this frame, which was never sent before.
    #[inline(always)]
    pub(super) fn is_due(&self, sequence: u32) -> bool {
        sequence == self.next
    }

    /// Whether an acknowledgement may end it.
    #[inline(always)]
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// So many frames from `una` on were acknowledged, and `next` is sent next. Answers how long it took, nanoseconds, if
    /// that ends it.
    #[inline]
    pub(super) fn end(&mut self, una: u32, frames: u32, next: u32, now: Time) -> Option<u64> {
        if !self.under_way || self.frame.wrapping_sub(una) >= frames {
            return None;
        }
        self.under_way = false;
        self.next = next.wrapping_add(MEASURED - 1);
        Some(now.since(self.since))
    }
}

impl Sender {
    /// The round trip is measured on this frame, which is being sent for the first time.
    #[inline]
    pub(super) fn measure(&mut self, sequence: u32, now: Time) {
        self.round_trip.under_way = true;
        self.round_trip.frame = sequence;
        self.round_trip.since = now;
        self.calm.attend();
    }

    /// The measurement is of no use: the next frame is measured.
    pub(super) fn stop_measuring(&mut self) {
        self.round_trip.under_way = false;
        self.round_trip.next = self.next;
    }
}
