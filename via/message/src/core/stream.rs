//! The stream of packets, on its way out.

use super::Core;
use super::connection::Retained;
use crate::packet::{HEADER, Header, kind};
use crate::port::{Buffer, LinkId};
use crate::span::Span;
use crate::{Error, Result};

/// A buffer for a packet to be, and its rail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) rail: usize,
    pub(crate) buffer: Buffer,
}

impl Open {
    /// The first of the message's bytes.
    #[inline(always)]
    pub(crate) fn start(&self) -> *mut u8 {
        self.buffer.span.start.wrapping_add(HEADER)
    }

    /// Where the message's bytes go.
    #[inline]
    pub(crate) fn room(&self, used: usize) -> Span {
        self.buffer.span.skip(HEADER + used)
    }
}

impl Core {
    /// A buffer for a packet with bytes, if there is one and the peer has room for it. `None`: not now.
    #[inline]
    pub(crate) fn open_packet(&mut self, id: LinkId) -> Result<Option<Open>> {
        let connection = self.connection(id);
        if let Some(why) = &connection.failed {
            return Err(Error::Unreachable { rank: connection.peer, why: why.clone() });
        }
        let Some(rail) = connection.active else { return Ok(None) };
        if !connection.has_credit() || connection.replaying.is_some() {
            return Ok(None);
        }
        Ok(self.rails[rail].port.buffer(id).map(|buffer| Open { rail, buffer }))
    }

    /// Gives a buffer back that is not sent.
    pub(crate) fn drop_packet(&mut self, id: LinkId, open: Open) {
        self.rails[open.rail].port.release(id, open.buffer.index);
    }

    /// Sends `used` bytes of the message in a buffer, if that can be now, with the bytes of `parts` behind them. Where its
    /// rail has died meanwhile, it goes by another. `longs`: the message's long pieces so far.
    ///
    /// # Safety
    /// The parts are valid memory that nobody writes until [`Core::is_gathering`] denies it, or the connection is severed.
    pub(crate) unsafe fn send_data(
        &mut self,
        id: LinkId,
        open: Open,
        used: usize,
        parts: &[Span],
        flags: u8,
        longs: u16,
    ) -> Result<bool> {
        let connection = self.connection(id);
        if !parts.is_empty()
            && let Some(why) = &connection.failed
        {
            return Err(Error::Unreachable { rank: connection.peer, why: why.clone() });
        }
        if connection.active != Some(open.rail) || connection.replaying.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { self.send_elsewhere(id, open, used, parts, flags, longs) };
        }
        connection.data_sent = connection.data_sent.wrapping_add(1);
        let message = connection.message_out;
        let header = Header {
            kind: kind::DATA,
            flags,
            long: longs.into(),
            message: message.into(),
            ..Header::default()
        };
        if !parts.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { self.send_gathered(id, open, used, parts, header)? };
            return Ok(true);
        }
        let before = self.rails[open.rail].port.inline_packets();
        self.send_counted(id, open, used, header)?;
        let went_inline = self.rails[open.rail].port.inline_packets() != before;
        let counter = if went_inline { &mut self.modules.inline } else { &mut self.modules.copied };
        *counter += 1;
        self.copied.0 += used as u64;
        Ok(true)
    }

    /// # Safety
    /// As for [`Core::send_data`].
    #[cold]
    unsafe fn send_elsewhere(
        &mut self,
        id: LinkId,
        open: Open,
        used: usize,
        parts: &[Span],
        flags: u8,
        longs: u16,
    ) -> Result<bool> {
        let Some(other) = self.open_packet(id)? else { return Ok(false) };
        let mut copied = 0;
        for part in std::iter::once(&open.room(0).first(used)).chain(parts) {
            // SAFETY: both buffers are ours and not posted, the first also when its link is gone; parts as we were promised.
            copied += unsafe { other.room(copied).fill(*part) };
        }
        self.drop_packet(id, open);
        // SAFETY: there are no parts: there are several rails, or were.
        unsafe { self.send_data(id, other, copied, &[], flags, longs) }
    }

    /// Sends a packet that has a number, with bytes behind it that are taken from where they lie. It is not kept: there is
    /// one rail.
    ///
    /// # Safety
    /// As for [`Core::send_data`].
    unsafe fn send_gathered(
        &mut self,
        id: LinkId,
        open: Open,
        used: usize,
        parts: &[Span],
        mut header: Header,
    ) -> Result<()> {
        let bytes: usize = parts.iter().map(Span::len).sum();
        let connection = self.connection(id);
        connection.number(&mut header);
        // SAFETY: the buffer is ours until it is sent, and has room for a header.
        unsafe { connection.write_header(header, used + bytes, open.buffer.span) };
        // SAFETY: the caller's promise.
        let gathered =
            unsafe { self.rails[open.rail].port.send_gathered(id, open.buffer, HEADER + used, parts)? };
        if gathered {
            self.modules.gathered += 1;
            self.copied.0 += used as u64;
        } else {
            self.modules.copied += 1;
            self.copied.0 += (used + bytes) as u64;
        }
        Ok(())
    }

    /// Whether memory of the program's is still read for packets of that connection.
    pub(crate) fn is_gathering(&self, id: LinkId) -> bool {
        self.rails.iter().any(|rail| rail.port.is_gathering(id))
    }

    /// Sends a packet that has a number.
    #[inline]
    pub(super) fn send_counted(
        &mut self,
        id: LinkId,
        open: Open,
        used: usize,
        mut header: Header,
    ) -> Result<()> {
        let connection = self.connection(id);
        let sequence = connection.number(&mut header);
        let several = connection.several;
        if several {
            let Buffer { index, span } = open.buffer;
            let span = span.first(HEADER + used);
            connection.retained.push_back(Retained { sequence, rail: open.rail, index, span });
        }
        self.send_packet(id, open, used, header, several)
    }

    /// Sends a packet, with the counters as they are.
    #[inline]
    pub(super) fn send_packet(
        &mut self,
        id: LinkId,
        open: Open,
        used: usize,
        header: Header,
        keep: bool,
    ) -> Result<()> {
        // SAFETY: the buffer is ours until it is sent, and has room for a header.
        unsafe { self.connection(id).write_header(header, used, open.buffer.span) };
        self.rails[open.rail].port.send(id, open.buffer, HEADER + used, keep)
    }

    /// Tells the peer the counters, when it is time for it.
    #[inline]
    pub(super) fn tell(&mut self, id: LinkId) -> Result<()> {
        if self.connection(id).owes() { self.tell_now(id) } else { Ok(()) }
    }

    /// Tells the peer the counters.
    #[inline(never)]
    pub(super) fn tell_now(&mut self, id: LinkId) -> Result<()> {
        self.tell_so(id, 0)
    }

    /// Tells the peer the counters, and that.
    pub(super) fn tell_so(&mut self, id: LinkId, flags: u8) -> Result<()> {
        let Some(rail) = self.connection(id).active else { return Ok(()) };
        match self.rails[rail].port.buffer(id) {
            Some(buffer) => {
                let header = Header { kind: kind::COUNTERS, flags, ..Header::default() };
                self.send_packet(id, Open { rail, buffer }, 0, header, false)
            }
            None => {
                self.stir(id);
                Ok(())
            }
        }
    }
}
