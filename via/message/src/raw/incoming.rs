//! A message that is being unpacked.

mod awaited;
mod end;
mod long;
mod streams;

use std::ops::Deref;
use std::sync::Arc;

use super::describe::Description;
use streams::{Stream, Waiting};

use crate::core::{Core, Intake};
use crate::shared::Shared;
use crate::span::Span;
use crate::tasks::{Waits, now};
use crate::{Error, ReceiveMode, Result, SendMode};

/// A message from a rank, by address. Dropped before its end, what is left of it is thrown away.
pub struct RawIncoming(Unpacking<Arc<Shared>>);

impl RawIncoming {
    /// Takes the next message on a channel, from a rank or from any.
    pub(crate) fn begin(shared: &Arc<Shared>, channel: usize, from: Option<usize>) -> Result<Self> {
        let mut message = Self(Unpacking::new(shared.clone()));
        message.0.begin(channel, from)?;
        Ok(message)
    }

    /// As [`RawIncoming::begin`], if there is one.
    pub(crate) fn try_begin(
        shared: &Arc<Shared>,
        channel: usize,
        from: Option<usize>,
    ) -> Result<Option<Self>> {
        let mut message = Self(Unpacking::new(shared.clone()));
        Ok(message.0.try_begin(channel, from)?.then_some(message))
    }

    /// The rank that it comes from.
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Takes the next piece, with the length and the modes that it was packed with.
    ///
    /// # Errors
    /// The message is over, or was packed otherwise; its sender gave it up, or cannot be reached any more.
    ///
    /// # Safety
    /// The memory is valid, and nobody else touches it until the call returns, where it is [`ReceiveMode::Express`]; else
    /// until the message was ended, or dropped.
    #[inline]
    pub unsafe fn unpack(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.unpack(piece, send, receive) }
    }

    /// Ends the message: all of it is there.
    ///
    /// # Errors
    /// As [`RawIncoming::unpack`]; not all of it was unpacked.
    #[inline]
    pub fn end(mut self) -> Result<()> {
        self.0.end()
    }
}

/// A message that is being unpacked. `S` keeps the session, or knows that somebody does.
pub(crate) struct Unpacking<S: Deref<Target = Shared>> {
    shared: S,
    /// What the short way needs.
    intake: Intake,
    /// What only the long way needs, once it was taken.
    more: Option<Box<More>>,
    /// The message was not waited for yet, but a piece may wait.
    lazy: Option<Lazy>,
    waits: Waits,
    /// A task is about a step.
    is_stepping: bool,
}

/// A message of which nothing is known but whom it comes from, and a piece that need not be there before the end. Mostly it
/// is all of the message, which is taken in one step then.
#[derive(Clone, Copy)]
struct Lazy {
    channel: usize,
    piece: Option<(Span, SendMode)>,
    /// The message was taken ahead, and its sender knows the place of the piece.
    named: bool,
}

/// What only messages need that are more than a packet.
#[derive(Default)]
struct More {
    threshold: usize,
    described: bool,
    /// The last packet was taken.
    last: bool,
    longs: u16,
    /// As its end says.
    packed_longs: u16,
    waiting: Waiting,
}

impl<S: Deref<Target = Shared>> Unpacking<S> {
    /// A message that has not begun yet.
    #[inline(always)]
    pub(crate) fn new(shared: S) -> Self {
        let intake = Intake::new();
        Self { shared, intake, more: None, lazy: None, waits: Waits::Here, is_stepping: false }
    }

    /// Begins to take the next message of a rank without waiting: what is to be waited for, and what may be wrong, shows
    /// later.
    #[inline(always)]
    pub(crate) fn begin_lazily(&mut self, channel: usize, peer: usize) {
        self.lazy = Some(Lazy { channel, piece: None, named: false });
        self.intake.peer = peer as u32;
        self.intake.over = false;
    }

    /// Takes the next message on a channel, from a rank or from any.
    #[inline(always)]
    pub(crate) fn begin(&mut self, channel: usize, from: Option<usize>) -> Result<()> {
        if self.shared.core().begin_intake(channel, from, &mut self.intake) {
            return Ok(());
        }
        self.begin_slowly(channel, from)
    }

    #[inline(never)]
    fn begin_slowly(&mut self, channel: usize, from: Option<usize>) -> Result<()> {
        let intake = &mut self.intake;
        self.shared.wait_on("a message", |core| {
            if core.begin_intake(channel, from, intake) {
                return Ok(Some(()));
            }
            core.check_incoming(channel, from)?;
            Ok(None)
        })
    }

    /// As [`Unpacking::begin`], by a task.
    pub(crate) async fn begin_in_task(&mut self, channel: usize, from: Option<usize>) -> Result<()> {
        self.waits = Waits::Task;
        let intake = &mut self.intake;
        let begin = |core: &mut Core| {
            if core.begin_intake(channel, from, intake) {
                return Ok(Some(()));
            }
            core.check_incoming(channel, from)?;
            Ok(None)
        };
        self.shared.until(Waits::Task, "a message", begin).await
    }

