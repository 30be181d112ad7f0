//! Frames of a connection: data and acknowledgements. See the module above for the layout.

use uvia_driver::nic::RxFrame;

use super::{FIXED, crc, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// A part of a message.
pub(crate) const DATA: u8 = 1;
/// An acknowledgement alone.
pub(crate) const ACK: u8 = 2;

/// The message ends with this frame.
pub(crate) const LAST: u16 = 0x01;
/// Immediate data: extension of 4 bytes.
pub(crate) const IMMEDIATE: u16 = 0x02;
/// Part of an RDMA write: extension of 16 bytes.
pub(crate) const WRITE: u16 = 0x04;
/// Selective acknowledgement: extension of 8 bytes.
pub(crate) const SACK: u16 = 0x08;
/// End-to-end check: extension of 4 bytes.
pub(crate) const CRC: u16 = 0x10;
/// The sender has nothing more to send: do not wait long for company of the acknowledgement.
pub(crate) const DRY: u16 = 0x20;
/// The sender waits for the acknowledgement: answer at once.
pub(crate) const NOW: u16 = 0x40;
const KNOWN: u16 = 0x7f;

/// Longest header: the fixed part and all extensions.
pub(crate) const MAX_HEADER: usize = FIXED + 32;
/// Most bytes that a header of a data frame takes from the payload of an Ethernet frame, without the check.
pub(crate) const OVERHEAD: usize = MAX_HEADER - super::ETHERNET;

const FLAGS_AT: usize = 16;
const SLOT_AT: usize = 18;
const PAYLOAD_AT: usize = 20;
const WINDOW_AT: usize = 22;
const IDENTITY_AT: usize = 24;
const SEQUENCE_AT: usize = 32;
const ACK_AT: usize = 36;
const MESSAGE_AT: usize = 40;
const OFFSET_AT: usize = 44;

/// Bytes of the extensions that the flags name.
#[inline]
pub(crate) fn extension_bytes(flags: u16) -> usize {
    let flags = flags as usize;
    // One shift for each: 0x08 is 8 bytes, 0x02 -> 4, 0x04 -> 16, 0x10 -> 4.
    (flags & 0x08) + ((flags & 0x02) << 1) + ((flags & 0x04) << 2) + ((flags & 0x10) >> 2)
}

/// The fixed part, as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fixed {
    pub flags: u16,
    pub slot: u16,
    pub payload: u16,
    pub window: u16,
    pub identity: u64,
    pub sequence: u32,
    pub ack: u32,
    pub message: u32,
    pub offset: u32,
}

impl Fixed {
    /// Reads the fields.
    #[inline]
    pub(crate) fn read(head: &[u8; FIXED]) -> Self {
        Self {
            flags: u16_at(head, FLAGS_AT),
            slot: u16_at(head, SLOT_AT),
            payload: u16_at(head, PAYLOAD_AT),
            window: u16_at(head, WINDOW_AT),
            identity: u64_at(head, IDENTITY_AT),
            sequence: u32_at(head, SEQUENCE_AT),
            ack: u32_at(head, ACK_AT),
            message: u32_at(head, MESSAGE_AT),
            offset: u32_at(head, OFFSET_AT),
        }
    }

    /// Whether flags and lengths fit together and the frame has room for them.
    #[inline]
    pub(crate) fn is_sound(&self, kind: u8, frame_len: usize) -> bool {
        let flags = self.flags;
        if flags & !KNOWN != 0 || frame_len < FIXED + extension_bytes(flags) + self.payload as usize {
            return false;
        }
        if kind == DATA {
            // Immediate data ends a message, and no frame but a message's only one is empty.
            flags & (LAST | IMMEDIATE) != IMMEDIATE
                && (self.payload != 0 || (flags & LAST != 0 && self.offset == 0))
                && self.offset.checked_add(u32::from(self.payload)).is_some()
        } else {
            flags & (LAST | IMMEDIATE | WRITE | DRY) == 0
                && self.payload == 0
                && self.message == 0
                && self.offset == 0
        }
    }

