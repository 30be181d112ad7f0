//! A message that is being packed.

mod end;
mod expected;
mod pieces;

use std::ops::Deref;
use std::sync::Arc;

use super::gathering::Gathering;
use crate::core::{Core, Outset};
use crate::modules::Thresholds;
use crate::modules::choice::Means;
use crate::shared::Shared;
use crate::span::Span;
use crate::tasks::{Waits, now};
use crate::{Error, ReceiveMode, Result, SendMode};

/// A message to a rank, by address. Dropped before its end it is given up, which its receiver hears.
pub struct RawOutgoing(Packing<Arc<Shared>>);

impl RawOutgoing {
    /// Begins a message to a rank; waits until there is a connection.
    pub(crate) fn begin(shared: &Arc<Shared>, channel: usize, peer: usize) -> Result<Self> {
        let mut message = Self(Packing::new(shared.clone()));
        message.0.begin(channel, peer)?;
        Ok(message)
    }

    /// The rank that it goes to.
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// The rank cannot be reached any more; it does not want more of the message.
    ///
    /// # Safety
    /// The memory is valid, and nobody writes it until the call returns, where it is [`SendMode::Safer`]; else until the
    /// message was ended, or dropped. With [`SendMode::Later`] it may be written by the caller until it calls
    /// [`RawOutgoing::end`].
    #[inline]
    pub unsafe fn pack(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.pack(piece, send, receive) }
    }

    /// Ends the message: it will arrive, and all of its memory may be written again.
    ///
    /// # Errors
    /// As [`RawOutgoing::pack`].
    #[inline]
    pub fn end(mut self) -> Result<()> {
        self.0.end()
    }
}

/// A message that is being packed. `S` keeps the session, or knows that somebody does.
pub(crate) struct Packing<S: Deref<Target = Shared>> {
    shared: S,
    /// What the short way needs.
    out: Outset,
    /// What only the long way needs, once it was taken.
    more: Option<Box<More>>,
    /// Nothing was taken of the connection yet, but a piece may wait.
    lazy: Option<Lazy>,
    waits: Waits,
    /// A task is about a step.
    is_stepping: bool,
}

/// A message of which nothing but its channel is known, and a piece that need not be read before the end. Mostly it is all
/// of the message, and that goes in one step then.
#[derive(Clone, Copy)]
struct Lazy {
    channel: usize,
    piece: Option<(Span, ReceiveMode)>,
}

/// What only messages need that are more than a packet.
#[derive(Default)]
struct More {
    /// Most bytes of the message in a packet.
    capacity: usize,
    thresholds: Thresholds,
    means: Means,
    described: bool,
    /// The receiver may wait for one of the pieces that are read at the end.
    later_express: bool,
    longs: u16,
    /// Pieces that took the long way.
    pieces: usize,
    /// Short pieces that are read at the end.
    laters: Vec<Span>,
    gathering: Gathering,
    /// The packet that ends it has gone.
    ended: bool,
}

impl<S: Deref<Target = Shared>> Packing<S> {
    /// A message that has not begun yet.
    #[inline(always)]
    pub(crate) fn new(shared: S) -> Self {
        Self { shared, out: Outset::new(), more: None, lazy: None, waits: Waits::Here, is_stepping: false }
    }

    /// Begins the message to a rank without waiting: what is to be waited for, and what may be wrong, shows later.
    #[inline(always)]
    pub(crate) fn begin_lazily(&mut self, channel: usize, peer: usize) {
        self.lazy = Some(Lazy { channel, piece: None });
        self.out.peer = peer as u32;
        self.out.over = false;
    }

    /// Begins the message to a rank; waits until there is a connection.
    #[inline(always)]
    pub(crate) fn begin(&mut self, channel: usize, peer: usize) -> Result<()> {
        if self.shared.core().begin_short(channel, peer, &mut self.out) {
            return Ok(());
        }
        self.begin_slowly(channel, peer)
    }

    #[cold]
    #[inline(never)]
    fn begin_slowly(&mut self, channel: usize, peer: usize) -> Result<()> {
        now(self.begin_somehow(channel, peer))
    }

    /// As [`Packing::begin`], by a task.
    pub(crate) async fn begin_in_task(&mut self, channel: usize, peer: usize) -> Result<()> {
        self.waits = Waits::Task;
        self.begin_somehow(channel, peer).await
    }

    async fn begin_somehow(&mut self, channel: usize, peer: usize) -> Result<()> {
        let out = &mut self.out;
        let begin = |core: &mut Core| core.begin_outgoing(channel, peer, out);
        self.shared.until(self.waits, "a connection", begin).await
    }

    /// Begins it indeed.
    async fn claim(&mut self) -> Result<()> {
        let Some(Lazy { channel, piece }) = self.lazy.take() else { return Ok(()) };
        self.out.over = true;
        self.begin_somehow(channel, self.rank()).await?;
        match piece {
            // SAFETY: who packed it has promised that it stays as it is until the end.
            Some((piece, receive)) => unsafe { self.pack_any(piece, SendMode::Cheaper, receive).await },
            None => Ok(()),
        }
    }

    /// The rank that it goes to.
    pub(crate) fn rank(&self) -> usize {
        self.out.peer as usize
    }

    /// What the long way needs.
    fn more(&mut self) -> &mut More {
        let (shared, id) = (&*self.shared, self.out.id);
        self.more.get_or_insert_with(|| {
            let mut core = shared.core();
            let described = core.options.described;
            let connection = core.connection(id);
            let (capacity, thresholds, means) =
                (connection.capacity, connection.thresholds, connection.means);
            Box::new(More { capacity, thresholds, means, described, ..More::default() })
        })
    }

    /// As [`RawOutgoing::pack`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn pack(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        if piece.len < self.out.limit && piece.len <= self.out.room.len && send != SendMode::Later {
            // SAFETY: the piece is readable, as we were promised; the packet's buffer is ours until it is sent, and has as
            // much room.
            unsafe { piece.copy_to(self.out.room.start) };
            self.out.room = self.out.room.behind(piece.len);
            return Ok(());
        }
        if let Some(Lazy { piece: waiting @ None, .. }) = &mut self.lazy
            && send == SendMode::Cheaper
        {
            *waiting = Some((piece, receive));
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.pack_slowly(piece, send, receive) }
    }

    /// # Safety
    /// As for `pack`.
    #[inline(never)]
    unsafe fn pack_slowly(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        // SAFETY: the caller's promise.
        now(unsafe { self.pack_somehow(piece, send, receive) })
    }

    /// As [`Packing::pack`], by a task.
    ///
    /// # Safety
    /// As there, whatever becomes of the future.
    pub(crate) async unsafe fn pack_in_task(
        &mut self,
        piece: Span,
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<()> {
        self.step()?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.pack_somehow(piece, send, receive).await };
        self.is_stepping = false;
        outcome
    }

    /// A task takes a step. A message of which a step was left half way, since its future was dropped, is over.
    fn step(&mut self) -> Result<()> {
        if self.is_stepping {
            self.give_up();
            return Err(Error::Failed);
        }
        self.is_stepping = true;
        Ok(())
    }

    /// # Safety
    /// As for `pack`.
    async unsafe fn pack_somehow(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        if self.out.over {
            return Err(Error::Failed);
        }
        self.claim().await?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.pack_any(piece, send, receive).await };
        if outcome.is_err() {
            // Memory of a piece that failed is not ours any more once this returns.
            self.give_up();
        }
        outcome
    }
}
