//! What messages look like: a header of 16 bytes, then a payload by command, all in the byte order of the host.

mod payload;
mod region_info;
mod version;

pub use payload::*;
pub use region_info::RegionAreas;
pub use version::{Capabilities, Proposal, VersionError};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Commands, by their numbers.
pub mod command {
    /// Negotiation, first of all.
    pub const VERSION: u16 = 1;
    /// Memory that the device may access.
    pub const DMA_MAP: u16 = 2;
    /// Memory that it may access no longer.
    pub const DMA_UNMAP: u16 = 3;
    /// What the device is.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// What a region is.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Eventfds that stand for writes to a region.
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    /// What an interrupt kind is.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Routes, masks and triggers interrupts.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Reads a region.
    pub const REGION_READ: u16 = 9;
    /// Writes a region.
    pub const REGION_WRITE: u16 = 10;
    /// The device reads the client's memory.
    pub const DMA_READ: u16 = 11;
    /// The device writes the client's memory.
    pub const DMA_WRITE: u16 = 12;
    /// Resets the device.
    pub const DEVICE_RESET: u16 = 13;
    /// Several short region writes at once.
    pub const REGION_WRITE_MULTI: u16 = 15;

    /// A command in words.
    pub fn name(command: u16) -> &'static str {
        match command {
            VERSION => "VERSION",
            DMA_MAP => "DMA_MAP",
            DMA_UNMAP => "DMA_UNMAP",
            DEVICE_GET_INFO => "DEVICE_GET_INFO",
            DEVICE_GET_REGION_INFO => "DEVICE_GET_REGION_INFO",
            DEVICE_GET_REGION_IO_FDS => "DEVICE_GET_REGION_IO_FDS",
            DEVICE_GET_IRQ_INFO => "DEVICE_GET_IRQ_INFO",
            DEVICE_SET_IRQS => "DEVICE_SET_IRQS",
            REGION_READ => "REGION_READ",
            REGION_WRITE => "REGION_WRITE",
            DMA_READ => "DMA_READ",
            DMA_WRITE => "DMA_WRITE",
            DEVICE_RESET => "DEVICE_RESET",
            REGION_WRITE_MULTI => "REGION_WRITE_MULTI",
            _ => "an unknown command",
        }
    }
}

/// The message before it is a reply: [`Header::flags`].
pub mod flags {
    /// The bits that say what kind of message it is.
    pub const TYPE: u32 = 0xf;
    /// A command.
    pub const COMMAND: u32 = 0;
    /// A reply.
    pub const REPLY: u32 = 1;
    /// A command that is not replied to.
    pub const NO_REPLY: u32 = 1 << 4;
    /// A reply to a command that failed.
    pub const ERROR: u32 = 1 << 5;
}

/// Indices of a PCI device's regions, as VFIO counts them.
pub mod region {
    /// Base address registers 0 to 5 come first.
    pub const BARS: u32 = 6;
    /// The expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// Legacy VGA ranges.
    pub const VGA: u32 = 8;
    /// How many there are.
    pub const COUNT: u32 = 9;
}

/// Indices of a PCI device's interrupt kinds, as VFIO counts them.
pub mod irq {
    /// The level-triggered pin.
    pub const INTX: u32 = 0;
    /// Message signalled.
    pub const MSI: u32 = 1;
    /// Message signalled, extended.
    pub const MSIX: u32 = 2;
    /// Error reports.
    pub const ERROR: u32 = 3;
    /// A request to give the device up.
    pub const REQUEST: u32 = 4;
    /// How many there are.
    pub const COUNT: u32 = 5;
}

/// Bytes of a header.
pub const HEADER: usize = size_of::<Header>();

/// Most bytes of data that one message moves, unless less was negotiated.
pub const MAX_DATA: usize = 1 << 20;

/// Most bytes behind a header that either side of ours takes: the data and what describes it, with room to spare.
pub const MAX_BODY: usize = MAX_DATA + 4096;

/// Most file descriptors that one message may carry to us.
pub const MAX_FDS: usize = 64;

/// Most that we ask for: QEMU takes a greater number for a malformed one.
pub const ADVERTISED_FDS: usize = 16;

/// The first 16 bytes of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Chosen by the sender of a command, and echoed in its reply.
    pub id: u16,
    /// See [`command`].
    pub command: u16,
    /// Bytes of the whole message.
    pub size: u32,
    /// See [`flags`].
    pub flags: u32,
    /// In a reply with [`flags::ERROR`]: the errno, or 0 where there is none.
    pub error: u32,
}

impl Header {
    /// The header of a command with `body` bytes behind it.
    pub fn command(id: u16, command: u16, body: usize) -> Self {
        Self { id, command, size: (HEADER + body) as u32, flags: flags::COMMAND, error: 0 }
    }

    /// The header of the reply to `self` with `body` bytes behind it.
    pub fn reply(&self, body: usize) -> Self {
        Self { size: (HEADER + body) as u32, flags: flags::REPLY, error: 0, ..*self }
    }

    /// The header of the reply to `self` that says that it failed.
    pub fn error_reply(&self, errno: i32) -> Self {
        let flags = flags::REPLY | flags::ERROR;
        Self { size: HEADER as u32, flags, error: errno.unsigned_abs(), ..*self }
    }

    /// Whether it is a command (and not a reply, or neither).
    pub fn is_command(&self) -> bool {
        self.flags & flags::TYPE == flags::COMMAND
    }

    /// Whether it is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & flags::TYPE == flags::REPLY
    }

    /// Whether the sender waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.flags & flags::NO_REPLY == 0
    }
}
