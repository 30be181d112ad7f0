//! The end of a message, and of one that is thrown away.

use std::ops::Deref;

use super::streams::{Stream, Waiting};
use super::{Lazy, Unpacking};
use crate::core::{Core, Whole};
use crate::packet::flag;
use crate::raw::describe::Description;
use crate::shared::Shared;
use crate::tasks::{Waits, now};
use crate::{Error, Result};

impl<S: Deref<Target = Shared>> Unpacking<S> {
    /// As [`RawIncoming::end`].
    #[inline(always)]
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.end_at_once() {
            Whole::Done => {
                self.intake.over = true;
                Ok(())
            }
            otherwise => self.end_after(otherwise),
        }
    }

    /// Takes a message that is one piece and comes the short way. After [`Whole::Done`] nothing is to be done for it, and it
    /// is to be forgotten; else it is to be ended with what this answers ([`Unpacking::end_after`]).
    #[inline(always)]
    pub(crate) fn end_at_once(&self) -> Whole {
        match self.lazy {
            // SAFETY: who unpacked it has promised that it may be written.
            Some(Lazy { channel, piece: Some((piece, _)), .. }) => unsafe {
                self.shared.take_whole(channel, self.intake.peer, piece)
            },
            _ => Whole::Otherwise,
        }
    }

    /// Ends a message that was not taken at once.
    ///
    /// # Errors
    /// As [`RawIncoming::unpack`].
    #[inline(never)]
    pub(crate) fn end_after(&mut self, outcome: Whole) -> Result<()> {
        match outcome {
            Whole::Failed(e) => self.fail(*e),
            _ => self.end_begun(),
        }
    }

    /// No message has come, and none will.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, e: Error) -> Result<()> {
        self.intake.over = true;
        Err(e)
    }

    /// Ends a message that was begun indeed, or will be.
    #[inline]
    fn end_begun(&mut self) -> Result<()> {
        if let Some(Lazy { piece, .. }) = self.lazy {
            // SAFETY: who unpacked it has promised that it may be written until the end.
            if unsafe { self.claim(piece.map(|(piece, _)| piece), true)? } {
                return Ok(());
            }
        }
        if self.more.is_none()
            && self.intake.limit > 0
            && self.intake.rest.is_empty()
            && let Some(current) = &self.intake.current
            && current.is_plain_end()
            && self.shared.core().end_short(self.intake.id, current)
        {
            self.intake.over = true;
            return Ok(());
        }
        self.end_slowly()
    }

    #[inline(never)]
    fn end_slowly(&mut self) -> Result<()> {
        now(self.end_somehow())
    }

    /// As [`Unpacking::end`], by a task.
    pub(crate) async fn end_in_task(&mut self) -> Result<()> {
        self.step()?;
        self.end_somehow().await
    }

    async fn end_somehow(&mut self) -> Result<()> {
        if self.intake.over {
            return Err(Error::Failed);
        }
        if self.more().described {
            self.compare(Description::end(self.intake.pieces as usize)).await?;
        }
        self.fill(Stream::Early).await?;
        self.fill(Stream::Later).await?;
        // Then nothing but the end may be left, behind which all long pieces have come.
        loop {
            if self.waiting().aside.iter().any(|(bytes, at)| bytes.len() > *at) {
                return Err(self.mismatch("more", "less"));
            }
            if let Some(current) = self.intake.current {
                if current.flags & flag::ABANDONED != 0 {
                    return Err(self.shared.core().why_abandoned(self.intake.id));
                }
                if !self.intake.rest.is_empty() {
                    return Err(self.mismatch("more", "less"));
                }
                self.done_with(current)?;
            }
            if self.more().last {
                break;
            }
            self.take_next().await?;
        }
        let (packed, unpacked) = (self.more().packed_longs, self.more().longs);
        if packed != unpacked {
            let [packed, unpacked] = [packed, unpacked].map(|longs| format!("{longs} long pieces in all"));
            return Err(self.mismatch(&packed, &unpacked));
        }
        if unpacked > 0 {
            self.wait_pulled().await?;
        }
        self.close();
        Ok(())
    }

    fn close(&mut self) {
        let mut core = self.shared.core();
        core.conceal_all(self.intake.id);
        core.end_incoming(self.intake.id);
        self.intake.over = true;
    }

    /// Throws away what is left.
    async fn discard(&mut self) -> Result<()> {
        self.more().waiting = Waiting::default();
        // What is being read is waited for: its place is the program's again.
        let id = self.intake.id;
        let over = |core: &mut Core| Ok(core.stop_pulls(id));
        self.shared.until(self.waits, "a long piece", over).await?;
        if !self.more().last || self.shared.core().has_offers(id) {
            self.shared.core().refuse(id)?;
        }
        loop {
            if let Some(current) = self.intake.current {
                self.done_with(current)?;
            }
            if self.more().last {
                break;
            }
            self.take_next().await?;
        }
        self.close();
        Ok(())
    }
}

impl<S: Deref<Target = Shared>> Unpacking<S> {
    /// Gives the message up: nobody writes the program's memory for it after this.
    #[cold]
    pub(super) fn give_up(&mut self) {
        // Whoever drops it cannot be a task that waits; and who panics does not wait for a message that has not begun.
        self.waits = Waits::Here;
        if let Some(Lazy { channel, named: true, .. }) = self.lazy {
            let mut core = self.shared.core();
            let id = core.id(channel, self.intake.peer as usize);
            core.forsake(id);
            self.intake.over = true;
            return;
        }
        let is_nothing = self.lazy.is_some() && std::thread::panicking();
        // SAFETY: of a message that is thrown away no piece is expected.
        if self.intake.over || is_nothing || unsafe { self.claim(None, false) }.is_err() {
            self.intake.over = true;
            return;
        }
        if let Err(e) = now(self.discard()) {
            tracing::debug!(rank = self.rank(), "throwing a message away: {e}");
            self.intake.current = None;
            let mut core = self.shared.core();
            core.sever(self.intake.id, "a message from it could not be thrown away in order");
            core.end_incoming(self.intake.id);
            self.intake.over = true;
        }
    }
}

impl<S: Deref<Target = Shared>> Drop for Unpacking<S> {
    #[inline]
    fn drop(&mut self) {
        if !self.intake.over {
            self.give_up();
        }
    }
}
