//! Directives: packets that steer, and carry none of the message's bytes. They are carried out as they come, so that
//! their room is free again at once.

use zerocopy::{FromBytes, IntoBytes};

use super::connection::Connection;
use super::early::EarlyGrant;
use super::long::Start;
use super::pull::Pull;
use super::rail::plain_port;
use super::stream::Open;
use super::{Core, MAX_RAILS};
use crate::Result;
use crate::packet::{Grant, HEADER, Header, Length, kind};
use crate::port::LinkId;
use crate::span::Span;

/// What one end tells the other to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// Put a long piece there.
    Grant { message: u32, long: u16 },
    /// A long piece is there.
    Done { message: u32, long: u16 },
    /// Put no more of that message.
    Refuse { message: u32 },
    /// Read a long piece there.
    Offer { message: u32, long: u16 },
    /// A long piece was read, or will not be any more.
    Pulled { message: u32, long: u16 },
    /// Read a long piece no more, and say when it is so.
    Withdraw { message: u32, long: u16 },
    /// A long piece is not put where it may be: it has so many bytes.
    Length { message: u32, long: u16, len: u64 },
}

/// Most places that may wait for a piece that is not packed yet.
const MAX_EARLY: usize = 4096;

impl Connection {
    /// The directive that can be sent next.
    fn next_control(&self) -> Option<Control> {
        // The answer that brings room has it looked after again.
        let may_send = self.has_control_credit() && self.replaying.is_none();
        self.controls.front().copied().filter(|_| may_send)
    }

    /// It is sent: answers its header, and how many bytes behind that it now has in that room.
    fn take_control(&mut self, control: Control, room: Span) -> (Header, usize) {
        self.controls.pop_front();
        self.control_sent = self.control_sent.wrapping_add(1);
        let mut used = 0;
        let (kind, message, long) = match control {
            Control::Grant { message, long } => {
                used = self.write_grants(long, room);
                (kind::GRANT, message, long)
            }
            Control::Done { message, long } => (kind::DONE, message, long),
            Control::Refuse { message } => (kind::REFUSE, message, 0),
            Control::Offer { message, long } => {
                if let Some((len, grant)) = self.take_offer(long) {
                    // SAFETY: the buffer is ours until it is sent; `fill` keeps within it.
                    used = unsafe { room.fill(Span::of(len.as_bytes())) };
                    // SAFETY: as above.
                    used += unsafe { room.skip(used).fill(Span::of(grant.as_bytes())) };
                }
                (kind::OFFER, message, long)
            }
            Control::Pulled { message, long } => (kind::PULLED, message, long),
            Control::Withdraw { message, long } => (kind::WITHDRAW, message, long),
            Control::Length { message, long, len } => {
                // SAFETY: the buffer is ours until it is sent; `fill` keeps within it.
                used = unsafe { room.fill(Span::of(Length::new(len).as_bytes())) };
                (kind::LENGTH, message, long)
            }
        };
        (Header { kind, long: long.into(), message: message.into(), ..Header::default() }, used)
    }

    /// Writes the length and the places of a long piece, as many as the peer's packets have room for; answers how many
    /// bytes. None, where that is over already.
    fn write_grants(&self, long: u16, room: Span) -> usize {
        let Some(long) = self.longs_in.iter().find(|candidate| candidate.number == long) else { return 0 };
        let room = room.first(self.capacity);
        let len = Length::new(long.span.len as u64);
        // SAFETY: the buffer is ours until it is sent; `fill` keeps within it.
        let mut used = unsafe { room.fill(Span::of(len.as_bytes())) };
        for (rail, exposure) in &long.exposures {
            if room.len - used < size_of::<Grant>() {
                break;
            }
            let grant = Grant { rail: (*rail as u32).into(), token: exposure.token };
            // SAFETY: the buffer is ours until it is sent; `fill` keeps within it.
            used += unsafe { room.skip(used).fill(Span::of(grant.as_bytes())) };
        }
        used
    }
}

impl Core {
    /// Has a directive sent as soon as can be.
    pub(super) fn control(&mut self, id: LinkId, control: Control) -> Result<()> {
        self.connection(id).controls.push_back(control);
        self.flush_controls(id)
    }

