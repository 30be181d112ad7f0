//! The sending half of a connection: descriptors are cut into frames, and frames are sent until acknowledged.

mod acknowledgement;
mod calm;
mod frame;
mod long;
mod parts;
mod pump;
mod retransmission;
mod round_trip;
mod span;

use super::congestion::{Timeout, Window};
use super::{EngineConfig, Time, Tuning};
use crate::wire::control::Offer;
use crate::wire::{FIXED, data};
use calm::Calm;
use parts::Parts;
use round_trip::RoundTrip;
use span::{Span, Way};

/// Most frames in flight: what a selective acknowledgement can tell apart.
pub(super) const WINDOW: usize = 64;

/// Where in a descriptor's segments a frame's payload begins.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    segment: u32,
    within: u32,
}

/// A frame that was sent and not yet acknowledged, or one that is about to be sent.
#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    work: u32,
    message: u32,
    offset: u32,
    len: u32,
    place: Place,
    /// Frames of this connection that were sent before it, retransmissions counted.
    order: u32,
    /// Whether `work` is the number of an answer to a read, and not of what was posted.
    answer: bool,
}

pub(super) struct Sender {
    /// All frames before it are acknowledged.
    una: u32,
    /// The sequence number of the next new frame.
    pub(super) next: u32,
    /// What the peer takes unacknowledged.
    pub(super) peer_window: u32,
    /// What is kept while the interface is calm.
    calm: Calm,
    /// Bits from `una` on: arrived, by selective acknowledgement.
    sacked: u64,
    /// Bits from `una` on: taken for lost, to be sent again.
    lost: u64,
    /// The next new frame.
    cursor: Flight,
    /// The next new frame of an answer.
    answering: Flight,
    order: u32,
    /// The latest `order` that is known to have arrived.
    arrived: u32,
    /// Losses before it were answered by a smaller window already.
    recovery: u32,
    recovering: bool,
    /// The first frame since the peer was asked to answer.
    asked_up_to: u32,
    round_trip: RoundTrip,
    timer_from: Time,
    /// Once the time-out has run out: from when on it was counted the first time.
    progress: Time,
    /// Payload of a frame without extensions.
    pub(super) room: u32,
    /// How long frames may be.
    span: Span,
    way: Way,
    parts: Parts,
    /// When it is looked for a longer one, if a message wants it.
    pub(super) look_at: Time,
    window: Window,
    timeout: Timeout,
    flights: Box<[Flight; WINDOW]>,
}

impl Sender {
    pub(super) fn new(tuning: &Tuning) -> Self {
        Self {
            una: 0,
            next: 0,
            peer_window: 0,
            calm: Calm::default(),
            sacked: 0,
            lost: 0,
            cursor: Flight::default(),
            answering: Flight { answer: true, ..Flight::default() },
            order: 0,
            arrived: 0,
            recovery: 0,
            recovering: false,
            asked_up_to: 0,
            round_trip: RoundTrip::on(0),
            timer_from: Time(0),
            progress: Time(0),
            room: 0,
            span: Span::default(),
            way: Way::Sure,
            parts: Parts::default(),
            look_at: Time::NEVER,
            window: Window::new(tuning.window),
            timeout: Timeout::new(tuning),
            flights: Box::new([Flight::default(); WINDOW]),
        }
    }

    /// Chooses the number of the first frame of the connection to come.
    pub(super) fn begin(&mut self, first: u32) {
        self.una = first;
        self.next = first;
    }

    /// The peer is known.
    pub(super) fn establish(
        &mut self,
        config: &EngineConfig,
        theirs: &Offer<'_>,
        integrity: bool,
        max_transfer_size: u32,
        [work, answer]: [u32; 2],
    ) {
        self.span = Span::new(config, theirs.mtu, integrity);
        self.room = self.span.room(self.span.sure);
        self.way = Way::Sure;
        // Never more than at the beginning: it may grow, and comes back to this.
        self.calm = Calm::new(self.room.min(max_transfer_size));
        self.peer_window = u32::from(theirs.window);
        self.sacked = 0;
        self.lost = 0;
        self.cursor = Flight { work, message: self.next, ..Flight::default() };
        self.answering = Flight { work: answer, answer: true, ..Flight::default() };
        self.order = 0;
        self.arrived = 0;
        self.recovering = false;
        self.asked_up_to = self.next;
        self.round_trip = RoundTrip::on(self.next);
        self.window = Window::new(config.tuning.window);
        self.timeout = Timeout::new(&config.tuning);
    }

    /// There are never more frames than these in flight, since there are no more credits: the peer is asked for an
    /// acknowledgement when they end, as when a window does.
    pub(super) fn limit(&mut self, frames: usize) {
        self.window = Window::new((frames as u32).min(self.window.size));
    }

    /// The connection is no more: nothing is in flight, nothing to be sent.
    pub(super) fn abandon(&mut self, work: u32, answer: u32) {
        self.sacked = 0;
        self.lost = 0;
        self.cursor.work = work;
        self.answering.work = answer;
        self.next = self.una;
    }

    #[inline]
    pub(super) fn has_acknowledged(&self, end: u32) -> bool {
        self.una.wrapping_sub(end) as i32 >= 0
    }

    /// All frames before it are acknowledged.
    #[inline(always)]
    pub(super) fn acknowledged(&self) -> u32 {
        self.una
    }

    /// Whether nothing that was posted waits to be sent.
    pub(super) fn has_begun_all(&self, tail: u32) -> bool {
        self.cursor.work == tail
    }

    /// Whether no frame is known to be lost, or to have arrived before its turn, and no loss is being got over.
    pub(super) fn has_no_gap(&self) -> bool {
        self.lost | self.sacked == 0 && !self.recovering
    }

    /// Frames since the peer was asked to answer, with the next one; 0 when that asks again, having found no room.
    #[inline]
    fn unasked(&self) -> u32 {
        self.next.wrapping_add(1).wrapping_sub(self.asked_up_to)
    }

    #[inline(always)]
    fn outstanding(&self) -> u32 {
        self.next.wrapping_sub(self.una)
    }

    /// Bits of the frames in flight, from `una` on.
    #[inline]
    fn in_flight(&self) -> u64 {
        match self.outstanding() {
            0 => 0,
            n => u64::MAX >> (64 - n),
        }
    }

    /// Frames that are on their way, as far as we know.
    #[inline]
    fn pipe(&self) -> u32 {
        let gone = self.sacked | self.lost;
        if gone == 0 { self.outstanding() } else { self.outstanding() - gone.count_ones() }
    }

    #[inline]
    fn may_send(&self) -> bool {
        self.outstanding() < self.peer_window.min(WINDOW as u32) && self.pipe() < self.window.size
    }

    /// Whether one frame has room for so many bytes, whatever extensions it has.
    pub(super) fn fits(&self, len: usize) -> bool {
        len + (data::MAX_SEND_HEADER - FIXED) <= self.room as usize
    }
}

#[cfg(test)]
impl Sender {
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding() == 0 && self.lost == 0 && self.sacked == 0
    }
}
