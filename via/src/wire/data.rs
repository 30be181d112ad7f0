//! Frames of a connection: data and acknowledgements. See the module above for the layout.

use uvia_driver::nic::RxFrame;

use super::{FIXED, Words, crc, put_u32, put_u64, u32_at, u64_at};

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
/// Asks for an RDMA read: extension of 16 bytes, and no payload.
pub(crate) const READ: u16 = 0x80;
/// Part of the answer to an RDMA read.
pub(crate) const ANSWER: u16 = 0x100;
/// On an acknowledgement alone: the next frame came, and was not taken, since no receive is posted for it.
pub(crate) const NOT_READY: u16 = 0x200;
/// Part of a frame that is sent again in several, since it was too long for the way: all have its number.
pub(crate) const PART: u16 = 0x400;
/// With PART: more of that frame follows.
pub(crate) const MORE: u16 = 0x800;
pub(super) const KNOWN: u16 = 0xfff;

/// Longest header: the fixed part and all extensions.
pub(crate) const MAX_HEADER: usize = FIXED + 32;
/// Longest header of a message that is neither RDMA nor of an answer.
pub(crate) const MAX_SEND_HEADER: usize = FIXED + 16;
/// Most bytes that a header of a data frame takes from the payload of an Ethernet frame, without the check.
pub(crate) const OVERHEAD: usize = MAX_HEADER - super::ETHERNET;

/// Bytes of the extensions that the flags name.
#[inline]
pub(crate) fn extension_bytes(flags: u16) -> usize {
    let flags = flags as usize;
    // One shift for each: 0x08 is 8 bytes, 0x02 -> 4, 0x04 -> 16, 0x80 -> 16, 0x10 -> 4.
    (flags & 0x08)
        + ((flags & 0x02) << 1)
        + ((flags & 0x04) << 2)
        + ((flags & 0x80) >> 3)
        + ((flags & 0x10) >> 2)
}

/// A window where it is in the third word.
pub(crate) fn window(frames: u16) -> u64 {
    u64::from(frames) << 48
}

/// The fields of the fixed part. A frame that is made has slot and identity from its [`Route`].
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
    #[inline(always)]
    pub(crate) fn read(head: &Words) -> Self {
        let [_, _, lengths, identity, numbers, place] = *head;
        Self {
            flags: lengths as u16,
            slot: (lengths >> 16) as u16,
            payload: (lengths >> 32) as u16,
            window: (lengths >> 48) as u16,
            identity,
            sequence: numbers as u32,
            ack: (numbers >> 32) as u32,
            message: place as u32,
            offset: (place >> 32) as u32,
        }
    }

    /// The fixed part of a frame to where `self` says, from and to the stations of `route`.
    #[inline(always)]
    pub(crate) fn words(&self, route: &Route, kind: u8) -> Words {
        [
            route.stations[0],
            route.stations[1] | u64::from(kind) << 56,
            u64::from(self.flags)
                | u64::from(route.slot) << 16
                | u64::from(self.payload) << 32
                | u64::from(self.window) << 48,
            route.identity,
            u64::from(self.sequence) | u64::from(self.ack) << 32,
            u64::from(self.message) | u64::from(self.offset) << 32,
        ]
    }

    /// As [`Fixed::words`], with room for extensions behind.
    pub(crate) fn header(&self, route: &Route, kind: u8) -> [u8; MAX_HEADER] {
        let mut header = [0; MAX_HEADER];
        header[..FIXED].copy_from_slice(&super::bytes(&self.words(route, kind)));
        header
    }

    /// Whether flags and lengths fit together and the frame has room for them.
    #[inline]
    pub(crate) fn is_sound(&self, kind: u8, frame_len: usize) -> bool {
        let flags = self.flags;
        if flags & !KNOWN != 0 || frame_len < FIXED + extension_bytes(flags) + self.payload as usize {
            return false;
        }
        if kind == DATA {
            let one_kind = match flags & (READ | ANSWER) {
                0 => true,
                READ => flags & (WRITE | IMMEDIATE | LAST) == LAST && self.payload == 0,
                ANSWER => flags & (WRITE | IMMEDIATE) == 0,
                _ => false,
            };
            let part = match flags & (PART | MORE) {
                0 => true,
                PART => flags & READ == 0 && self.payload != 0,
                // The last one of a message is the last one of its frame.
                _ => flags & PART != 0 && flags & (READ | LAST) == 0,
            };
            // Immediate data ends a message, and no frame but a message's only one is empty.
            one_kind
                && part
                && flags & NOT_READY == 0
                && flags & (LAST | IMMEDIATE) != IMMEDIATE
                && (self.payload != 0 || (flags & LAST != 0 && self.offset == 0))
                && self.offset.checked_add(u32::from(self.payload)).is_some()
        } else {
            flags & (LAST | IMMEDIATE | WRITE | READ | ANSWER | DRY | PART | MORE) == 0
                && self.payload == 0
                && self.message == 0
                && self.offset == 0
        }
    }
}

