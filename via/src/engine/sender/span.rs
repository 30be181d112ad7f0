//! How long the frames of a connection may be: what the network surely carries, what both adapters take, and what was
//! found in between.

use super::{Sender, WINDOW};
use crate::engine::{EngineConfig, Time};
use crate::wire::data;
use crate::wire::{ETHERNET, FIXED};

/// Bounds of a frame's length, as bytes after its first 14.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    /// Any network carries it.
    pub(super) sure: u16,
    /// Both adapters take it.
    pub(super) most: u16,
    /// Bytes of those before the payload, in a frame without extensions but the check.
    header: u16,
}

impl Span {
    /// For a peer that takes frames of `theirs`.
    pub(super) fn new(config: &EngineConfig, theirs: u16, integrity: bool) -> Self {
        // Neither is more than 16 bits can tell (Engine::new).
        let (sure, most) = (config.mtu as u16, config.largest as u16);
        let check = if integrity { data::extension_bytes(data::CRC) } else { 0 };
        Self { sure: theirs.min(sure), most: theirs.min(most), header: (FIXED - ETHERNET + check) as u16 }
    }

    /// Payload of frames of that length, or of the next that there may be. No offer is sound that leaves none.
    pub(super) fn room(&self, mtu: u16) -> u32 {
        u32::from(mtu.clamp(self.sure, self.most).saturating_sub(self.header))
    }
}

/// What was found of the way to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing: no frame was longer than what any network carries.
    Sure,
    /// It carries longer ones.
    Long,
    /// It has come to carry less: frames that are too long for it are sent again in parts.
    Shrunk,
}

impl Sender {
    /// Lengths of a frame that the network surely carries, and that both adapters take: bytes after its first 14.
    pub(in crate::engine) fn bounds(&self) -> (u16, u16) {
        (self.span.sure, self.span.most)
    }

    /// The way to the peer carries frames of that length: new ones may be as long. It is looked again at `look_at`, unless
    /// there is nothing more to be found.
    pub(in crate::engine) fn carry(&mut self, mtu: u16, look_at: Time) {
        self.room = self.span.room(mtu);
        if mtu > self.span.sure {
            self.way = Way::Long;
        }
        self.look_at = if self.room == self.span.room(self.span.most) { Time::NEVER } else { look_at };
    }

    /// Whether the frame that the peer waits for may be longer than what any network carries, and was not cut yet: where
    /// nothing is acknowledged, that may be why.
    pub(in crate::engine) fn is_stuck_with_long(&self) -> bool {
        let longest = data::MAX_HEADER - FIXED;
        let sure = self.span.room(self.span.sure);
        let flight = &self.flights[self.una as usize % WINDOW];
        self.way == Way::Long && self.outstanding() != 0 && flight.len as usize + longest > sure as usize
    }
}
