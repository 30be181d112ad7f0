//! Frames that come before their turn: their bytes are put in their place at once where that can be known, or held.

use uvia_driver::nic::RxFrame;

use super::{Piece, Refusal, Source, scatter};
use crate::engine::Output;
use crate::engine::core::Core;
use crate::engine::endpoint::Endpoint;
use crate::engine::sender::WINDOW;
use crate::wire::data;

/// A frame that came before its turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Early {
    piece: Piece,
    /// Where the payload waits, if it is not in its place already.
    pub(super) held: Option<u16>,
}

impl Endpoint {
    /// A gap closed: what waited behind it is next in order.
    #[cold]
    pub(super) fn take_those_that_waited<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        out: &mut O,
    ) -> Result<(), Refusal> {
        // The sender waits for this.
        self.receiver.owes = true;
        self.receiver.seen >>= 1;
        while self.receiver.seen & 1 != 0 {
            let entry = &mut self.receiver.early[self.receiver.next as usize % WINDOW];
            let piece = entry.piece;
            let source = match entry.held.take() {
                Some(slot) => Source::Held(slot),
                None => Source::Placed,
            };
            self.take(core, &piece, source, out)?;
            self.receiver.next = self.receiver.next.wrapping_add(1);
            self.receiver.seen >>= 1;
        }
        Ok(())
    }

    /// A frame behind a gap, or one that was here before. If it cannot be put anywhere it is forgotten, and
    /// comes again: only the frame that is next in order can be wrong.
    #[cold]
    pub(super) fn take_early(
        &mut self,
        core: &mut Core,
        distance: u32,
        piece: &Piece,
        frame: &RxFrame<'_>,
        from: usize,
    ) {
        self.receiver.owes = true;
        if piece.flags & data::PART != 0 {
            // What is before it may be lost: it comes again.
            return;
        }
        if distance >= WINDOW as u32 || self.receiver.seen & (1 << distance) != 0 {
            return;
        }
        if piece.flags & data::WRITE != 0 && self.lets_wait(piece) {
            // Once it is here it has to be taken, and there may be no receive for it then.
            return;
        }
        let len = piece.len as usize;
        let held = if piece.flags & data::READ != 0 {
            None
        } else if piece.flags & data::ANSWER != 0 {
            if !self.place_answer(piece, frame, from) {
                return;
            }
            None
        } else if piece.flags & data::WRITE != 0 {
            if len == 0 {
                None
            } else {
                match core.held.keep(frame, from, len) {
                    Some(slot) => Some(slot),
                    None => return,
                }
            }
        } else {
            let number = piece.message.wrapping_add(self.receiver.shift);
            let end = u64::from(piece.offset) + u64::from(piece.len);
            match self.receives.get(number) {
                Some(descriptor) if end <= descriptor.segment_bytes() => {
                    if !scatter(descriptor, piece.offset, frame, from, len) {
                        return;
                    }
                }
                _ => return,
            }
            None
        };
        let sequence = self.receiver.next.wrapping_add(distance);
        if self.receiver.early.is_empty() {
            self.receiver.early.resize(WINDOW, Early::default());
        }
        self.receiver.early[sequence as usize % WINDOW] = Early { piece: *piece, held };
        self.receiver.seen |= 1 << distance;
    }
}
