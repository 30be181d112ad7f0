//! At the receiver: a message is taken before it has begun, and the place of its first long piece is named.

use crate::Result;
use crate::core::connection::{Arrived, Connection};
use crate::core::control::Control;
use crate::core::long::{LongIn, last_put};
use crate::core::{Core, Intake};
use crate::packet::flag;
use crate::port::LinkId;
use crate::span::Span;

impl Connection {
    /// Whether word of the next message may come now, by a put of so many bytes: its receiver waits and has named the place
    /// of its only piece, nothing of it has come, and the put was one that ends the piece. What else was put, and where, only
    /// the peer knows: its bytes are what it makes of them.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in crate::core) fn check_word(&self, len: usize) -> std::result::Result<(), &'static str> {
        let piece = match &self.longs_in[..] {
            [long] if self.awaited && self.inbox.is_empty() && long.pull.is_none() => long.span.len,
            _ => return Err("word of a message that nobody had named a place for"),
        };
        if len == last_put(piece) { Ok(()) } else { Err("word of a message whose end was not put") }
    }

    /// Whether a place may be named ahead for a piece of so many bytes: its message is the next, and nothing of it has come.
    fn may_await(&self, len: usize) -> bool {
        len >= self.thresholds.long
            && self.active.is_some()
            && self.failed.is_none()
            && !self.unpacking
            && self.inbox.is_empty()
    }
}

impl Core {
    /// Takes the next message of a rank before it has begun, and names the place of its first long piece; answers the
    /// connection. `None`: that cannot be, and nothing was done.
    ///
    /// # Safety
    /// The memory is valid and nobody else touches it until the message was unpacked, or [`Core::forsake`] was called.
    pub(crate) unsafe fn await_long(
        &mut self,
        channel: usize,
        peer: usize,
        piece: Span,
    ) -> Result<Option<LinkId>> {
        let id = self.id(channel, peer);
        let is_known = self.connections.get(id as usize).is_some_and(Option::is_some);
        if !is_known || self.options.described || self.options.patience.is_some() {
            return Ok(None);
        }
        let connection = self.connection(id);
        if !connection.may_await(piece.len) {
            return Ok(None);
        }
        let message = connection.message_in;
        connection.longs_in.push(LongIn::new(0, 0, piece));
        if self.expose(id, 0).is_err() {
            // Who asks for it when the message is there is told what is wrong.
            self.conceal_all(id);
            return Ok(None);
        }
        let connection = self.connection(id);
        (connection.unpacking, connection.awaited) = (true, true);
        match self.control(id, Control::Grant { message, long: 0 }) {
            Ok(()) => Ok(Some(id)),
            Err(e) => {
                self.forsake(id);
                Err(e)
            }
        }
    }

    /// Whether a rank can send a message of one piece of so many bytes before any of it is taken, whatever it was told.
    pub(crate) fn has_room_for(&mut self, channel: usize, peer: usize, len: usize) -> bool {
        let id = self.id(channel, peer);
        let described = self.options.described;
        let connection = self.connection(id);
        // It may not have been told of half a window yet.
        let room = connection.capacity * usize::from(connection.window / 2);
        connection.active.is_some() && !described && len <= room && len < connection.thresholds.long
    }

    /// The first packet of a message that was taken ahead. False: it has not come.
    ///
    /// # Errors
    /// It will not come, or something is wrong: [`Core::forsake`] has to follow.
    pub(crate) fn take_awaited(&mut self, id: LinkId, into: &mut Intake) -> Result<bool> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        let Some(first) = self.next_packet(id)? else { return Ok(false) };
        let connection = self.connection(id);
        connection.awaited = false;
        into.begin(id, connection, first);
        Ok(true)
    }

    /// Waits for a message no more that was taken ahead: the connection ends, and nobody can reach the place any more.
    #[cold]
    pub(crate) fn forsake(&mut self, id: LinkId) {
        self.sever(id, "a wait for its next message has failed, of which it may have written a part");
        self.end_incoming(id);
    }

    /// Takes a message that was taken ahead, and came as the one long piece that was waited for. False: it is another one;
    /// nothing was done.
    pub(crate) fn end_awaited(&mut self, id: LinkId, packet: Arrived) -> Result<bool> {
        let connection = self.connection(id);
        let is_lone =
            packet.flags == flag::FIRST | flag::LAST && packet.longs == 1 && packet.bytes().is_empty();
        let [long] = &connection.longs_in[..] else { return Ok(false) };
        // What was offered comes when it was read; all else has come before the message ends.
        if !is_lone || long.pull.is_some() {
            return Ok(false);
        }
        self.conceal_all(id);
        self.end_incoming(id);
        self.free_packet(id, packet)?;
        Ok(true)
    }
}
