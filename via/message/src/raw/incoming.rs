//! A message that is being unpacked.

use std::collections::VecDeque;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::describe::Description;
use crate::core::{Arrived, Core};
use crate::packet::flag;
use crate::port::LinkId;
use crate::shared::Shared;
use crate::span::Span;
use crate::{Error, ReceiveMode, Result, SendMode};

/// A message from a rank, by address. Dropped before its end, what is left of it is thrown away.
pub struct RawIncoming {
    shared: Arc<Shared>,
    id: LinkId,
    peer: usize,
    threshold: usize,
    described: bool,
    /// The packet that is read, and how far it was.
    current: Option<Arrived>,
    at: usize,
    /// Pieces that wait for their bytes, in order: those that came in order, and those that were packed to be read later.
    early: VecDeque<Span>,
    later: VecDeque<Span>,
    /// Bytes that came before those that are waited for, out of their packets since the sender needs the room.
    aside: VecDeque<(Box<[u8]>, usize)>,
    last: bool,
    pieces: usize,
    longs: u16,
    /// As its end says.
    packed_longs: u16,
    over: bool,
}

/// Which of a message's two streams.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Early,
    Later,
}

impl RawIncoming {
    /// Takes the next message on a channel, from a rank or from any.
    pub(crate) fn begin(shared: &Arc<Shared>, channel: usize, from: Option<usize>) -> Result<Self> {
        let (id, peer, threshold, described, current) =
            shared.wait("a message", |core| Self::take(core, channel, from))?;
        Ok(Self::new(shared, id, peer, threshold, described, current))
    }

    /// As [`RawIncoming::begin`], if there is one.
    pub(crate) fn try_begin(
        shared: &Arc<Shared>,
        channel: usize,
        from: Option<usize>,
    ) -> Result<Option<Self>> {
        let mut core = shared.core();
        let mut taken = Self::take(&mut core, channel, from)?;
        if taken.is_none() {
            core.progress()?;
            taken = Self::take(&mut core, channel, from)?;
        }
        drop(core);
        Ok(taken.map(|(id, peer, threshold, described, current)| {
            Self::new(shared, id, peer, threshold, described, current)
        }))
    }

    #[inline]
    #[expect(clippy::type_complexity, reason = "taken apart at once")]
    fn take(
        core: &mut Core,
        channel: usize,
        from: Option<usize>,
    ) -> Result<Option<(LinkId, usize, usize, bool, Option<Arrived>)>> {
        if let Some(rank) = from {
            let id = core.id(channel, rank);
            if core.connection(id).unpacking {
                return Err(Error::Busy { rank, way: "from" });
            }
        }
        let Some(peer) = core.take_ready(channel, from) else {
            return match core.is_hopeless(channel, from) {
                Some(error) => Err(error),
                None => Ok(None),
            };
        };
        let id = core.id(channel, peer);
        let described = core.options.described;
        let connection = core.connection(id);
        connection.unpacking = true;
        let threshold = connection.threshold;
        let current = core.next_packet(id)?;
        Ok(Some((id, peer, threshold, described, current)))
    }

    fn new(
        shared: &Arc<Shared>,
        id: LinkId,
        peer: usize,
        threshold: usize,
        described: bool,
        current: Option<Arrived>,
    ) -> Self {
        Self {
            shared: shared.clone(),
            id,
            peer,
            threshold,
            described,
            current,
            at: 0,
            early: VecDeque::new(),
            later: VecDeque::new(),
            aside: VecDeque::new(),
            last: false,
            pieces: 0,
            longs: 0,
            packed_longs: 0,
            over: false,
        }
    }

    /// The rank that it comes from.
    pub fn rank(&self) -> usize {
        self.peer
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
        if send != SendMode::Later
            && !self.described
            && piece.len < self.threshold
            && self.early.is_empty()
            && self.aside.is_empty()
            && let Some(current) = &self.current
            && current.flags & (flag::LATER | flag::ABANDONED) == 0
            && current.bytes.len - self.at >= piece.len
        {
            self.pieces += 1;
            // SAFETY: the packet is ours until it is given back; the piece may be written, as we were promised.
            unsafe { piece.fill(current.bytes.skip(self.at)) };
            self.at += piece.len;
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.unpack_slowly(piece, send, receive) }
    }

