//! What two ends tell each other when a link is made.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0x3256_4d55;

/// What an end says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    magic: U32,
    /// The sender's rank.
    pub rank: U32,
    /// The channel.
    pub channel: U32,
    /// Bytes of a packet.
    pub packet_bytes: U32,
    /// Packets with bytes that it holds for us.
    pub window: U32,
    /// From how many bytes on a piece is long.
    pub threshold: U32,
    /// 1: messages are described.
    pub described: U32,
    /// Rails that it asks for, a bit each.
    pub rails: U32,
    /// 1: it can read memory that is offered, and offer some.
    pub reads: U32,
    /// Where it is not 0, this is about one more way from who asks on a link that is there already, for packets of so many
    /// bytes.
    pub inline: U32,
    /// The session's name, as a number.
    pub session: U64,
}

impl Hello {
    /// An end's.
    pub(crate) fn new(
        session: &str,
        rank: usize,
        channel: usize,
        packet_bytes: usize,
        window: usize,
        threshold: usize,
        described: bool,
    ) -> Self {
        let number = |n: usize| U32::new(u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            magic: MAGIC.into(),
            rank: number(rank),
            channel: number(channel),
            packet_bytes: number(packet_bytes),
            window: number(window),
            threshold: number(threshold),
            described: u32::from(described).into(),
            rails: 0.into(),
            reads: 1.into(),
            inline: 0.into(),
            session: fingerprint(session).into(),
        }
    }

    /// What came, if it is one of this session.
    pub(crate) fn read(bytes: &[u8], session: &str) -> Option<Self> {
        let (hello, _) = Self::read_from_prefix(bytes).ok()?;
        (hello.magic == MAGIC && hello.session == fingerprint(session)).then_some(hello)
    }
}

/// FNV-1a: tells sessions apart that met by mistake, and keeps nobody out.
fn fingerprint(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_another_session_are_not_known() {
        let hello = Hello::new("one", 1, 2, 3, 4, 5, true);
        assert_eq!(Hello::read(hello.as_bytes(), "one"), Some(hello));
        assert_eq!(Hello::read(hello.as_bytes(), "two"), None);
        assert_eq!(Hello::read(&hello.as_bytes()[1..], "one"), None);
    }
}
