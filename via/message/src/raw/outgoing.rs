//! A message that is being packed.

use std::ops::Deref;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::describe::Description;
use crate::core::{LongOut, Outset};
use crate::packet::flag;
use crate::shared::Shared;
use crate::span::Span;
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
    threshold: usize,
    described: bool,
    /// The receiver may wait for one of the pieces that are read at the end.
    later_express: bool,
    longs: u16,
    /// Pieces that took the long way.
    pieces: usize,
    /// Short pieces that are read at the end.
    laters: Vec<Span>,
}

impl<S: Deref<Target = Shared>> Packing<S> {
    /// A message that has not begun yet.
    #[inline(always)]
    pub(crate) fn new(shared: S) -> Self {
        Self { shared, out: Outset::new(), more: None, lazy: None }
    }

    /// Begins the message to a rank without waiting: what is to be waited for, and what may be wrong, shows later.
    #[inline(always)]
    pub(crate) fn begin_lazily(&mut self, channel: usize, peer: usize) {
        self.lazy = Some(Lazy { channel, piece: None });
        self.out.peer = peer as u32;
        self.out.over = false;
    }

    /// Begins it indeed.
    #[inline(never)]
    fn claim(&mut self) -> Result<()> {
        let Some(Lazy { channel, piece }) = self.lazy.take() else { return Ok(()) };
        self.out.over = true;
        self.begin(channel, self.rank())?;
        match piece {
            // SAFETY: who packed it has promised that it stays as it is until the end.
            Some((piece, receive)) => unsafe { self.pack(piece, SendMode::Cheaper, receive) },
            None => Ok(()),
        }
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
        let out = &mut self.out;
        self.shared.wait("a connection", |core| core.begin_outgoing(channel, peer, out))
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
            let (capacity, threshold) = (connection.capacity, connection.threshold);
            Box::new(More { capacity, threshold, described, ..More::default() })
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
        if self.out.over {
            return Err(Error::Failed);
        }
        if self.lazy.is_some() {
            self.claim()?;
            // SAFETY: the caller's promise.
            return unsafe { self.pack(piece, send, receive) };
        }
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.pack_any(piece, send, receive) };
        if outcome.is_err() {
            // Memory of a piece that failed is not ours any more once this returns.
            self.give_up();
        }
        outcome
    }

    /// # Safety
    /// As for `pack`.
    unsafe fn pack_any(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        let more = self.more();
        let threshold = more.threshold;
        let position = more.pieces;
        more.pieces += 1;
        if more.described {
            let description = Description::of(position, piece.len, send, receive);
            self.append(Span::of(description.as_bytes()), 0)?;
        }
        if piece.len >= threshold {
            // SAFETY: the caller's promise.
            return unsafe { self.pack_long(piece, send, receive) };
        }
        if send == SendMode::Later {
            let more = self.more();
            more.laters.push(piece);
            more.later_express |= receive == ReceiveMode::Express;
            return Ok(());
        }
        self.append(piece, 0)
    }

    /// Copies bytes behind those that are there, and sends what is full.
    fn append(&mut self, mut bytes: Span, flags: u8) -> Result<()> {
        loop {
            // SAFETY: the piece is readable, as `pack` was promised; the packet's buffer is ours until it is sent.
            let copied = unsafe { self.out.room.fill(bytes) };
            self.out.room = self.out.room.skip(copied);
            bytes = bytes.skip(copied);
            if bytes.is_empty() {
                return Ok(());
            }
            self.next_packet(flags)?;
        }
    }

    /// Sends the open packet, if there is one, and opens the next.
    #[inline(never)]
    fn next_packet(&mut self, flags: u8) -> Result<()> {
        if self.out.open.is_some() {
            self.flush(flags)?;
        }
        let capacity = self.more().capacity;
        let open = self.shared.wait("room at the receiver", |core| core.open_packet(self.out.id))?;
        self.out.room = open.room(0).first(capacity);
        self.out.open = Some(open);
        Ok(())
    }

    /// Sends the open packet; one that is empty where there is none.
    fn flush(&mut self, flags: u8) -> Result<()> {
        if self.out.open.is_none() {
            self.next_packet(0)?;
        }
        let Some(open) = self.out.open else { return Ok(()) };
        let flags = flags | if self.out.first { flag::FIRST } else { 0 };
        let (id, used, longs) = (self.out.id, self.used(), self.more().longs);
        self.shared.wait("room at the receiver", |core| {
            let sent = core.send_data(id, open, used, flags, longs)?;
            if sent {
                core.copied.0 += used as u64;
            }
            Ok(sent.then_some(()))
        })?;
        self.out.open = None;
        self.out.room = Span::NONE;
        self.out.first = false;
        Ok(())
    }

    /// A piece that is put from where it lies.
    ///
    /// # Safety
    /// As for `pack`.
    unsafe fn pack_long(&mut self, mut piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        // What comes before it may be what the receiver waits for before it comes to this one.
        if self.out.first || self.used() > 0 {
            self.flush(0)?;
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
        let long =
            LongOut::new(number, piece, send != SendMode::Later, receive == ReceiveMode::Express, owned);
        // SAFETY: the caller's promise, or a copy that is kept with it; `end` and `drop` wait until it is over.
        unsafe { core.add_long(id, long)? };
        drop(core);
        if wait {
            self.wait_longs(Some(number), false)?;
        }
        Ok(())
    }

    /// Waits until long pieces are over, or until what is sent now comes behind them.
    fn wait_longs(&self, number: Option<u16>, behind: bool) -> Result<()> {
        let (id, rank) = (self.out.id, self.rank());
        self.shared.wait("a long piece to be taken", |core| {
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
        })
    }

    /// Bytes of the message in the open packet.
    fn used(&mut self) -> usize {
        let capacity = self.more().capacity;
        if self.out.open.is_some() { capacity - self.out.room.len } else { 0 }
    }

    /// As [`RawOutgoing::end`].
    #[inline(always)]
    pub(crate) fn end(&mut self) -> Result<()> {
        if let Some(Lazy { channel, piece: Some((piece, _)) }) = self.lazy {
            // SAFETY: who packed it has promised that it can be read.
            let outcome = unsafe { self.shared.core().send_whole(channel, self.out.peer, piece) };
            match outcome {
                Ok(true) => {
                    self.out.over = true;
                    return Ok(());
                }
                Ok(false) => {}
                Err(e) => return self.fail(e),
            }
        }
        self.end_short()
    }

    /// Ends a message that was begun indeed, or will be.
    fn end_short(&mut self) -> Result<()> {
        self.claim()?;
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
                Err(e) => return self.fail(e),
            }
        }
        self.end_slowly()
    }

    /// The port that it went by is broken.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, e: Box<Error>) -> Result<()> {
        self.out.over = true;
        Err(*e)
    }

    /// Sends the last packet.
    fn end_with(&mut self, flags: u8) -> Result<()> {
        self.flush(flags)?;
        if self.more().longs > 0 {
            self.wait_longs(None, false)?;
        }
        self.shared.core().end_outgoing(self.out.id);
        self.out.over = true;
        Ok(())
    }

    #[inline(never)]
    fn end_slowly(&mut self) -> Result<()> {
        if self.out.over {
            return Err(Error::Failed);
        }
        let more = self.more();
        let (longs, pieces) = (more.longs, more.pieces);
        if more.described {
            let end = Description::end(pieces);
            self.append(Span::of(end.as_bytes()), 0)?;
        }
        if longs > 0 {
            self.shared.core().release_longs(self.out.id)?;
        }
        let mut flags = flag::LAST;
        let laters = std::mem::take(&mut self.more().laters);
        if laters.iter().any(|piece| !piece.is_empty()) {
            if self.used() > 0 {
                self.flush(0)?;
            }
            for piece in laters {
                self.append(piece, flag::LATER)?;
            }
            flags |= flag::LATER;
        }
        if longs > 0 {
            // The receiver may need what is here to come to the long pieces.
            if self.out.first || self.used() > 0 {
                self.flush(flags & !flag::LAST)?;
            }
            self.wait_longs(None, true)?;
            flags = flag::LAST;
        }
        self.end_with(flags)
    }

    /// Tells the receiver that no more comes.
    fn abandon(&mut self) -> Result<()> {
        // What has begun to be put is waited for, so that nothing comes when the receiver has gone on.
        let (id, peer) = (self.out.id, self.rank());
        self.shared.core().give_up_longs(id);
        self.shared.wait("a long piece to be taken", |core| {
            let complete = core.longs(id, None).complete;
            match core.connection(id).failed.clone() {
                Some(why) if !complete => Err(Error::Unreachable { rank: peer, why }),
                _ => Ok(complete.then_some(())),
            }
        })?;
        self.flush(flag::LAST | flag::ABANDONED)?;
        self.shared.core().end_outgoing(id);
        Ok(())
    }
}

impl<S: Deref<Target = Shared>> Packing<S> {
    /// Gives the message up: no port reads the program's memory for it after this.
    #[cold]
    fn give_up(&mut self) {
        if self.out.over || self.claim().is_err() {
            return;
        }
        self.out.over = true;
        self.out.limit = 0;
        self.more().laters.clear();
        if let Err(e) = self.abandon() {
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
