//! The short way of a message that is one packet of the port on virtual interfaces, on a connection with one rail: begun,
//! sent, taken and done with in a few steps each, with nothing looked up twice. What is out of the ordinary takes the long
//! way of the files beside.

use super::connection::{Arrived, Connection};
use super::rail::{Carrier, plain_port};
use super::{Core, Open};
use crate::Error;
use crate::packet::{HEADER, SHORT_HEADER, Short};
use crate::port::vi::{Driven, ViPort};
use crate::port::{Event, LinkId, Packet};
use crate::span::Span;

/// A message that is being packed: what the short way needs of it.
#[derive(Debug)]
pub(crate) struct Outset {
    /// What is free of the open packet.
    pub(crate) room: Span,
    /// Pieces of so many bytes or more take the longer way; all do where this is 0.
    pub(crate) limit: usize,
    /// The packet that its bytes go to, if there is one.
    pub(crate) open: Option<Open>,
    pub(crate) id: LinkId,
    pub(crate) peer: u32,
    /// Nothing has gone yet.
    pub(crate) first: bool,
    /// Neither pieces nor its end are taken any more.
    pub(crate) over: bool,
}

/// A message that is being unpacked: what the short way needs of it.
#[derive(Debug)]
pub(crate) struct Intake {
    /// What is left of the packet that is read.
    pub(crate) rest: Span,
    /// Pieces of so many bytes or more take the longer way; all do where this is 0.
    pub(crate) limit: usize,
    /// The packet that is read, if there is one.
    pub(crate) current: Option<Arrived>,
    pub(crate) id: LinkId,
    pub(crate) peer: u32,
    /// Pieces that were unpacked.
    pub(crate) pieces: u32,
    pub(crate) over: bool,
}

/// What [`Core::send_whole`] or [`Core::take_whole`] came to.
pub(crate) enum Whole {
    /// The message was sent or taken, and is over.
    Done,
    /// None has come.
    Nothing,
    /// It has to take the long way: nothing of it was sent or taken.
    Otherwise,
    /// The port is broken, or nothing more can come.
    Failed(Box<Error>),
}

impl Outset {
    /// Of a message that has not begun yet.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { room: Span::NONE, limit: 0, open: None, id: 0, peer: 0, first: true, over: true }
    }

    /// Begins a message of which nothing goes in a packet yet.
    pub(super) fn begin(&mut self, id: LinkId, peer: usize) {
        (self.id, self.peer, self.over) = (id, peer as u32, false);
        (self.open, self.room) = (None, Span::NONE);
    }
}

impl Intake {
    /// Of a message that has not begun yet.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { rest: Span::NONE, limit: 0, current: None, id: 0, peer: 0, pieces: 0, over: true }
    }

    /// Takes the first packet of a message.
    #[inline(always)]
    pub(super) fn begin(&mut self, id: LinkId, connection: &mut Connection, first: Arrived) {
        connection.unpacking = true;
        self.rest = first.bytes();
        self.limit = if first.is_plain() { connection.limit } else { 0 };
        self.current = Some(first);
        self.id = id;
        self.peer = connection.peer as u32;
        self.over = false;
    }
}

