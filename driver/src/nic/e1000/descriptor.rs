//! Legacy descriptors (8254x manual, 3.2.3 and 3.3.3): a buffer address, and one word that the device writes
//! back. Each word is read and written in one access, so that status and length always belong together.

use bitflags::bitflags;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a descriptor.
pub const SIZE: usize = 16;
/// Offset of the word behind the address.
pub const WORD: usize = 8;

/// Second word of a transmit descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TxWord {
    pub length: U16,
    /// Checksum offset; unused.
    pub cso: u8,
    pub cmd: u8,
    /// Written back by the device when RS was set.
    pub status: u8,
    /// Checksum start; unused.
    pub css: u8,
    pub special: U16,
}

/// Second word of a receive descriptor, all of it written by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RxWord {
    pub length: U16,
    pub checksum: U16,
    pub status: u8,
    pub errors: u8,
    pub special: U16,
}

bitflags! {
    /// TDESC.CMD.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TxCommand: u8 {
        /// End of packet.
        const EOP = 1 << 0;
        /// Insert the check sequence.
        const IFCS = 1 << 1;
        /// Report status.
        const RS = 1 << 3;
    }

    /// RDESC.Errors: those by which a frame is dropped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RxError: u8 {
        /// CRC or alignment error.
        const CE = 1 << 0;
        /// Symbol error.
        const SE = 1 << 1;
        /// Sequence error.
        const SEQ = 1 << 2;
        /// Carrier extension error.
        const CXE = 1 << 4;
        /// Receive data error.
        const RXE = 1 << 7;
    }
}

/// Descriptor done, in the status of both kinds.
pub const DD: u8 = 1 << 0;
/// End of packet, in a receive descriptor's status.
pub const EOP: u8 = 1 << 1;

impl TxWord {
    pub fn to_memory(self) -> u64 {
        zerocopy::transmute!(self)
    }

    pub fn from_memory(word: u64) -> Self {
        zerocopy::transmute!(word)
    }
}

impl RxWord {
    pub fn from_memory(word: u64) -> Self {
        zerocopy::transmute!(word)
    }

    /// For the device's side in tests.
    #[cfg(test)]
    pub fn to_memory(self) -> u64 {
        zerocopy::transmute!(self)
    }
}