    /// As [`Unpacking::begin`], if there is one; answers that.
    #[inline(always)]
    pub(crate) fn try_begin(&mut self, channel: usize, from: Option<usize>) -> Result<bool> {
        let mut core = self.shared.core();
        if core.begin_intake(channel, from, &mut self.intake) {
            return Ok(true);
        }
        core.check_incoming(channel, from)?;
        Ok(false)
    }

    /// The rank that it comes from.
    pub(crate) fn rank(&self) -> usize {
        self.intake.peer as usize
    }

    /// What the long way needs.
    fn more(&mut self) -> &mut More {
        let (shared, id) = (&*self.shared, self.intake.id);
        self.more.get_or_insert_with(|| {
            let mut core = shared.core();
            let described = core.options.described;
            let threshold = core.connection(id).thresholds.long;
            Box::new(More { threshold, described, ..More::default() })
        })
    }

    fn waiting(&mut self) -> &mut Waiting {
        &mut self.more().waiting
    }

    /// As [`RawIncoming::unpack`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn unpack(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        let intake = &mut self.intake;
        if piece.len < intake.limit && piece.len <= intake.rest.len && send != SendMode::Later {
            intake.pieces += 1;
            // SAFETY: the packet is ours until it is given back, and has as many bytes; the piece may be written, as we
            // were promised.
            unsafe { Span { len: piece.len, ..intake.rest }.copy_to(piece.start) };
            intake.rest = intake.rest.behind(piece.len);
            return Ok(());
        }
        if let Some(Lazy { piece: waiting @ None, .. }) = &mut self.lazy
            && send != SendMode::Later
            && receive == ReceiveMode::Cheaper
        {
            *waiting = Some((piece, send));
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.unpack_slowly(piece, send, receive) }
    }

    /// # Safety
    /// As for `unpack`.
    #[inline(never)]
    unsafe fn unpack_slowly(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        if let Some(Lazy { piece: waiting, .. }) = self.lazy {
            let first = waiting.map_or(piece, |(piece, _)| piece);
            // SAFETY: the caller's promise, of this piece or of the one before.
            unsafe {
                self.claim(Some(first), false)?;
                return self.unpack(piece, send, receive);
            }
        }
        // SAFETY: the caller's promise.
        now(unsafe { self.unpack_somehow(piece, send, receive) })
    }

    /// As [`Unpacking::unpack`], by a task.
    ///
    /// # Safety
    /// As there, whatever becomes of the future.
    pub(crate) async unsafe fn unpack_in_task(
        &mut self,
        piece: Span,
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<()> {
        self.step()?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.unpack_somehow(piece, send, receive).await };
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
    /// As for `unpack`.
    async unsafe fn unpack_somehow(
        &mut self,
        piece: Span,
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<()> {
        if self.intake.over {
            return Err(Error::Failed);
        }
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.unpack_any(piece, send, receive).await };
        if outcome.is_err() {
            // Memory of a piece that failed is not ours any more once this returns.
            self.give_up();
        }
        self.set_limit();
        outcome
    }

    /// Says which pieces take the short way from now on.
    fn set_limit(&mut self) {
        let plain = !self.intake.over && self.intake.current.is_some_and(|current| current.is_plain());
        let more = self.more();
        let waits = !more.waiting.early.is_empty() || !more.waiting.aside.is_empty();
        self.intake.limit = if plain && !more.described && !waits { more.threshold } else { 0 };
    }

    /// # Safety
    /// As for `unpack`.
    async unsafe fn unpack_any(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        let (described, threshold) = (self.more().described, self.more().threshold);
        if described {
            self.compare(Description::of(self.intake.pieces as usize, piece.len, send, receive)).await?;
        }
        self.intake.pieces += 1;
        if piece.len >= threshold {
            // SAFETY: the caller's promise; `end` and `drop` see that nobody writes it any more.
            return unsafe { self.unpack_long(piece, send, receive).await };
        }
        let stream = if send == SendMode::Later { Stream::Later } else { Stream::Early };
        self.waiting().stream(stream).push_back(piece);
        if receive == ReceiveMode::Express { self.fill(stream).await } else { Ok(()) }
    }

    fn mismatch(&self, packed: &str, unpacked: &str) -> Error {
        Error::Mismatch {
            rank: self.rank(),
            position: (self.intake.pieces as usize).saturating_sub(1),
            packed: packed.to_owned(),
            unpacked: unpacked.to_owned(),
        }
    }

    fn too_short(&self) -> Error {
        self.mismatch("less, or otherwise", "more than there is")
    }
}
