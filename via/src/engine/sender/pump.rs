//! What is sent next: what was lost, answers, what was posted, as far as the windows and the adapter allow.

use super::{Place, WINDOW, long};
use crate::engine::core::Core;
use crate::engine::endpoint::{Endpoint, SendWork};
use crate::engine::hold::Stage;
use crate::engine::{Output, Time};
use crate::wire::data;
use crate::{Descriptor, Operation};

/// Frames from which on a message is so long that its end asks for an acknowledgement: who waits for its memory is told at
/// once, and that is no more than all streams are acknowledged.
const LONG: u32 = 16;

impl Endpoint {
    /// Whether something can be sent.
    #[inline(always)]
    pub(in crate::engine) fn has_work(&self) -> bool {
        self.receiver.owes_now()
            || self.sender.lost != 0
            || self.has_answers_to_send() && self.sender.may_send()
            || self.may_go_on()
    }

    /// Whether frames of answers to reads were not sent yet.
    #[inline(always)]
    pub(in crate::engine) fn has_answers_to_send(&self) -> bool {
        self.sender.answering.work != self.reads.answers.tail()
    }

    /// Whether the next new frame may be sent: there is one, the window is open, and it is not to wait for reads.
    #[inline(always)]
    pub(in crate::engine) fn may_go_on(&self) -> bool {
        self.sender.cursor.work != self.sends.tail() && self.sender.may_send() && self.may_begin()
    }

    #[inline(never)]
    fn may_begin(&self) -> bool {
        let cursor = &self.sender.cursor;
        cursor.offset != 0 || self.sends.get(cursor.work).is_none_or(|work| self.reads.may_begin(work))
    }

    /// Whether the next new frame is of a message that takes several: of what was posted, or of an answer.
    #[inline(never)]
    fn wants_longer_frames(&self, answer: bool) -> bool {
        let (works, cursor) = if answer {
            (&self.reads.answers, &self.sender.answering)
        } else {
            (&self.sends, &self.sender.cursor)
        };
        works.get(cursor.work).is_some_and(|work| work.outgoing() > self.sender.room)
    }

    /// Whether the next new frame is one of an answer: they go first, but not into the middle of a message.
    fn answers_next(&self) -> bool {
        let sender = &self.sender;
        self.has_answers_to_send()
            && sender.may_send()
            && (sender.answering.offset != 0 || sender.cursor.offset == 0)
    }

    /// Posts to the send queue of a connected interface, in all other cases.
    #[inline(never)]
    pub(in crate::engine) fn post_any<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        descriptor: Box<Descriptor>,
        out: &mut O,
    ) {
        self.stir();
        let mut total = 0;
        for segment in &descriptor.segments {
            total += segment.len();
        }
        self.sends.push(SendWork::new(descriptor, total));
        self.wary = self.wary && core.regions.has_lost();
        if core.busy.is_set() {
            self.enqueue(core);
        } else {
            self.pump(core, now, WINDOW as u32, out);
        }
        self.settle();
    }

    /// Sends what may be sent: `budget` frames at most, the rest has to wait for the next turn.
    #[inline(never)]
    pub(in crate::engine) fn pump<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        budget: u32,
        out: &mut O,
    ) {
        let mut left = budget;
        while left != 0 {
            // Answers go first, but not into the middle of a message.
            let answers = self.answers_next();
            if (answers || self.may_go_on()) && self.sender.lost == 0 {
                if now >= self.sender.look_at && self.wants_longer_frames(answers) {
                    self.look_for_path(core, now, out);
                }
                let sent = self.send_long(core, now, answers, left, out);
                left -= sent;
                if sent != 0 {
                    continue;
                }
            }
            let sent = if self.sender.lost != 0 && self.sender.pipe() < self.sender.again_window() {
                self.send_again(core, now, out)
            } else if answers {
                self.send_next(core, now, true, out)
            } else if self.may_go_on() {
                self.send_next(core, now, false, out)
            } else {
                break;
            };
            if !sent {
                if let Some(loss) = self.mislaid {
                    return self.lose_memory(core, now, loss, out);
                }
                core.found_full(now);
                self.enqueue(core);
                break;
            }
            left -= 1;
        }
        if self.is_unreliable() {
            self.complete_sends(out);
        }
        if self.receiver.owes_now() {
            self.send_ack(core, now, 0, out);
        }
        if left == 0 && self.has_work() {
            self.enqueue(core);
        }
    }

    /// Sends the next new frame; false when the adapter has no room.
    #[inline]
    fn send_next<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        answer: bool,
        out: &mut O,
    ) -> bool {
        let sender = &self.sender;
        let mut flight = if answer { sender.answering } else { sender.cursor };
        flight.order = sender.order.wrapping_add(1);
        let works = if answer { &self.reads.answers } else { &self.sends };
        let Some(work) = works.get(flight.work) else { return true };
        let operation = work.descriptor.operation;
        let write = matches!(operation, Operation::RdmaWrite(_));
        let read = matches!(operation, Operation::RdmaRead(_));
        let immediate = work.descriptor.immediate.is_some();
        let room = sender.room - if write { 16 } else { 0 } - if immediate { 4 } else { 0 };
        let total = work.outgoing();
        flight.len = long::portion(total - flight.offset, room);
        if answer {
            flight.message = work.descriptor.context as u32;
        }
        let consumes = immediate || !(write || read || answer);

        let outstanding = sender.outstanding() + 1;
        let limit = sender.peer_window.min(sender.window.size).min(WINDOW as u32);
        let last_work = flight.work.wrapping_add(1) == works.tail();
        let mut flags = 0;
        if last_work && flight.offset + flight.len == total {
            flags |= data::DRY;
        }
        let ends_long = flight.offset >= LONG * room && flight.offset + flight.len == total;
        if outstanding >= limit && sender.unasked() * 4 >= limit || ends_long {
            flags |= data::NOW;
        }
        let sequence = sender.next;
        let Some(next) = self.transmit(core, &mut flight, sequence, flags, out) else { return false };

        let sender = &mut self.sender;
        if flags & data::NOW != 0 {
            sender.asked_up_to = sequence.wrapping_add(1);
        }
        sender.order = flight.order;
        sender.flights[sequence as usize % WINDOW] = flight;
        if sequence == sender.una {
            sender.timer_from = now;
        }
        sender.next = sequence.wrapping_add(1);
        if sender.round_trip.is_due(sequence) {
            sender.measure(sequence, now);
        }
        let cursor = if answer { &mut sender.answering } else { &mut sender.cursor };
        if flight.offset + flight.len == total {
            cursor.work = flight.work.wrapping_add(1);
            cursor.offset = 0;
            cursor.place = Place::default();
            if consumes {
                cursor.message = cursor.message.wrapping_add(1);
            }
            let end = sender.next;
            let works = if answer { &mut self.reads.answers } else { &mut self.sends };
            if let Some(work) = works.get_mut(flight.work) {
                work.hold.set_stage(Stage::Sent);
                work.end = end;
                if read {
                    work.hold.ask();
                    self.reads.asked(flight.work);
                }
            }
        } else {
            cursor.offset += flight.len;
            cursor.place = next;
        }
        if self.is_unreliable() {
            // Nobody will say that it has arrived.
            self.sender.una = self.sender.next;
            self.sender.stop_measuring();
            return true;
        }
        let at = self.sender.timeout.at(self.sender.timer_from, &core.config.tuning);
        self.wake(core, at);
        true
    }
}
