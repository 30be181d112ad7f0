//! A message that is being packed.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::describe::Description;
use crate::core::{LongOut, Open};
use crate::packet::flag;
use crate::port::LinkId;
use crate::shared::Shared;
use crate::span::Span;
use crate::{Error, ReceiveMode, Result, SendMode};

/// A message to a rank, by address. Dropped before its end it is given up, which its receiver hears.
pub struct RawOutgoing {
    shared: Arc<Shared>,
    id: LinkId,
    peer: usize,
    open: Option<Open>,
    /// Bytes of the message in the open packet, and most of them.
    used: usize,
    capacity: usize,
    threshold: usize,
    /// Nothing has gone yet.
    first: bool,
    described: bool,
    pieces: usize,
    longs: u16,
    /// Short pieces that are read at the end.
    laters: Vec<Span>,
    /// The receiver may wait for one of these.
    later_express: bool,
    over: bool,
}

impl RawOutgoing {
    /// Begins a message to a rank; waits until there is a connection.
    pub(crate) fn begin(shared: &Arc<Shared>, channel: usize, peer: usize) -> Result<Self> {
        let (id, open, capacity, threshold, described) = shared.wait("a connection", |core| {
            let id = core.id(channel, peer);
            if !core.connect(id)? {
                return Ok(None);
            }
            let described = core.options.described;
            let connection = core.connection(id);
            if connection.packing {
                return Err(Error::Busy { rank: peer, way: "to" });
            }
            connection.packing = true;
            let (capacity, threshold) = (connection.capacity, connection.threshold);
            Ok(Some((id, core.open_packet(id)?, capacity, threshold, described)))
        })?;
        Ok(Self {
            shared: shared.clone(),
            id,
            peer,
            open,
            used: 0,
            capacity,
            threshold,
            first: true,
            described,
            pieces: 0,
            longs: 0,
            laters: Vec::new(),
            later_express: false,
            over: false,
        })
    }