impl Core {
    /// Begins a message to a rank. False: see [`Core::begin_outgoing`].
    #[inline]
    pub(crate) fn begin_short(&mut self, channel: usize, peer: usize, out: &mut Outset) -> bool {
        let id = self.id(channel, peer);
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return false };
        if connection.packing || !connection.has_credit() {
            return false;
        }
        let Some(port) = plain_port!(self, connection) else { return false };
        let Some(buffer) = port.take_buffer(id) else { return false };
        connection.packing = true;
        let open = Open { rail: usize::from(connection.plain), buffer };
        out.room = Span { start: open.start(), len: connection.capacity };
        out.limit = connection.limit_out;
        out.open = Some(open);
        out.id = id;
        out.peer = peer as u32;
        out.over = false;
        true
    }

    /// Sends a message that is one short piece, all in one step.
    ///
    /// # Safety
    /// The piece can be read, and nobody writes it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn send_whole(&mut self, channel: usize, peer: u32, piece: Span) -> Whole {
        let id = self.id(channel, peer as usize);
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return Whole::Otherwise };
        if piece.len >= connection.short_out || connection.packing || !connection.has_credit() {
            return Whole::Otherwise;
        }
        let Some(port) = plain_port!(self, connection) else { return Whole::Otherwise };
        debug_assert!(connection.is_plain_on(usize::from(connection.plain)) && connection.early.is_empty());
        let Some((buffer, to_send)) = port.take_ready(id) else { return Whole::Otherwise };
        let head = buffer.span.behind(HEADER - SHORT_HEADER);
        // SAFETY: the buffer is ours until it is sent, and has room for a header and as many bytes as were checked; the
        // piece can be read, and is no buffer of ours.
        unsafe {
            connection.short().write(head);
            piece.copy_to(head.start.wrapping_add(SHORT_HEADER));
        }
        connection.count_short();
        self.copied.0 += piece.len as u64;
        self.modules.copied += 1;
        if let Err(e) = to_send.send(HEADER - SHORT_HEADER, SHORT_HEADER + piece.len) {
            return Whole::Failed(e);
        }
        Whole::Done
    }

    /// Sends a message that is `used` bytes in a buffer, and ends it. False: it has to take the long way.
    ///
    /// # Errors
    /// The port is broken.
    #[inline]
    pub(crate) fn send_short(&mut self, id: LinkId, open: &Open, used: usize) -> Result<bool, Box<Error>> {
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return Ok(false) };
        if usize::from(connection.plain) != open.rail {
            return Ok(false);
        }
        debug_assert!(connection.is_plain_on(open.rail));
        let Some(port) = plain_port!(self, connection) else { return Ok(false) };
        // SAFETY: the buffer is ours until it is sent, and has room for a header.
        unsafe { connection.short().write(open.buffer.span.behind(HEADER - SHORT_HEADER)) };
        connection.count_short();
        connection.end_short();
        self.copied.0 += used as u64;
        self.modules.copied += 1;
        port.send_part(id, open.buffer.index, HEADER - SHORT_HEADER, SHORT_HEADER + used)?;
        Ok(true)
    }

    /// Takes the next message of a rank, or of any, if one has begun to come; drives the rails if not. False: there is
    /// none, or something is wrong ([`Core::trouble`] tells).
    #[inline]
    pub(crate) fn begin_intake(&mut self, channel: usize, from: Option<usize>, into: &mut Intake) -> bool {
        if let Some(peer) = from {
            let id = self.id(channel, peer);
            if let Some(connection) = Self::lookup(&mut self.connections, id)
                && connection.awaits_message()
                && self.stirred.is_empty()
                && let [rail] = &mut self.rails[..]
                && let Carrier::Vi(port) = &mut rail.port
            {
                match port.drive_for(id, 1, || true) {
                    Driven::Nothing(_) => return false,
                    Driven::Receive(link, receive) => {
                        let packet = link.received(receive);
                        // SAFETY: the port gave us the packet, which is nobody else's until it is given back.
                        if let Some(short) = unsafe { Short::read(packet.span) } {
                            connection.heard_in_order(short);
                            connection.expected = connection.expected.wrapping_add(1);
                            into.begin(id, connection, Arrived::short(0, packet));
                            return true;
                        }
                        return self.take_after(Some(Event::Packet(id, packet)), channel, from, into);
                    }
                    Driven::Otherwise => return self.take_after(None, channel, from, into),
                    Driven::Failed(e) => {
                        self.trouble = Some(*e);
                        return false;
                    }
                }
            }
        }
        self.begin_intake_somehow(channel, from, into)
    }

    /// Takes a message of a rank that is one piece, all in one step; drives the rail if none has come: up to `looks` times,
    /// which becomes how often it has, and not on once the session is `wanted`. With [`Whole::Otherwise`] there is none, or it has to take the long way.
    ///
    /// # Safety
    /// The piece may be written, and nobody else touches it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn take_whole(
        &mut self,
        channel: usize,
        peer: u32,
        piece: Span,
        looks: &mut u32,
        wanted: impl Fn() -> bool,
    ) -> Whole {
        let id = self.id(channel, peer as usize);
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return Whole::Otherwise };
        if piece.len >= connection.short_in || connection.is_busy_in() || !self.stirred.is_empty() {
            return Whole::Otherwise;
        }
        let Some(port) = plain_port!(self, connection) else { return Whole::Otherwise };
        let (link, receive) = match port.drive_for(id, *looks, wanted) {
            Driven::Nothing(taken) => {
                *looks = taken;
                return Whole::Nothing;
            }
            Driven::Receive(link, receive) => (link, receive),
            Driven::Otherwise => return Whole::Otherwise,
            Driven::Failed(e) => return Whole::Failed(e),
        };
        let packet = link.packet(&receive);
        // SAFETY: the port gave us the packet, which is nobody else's until it is given back.
        let short = unsafe { Short::read(packet) };
        let bytes = packet.skip(SHORT_HEADER);
        let Some(short) = short.filter(|_| bytes.len == piece.len) else {
            let packet = link.received(receive);
            return self.not_whole(id, packet);
        };
        // SAFETY: the piece may be written, as we were promised, is no buffer of ours, and as long.
        unsafe { bytes.copy_to(piece.start) };
        link.give_receive(receive);
        connection.heard_in_order(short);
        connection.count_whole();
        self.copied.1 += piece.len as u64;
        if connection.owes_data() {
            self.end_short_with_more(id);
        }
        Whole::Done
    }

    /// Something else has come than such a message.
    #[cold]
    #[inline(never)]
    fn not_whole(&mut self, id: LinkId, packet: Packet) -> Whole {
        match self.happened(0, Event::Packet(id, packet)) {
            // What is at hand beside is looked at by who takes the long way.
            Ok(()) => Whole::Otherwise,
            Err(e) => Whole::Failed(Box::new(e)),
        }
    }

    /// As [`Core::begin_intake`], once something else has happened than what was waited for.
    #[inline(never)]
    fn take_after(
        &mut self,
        event: Option<Event>,
        channel: usize,
        from: Option<usize>,
        into: &mut Intake,
    ) -> bool {
        if let Some(event) = event
            && let Err(e) = self.happened(0, event)
        {
            self.trouble = Some(e);
            return false;
        }
        self.take_news(channel, from, into)
    }

    #[inline(never)]
    fn begin_intake_somehow(&mut self, channel: usize, from: Option<usize>, into: &mut Intake) -> bool {
        let is_there = match from {
            Some(peer) => self.take_of(channel, peer, into),
            None => self.take_first(channel, None, into),
        };
        if is_there {
            return true;
        }
        if let [rail] = &mut self.rails[..]
            && let Carrier::Vi(port) = &mut rail.port
        {
            match port.drive() {
                Ok(true) => return self.take_news(channel, from, into),
                Ok(false) if self.stirred.is_empty() => return false,
                Ok(false) => {}
                Err(e) => {
                    self.trouble = Some(e);
                    return false;
                }
            }
        }
        self.progress_troubled();
        self.take_first(channel, from, into)
    }

    #[inline(never)]
    fn progress_troubled(&mut self) {
        if let Err(e) = self.progress() {
            self.trouble = Some(e);
        }
    }

    /// As [`Core::progress`], with the only rail driven; a packet that is the whole of a message that is waited for is
    /// handed over at once.
    #[inline]
    fn take_news(&mut self, channel: usize, from: Option<usize>, into: &mut Intake) -> bool {
        while let Some(rail) = self.rails.first_mut()
            && let Carrier::Vi(port) = &mut rail.port
            && let Some(event) = port.next()
        {
            if let Event::Packet(id, packet) = &event
                && let Some(connection) = Self::lookup(&mut self.connections, *id)
                && connection.channel == channel
                && from.is_none_or(|peer| connection.peer == peer)
                && connection.awaits_message()
                // SAFETY: the port gave us the packet, which is nobody else's until it is given back.
                && let Some(short) = (unsafe { Short::read(packet.span) })
            {
                connection.heard_in_order(short);
                connection.expected = connection.expected.wrapping_add(1);
                into.begin(*id, connection, Arrived::short(0, *packet));
                return true;
            }
            if let Err(e) = self.happened(0, event) {
                self.trouble = Some(e);
                return false;
            }
        }
        if !self.stirred.is_empty() {
            self.progress_troubled();
        }
        self.take_first(channel, from, into)
    }

    /// The first packet of a rank's next message, or of any's, if it is there and none of its messages is being unpacked.
    #[inline]
    pub(crate) fn take_first(&mut self, channel: usize, from: Option<usize>, into: &mut Intake) -> bool {
        match from {
            Some(peer) => self.take_of(channel, peer, into),
            None => {
                while let Some(peer) = self.take_ready(channel) {
                    if self.take_of(channel, peer, into) {
                        return true;
                    }
                }
                false
            }
        }
    }

    #[inline(always)]
    fn take_of(&mut self, channel: usize, peer: usize, into: &mut Intake) -> bool {
        let id = self.id(channel, peer);
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return false };
        if connection.inbox.is_empty() || connection.unpacking {
            return false;
        }
        let Some(first) = connection.inbox.pop_front() else { return false };
        into.begin(id, connection, first);
        true
    }

    /// A message that was one packet was unpacked. False: it has to take the long way; nothing was done.
    #[inline]
    pub(crate) fn end_short(&mut self, id: LinkId, packet: &Arrived) -> bool {
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return false };
        let Some(port) = plain_port!(self, connection) else { return false };
        connection.unpacking = false;
        connection.message_in = connection.message_in.wrapping_add(1);
        connection.freed.data = connection.freed.data.wrapping_add(1);
        self.copied.1 += packet.bytes().len as u64;
        ViPort::take_back(port, id, packet.packet);
        if connection.owes_data() || !connection.inbox.is_empty() {
            self.end_short_with_more(id);
        }
        true
    }

    /// The peer is to be told, or its next message is there already.
    #[cold]
    #[inline(never)]
    fn end_short_with_more(&mut self, id: LinkId) {
        if !self.connection(id).inbox.is_empty() {
            self.make_ready(id);
        }
        if let Err(e) = self.tell(id) {
            self.trouble = Some(e);
        }
    }

    /// A packet has come that is the whole of a message, with the short header. False: it is none, or is not simply the
    /// next; nothing was done.
    #[inline]
    pub(super) fn arrived_shortly(&mut self, rail: usize, id: LinkId, packet: Packet) -> bool {
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return false };
        // SAFETY: the port gave us the packet, which is nobody else's until it is given back.
        let Some(short) = (unsafe { Short::read(packet.span) }) else { return false };
        if usize::from(connection.plain) != rail || !connection.controls.is_empty() {
            return false;
        }
        connection.heard_in_order(short);
        connection.expected = connection.expected.wrapping_add(1);
        let is_ready = connection.is_ready || connection.unpacking;
        connection.inbox.push_back(Arrived::short(rail, packet));
        if !is_ready {
            self.make_ready(id);
        }
        true
    }
}
