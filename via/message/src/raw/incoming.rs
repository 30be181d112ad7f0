//! A message that is being unpacked.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::describe::Description;
use crate::core::{Arrived, Core, Intake, Whole};
use crate::packet::flag;
use crate::port::LinkId;
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

/// Pieces that are not there yet, and bytes that are not wanted yet.
#[derive(Default)]
struct Waiting {
    /// Pieces that wait for their bytes, in order: those that came in order, and those that were packed to be read later.
    early: VecDeque<Span>,
    later: VecDeque<Span>,
    /// Bytes that came before those that are waited for, out of their packets since the sender needs the room.
    aside: VecDeque<(Box<[u8]>, usize)>,
}

impl Waiting {
    fn stream(&mut self, stream: Stream) -> &mut VecDeque<Span> {
        match stream {
            Stream::Early => &mut self.early,
            Stream::Later => &mut self.later,
        }
    }
}

/// Which of a message's two streams.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Early,
    Later,
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
    unsafe fn claim(&mut self, first: Option<Span>, is_all: bool) -> Result<bool> {
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

    /// # Safety
    /// As for `unpack`.
    async unsafe fn unpack_long(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        let (id, number) = (self.intake.id, self.more().longs);
        self.more().longs =
            number.checked_add(1).ok_or_else(|| self.mismatch("less", "more than 65,535 long pieces"))?;
        // SAFETY: the caller's promise.
        unsafe { self.shared.core().expect_long(id, number, piece)? };
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
                Some(end) if end.flags & flag::ABANDONED != 0 => Err(Error::Abandoned { rank: peer }),
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

    /// Takes what is left of the packet that is read out of it, and gives it back.
    fn put_current_aside(&mut self) -> Result<()> {
        let Some(current) = self.intake.current else { return Ok(()) };
        if !self.intake.rest.is_empty() {
            // SAFETY: the packet is ours until it is given back.
            let left = unsafe { self.intake.rest.bytes() }.into();
            self.waiting().aside.push_back((left, 0));
        }
        self.done_with(current)
    }

    fn mismatch(&self, packed: &str, unpacked: &str) -> Error {
        Error::Mismatch {
            rank: self.rank(),
            position: (self.intake.pieces as usize).saturating_sub(1),
            packed: packed.to_owned(),
            unpacked: unpacked.to_owned(),
        }
    }

    /// Reads a description, and compares it.
    async fn compare(&mut self, mine: Description) -> Result<()> {
        let mut bytes = [0; size_of::<Description>()];
        self.waiting().early.push_back(Span::of_mut(&mut bytes));
        if let Err(e) = self.fill(Stream::Early).await {
            // Nobody is to write into this frame once it is gone.
            self.waiting().early.clear();
            return Err(e);
        }
        let theirs = Description::read_from_bytes(&bytes).unwrap_or_default();
        if theirs.as_bytes() == mine.as_bytes() {
            return Ok(());
        }
        Err(Error::Mismatch {
            rank: self.rank(),
            position: self.intake.pieces as usize,
            packed: theirs.to_string(),
            unpacked: mine.to_string(),
        })
    }

    /// Fills pieces until none of that stream waits.
    async fn fill(&mut self, stream: Stream) -> Result<()> {
        loop {
            self.fill_aside();
            self.fill_current()?;
            let waiting = self.waiting().stream(stream);
            if waiting.iter().all(Span::is_empty) {
                waiting.clear();
                return Ok(());
            }
            self.turn_over(stream).await?;
        }
    }

    /// From what was put aside.
    fn fill_aside(&mut self) {
        let Waiting { early, aside, .. } = self.waiting();
        while let (Some((bytes, at)), Some(piece)) = (aside.front_mut(), early.front_mut()) {
            // SAFETY: the bytes are ours, the piece may be written, as `unpack` was promised.
            let copied = unsafe { piece.fill(Span::of(bytes).skip(*at)) };
            *at += copied;
            *piece = piece.skip(copied);
            if piece.is_empty() {
                early.pop_front();
            } else {
                aside.pop_front();
            }
        }
    }

    /// From the packet that is read.
    fn fill_current(&mut self) -> Result<()> {
        let Some(current) = self.intake.current else { return Ok(()) };
        if current.flags & flag::ABANDONED != 0 {
            return Err(Error::Abandoned { rank: self.rank() });
        }
        let stream = if current.flags & flag::LATER != 0 { Stream::Later } else { Stream::Early };
        let mut rest = self.intake.rest;
        let waiting = self.waiting().stream(stream);
        while let Some(piece) = waiting.front_mut() {
            // SAFETY: the packet is ours until it is given back; the piece may be written, as `unpack` was promised.
            let copied = unsafe { piece.fill(rest) };
            rest = rest.skip(copied);
            *piece = piece.skip(copied);
            if !piece.is_empty() {
                break;
            }
            waiting.pop_front();
        }
        self.intake.rest = rest;
        Ok(())
    }

    /// Goes on to the next packet, since the one that is read has no more for that stream.
    async fn turn_over(&mut self, wanted: Stream) -> Result<()> {
        if let Some(current) = self.intake.current {
            if !self.intake.rest.is_empty() && (wanted == Stream::Early || current.flags & flag::LATER != 0) {
                // Bytes that are read later come when all that comes in order has.
                return Err(self.too_short());
            }
            self.put_current_aside()?;
        }
        if self.more().last {
            return Err(self.too_short());
        }
        self.take_next().await
    }

    fn too_short(&self) -> Error {
        self.mismatch("less, or otherwise", "more than there is")
    }

    /// Gives the packet that is read back.
    fn done_with(&mut self, current: Arrived) -> Result<()> {
        if current.flags & flag::LAST != 0 {
            let more = self.more();
            more.last = true;
            more.packed_longs = current.longs;
        }
        self.intake.current = None;
        let mut core = self.shared.core();
        core.copied.1 += (current.bytes().len - self.intake.rest.len) as u64;
        self.intake.rest = Span::NONE;
        core.free_packet(self.intake.id, current)
    }

    async fn take_next(&mut self) -> Result<()> {
        let id = self.intake.id;
        let next = |core: &mut Core| core.next_packet(id);
        let next = self.shared.until(self.waits, "the rest of a message", next).await?;
        self.intake.rest = next.bytes();
        self.intake.current = Some(next);
        Ok(())
    }

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
                    return Err(Error::Abandoned { rank: self.rank() });
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

    /// Waits until what is read has been.
    async fn wait_pulled(&mut self) -> Result<()> {
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
    fn give_up(&mut self) {
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
