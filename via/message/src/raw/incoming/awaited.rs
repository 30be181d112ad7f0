//! A message that is taken before it has begun, so that its sender knows the place of its first piece: see
//! `core/early.rs`.

use std::ops::Deref;

use super::{Lazy, Unpacking};
use crate::port::LinkId;
use crate::shared::Shared;
use crate::span::Span;
use crate::{ReceiveMode, Result};

/// A message that was taken ahead. Dropped before any of it has come, its connection ends.
struct Awaited<'a> {
    shared: &'a Shared,
    id: LinkId,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.shared.core().forsake(self.id);
    }
}

impl<S: Deref<Target = Shared>> Unpacking<S> {
    /// Takes the message before it has begun, and names the place of its piece, if that is long, and it can be. Answers
    /// whether its sender can send all of it with no more done here.
    pub(crate) fn name_ahead(&mut self) -> Result<bool> {
        let Some(Lazy { channel, piece: Some((piece, _)), named }) = &mut self.lazy else { return Ok(false) };
        let (shared, peer) = (&*self.shared, self.intake.peer as usize);
        let mut core = shared.core();
        // SAFETY: who unpacked it has promised that it may be written until the end; `claim` and `give_up` see to it that
        // the connection ends before the message does without having come.
        *named = unsafe { core.await_long(*channel, peer, *piece)? }.is_some();
        Ok(*named || core.has_room_for(*channel, peer, piece.len))
    }

    /// Waits for it indeed. Its sender is told ahead where the first piece goes, unless there is none, or it is thrown away.
    /// Where it `is_all` of the message that is waited for, and so it came, that is over, which is what this answers.
    ///
    /// # Safety
    /// That piece may be written, and nobody else touches it until the message was ended, or dropped.
    pub(super) unsafe fn claim(&mut self, first: Option<Span>, is_all: bool) -> Result<bool> {
        let Some(Lazy { channel, piece, named }) = self.lazy.take() else { return Ok(false) };
        self.intake.over = true;
        let rank = self.rank();
        let awaited = match first {
            _ if named => Some(self.shared.core().id(channel, rank)),
            // SAFETY: the caller's promise; `Awaited` sees to it that the connection ends before the message does without
            // having come.
            Some(first) => unsafe { self.shared.core().await_long(channel, rank, first)? },
            None => None,
        };
        match awaited {
            Some(id) => {
                if self.begin_awaited(id, is_all)? {
                    return Ok(true);
                }
            }
            None => self.begin(channel, Some(rank))?,
        }
        if let Some((piece, send)) = piece {
            // SAFETY: who unpacked it has promised that it may be written until the end.
            unsafe { self.unpack(piece, send, ReceiveMode::Cheaper)? };
        }
        Ok(false)
    }

    /// Waits for the first packet of a message that was taken ahead. Answers as [`Unpacking::claim`].
    fn begin_awaited(&mut self, id: LinkId, is_all: bool) -> Result<bool> {
        let (shared, intake) = (&*self.shared, &mut self.intake);
        let awaited = Awaited { shared, id };
        let is_over = shared.wait("a message", |core| {
            if !core.take_awaited(id, intake)? {
                return Ok(None);
            }
            match intake.current {
                Some(packet) if is_all => core.end_awaited(id, packet).map(Some),
                _ => Ok(Some(false)),
            }
        })?;
        std::mem::forget(awaited);
        intake.over = is_over;
        Ok(is_over)
    }
}
