//! Descriptions that go along with a message, where a session was opened to have them.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ReceiveMode, SendMode};

/// What a piece was packed as. It goes before the piece, and one more ends the message.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Description {
    position: U32,
    send: u8,
    receive: u8,
    _reserved: [u8; 2],
    len: U64,
}

impl Description {
    pub(super) fn of(position: usize, len: usize, send: SendMode, receive: ReceiveMode) -> Self {
        Self {
            position: (position as u32).into(),
            send: send as u8,
            receive: receive as u8,
            _reserved: [0; 2],
            len: (len as u64).into(),
        }
    }

    /// Of the end, which is no piece.
    pub(super) fn end(position: usize) -> Self {
        Self { position: (position as u32).into(), ..Self::default() }
    }
}

impl std::fmt::Display for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (SendMode::from_number(self.send), ReceiveMode::from_number(self.receive)) {
            (Some(send), Some(receive)) => write!(f, "{} bytes, {send:?} and {receive:?}", self.len),
            (None, None) if self.len == 0 => f.write_str("the message's end"),
            _ => f.write_str("something that is no description"),
        }
    }
}
