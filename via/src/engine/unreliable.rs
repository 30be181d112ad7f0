//! The level that promises little: each message at most once, whole or not at all, in order; a loss is not seen, and the
//! connection survives it.
//!
//! The frames are those of the other levels, numbered so that a gap is noticed, but nothing is acknowledged and nothing
//! comes again: a send is over when its bytes are in the adapter.

use uvia_driver::nic::RxFrame;

use super::Output;
use super::core::Core;
use super::endpoint::Endpoint;
use super::receiver::{Piece, Refusal, Source};
use crate::ReliabilityLevel;
use crate::wire::data;

impl Endpoint {
    /// Whether nothing is repeated on this connection.
    #[inline]
    pub(super) fn is_unreliable(&self) -> bool {
        self.attributes.reliability == ReliabilityLevel::Unreliable
    }

    /// Takes a frame of a connection that promises little. What cannot be taken is dropped.
    pub(super) fn take_unreliable<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        sequence: u32,
        piece: &Piece,
        frame: &RxFrame<'_>,
        from: usize,
        out: &mut O,
    ) {
        let receiver = &mut self.receiver;
        let distance = sequence.wrapping_sub(receiver.next) as i32;
        if distance < 0 {
            // It was here before, or has been overtaken.
            return;
        }
        receiver.next = sequence.wrapping_add(1);
        if piece.flags & (data::READ | data::ANSWER | data::PART) != 0 {
            return;
        }
        // Of a message that began before the gap the rest is dropped too; its receive serves the next one. What is
        // first of a message begins it, whatever the gap held.
        let first = piece.offset == 0;
        if first {
            self.receiver.begin_message(piece.message);
        } else if distance > 0 {
            self.receiver.give_message_up();
        }
        if piece.flags & data::WRITE != 0 {
            // Each frame names its memory and stands by itself.
            self.receiver.expect_write(piece.message, piece.offset);
        }
        if let Err(refusal) = self.take(core, piece, Source::Frame(frame, from), out) {
            self.receiver.give_message_up();
            self.report(refusal, out);
            match refusal {
                Refusal::Length => self.complete_too_short(out),
                Refusal::Memory => self.complete_unreachable(out),
                _ => {}
            }
        }
    }
}
