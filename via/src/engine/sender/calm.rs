//! What a sender keeps while its interface is calm. Each frame is a whole message then, sent the short way, and its descriptor
//! in the send queue is all that is kept of it. The rest is noted once the interface is calm no more, for all frames that may
//! have to be sent again.

use super::{Flight, Place, Sender, WINDOW};
use crate::engine::core::Core;
use crate::engine::endpoint::{Endpoint, SendWork};
use crate::engine::hold::Hold;
use crate::engine::{FrameToken, PlainSend, Time, Tuning};
use crate::flag::Flag;
use crate::ring::Ring;
use crate::wire::Words;
use crate::{Descriptor, Status};

/// Kept by [`Sender::begin_calm`], which comes when [`Endpoint::calm`] is set, and [`Sender::end_calm`], when it is cleared.
/// In between no other way is taken than the short one, so that nothing else is sent, no frame is lost, and the peer's window
/// is what it was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calm {
    /// Frames in flight below which one more may go the short way: with the last one that the windows allow an
    /// acknowledgement is asked for, and it goes another. 0 unless the interface is calm, so that who sends the short way
    /// need not look at more. Found anew whenever the window has grown.
    reach: u32,
    /// The same for what [`PlainSend`] is for: 0 where a frame, or a transfer, may not be as long as those are.
    plain_reach: u32,
    /// Those may be: for the whole of a connection.
    plain: bool,
    /// An acknowledgement may end a measurement, or open the window. It may be true where neither is so, never the other
    /// way round: whatever begins a measurement sets it, and each acknowledgement that is looked at finds it anew. Of no
    /// meaning unless the interface is calm.
    attentive: Flag,
    /// The frames from here on are whole messages, one behind the other, and neither `flights` nor `cursor` nor `order`
    /// knows of them yet: their works are the last ones of the send queue.
    first: u32,
    /// What is added to the number of one of them to get its message's.
    shift: u32,
}

impl Calm {
    /// For a connection whose frames and messages may have so many bytes of payload at least.
    pub(super) fn new(room: u32) -> Self {
        Self { plain: room >= PlainSend::MOST, ..Self::default() }
    }

    /// The next acknowledgements are more than counted.
    #[inline(always)]
    pub(super) fn attend(&mut self) {
        self.attentive = true.into();
    }
}

impl Sender {
    /// The interface has become calm.
    pub(in crate::engine) fn begin_calm(&mut self) {
        self.calm.first = self.next;
        self.calm.shift = self.cursor.message.wrapping_sub(self.next);
        self.find_reach();
        self.look_ahead();
    }

    /// It is so no more: notes the frames that were sent meanwhile. Of those that were acknowledged nothing is left to know.
    pub(in crate::engine) fn end_calm(&mut self, sends: &Ring<SendWork>) {
        self.calm.reach = 0;
        self.calm.plain_reach = 0;
        let first = self.calm.first;
        let frames = self.next.wrapping_sub(first);
        let noted = frames.saturating_sub(self.outstanding());
        for n in noted..frames {
            let sequence = first.wrapping_add(n);
            let work = sends.tail().wrapping_sub(frames - n);
            self.flights[sequence as usize % WINDOW] = Flight {
                work,
                message: self.cursor.message.wrapping_add(n),
                offset: 0,
                len: sends.get(work).map_or(0, SendWork::total),
                place: Place::default(),
                order: self.order.wrapping_add(n + 1),
                answer: false,
            };
        }
        self.cursor.work = sends.tail();
        self.cursor.message = self.cursor.message.wrapping_add(frames);
        self.order = self.order.wrapping_add(frames);
        self.calm.first = self.next;
    }

    /// Finds how many frames may be in flight.
    #[cold]
    fn find_reach(&mut self) {
        self.calm.reach = self.peer_window.min(self.window.size).saturating_sub(1);
        self.calm.plain_reach = if self.calm.plain { self.calm.reach } else { 0 };
    }

    /// The window may have grown.
    #[inline]
    pub(super) fn widen_reach(&mut self) {
        if self.calm.reach != 0 {
            self.find_reach();
        }
    }

