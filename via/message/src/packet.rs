//! What goes between two ranks in one packet: a header of 24 bytes, and bytes of the message or of a directive. Or in no
//! packet: the immediate data of an RDMA write, which ends a message that is one long piece ([`Short`] as a word).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::span::Span;

/// Bytes of a [`Header`].
pub(crate) const HEADER: usize = size_of::<Header>();

/// What stands before each packet's bytes. Counters go round.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    /// One of [`kind`].
    pub(crate) kind: u8,
    /// Some of [`flag`].
    pub(crate) flags: u8,
    /// Rails that the sender does not use any more on this connection, a bit each.
    pub(crate) dead: u8,
    pub(crate) reserved: u8,
    /// Bytes that follow.
    pub(crate) len: U16,
    /// Data packets of the receiver's that the sender has done with.
    pub(crate) data_freed: U16,
    /// Its directives that were carried out.
    pub(crate) control_freed: U16,
    /// The long piece of the message that it is about.
    pub(crate) long: U16,
    /// Its number among all that are counted on this connection.
    pub(crate) sequence: U32,
    /// The number that the sender expects next.
    pub(crate) acknowledge: U32,
    /// The message's number.
    pub(crate) message: U32,
}

/// Bytes of the short header.
pub(crate) const SHORT_HEADER: usize = 8;

/// What stands before the whole of a message, on a connection with one rail: there packets come in order and once, so
/// that they need no numbers. With these 8 bytes a message of 64 bytes is a frame of 120: with shared memory two cache
/// lines, and not three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short {
    /// As in [`Header`].
    pub(crate) data_freed: u16,
    /// As in [`Header`].
    pub(crate) control_freed: u16,
}

impl Short {
    /// Of the packet that lies there; `None` when that has none.
    ///
    /// # Safety
    /// The span is valid memory that nobody writes meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn read(packet: Span) -> Option<Self> {
        if packet.len < SHORT_HEADER {
            return None;
        }
        // SAFETY: there are as many bytes, of which any make a word.
        let word = u64::from_le(unsafe { packet.start.cast::<u64>().read_unaligned() });
        let short = Self { data_freed: (word >> 32) as u16, control_freed: (word >> 48) as u16 };
        (word as u32 == u32::from(kind::SHORT)).then_some(short)
    }

    /// Stores it at the span's beginning: the kind, three bytes of 0, and the counters.
    ///
    /// # Safety
    /// The span is valid memory of at least [`SHORT_HEADER`] bytes, and nobody else touches it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write(self, packet: Span) {
        debug_assert!(packet.len >= SHORT_HEADER);
        let counters = u64::from(self.data_freed) << 32 | u64::from(self.control_freed) << 48;
        // SAFETY: the caller's promise.
        unsafe { packet.start.cast::<u64>().write_unaligned((counters | u64::from(kind::SHORT)).to_le()) };
    }
}

/// A message that is one long piece, whose place its sender knew, needs no packet for its end on such a connection: the
/// counters are the immediate data of the RDMA write that brings its last byte.
impl From<Short> for u32 {
    fn from(short: Short) -> Self {
        Self::from(short.data_freed) | Self::from(short.control_freed) << 16
    }
}

impl From<u32> for Short {
    fn from(word: u32) -> Self {
        Self { data_freed: word as u16, control_freed: (word >> 16) as u16 }
    }
}

/// What a packet is for.
pub(crate) mod kind {
    /// Bytes of a message.
    pub(crate) const DATA: u8 = 1;
    /// Where a long piece may be put.
    pub(crate) const GRANT: u8 = 2;
    /// A long piece has been put.
    pub(crate) const DONE: u8 = 3;
    /// The receiver takes no more of the message.
    pub(crate) const REFUSE: u8 = 4;
    /// Counters only; not counted itself.
    pub(crate) const COUNTERS: u8 = 5;
    /// The whole of a message, behind the short header.
    pub(crate) const SHORT: u8 = 6;
    /// Where a long piece may be read.
    pub(crate) const OFFER: u8 = 7;
    /// A long piece was read, or will not be any more.
    pub(crate) const PULLED: u8 = 8;
    /// A long piece is to be read no more.
    pub(crate) const WITHDRAW: u8 = 9;
    /// A long piece is not put where it may be: that has another length.
    pub(crate) const LENGTH: u8 = 10;
}