    /// The rank that it goes to.
    pub fn rank(&self) -> usize {
        self.peer
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
        if self.over {
            return Err(Error::Failed);
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
    #[inline]
    unsafe fn pack_any(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        if self.described {
            let description = Description::of(self.pieces, piece.len, send, receive);
            self.append(Span::of(description.as_bytes()), 0)?;
        }
        self.pieces += 1;
        if piece.len >= self.threshold {
            // SAFETY: the caller's promise.
            return unsafe { self.pack_long(piece, send, receive) };
        }
        if send == SendMode::Later {
            self.laters.push(piece);
            self.later_express |= receive == ReceiveMode::Express;
            return Ok(());
        }
        self.append(piece, 0)
    }

    /// Copies bytes behind those that are there, and sends what is full.
    #[inline]
    fn append(&mut self, mut bytes: Span, flags: u8) -> Result<()> {
        loop {
            if let Some(open) = &self.open {
                let room = open.room(self.used).first(self.capacity - self.used);
                // SAFETY: the piece is readable, as `pack` was promised; the packet's buffer is ours until it is sent.
                let copied = unsafe { room.fill(bytes) };
                self.used += copied;
                bytes = bytes.skip(copied);
            }
            if bytes.is_empty() {
                return Ok(());
            }
            self.next_packet(flags)?;
        }
    }

    /// Sends the open packet, if there is one, and opens the next.
    #[inline(never)]
    fn next_packet(&mut self, flags: u8) -> Result<()> {
        if self.open.is_some() {
            self.flush(flags)?;
        }
        self.open = Some(self.shared.wait("room at the receiver", |core| core.open_packet(self.id))?);
        Ok(())
    }

    /// Sends the open packet; one that is empty where there is none.
    #[inline]
    fn flush(&mut self, flags: u8) -> Result<()> {
        if self.open.is_none() {
            self.next_packet(0)?;
        }
        let Some(open) = self.open else { return Ok(()) };
        let flags = flags | if self.first { flag::FIRST } else { 0 };
        let (id, used, longs) = (self.id, self.used, self.longs);
        self.shared.wait("room at the receiver", |core| {
            let sent = core.send_data(id, open, used, flags, longs)?;
            if sent {
                core.copied.0 += used as u64;
            }
            Ok(sent.then_some(()))
        })?;
        self.open = None;
        self.used = 0;
        self.first = false;
        Ok(())
    }

    /// A piece that is put from where it lies.
    ///
    /// # Safety
    /// As for `pack`.
    unsafe fn pack_long(&mut self, mut piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        // What comes before it may be what the receiver waits for before it comes to this one.
        if self.first || self.used > 0 {
            self.flush(0)?;
        }
        let number = self.longs;
        self.longs = self
            .longs
            .checked_add(1)
            .ok_or(Error::Config("a message has at most 65,535 long pieces".to_owned()))?;
        self.later_express |= send == SendMode::Later && receive == ReceiveMode::Express;
        let mut owned = None;
        if send == SendMode::Safer && self.later_express {
            // The receiver may wait for a piece that goes at the end only, and never come to this one before: so its
            // memory cannot be waited for.
            // SAFETY: the caller's promise.
            let mut copy: Box<[u8]> = unsafe { piece.bytes() }.into();
            self.shared.core().copied.0 += piece.len as u64;
            piece = Span::of_mut(&mut copy);
            owned = Some(copy);
        }
        let wait = send == SendMode::Safer && owned.is_none();
        let id = self.id;
        let mut core = self.shared.core();
        if core.is_refused(id) {
            return Err(Error::Refused { rank: self.peer });
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
        let (id, rank) = (self.id, self.peer);
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

    /// Ends the message: it will arrive, and all of its memory may be written again.
    ///
    /// # Errors
    /// As [`RawOutgoing::pack`].
    #[inline]
    pub fn end(mut self) -> Result<()> {
        if self.over {
            return Err(Error::Failed);
        }
        if self.described {
            let end = Description::end(self.pieces);
            self.append(Span::of(end.as_bytes()), 0)?;
        }
        if self.laters.is_empty()
            && self.longs == 0
            && let Some(open) = self.open
        {
            // The usual case, under one lock.
            let flags = flag::LAST | if self.first { flag::FIRST } else { 0 };
            let mut core = self.shared.core();
            if core.send_data(self.id, open, self.used, flags, 0)? {
                core.copied.0 += self.used as u64;
                core.end_outgoing(self.id);
                drop(core);
                self.open = None;
                self.over = true;
                return Ok(());
            }
        }
        self.end_slowly()
    }

    /// Sends the last packet.
    #[inline]
    fn end_with(&mut self, flags: u8) -> Result<()> {
        self.flush(flags)?;
        if self.longs > 0 {
            self.wait_longs(None, false)?;
        }
        self.shared.core().end_outgoing(self.id);
        self.over = true;
        Ok(())
    }

    #[inline(never)]
    fn end_slowly(&mut self) -> Result<()> {
        if self.longs > 0 {
            self.shared.core().release_longs(self.id)?;
        }
        let mut flags = flag::LAST;
        let laters = std::mem::take(&mut self.laters);
        if laters.iter().any(|piece| !piece.is_empty()) {
            if self.used > 0 {
                self.flush(0)?;
            }
            for piece in laters {
                self.append(piece, flag::LATER)?;
            }
            flags |= flag::LATER;
        }
        if self.longs > 0 {
            // The receiver may need what is here to come to the long pieces.
            if self.first || self.used > 0 {
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
        let (id, peer) = (self.id, self.peer);
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

impl RawOutgoing {
    /// Gives the message up: no port reads the program's memory for it after this.
    #[cold]
    fn give_up(&mut self) {
        if self.over {
            return;
        }
        self.over = true;
        self.laters.clear();
        if let Err(e) = self.abandon() {
            tracing::debug!(rank = self.peer, "giving up a message: {e}");
            let mut core = self.shared.core();
            core.sever(self.id, "a message to it could not be given up in order");
            core.end_outgoing(self.id);
        }
    }
}

impl Drop for RawOutgoing {
    fn drop(&mut self) {
        self.give_up();
    }
}