    /// Whether acknowledgements are more than counted, from now on.
    fn look_ahead(&mut self) {
        self.calm.attentive = (self.round_trip.is_under_way() || !self.window.is_open()).into();
    }

    /// Takes an acknowledgement on a frame that names no gap, where there is none on this side either.
    #[inline(always)]
    pub(in crate::engine) fn acknowledge_in_order(&mut self, ack: u32, now: Time, tuning: &Tuning) {
        if (ack ^ self.next) | self.calm.attentive.word() == 0 {
            // All that was sent, if only it was not so before: then this changes nothing. The timer is the next frame's.
            self.una = ack;
        } else {
            self.acknowledge_some(ack, now, tuning);
        }
    }

    /// As [`Sender::acknowledge_in_order`], where there is more to do.
    #[inline(never)]
    fn acknowledge_some(&mut self, ack: u32, now: Time, tuning: &Tuning) {
        let advance = ack.wrapping_sub(self.una);
        if advance.wrapping_sub(1) < self.outstanding() {
            debug_assert!(!self.recovering && self.timeout.expiries() == 0);
            self.advance(advance, now, tuning);
            self.look_ahead();
        }
    }
}

impl Endpoint {
    /// Whether a plain send may go the short way: it fits a frame, which may go out at once, and there is room for one more
    /// behind it. An interface that is not calm has no reach.
    #[inline(always)]
    pub(in crate::engine) fn may_post_short(&self, core: &Core, len: u32) -> bool {
        let sender = &self.sender;
        len.wrapping_sub(1) < sender.room && !core.busy.is_set() && sender.outstanding() < sender.calm.reach
    }

    /// As [`Endpoint::may_post_short`], for any plain send of [`PlainSend::MOST`] bytes at most: 0 where it may. The numbers are
    /// far below the half of all, so that the highest bit of their difference says which is greater.
    #[inline(always)]
    pub(in crate::engine) fn bars_plain(&self, core: &Core) -> u32 {
        let below = self.sender.outstanding().wrapping_sub(self.sender.calm.plain_reach);
        !below >> 31 | core.busy.word()
    }

    /// The header of a plain send of `len` bytes that goes the short way.
    #[inline(always)]
    pub(in crate::engine) fn short_header(&self, core: &Core, len: u32) -> Words {
        let sequence = self.sender.next;
        let message = sequence.wrapping_add(self.sender.calm.shift);
        self.route.short(core.window, len, sequence, self.receiver.next, message)
    }

    /// Names its memory.
    pub(in crate::engine) fn next_token(&self) -> FrameToken {
        FrameToken(self.token | u64::from(self.sends.tail()))
    }

    /// The adapter has its frame: puts the descriptor into the send queue. What only matters when frames get lost is noted
    /// later, for many at once ([`Sender::end_calm`]).
    #[inline(always)]
    pub(in crate::engine) fn sent_short(
        &mut self,
        core: &mut Core,
        about_now: impl FnOnce(&Core) -> Time,
        now: impl FnOnce() -> Time,
        mut descriptor: Box<Descriptor>,
        len: u32,
        hold: Hold,
    ) {
        debug_assert!(self.is_undisturbed() && descriptor.is_plain_send());
        // Whoever owes has found the adapter full, and waits for a turn.
        debug_assert!(!self.receiver.owes_now());
        descriptor.set_status(Status::DONE);
        descriptor.length = len;
        let sender = &mut self.sender;
        let sequence = sender.next;
        let end = sequence.wrapping_add(1);
        sender.next = end;
        self.sends.push(SendWork { descriptor, end, hold });
        self.receiver.acknowledged_all();
        if sender.round_trip.is_due(sequence) {
            sender.measure(sequence, now());
        }
        if sequence == sender.una {
            let about_now = about_now(core);
            sender.timer_from = about_now;
            // All else was acknowledged.
            let at = sender.timeout.first_at(about_now);
            if at < self.deadline {
                self.deadline = at;
                core.wake_vi(self.id.slot() as u16, at);
            }
        }
    }
}
