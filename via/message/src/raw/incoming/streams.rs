//! The two streams of a message's packets, and the pieces that wait for their bytes.

use std::collections::VecDeque;
use std::ops::Deref;

use zerocopy::{FromBytes, IntoBytes};

use super::Unpacking;
use crate::core::{Arrived, Core};
use crate::packet::flag;
use crate::raw::describe::Description;
use crate::shared::Shared;
use crate::span::Span;
use crate::{Error, Result};

/// Pieces that are not there yet, and bytes that are not wanted yet.
#[derive(Default)]
pub(super) struct Waiting {
    /// Pieces that wait for their bytes, in order: those that came in order, and those that were packed to be read later.
    pub(super) early: VecDeque<Span>,
    pub(super) later: VecDeque<Span>,
    /// Bytes that came before those that are waited for, out of their packets since the sender needs the room.
    pub(super) aside: VecDeque<(Box<[u8]>, usize)>,
}

impl Waiting {
    pub(super) fn stream(&mut self, stream: Stream) -> &mut VecDeque<Span> {
        match stream {
            Stream::Early => &mut self.early,
            Stream::Later => &mut self.later,
        }
    }
}

/// Which of a message's two streams.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Early,
    Later,
}

impl<S: Deref<Target = Shared>> Unpacking<S> {
    /// Takes what is left of the packet that is read out of it, and gives it back.
    pub(super) fn put_current_aside(&mut self) -> Result<()> {
        let Some(current) = self.intake.current else { return Ok(()) };
        if !self.intake.rest.is_empty() {
            // SAFETY: the packet is ours until it is given back.
            let left = unsafe { self.intake.rest.bytes() }.into();
            self.waiting().aside.push_back((left, 0));
        }
        self.done_with(current)
    }

    /// Reads a description, and compares it.
    pub(super) async fn compare(&mut self, mine: Description) -> Result<()> {
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
    pub(super) async fn fill(&mut self, stream: Stream) -> Result<()> {
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
            return Err(self.shared.core().why_abandoned(self.intake.id));
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

    /// Gives the packet that is read back.
    pub(super) fn done_with(&mut self, current: Arrived) -> Result<()> {
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

    pub(super) async fn take_next(&mut self) -> Result<()> {
        let id = self.intake.id;
        let next = |core: &mut Core| core.next_packet(id);
        let next = self.shared.until(self.waits, "the rest of a message", next).await?;
        self.intake.rest = next.bytes();
        self.intake.current = Some(next);
        Ok(())
    }
}