    /// # Safety
    /// As for `unpack`.
    #[inline(never)]
    unsafe fn unpack_slowly(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        if self.over {
            return Err(Error::Failed);
        }
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.unpack_any(piece, send, receive) };
        if outcome.is_err() {
            // Memory of a piece that failed is not ours any more once this returns.
            self.give_up();
        }
        outcome
    }

    /// # Safety
    /// As for `unpack`.
    unsafe fn unpack_any(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        if self.described {
            self.compare(Description::of(self.pieces, piece.len, send, receive))?;
        }
        self.pieces += 1;
        if piece.len >= self.threshold {
            // SAFETY: the caller's promise; `end` and `drop` see that nobody writes it any more.
            return unsafe { self.unpack_long(piece, send, receive) };
        }
        let stream = if send == SendMode::Later { Stream::Later } else { Stream::Early };
        match stream {
            Stream::Early => self.early.push_back(piece),
            Stream::Later => self.later.push_back(piece),
        }
        if receive == ReceiveMode::Express { self.fill(stream) } else { Ok(()) }
    }

    /// # Safety
    /// As for `unpack`.
    unsafe fn unpack_long(&mut self, piece: Span, send: SendMode, receive: ReceiveMode) -> Result<()> {
        let (id, number) = (self.id, self.longs);
        self.longs =
            self.longs.checked_add(1).ok_or_else(|| self.mismatch("less", "more than 65,535 long pieces"))?;
        // SAFETY: the caller's promise.
        unsafe { self.shared.core().expect_long(id, number, piece)? };
        if receive == ReceiveMode::Cheaper {
            return Ok(());
        }
        // Who sends may not come to it for want of room: so what is before it is taken first.
        self.fill(Stream::Early)?;
        while !self.has_come(number, piece.len, send)? {
            self.put_current_aside()?;
            self.take_next()?;
        }
        Ok(())
    }

    /// Waits for a long piece. False: its sender reads it at the end, and may not come there for want of room, which is
    /// to be made.
    fn has_come(&mut self, number: u16, len: usize, send: SendMode) -> Result<bool> {
        let (id, peer, position) = (self.id, self.peer, self.pieces - 1);
        let mut end = self.current.filter(|current| current.flags & flag::LAST != 0);
        if self.last && end.is_none() {
            return if self.packed_longs > number { Ok(true) } else { Err(self.too_short()) };
        }
        self.shared.wait("a long piece", |core| {
            if core.has_come(id, number)? {
                return Ok(Some(true));
            }
            end = end.or_else(|| core.find_last(id));
            match end {
                // All long pieces have come before a message ends.
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
        })
    }

    /// Takes what is left of the packet that is read out of it, and gives it back.
    fn put_current_aside(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        let left = current.bytes.skip(self.at);
        if !left.is_empty() {
            // SAFETY: the packet is ours until it is given back.
            self.aside.push_back((unsafe { left.bytes() }.into(), 0));
        }
        self.done_with(current)
    }

    fn mismatch(&self, packed: &str, unpacked: &str) -> Error {
        Error::Mismatch {
            rank: self.peer,
            position: self.pieces.saturating_sub(1),
            packed: packed.to_owned(),
            unpacked: unpacked.to_owned(),
        }
    }

    /// Reads a description, and compares it.
    #[inline(never)]
    fn compare(&mut self, mine: Description) -> Result<()> {
        let mut bytes = [0; size_of::<Description>()];
        self.early.push_back(Span::of_mut(&mut bytes));
        if let Err(e) = self.fill(Stream::Early) {
            // Nobody is to write into this frame once it is gone.
            self.early.clear();
            return Err(e);
        }
        let theirs = Description::read_from_bytes(&bytes).unwrap_or_default();
        if theirs.as_bytes() == mine.as_bytes() {
            return Ok(());
        }
        Err(Error::Mismatch {
            rank: self.peer,
            position: self.pieces,
            packed: theirs.to_string(),
            unpacked: mine.to_string(),
        })
    }

    /// Fills pieces until none of that stream waits.
    fn fill(&mut self, stream: Stream) -> Result<()> {
        loop {
            self.fill_aside();
            self.fill_current()?;
            let waiting = match stream {
                Stream::Early => &self.early,
                Stream::Later => &self.later,
            };
            if waiting.iter().all(Span::is_empty) {
                match stream {
                    Stream::Early => self.early.clear(),
                    Stream::Later => self.later.clear(),
                }
                return Ok(());
            }
            self.turn_over(stream)?;
        }
    }

    /// From what was put aside.
    fn fill_aside(&mut self) {
        while let (Some((bytes, at)), Some(piece)) = (self.aside.front_mut(), self.early.front_mut()) {
            // SAFETY: the bytes are ours, the piece may be written, as `unpack` was promised.
            let copied = unsafe { piece.fill(Span::of(bytes).skip(*at)) };
            *at += copied;
            *piece = piece.skip(copied);
            if piece.is_empty() {
                self.early.pop_front();
            } else {
                self.aside.pop_front();
            }
        }
    }

    /// From the packet that is read.
    fn fill_current(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if current.flags & flag::ABANDONED != 0 {
            return Err(Error::Abandoned { rank: self.peer });
        }
        let waiting = if current.flags & flag::LATER != 0 { &mut self.later } else { &mut self.early };
        while let Some(piece) = waiting.front_mut() {
            // SAFETY: the packet is ours until it is given back; the piece may be written, as `unpack` was promised.
            let copied = unsafe { piece.fill(current.bytes.skip(self.at)) };
            self.at += copied;
            *piece = piece.skip(copied);
            if !piece.is_empty() {
                break;
            }
            waiting.pop_front();
        }
        Ok(())
    }

    /// Goes on to the next packet, since the one that is read has no more for that stream.
    fn turn_over(&mut self, wanted: Stream) -> Result<()> {
        if let Some(current) = self.current {
            let left = current.bytes.skip(self.at);
            if !left.is_empty() && (wanted == Stream::Early || current.flags & flag::LATER != 0) {
                // Bytes that are read later come when all that comes in order has.
                return Err(self.too_short());
            }
            self.put_current_aside()?;
        }
        if self.last {
            return Err(self.too_short());
        }
        self.take_next()
    }

    fn too_short(&self) -> Error {
        self.mismatch("less, or otherwise", "more than there is")
    }

    /// Gives the packet that is read back.
    fn done_with(&mut self, current: Arrived) -> Result<()> {
        if current.flags & flag::LAST != 0 {
            self.last = true;
            self.packed_longs = current.longs;
        }
        self.current = None;
        let mut core = self.shared.core();
        core.copied.1 += self.at as u64;
        self.at = 0;
        core.free_packet(self.id, current)
    }

    fn take_next(&mut self) -> Result<()> {
        let id = self.id;
        self.current = Some(self.shared.wait("the rest of a message", |core| core.next_packet(id))?);
        self.at = 0;
        Ok(())
    }

    /// Ends the message: all of it is there.
    ///
    /// # Errors
    /// As [`RawIncoming::unpack`]; not all of it was unpacked.
    #[inline]
    pub fn end(mut self) -> Result<()> {
        if !self.described
            && self.longs == 0
            && self.early.is_empty()
            && self.later.is_empty()
            && self.aside.is_empty()
            && let Some(current) = self.current
            && current.flags & (flag::LAST | flag::ABANDONED) == flag::LAST
            && current.bytes.len == self.at
            && current.longs == 0
        {
            let mut core = self.shared.core();
            core.copied.1 += self.at as u64;
            core.free_packet(self.id, current)?;
            core.end_incoming(self.id);
            drop(core);
            self.current = None;
            self.over = true;
            return Ok(());
        }
        self.end_slowly()
    }

    #[inline(never)]
    fn end_slowly(&mut self) -> Result<()> {
        if self.over {
            return Err(Error::Failed);
        }
        if self.described {
            self.compare(Description::end(self.pieces))?;
        }
        self.fill(Stream::Early)?;
        self.fill(Stream::Later)?;
        // Then nothing but the end may be left, behind which all long pieces have come.
        loop {
            if self.aside.iter().any(|(bytes, at)| bytes.len() > *at) {
                return Err(self.mismatch("more", "less"));
            }
            if let Some(current) = self.current {
                if current.flags & flag::ABANDONED != 0 {
                    return Err(Error::Abandoned { rank: self.peer });
                }
                if current.bytes.len > self.at {
                    return Err(self.mismatch("more", "less"));
                }
                self.done_with(current)?;
            }
            if self.last {
                break;
            }
            self.take_next()?;
        }
        if self.packed_longs != self.longs {
            let [packed, unpacked] =
                [self.packed_longs, self.longs].map(|longs| format!("{longs} long pieces in all"));
            return Err(self.mismatch(&packed, &unpacked));
        }
        self.close();
        Ok(())
    }

    fn close(&mut self) {
        let mut core = self.shared.core();
        core.conceal_all(self.id);
        core.end_incoming(self.id);
        self.over = true;
    }

    /// Throws away what is left.
    fn discard(&mut self) -> Result<()> {
        self.early.clear();
        self.later.clear();
        if !self.last {
            self.shared.core().refuse(self.id)?;
        }
        loop {
            if let Some(current) = self.current {
                self.done_with(current)?;
            }
            if self.last {
                break;
            }
            self.take_next()?;
        }
        self.close();
        Ok(())
    }
}

impl RawIncoming {
    /// Gives the message up: nobody writes the program's memory for it after this.
    fn give_up(&mut self) {
        if self.over {
            return;
        }
        if let Err(e) = self.discard() {
            tracing::debug!(rank = self.peer, "throwing a message away: {e}");
            self.current = None;
            let mut core = self.shared.core();
            core.sever(self.id, "a message from it could not be thrown away in order");
            core.end_incoming(self.id);
            self.over = true;
        }
    }
}

impl Drop for RawIncoming {
    fn drop(&mut self) {
        self.give_up();
    }
}
