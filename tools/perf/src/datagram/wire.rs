//! What the packets of a test say. All fields little-endian; everything that is read is checked.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Bytes of a [`Head`]: at the start of every packet's payload.
pub const HEAD: usize = 8;
/// Bytes of a [`Body`]: after the head in control packets.
const BODY: usize = 24;
/// Payload of a control packet.
pub const LEAST_CONTROL: usize = HEAD + BODY;
/// Tells our packets from others, and this layout from later ones.
const MAGIC: u8 = 0xb1;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To be echoed as [`Kind::Pong`].
    Ping = 1,
    /// The echo.
    Pong,
    /// To be counted.
    Data,
    /// Begins a test: the body has the payload's size, and whether what comes is to be kept.
    Hello,
    /// The server is ready: the body has the largest payload it can take.
    HelloAck,
    /// All data was sent: how much came?
    Finish,
    /// The answer: packets and nanoseconds from the first to the last.
    Tally,
    /// The client has no more tests.
    Bye,
    /// The server knows.
    ByeAck,
}

impl Kind {
    fn from_u8(value: u8) -> Option<Self> {
        use Kind::*;
        [Ping, Pong, Data, Hello, HelloAck, Finish, Tally, Bye, ByeAck]
            .into_iter()
            .find(|kind| *kind as u8 == value)
    }

    /// Whether a body follows.
    pub fn is_control(self) -> bool {
        !matches!(self, Kind::Ping | Kind::Pong | Kind::Data)
    }
}

/// The first bytes of a packet's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// Which test it belongs to, so that late packets of an earlier one are not taken for this one's.
    pub session: u16,
    /// Which packet of the test.
    pub sequence: u32,
}

impl Head {
    /// As it goes on the wire.
    pub fn to_bytes(self) -> [u8; HEAD] {
        let word = u64::from(self.kind as u8)
            | u64::from(MAGIC) << 8
            | u64::from(self.session) << 16
            | u64::from(self.sequence) << 32;
        word.to_le_bytes()
    }

    /// `None` when it is not ours.
    pub fn parse(bytes: [u8; HEAD]) -> Option<Self> {
        let word = u64::from_le_bytes(bytes);
        if (word >> 8) as u8 != MAGIC {
            return None;
        }
        Some(Self {
            kind: Kind::from_u8(word as u8)?,
            session: (word >> 16) as u16,
            sequence: (word >> 32) as u32,
        })
    }
}

/// The words of a control packet; what they mean depends on its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Body(pub [u64; 3]);

impl Body {
    /// As it goes on the wire.
    pub fn to_bytes(self) -> [u8; BODY] {
        let mut bytes = [0; BODY];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Any 24 bytes are a body.
    pub fn parse(bytes: [u8; BODY]) -> Self {
        let mut words = [0; 3];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*from);
        }
        Self(words)
    }
}

/// A number that an earlier run has hardly had.
pub fn new_session() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_bodies_come_back() {
        for kind in [Kind::Ping, Kind::Data, Kind::ByeAck] {
            let head = Head { kind, session: 0xfeed, sequence: 0x1234_5678 };
            assert_eq!(Head::parse(head.to_bytes()), Some(head));
        }
        let body = Body([1, u64::MAX, 3 << 40]);
        assert_eq!(Body::parse(body.to_bytes()), body);
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        assert_eq!(Head::parse([0; HEAD]), None);
        assert_eq!(Head::parse([0xff; HEAD]), None);
        assert_eq!(Head::parse([1, 0xb2, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Head::parse([10, 0xb1, 0, 0, 0, 0, 0, 0]), None);
    }
}