/// What a frame that is a whole message, and says nothing else, has in its second and third words, but for its length and
/// whether more is to come: two looks for version, kind, station, flags, slot and window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    second: u64,
    /// While nothing is expected it has some of the bits that vary, so that it is no frame's.
    third: u64,
}

/// Of the third word: the length, and whether more is to come.
const VARIES: u64 = DRY as u64 | 0xffff << 32;

impl Expected {
    /// No frame.
    pub(crate) const NOTHING: Self = Self { second: 0, third: VARIES };

    /// Frames to a slot, from that station, which takes so many frames unacknowledged.
    pub(crate) fn new(from: [u8; 6], slot: u16, frames: u32) -> Self {
        let mut start = [0; 16];
        super::put_start(&mut start, [0; 6], from, DATA);
        let third = u64::from(LAST) | u64::from(slot) << 16 | window(frames as u16);
        Self { second: u64_at(&start, 8), third }
    }

    /// What a frame differs by from such a one, of that connection, with that number, which is all of that message: 0 if by
    /// nothing. Not look by look, as each would be a branch of its own, and these are what costs most of it.
    #[inline(always)]
    pub(crate) fn differs(&self, head: &Words, identity: u64, sequence: u32, message: u32) -> u64 {
        (head[1] ^ self.second)
            | (head[2] & !VARIES ^ self.third)
            | (head[3] ^ identity)
            | u64::from(head[4] as u32 ^ sequence)
            | (head[5] ^ u64::from(message))
    }
}

/// What stays the same for all frames of a connection in one direction: stations, signature, slot and identity.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Route {
    /// The first two words, without the kind.
    stations: [u64; 2],
    identity: u64,
    slot: u16,
    /// The second word of data frames.
    second: u64,
    /// The third word of a message that is one frame and the last of its queue, without window and length.
    third: u64,
}

impl Route {
    /// To the interface with that slot and identity.
    pub(crate) fn new(to: [u8; 6], from: [u8; 6], slot: u16, identity: u64) -> Self {
        let mut start = [0; 16];
        super::put_start(&mut start, to, from, 0);
        let stations = [u64_at(&start, 0), u64_at(&start, 8)];
        Self {
            stations,
            identity,
            slot,
            second: stations[1] | u64::from(DATA) << 56,
            third: u64::from(LAST | DRY) | u64::from(slot) << 16,
        }
    }

    /// The fixed part of a message that is one frame and the last of its queue: what [`Fixed::words`] makes of the same
    /// fields.
    #[inline(always)]
    pub(crate) fn short(&self, window: u64, len: u32, sequence: u32, ack: u32, message: u32) -> Words {
        [
            self.stations[0],
            self.second,
            self.third | u64::from(len as u16) << 32 | window,
            self.identity,
            u64::from(sequence) | u64::from(ack) << 32,
            u64::from(message),
        ]
    }
}

/// Memory of the receiver that an RDMA transfer goes to or comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Remote {
    /// Where the whole transfer begins.
    pub address: u64,
    /// The region's handle.
    pub handle: u32,
    /// Bytes of the whole transfer.
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
        if flags & (WRITE | READ) != 0 {
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
        if flags & (WRITE | READ) != 0 {
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
