//! The end of a message, and of one that is given up.

use std::ops::Deref;

use zerocopy::IntoBytes;

use super::{Lazy, Packing};
use crate::core::{Core, Whole};
use crate::modules::choice;
use crate::packet::flag;
use crate::raw::describe::Description;
use crate::shared::Shared;
use crate::span::Span;
use crate::tasks::{Waits, now};
use crate::{Error, Result, SendMode};

impl<S: Deref<Target = Shared>> Packing<S> {
    /// As [`RawOutgoing::end`].
    #[inline(always)]
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.end_at_once() {
            Whole::Done => {
                self.out.over = true;
                Ok(())
            }
            otherwise => self.end_after(otherwise),
        }
    }

    /// Sends a message that is one piece and takes the short way. After [`Whole::Done`] nothing is to be done for it, and it
    /// is to be forgotten; else it is to be ended with what this answers ([`Packing::end_after`]).
    #[inline(always)]
    pub(crate) fn end_at_once(&self) -> Whole {
        match self.lazy {
            // SAFETY: who packed it has promised that it can be read.
            Some(Lazy { channel, piece: Some((piece, _)) }) => unsafe {
                self.shared.send_whole(channel, self.out.peer, piece)
            },
            _ => Whole::Otherwise,
        }
    }

    /// Ends a message that did not go at once.
    ///
    /// # Errors
    /// As [`RawOutgoing::pack`].
    #[inline(never)]
    pub(crate) fn end_after(&mut self, outcome: Whole) -> Result<()> {
        match outcome {
            Whole::Failed(e) => self.fail(*e),
            _ => self.end_short(),
        }
    }

    /// Ends a message that was begun indeed, or will be.
    #[inline]
    fn end_short(&mut self) -> Result<()> {
        if self.lazy.is_some() {
            let begun = self.begin_expected();
            if self.end_expected(begun)? {
                return Ok(());
            }
            now(self.claim())?;
        }
        if self.more.is_none()
            && self.out.limit > 0
            && let Some(open) = &self.out.open
        {
            // The usual case, under one lock.
            let used = self.out.room.start.addr().wrapping_sub(open.start().addr());
            let outcome = self.shared.core().send_short(self.out.id, open, used);
            match outcome {
                Ok(true) => {
                    self.out.over = true;
                    return Ok(());
                }
                Ok(false) => {}
                Err(e) => return self.fail(*e),
            }
        }
        self.end_slowly()
    }

    /// The port that it went by is broken.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, e: Error) -> Result<()> {
        self.out.over = true;
        Err(e)
    }

    /// Sends the last packet.
    async fn end_with(&mut self, flags: u8) -> Result<()> {
        self.flush(flags).await?;
        self.more().ended = true;
        self.wait_over().await
    }

    /// Waits until none of its memory is read any more, behind its end.
    async fn wait_over(&mut self) -> Result<()> {
        if self.more().longs > 0 {
            self.wait_longs(None, false).await?;
        }
        self.wait_gathered().await?;
        self.shared.core().end_outgoing(self.out.id);
        self.out.over = true;
        Ok(())
    }

    /// Waits until no packet reads memory of the program's.
    async fn wait_gathered(&mut self) -> Result<()> {
        if !self.more().gathering.was_used() {
            return Ok(());
        }
        let (id, rank) = (self.out.id, self.rank());
        let over = |core: &mut Core| {
            // First: the peer may have taken all of it, and left.
            if !core.is_gathering(id) {
                return Ok(Some(()));
            }
            match core.connection(id).failed.clone() {
                Some(why) => Err(Error::Unreachable { rank, why }),
                None => Ok(None),
            }
        };
        self.shared.until(self.waits, "gathered bytes to be sent", over).await
    }

    #[inline(never)]
    pub(super) fn end_slowly(&mut self) -> Result<()> {
        now(self.end_somehow())
    }

    /// As [`Packing::end`], by a task.
    pub(crate) async fn end_in_task(&mut self) -> Result<()> {
        self.step()?;
        self.end_somehow().await
    }

    async fn end_somehow(&mut self) -> Result<()> {
        if self.out.over {
            return Err(Error::Failed);
        }
        let more = self.more();
        let (longs, pieces) = (more.longs, more.pieces);
        if more.described {
            let end = Description::end(pieces);
            self.append(Span::of(end.as_bytes()), 0).await?;
        }
        if longs > 0 {
            self.shared.core().release_longs(self.out.id)?;
        }
        let mut flags = flag::LAST;
        let laters = std::mem::take(&mut self.more().laters);
        if laters.iter().any(|piece| !piece.is_empty()) {
            if self.holds() > 0 {
                self.flush(0).await?;
            }
            let (thresholds, means) = (self.more().thresholds, self.more().means);
            for piece in laters {
                let module = choice::of_piece(piece.len, SendMode::Later, false, &thresholds, means);
                // SAFETY: as `pack` was promised.
                unsafe { self.carry(piece, module, flag::LATER).await? };
            }
            flags |= flag::LATER;
        }
        if longs > 0 {
            // The receiver may need what is here to come to the long pieces.
            if self.out.first || self.holds() > 0 {
                self.flush(flags & !flag::LAST).await?;
            }
            self.wait_longs(None, true).await?;
            flags = flag::LAST;
        }
        self.end_with(flags).await
    }

    /// Tells the receiver that no more comes.
    async fn abandon(&mut self) -> Result<()> {
        // What has begun to be put is waited for, so that nothing comes when the receiver has gone on.
        let (id, peer) = (self.out.id, self.rank());
        self.drop_gathered();
        self.shared.core().give_up_longs(id)?;
        let over = |core: &mut Core| {
            let complete = core.longs(id, None).complete;
            match core.connection(id).failed.clone() {
                Some(why) if !complete => Err(Error::Unreachable { rank: peer, why }),
                _ => Ok(complete.then_some(())),
            }
        };
        self.shared.until(self.waits, "a long piece to be taken", over).await?;
        if !self.more().ended {
            self.flush(flag::LAST | flag::ABANDONED).await?;
        }
        self.wait_gathered().await?;
        self.shared.core().end_outgoing(id);
        Ok(())
    }
}

impl<S: Deref<Target = Shared>> Packing<S> {
    /// Gives the message up: no port reads the program's memory for it after this.
    #[cold]
    pub(super) fn give_up(&mut self) {
        // Whoever drops it cannot be a task that waits.
        self.waits = Waits::Here;
        if self.out.over || now(self.claim()).is_err() {
            return;
        }
        self.out.over = true;
        self.out.limit = 0;
        self.more().laters.clear();
        if let Err(e) = now(self.abandon()) {
            tracing::debug!(rank = self.rank(), "giving up a message: {e}");
            let mut core = self.shared.core();
            core.sever(self.out.id, "a message to it could not be given up in order");
            core.end_outgoing(self.out.id);
        }
    }
}

impl<S: Deref<Target = Shared>> Drop for Packing<S> {
    #[inline]
    fn drop(&mut self) {
        if !self.out.over {
            self.give_up();
        }
    }
}
