//! Long pieces of a message.

use std::ops::Deref;

use super::Unpacking;
use super::streams::Stream;
use crate::core::Core;
use crate::packet::flag;
use crate::shared::Shared;
use crate::span::Span;
use crate::{Error, ReceiveMode, Result, SendMode};

impl<S: Deref<Target = Shared>> Unpacking<S> {
    /// # Safety
    /// As for `unpack`.
    pub(super) async unsafe fn unpack_long(
        &mut self,
        piece: Span,
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<()> {
        let (id, number, position) = (self.intake.id, self.more().longs, self.intake.pieces as usize - 1);
        self.more().longs =
            number.checked_add(1).ok_or_else(|| self.mismatch("less", "more than 65,535 long pieces"))?;
        // SAFETY: the caller's promise.
        unsafe { self.shared.core().expect_long(id, number, position, piece)? };
        if receive == ReceiveMode::Cheaper {
            return Ok(());
        }
        // Who sends may not come to it for want of room: so what is before it is taken first.
        self.fill(Stream::Early).await?;
        while !self.has_come(number, piece.len, send).await? {
            self.put_current_aside()?;
            self.take_next().await?;
        }
        Ok(())
    }

    /// Waits for a long piece. False: its sender reads it at the end, and may not come there for want of room, which is
    /// to be made.
    async fn has_come(&mut self, number: u16, len: usize, send: SendMode) -> Result<bool> {
        let (id, peer, position) = (self.intake.id, self.rank(), self.intake.pieces as usize - 1);
        let mut end = self.intake.current.filter(|current| current.flags & flag::LAST != 0);
        if self.more().last && end.is_none() && !self.shared.core().is_pulled(id, number) {
            return if self.more().packed_longs > number { Ok(true) } else { Err(self.too_short()) };
        }
        let come = |core: &mut Core| {
            if core.has_come(id, number)? {
                return Ok(Some(true));
            }
            end = end.or_else(|| core.find_last(id));
            match end {
                // Those that are read come when they do.
                Some(end) if core.is_pulled(id, number) && end.flags & flag::ABANDONED == 0 => Ok(None),
                // All others have come before a message ends.
                Some(end) if end.flags & flag::ABANDONED != 0 => Err(core.why_abandoned(id)),
                Some(end) if end.longs > number => Ok(Some(true)),
                Some(_) => Err(Error::Mismatch {
                    rank: peer,
                    position,
                    packed: "less, or otherwise".to_owned(),
                    unpacked: format!("a long piece of {len} bytes"),
                }),
                None if send == SendMode::Later && core.has_early_packet(id) => Ok(Some(false)),
                None => Ok(None),
            }
        };
        self.shared.until(self.waits, "a long piece", come).await
    }

    /// Waits until what is read has been.
    pub(super) async fn wait_pulled(&mut self) -> Result<()> {
        let (id, longs) = (self.intake.id, self.more().longs);
        let read = |core: &mut Core| {
            for number in 0..longs {
                if core.is_pulled(id, number) && !core.has_come(id, number)? {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        };
        self.shared.until(self.waits, "a long piece", read).await
    }
}