    /// Sends what directives can be sent.
    #[inline]
    pub(super) fn flush_controls(&mut self, id: LinkId) -> Result<()> {
        if self.connection(id).controls.is_empty() { Ok(()) } else { self.flush_waiting_controls(id) }
    }

    fn flush_waiting_controls(&mut self, id: LinkId) -> Result<()> {
        while let Some(connection) = Self::lookup(&mut self.connections, id)
            && let Some(rail) = connection.active
            && let Some(control) = connection.next_control()
        {
            if let Some(port) = plain_port!(self, connection) {
                let Some((buffer, to_send)) = port.take_ready(id) else {
                    self.stir(id);
                    break;
                };
                let (mut header, used) = connection.take_control(control, buffer.span.behind(HEADER));
                connection.number(&mut header);
                // SAFETY: the buffer is ours until it is sent, and has room for a header.
                unsafe { connection.write_header(header, used, buffer.span) };
                to_send.send(0, HEADER + used).map_err(|e| *e)?;
            } else {
                let Some(buffer) = self.rails[rail].port.buffer(id) else {
                    self.stir(id);
                    break;
                };
                let (header, used) = connection.take_control(control, buffer.span.behind(HEADER));
                self.send_counted(id, Open { rail, buffer }, used, header)?;
            }
        }
        Ok(())
    }

    /// Carries a directive out.
    pub(super) fn directive(
        &mut self,
        id: LinkId,
        header: &Header,
        bytes: Span,
    ) -> std::result::Result<(), &'static str> {
        let (message, number) = (header.message.get(), header.long.get());
        // SAFETY: the packet is ours until it is given back, and nobody writes it.
        let bytes = unsafe { bytes.bytes() };
        match header.kind {
            kind::GRANT => self.granted(id, header, bytes),
            kind::DONE => {
                let connection = self.connection(id);
                if connection.message_in == message
                    && let Some(long) = connection.longs_in.iter_mut().find(|long| long.number == number)
                {
                    long.done = true;
                }
                Ok(())
            }
            kind::REFUSE => {
                self.refused(id, message);
                Ok(())
            }
            kind::OFFER => match Length::read_from_prefix(bytes) {
                Ok((len, place)) => match Grant::read_from_bytes(place) {
                    Ok(grant) => self.offered(id, message, number, Pull::new(len, grant)),
                    Err(_) => Err("an offer without a place"),
                },
                Err(_) => Err("an offer without a length"),
            },
            kind::PULLED => {
                self.pulled(id, message, number);
                Ok(())
            }
            kind::WITHDRAW => {
                self.withdrawn(id, message, number);
                Ok(())
            }
            kind::LENGTH => match Length::read_from_bytes(bytes) {
                Ok(len) => {
                    self.connection(id).length_is(message, number, len);
                    Ok(())
                }
                Err(_) => Err("a length of other than 8 bytes"),
            },
            _ => Err("a packet of no known kind"),
        }
    }

    fn granted(
        &mut self,
        id: LinkId,
        header: &Header,
        bytes: &[u8],
    ) -> std::result::Result<(), &'static str> {
        let (message, number) = (header.message.get(), header.long.get());
        let rails = self.rails.len();
        let connection = self.connection(id);
        if bytes.is_empty() {
            // Of a message that was over when this went.
            return Ok(());
        }
        let Ok((len, bytes)) = Length::read_from_prefix(bytes) else {
            return Err("a place without a length");
        };
        let Ok(grants) = <[Grant]>::ref_from_bytes(bytes) else { return Err("a place has half a name") };
        if grants.len() > MAX_RAILS {
            return Err("a place on more rails than there can be");
        }
        if let Some(long) =
            connection.longs_out.iter_mut().find(|long| long.message == message && long.number == number)
        {
            let is_wrong = long.grant(len, grants, rails);
            if long.start == Start::Packet && header.acknowledge.get() != connection.sequence {
                // What has asked for it was under way when it was named.
                connection.has_asked_too_soon();
            }
            if is_wrong {
                connection.tell_length(number);
            }
            return Ok(());
        }
        // Who waits for a message ahead may have taken the one before it sooner than we know.
        let is_meant = message.wrapping_sub(connection.message_out) <= 1;
        if is_meant && connection.early.len() < MAX_EARLY {
            connection.keep_early(EarlyGrant { message, number, len, grants: grants.into() });
        }
        // Else of a message that is over: the receiver gave it up.
        Ok(())
    }
}
