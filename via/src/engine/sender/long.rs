//! The frames of a long message but for its last one: what they have in common is looked up and made once, and a frame is
//! then its number, its place, and what the adapter takes to fetch it.

use super::{Flight, Place, WINDOW};
use crate::Operation;
use crate::engine::core::Core;
use crate::engine::endpoint::Endpoint;
use crate::engine::reads::answers_may_go_on;
use crate::engine::{ANSWER, FrameToken, Output, PayloadPart, Sent, Time};
use crate::wire::FIXED;
use crate::wire::data::{self, Fixed};

/// Payloads of frames that others follow are a multiple of this, so that what is copied to an address that words are
/// aligned at goes on at such addresses.
const WORD: u32 = 8;

/// Bytes of a message that go with a frame which has room for so many, where so many are left.
#[inline]
pub(super) fn portion(left: u32, room: u32) -> u32 {
    if left <= room { left } else { room & !(WORD - 1) }
}

impl Endpoint {
    /// Sends frames of the message that is next, `budget` at most: those that are neither its last, nor made of several
    /// segments, nor special in any other way. Answers how many; when that is none, one may go all the same, and
    /// [`Endpoint::send_next`] finds out.
    #[inline(never)]
    pub(super) fn send_long<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        answer: bool,
        budget: u32,
        out: &mut O,
    ) -> u32 {
        if self.integrity || self.is_unreliable() || self.receiver.has_gap() {
            return 0;
        }
        let sender = &mut self.sender;
        let cursor = if answer { sender.answering } else { sender.cursor };
        let works = if answer { &mut self.reads.answers } else { &mut self.sends };
        let Some(work) = works.get_mut(cursor.work) else { return 0 };
        // Rights change under the NIC's lock: not before this returns.
        if answer && !answers_may_go_on(work, &self.attributes) {
            return 0;
        }
        let descriptor = &*work.descriptor;
        let write = match descriptor.operation {
            Operation::RdmaWrite(remote) => Some(remote),
            _ => None,
        };
        let room = sender.room
            - if write.is_some() { 16 } else { 0 }
            - if descriptor.immediate.is_some() { 4 } else { 0 };
        let left = work.outgoing() - cursor.offset;
        let Some(segment) = descriptor.segments.get(cursor.place.segment as usize) else { return 0 };
        let len = room & !(WORD - 1);
        let outstanding = sender.outstanding();
        let limit = sender.peer_window.min(sender.window.size).min(WINDOW as u32);
        let allowed = sender
            .peer_window
            .min(WINDOW as u32)
            .saturating_sub(outstanding)
            .min(sender.window.size.saturating_sub(sender.pipe()));
        let count = budget
            .min(allowed)
            // What is left after these still needs one that is the last.
            .min(left.saturating_sub(room).div_ceil(len))
            .min((segment.len() - cursor.place.within) / len);
        if count == 0 {
            return 0;
        }

        let mut flags = if answer { data::ANSWER } else { 0 };
        let mut header = [0; 8];
        let mut bytes = FIXED;
        if let Some(remote) = write {
            flags |= data::WRITE;
            header[6] = remote.address;
            header[7] = u64::from(remote.handle.0) | u64::from(work.total()) << 32;
            bytes += 16;
        }
        let message = if answer { descriptor.context as u32 } else { cursor.message };
        let fixed = Fixed {
            flags,
            slot: 0,
            payload: len as u16,
            window: core.share,
            identity: 0,
            sequence: sender.next,
            ack: self.receiver.next,
            message,
            offset: cursor.offset,
        };
        header[..FIXED / 8].copy_from_slice(&fixed.words(&self.route, data::DATA));
        let token = FrameToken(self.token | u64::from(cursor.work) | if answer { ANSWER } else { 0 });
        let mut flight = Flight { message, len, ..cursor };
        let mut part = PayloadPart {
            region: segment.region(),
            offset: segment.offset() + cursor.place.within as usize,
            len: len as usize,
        };

        if outstanding == 0 {
            sender.timer_from = now;
        }
        let first = sender.next;
        let mut references = 0;
        let mut sent = 0;
        while sent < count {
            let asks = outstanding + sent + 1 >= limit && sender.unasked() * 4 >= limit;
            if asks {
                header[2] |= u64::from(data::NOW);
            }
            match out.transmit_long(&header, bytes, &part, token) {
                Sent::Referenced => references += 1,
                Sent::Copied => {}
                // Who sends the next one finds the same, and does what is to be done.
                Sent::Full | Sent::Gone => break,
            }
            sent += 1;
            let sequence = sender.next;
            sender.next = sequence.wrapping_add(1);
            if asks {
                header[2] &= !u64::from(data::NOW);
                sender.asked_up_to = sender.next;
            }
            sender.order = sender.order.wrapping_add(1);
            flight.order = sender.order;
            sender.flights[sequence as usize % WINDOW] = flight;
            if sender.round_trip.is_due(sequence) {
                sender.measure(sequence, now);
            }
            flight.offset += len;
            flight.place.within += len;
            part.offset += len as usize;
            // Both lie in the lower half of their word.
            header[4] = header[4] & !u64::from(u32::MAX) | u64::from(sender.next);
            header[5] = header[5] & u64::from(u32::MAX) | u64::from(flight.offset) << 32;
        }
        if sent == 0 {
            return 0;
        }
        debug_assert_eq!(sender.next, first.wrapping_add(sent));
        #[cfg(test)]
        {
            core.sent_long += u64::from(sent);
        }
        work.hold.refer_more(references);
        let cursor = if answer { &mut sender.answering } else { &mut sender.cursor };
        cursor.offset = flight.offset;
        cursor.place = Place { segment: flight.place.segment, within: flight.place.within };
        self.receiver.acknowledged(false);
        let at = self.sender.timeout.at(self.sender.timer_from, &core.config.tuning);
        self.wake(core, at);
        sent
    }
}
