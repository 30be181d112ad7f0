//! A message that is one long piece, whose place its receiver names before it is asked: see `core/early.rs`.

use std::ops::Deref;

use super::{Lazy, Packing};
use crate::Result;
use crate::core::{Core, Expected};
use crate::shared::Shared;
use crate::tasks::now;

impl<S: Deref<Target = Shared>> Packing<S> {
    /// Whether the receiver has named a place for the piece that is all of the message, so that it needs nothing more to go.
    pub(crate) fn is_expected(&self) -> bool {
        let Some(Lazy { channel, piece: Some(_) }) = self.lazy else { return false };
        self.shared.core().is_expected(channel, self.rank())
    }

    /// Sends a message that is one long piece, whose place the receiver has named, or is about to. It has to be ended next
    /// ([`Packing::end_expected`]).
    pub(crate) fn begin_expected(&mut self) -> Result<Expected> {
        let Some(Lazy { channel, piece: Some((piece, _)) }) = self.lazy else {
            return Ok(Expected::Otherwise);
        };
        let peer = self.rank();
        // SAFETY: who packed it has promised that it stays as it is until the end, which waits until it is over.
        let begun = unsafe { self.shared.core().send_expected(channel, peer, piece, &mut self.out) };
        if !matches!(begun, Ok(Expected::Otherwise)) {
            self.lazy = None;
        }
        begun
    }

    /// Ends a message that was begun so. False: it has to begin otherwise, and nothing was done.
    pub(crate) fn end_expected(&mut self, begun: Result<Expected>) -> Result<bool> {
        match begun {
            Ok(Expected::Otherwise) => return Ok(false),
            Ok(Expected::Ended) => return self.wait_expected().map(|()| true),
            _ => {}
        }
        let more = self.more();
        (more.longs, more.pieces) = (1, 1);
        let outcome = match begun {
            // The receiver learns by this that there is a message, before a place is offered.
            Ok(Expected::Asked) => now(self.flush(0)),
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(e) = outcome {
            self.give_up();
            return Err(e);
        }
        self.end_slowly().map(|()| true)
    }

    /// Waits until the piece of such a message has come, behind which nothing is left to be sent.
    fn wait_expected(&mut self) -> Result<()> {
        let (id, out) = (self.out.id, &mut self.out);
        let over = |core: &mut Core| {
            let is_over = core.end_expected(id)?;
            out.over = is_over;
            Ok(is_over.then_some(()))
        };
        let outcome = self.shared.wait("a long piece to be taken", over);
        if outcome.is_err() {
            // Its memory is to be left by who gives it up.
            self.out.first = false;
            let more = self.more();
            (more.longs, more.pieces, more.ended) = (1, 1, true);
        }
        outcome
    }
}
