//! A message that is being packed.

use std::ops::Deref;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::describe::Description;
use super::gathering::Gathering;
use crate::core::{Core, Expected, LongOut, Outset, Whole};
use crate::modules::choice::{self, Means};
use crate::modules::{Module, Thresholds};
use crate::packet::flag;
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

    /// # Safety
    /// As for `pack`.
    async unsafe fn pack_any(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        let more = self.more();
        let module = choice::of_piece(piece.len, send, false, &more.thresholds, more.means);
        let position = more.pieces;
        more.pieces += 1;
        if more.described {
            let description = Description::of(position, piece.len, send, receive);
            self.append(Span::of(description.as_bytes()), 0).await?;
        }
        if matches!(module, Module::Written | Module::Read) {
            // SAFETY: the caller's promise.
            return unsafe { self.pack_long(piece, send, receive).await };
        }
        if send == SendMode::Later {
            let more = self.more();
            more.laters.push(piece);
            more.later_express |= receive == ReceiveMode::Express;
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.carry(piece, module, 0).await }
    }

    /// Puts a short piece into packets.
    ///
    /// # Safety
    /// It can be read; and until the message is over, where it is gathered.
    async unsafe fn carry(&mut self, piece: Span, module: Module, flags: u8) -> Result<()> {
        if module != Module::Gathered {
            return self.append(piece, flags).await;
        }
        let mut left = piece;
        while !left.is_empty() {
            if self.out.open.is_none() {
                self.open().await?;
            }
            let more = self.more();
            let room = more.capacity - more.gathering.bytes();
            let used = self.used();
            let taken = self.more().gathering.add(left.first(room - used), used);
            // What is copied next does not go behind it.
            self.out.room = Span::NONE;
            left = left.skip(taken);
            if !left.is_empty() {
                self.next_packet(flags).await?;
            }
        }
        Ok(())
    }

    /// Copies bytes behind those that are there, and sends what is full.
    async fn append(&mut self, mut bytes: Span, flags: u8) -> Result<()> {
        loop {
            // SAFETY: the piece is readable, as `pack` was promised; the packet's buffer is ours until it is sent.
            let copied = unsafe { self.out.room.fill(bytes) };
            self.out.room = self.out.room.skip(copied);
            bytes = bytes.skip(copied);
            if bytes.is_empty() {
                return Ok(());
            }
            self.next_packet(flags).await?;
        }
    }

    /// Sends the open packet, if there is one, and opens the next.
    async fn next_packet(&mut self, flags: u8) -> Result<()> {
        if self.out.open.is_some() {
            self.flush(flags).await?;
        }
        self.open().await
    }

    /// Opens a packet.
    async fn open(&mut self) -> Result<()> {
        let (capacity, id) = (self.more().capacity, self.out.id);
        let open = |core: &mut Core| core.open_packet(id);
        let open = self.shared.until(self.waits, "room at the receiver", open).await?;
        self.out.room = open.room(0).first(capacity);
        self.out.open = Some(open);
        Ok(())
    }

    /// Sends the open packet; one that is empty where there is none.
    async fn flush(&mut self, flags: u8) -> Result<()> {
        if self.out.open.is_none() {
            self.open().await?;
        }
        let Some(open) = self.out.open else { return Ok(()) };
        let flags = flags | if self.out.first { flag::FIRST } else { 0 };
        let (id, used, longs) = (self.out.id, self.used(), self.more().longs);
        let gathering = self.more().gathering.take();
        let send = |core: &mut Core| {
            // SAFETY: as `pack` was promised: `end` and `give_up` wait until nothing is gathered any more.
            let sent = unsafe { core.send_data(id, open, used, gathering.parts(), flags, longs)? };
            Ok(sent.then_some(()))
        };
        self.shared.until(self.waits, "room at the receiver", send).await?;
        self.out.open = None;
        self.out.room = Span::NONE;
        self.out.first = false;
        Ok(())
    }

    /// A piece that is put from where it lies.
    ///
    /// # Safety
    /// As for `pack`.
    async unsafe fn pack_long(
        &mut self,
        mut piece: Span,
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<()> {
        // What comes before it may be what the receiver waits for before it comes to this one.
        if self.out.first || self.holds() > 0 {
            self.flush(0).await?;
        }
        let more = self.more();
        let number = more.longs;
        more.longs = number
            .checked_add(1)
            .ok_or(Error::Config("a message has at most 65,535 long pieces".to_owned()))?;
        more.later_express |= send == SendMode::Later && receive == ReceiveMode::Express;
        let mut owned = None;
        if send == SendMode::Safer && more.later_express {
            // The receiver may wait for a piece that goes at the end only, and never come to this one before: so its
            // memory cannot be waited for.
            // SAFETY: the caller's promise.
            let mut copy: Box<[u8]> = unsafe { piece.bytes() }.into();
            self.shared.core().copied.0 += piece.len as u64;
            piece = Span::of_mut(&mut copy);
            owned = Some(copy);
        }
        let wait = send == SendMode::Safer && owned.is_none();
        let id = self.out.id;
        let mut core = self.shared.core();
        if core.is_refused(id) {
            return Err(Error::Refused { rank: self.rank() });
        }
        let long = LongOut::new(number, piece, send, receive == ReceiveMode::Express, owned);
        // SAFETY: the caller's promise, or a copy that is kept with it; `end` and `drop` wait until it is over.
        unsafe { core.add_long(id, long)? };
        drop(core);
        if wait {
            self.wait_longs(Some(number), false).await?;
        }
        Ok(())
    }

    /// Waits until long pieces are over, or until what is sent now comes behind them.
    async fn wait_longs(&self, number: Option<u16>, behind: bool) -> Result<()> {
        let (id, rank) = (self.out.id, self.rank());
        let over = |core: &mut Core| {
            let longs = core.longs(id, number);
            if longs.refused && longs.complete {
                return Err(Error::Refused { rank });
            }
            if if behind { longs.behind } else { longs.complete } {
                return Ok(Some(()));
            }
            match core.connection(id).failed.clone() {
                Some(why) => Err(Error::Unreachable { rank, why }),
                None => Ok(None),
            }
        };
        self.shared.until(self.waits, "a long piece to be taken", over).await
    }

    /// What was to be gathered does not go.
    fn drop_gathered(&mut self) {
        let used = self.used();
        let More { capacity, gathering, .. } = self.more();
        let (capacity, had_parts) = (*capacity, gathering.take().bytes() > 0);
        if let Some(open) = self.out.open.filter(|_| had_parts) {
            self.out.room = open.room(used).first(capacity - used);
        }
    }

    /// Bytes of the message in the open packet's buffer.
    fn used(&mut self) -> usize {
        let More { capacity, gathering, .. } = self.more();
        let (capacity, begins_at) = (*capacity, gathering.begins_at());
        match (&self.out.open, begins_at) {
            (Some(_), Some(used)) => used,
            (Some(_), None) => capacity - self.out.room.len,
            (None, _) => 0,
        }
    }

    /// Bytes of the message that the open packet carries.
    fn holds(&mut self) -> usize {
        self.used() + self.more().gathering.bytes()
    }

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
    fn end_slowly(&mut self) -> Result<()> {
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
    fn give_up(&mut self) {
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
