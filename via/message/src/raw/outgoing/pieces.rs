//! The pieces of a message that is more than a packet: into packets, from where they lie, or put as a whole.

use std::ops::Deref;

use zerocopy::IntoBytes;

use super::{More, Packing};
use crate::core::{Core, LongOut};
use crate::modules::Module;
use crate::modules::choice;
use crate::packet::flag;
use crate::raw::describe::Description;
use crate::shared::Shared;
use crate::span::Span;
use crate::{Error, ReceiveMode, Result, SendMode};

impl<S: Deref<Target = Shared>> Packing<S> {
    /// # Safety
    /// As for `pack`.
    pub(super) async unsafe fn pack_any(
        &mut self,
        piece: Span,
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<()> {
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
    pub(super) async unsafe fn carry(&mut self, piece: Span, module: Module, flags: u8) -> Result<()> {
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
    pub(super) async fn append(&mut self, mut bytes: Span, flags: u8) -> Result<()> {
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
    pub(super) async fn open(&mut self) -> Result<()> {
        let (capacity, id) = (self.more().capacity, self.out.id);
        let open = |core: &mut Core| core.open_packet(id);
        let open = self.shared.until(self.waits, "room at the receiver", open).await?;
        self.out.room = open.room(0).first(capacity);
        self.out.open = Some(open);
        Ok(())
    }

    /// Sends the open packet; one that is empty where there is none.
    pub(super) async fn flush(&mut self, flags: u8) -> Result<()> {
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
    pub(super) async fn wait_longs(&self, number: Option<u16>, behind: bool) -> Result<()> {
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
    pub(super) fn drop_gathered(&mut self) {
        let used = self.used();
        let More { capacity, gathering, .. } = self.more();
        let (capacity, had_parts) = (*capacity, gathering.take().bytes() > 0);
        if let Some(open) = self.out.open.filter(|_| had_parts) {
            self.out.room = open.room(used).first(capacity - used);
        }
    }

    /// Bytes of the message in the open packet's buffer.
    pub(super) fn used(&mut self) -> usize {
        let More { capacity, gathering, .. } = self.more();
        let (capacity, begins_at) = (*capacity, gathering.begins_at());
        match (&self.out.open, begins_at) {
            (Some(_), Some(used)) => used,
            (Some(_), None) => capacity - self.out.room.len,
            (None, _) => 0,
        }
    }

    /// Bytes of the message that the open packet carries.
    pub(super) fn holds(&mut self) -> usize {
        self.used() + self.more().gathering.bytes()
    }
}