    /// Writes the fields that change from frame to frame: kind, flags, payload bytes, window, numbers.
    #[inline]
    pub(crate) fn put(&self, header: &mut [u8; MAX_HEADER], kind: u8) {
        header[15] = kind;
        put_u16(header, FLAGS_AT, self.flags);
        put_u16(header, PAYLOAD_AT, self.payload);
        put_u16(header, WINDOW_AT, self.window);
        put_u32(header, SEQUENCE_AT, self.sequence);
        put_u32(header, ACK_AT, self.ack);
        put_u32(header, MESSAGE_AT, self.message);
        put_u32(header, OFFSET_AT, self.offset);
    }
}

/// Writes what stays the same for all frames of a connection.
pub(crate) fn put_connection(
    header: &mut [u8; MAX_HEADER],
    to: [u8; 6],
    from: [u8; 6],
    slot: u16,
    identity: u64,
) {
    super::put_start(header, to, from, DATA);
    put_u16(header, SLOT_AT, slot);
    put_u64(header, IDENTITY_AT, identity);
}

/// Memory of the receiver that an RDMA write goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Remote {
    /// Where the whole write begins.
    pub address: u64,
    /// The region's handle.
    pub handle: u32,
    /// Bytes of the whole write.
    pub total: u32,
}

/// The extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extensions {
    /// 0 without.
    pub sack: u64,
    /// 0 without.
    pub immediate: u32,
    /// All 0 without.
    pub remote: Remote,
}

impl Extensions {
    /// Reads what `flags` name from a frame that [`Fixed::is_sound`].
    #[inline]
    pub(crate) fn read(flags: u16, frame: &RxFrame<'_>) -> Option<Self> {
        let mut parsed = Self::default();
        let mut at = FIXED;
        if flags & SACK != 0 {
            let mut field = [0; 8];
            if !frame.read(at, &mut field) {
                return None;
            }
            parsed.sack = u64::from_le_bytes(field);
            at += 8;
        }
        if flags & IMMEDIATE != 0 {
            let mut field = [0; 4];
            if !frame.read(at, &mut field) {
                return None;
            }
            parsed.immediate = u32::from_le_bytes(field);
            at += 4;
        }
        if flags & WRITE != 0 {
            let mut field = [0; 16];
            if !frame.read(at, &mut field) {
                return None;
            }
            parsed.remote =
                Remote { address: u64_at(&field, 0), handle: u32_at(&field, 8), total: u32_at(&field, 12) };
        }
        Some(parsed)
    }

    /// Writes what `flags` name, the check as 0; answers the header's length.
    #[inline]
    pub(crate) fn put(&self, header: &mut [u8; MAX_HEADER], flags: u16) -> usize {
        let mut at = FIXED;
        if flags & SACK != 0 {
            put_u64(header, at, self.sack);
            at += 8;
        }
        if flags & IMMEDIATE != 0 {
            put_u32(header, at, self.immediate);
            at += 4;
        }
        if flags & WRITE != 0 {
            put_u64(header, at, self.remote.address);
            put_u32(header, at + 8, self.remote.handle);
            put_u32(header, at + 12, self.remote.total);
            at += 16;
        }
        if flags & CRC != 0 {
            put_u32(header, at, 0);
            at += 4;
        }
        at
    }
}

/// Whether a frame that [`Fixed::is_sound`] carries the check, and it is right.
pub(crate) fn verify(fixed: &Fixed, frame: &RxFrame<'_>) -> bool {
    if fixed.flags & CRC == 0 {
        return false;
    }
    let mut header = [0; MAX_HEADER];
    let len = FIXED + extension_bytes(fixed.flags);
    let header = &mut header[..len];
    if !frame.read(0, header) {
        return false;
    }
    let found = u32_at(header, len - 4);
    put_u32(header, len - 4, 0);
    crc::of_frame(header, frame, fixed.payload as usize) == Some(found)
}