/// About the bytes of a message.
pub(crate) mod flag {
    /// The message begins.
    pub(crate) const FIRST: u8 = 1;
    /// It ends.
    pub(crate) const LAST: u8 = 2;
    /// Bytes that were packed to be read later.
    pub(crate) const LATER: u8 = 4;
    /// The sender gave the message up.
    pub(crate) const ABANDONED: u8 = 8;
    /// Of counters: the sender leaves, and waits to hear the receiver's.
    pub(crate) const LEAVING: u8 = 16;
}

/// Bytes of a long piece, as the end that says so has it: before the places that it names, or alone.
pub(crate) type Length = U64;

/// A place of a long piece, on one rail: to be put there, or to be read.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Grant {
    /// The rail.
    pub(crate) rail: U32,
    /// How its port names the place.
    pub(crate) token: [u8; 16],
}

impl Header {
    /// Of the packet that lies there; `None` when it has no header, or not the bytes that it says.
    ///
    /// # Safety
    /// The span is valid memory that nobody writes meanwhile.
    #[inline]
    pub(crate) unsafe fn read(packet: Span) -> Option<Self> {
        if packet.len < HEADER {
            return None;
        }
        // SAFETY: there are as many bytes, of which any make a header.
        let header = unsafe { packet.start.cast::<Self>().read_unaligned() };
        (usize::from(header.len.get()) == packet.len - HEADER).then_some(header)
    }

    /// Stores it at the span's beginning.
    ///
    /// # Safety
    /// The span is valid memory of at least [`HEADER`] bytes, and nobody else touches it meanwhile.
    #[inline]
    pub(crate) unsafe fn write(&self, packet: Span) {
        debug_assert!(packet.len >= HEADER);
        // SAFETY: the caller's promise.
        unsafe { packet.start.cast::<Self>().write_unaligned(*self) };
    }
}

/// Whether a counter that goes round is before another.
#[inline]
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Takes over a counter of 16 bits that has not gone back.
#[inline]
pub(crate) fn advance(counter: &mut u16, to: u16) {
    if (to.wrapping_sub(*counter) as i16) > 0 {
        *counter = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_go_round() {
        assert!(is_before(u32::MAX, 0) && is_before(3, 4) && !is_before(4, 4) && !is_before(0, u32::MAX));
        let mut counter = u16::MAX - 1;
        advance(&mut counter, 2);
        assert_eq!(counter, 2);
        advance(&mut counter, u16::MAX);
        assert_eq!(counter, 2);
    }

    #[test]
    fn a_packet_says_how_long_it_is() {
        assert_eq!(HEADER, 24);
        let mut bytes = [0; HEADER + 3];
        let header = Header { kind: kind::DATA, len: 3.into(), ..Header::default() };
        // SAFETY: memory of this function's.
        let read = unsafe {
            header.write(Span::of_mut(&mut bytes));
            [
                Header::read(Span::of(&bytes)),
                Header::read(Span::of(&bytes[..HEADER + 2])),
                Header::read(Span::of(&bytes[..9])),
            ]
        };
        assert!(read[0].is_some() && read[1].is_none() && read[2].is_none());
    }

    #[test]
    fn both_counters_go_in_a_word() {
        let short = Short { data_freed: 0xfedc, control_freed: 0x1234 };
        assert_eq!(u32::from(short), 0x1234_fedc);
        assert_eq!(Short::from(0x1234_fedc), short);
    }

    #[test]
    fn the_short_header_is_told_from_the_long_one() {
        let mut bytes = [0; HEADER];
        let span = Span::of_mut(&mut bytes);
        let short = Short { data_freed: 0xfedc, control_freed: 0x1234 };
        // SAFETY: memory of this function's.
        unsafe {
            short.write(span);
            assert_eq!(Short::read(span), Some(short));
            assert_eq!(Short::read(span.first(SHORT_HEADER - 1)), None);
            Header { kind: kind::DATA, ..Header::default() }.write(span);
            assert_eq!(Short::read(span), None);
        }
    }
}
