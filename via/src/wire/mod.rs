//! The frames of uvia on Ethernet, version 1.
//!
//! Ethernet II with the local experimental EtherType 0x88B5. Integers are little-endian: both ends of nearly every
//! wire are, and a header is then made and read by plain stores and loads. All fields of the fixed part lie at
//! their natural alignment, counted from the frame's first byte. A frame may be padded at its end.
//!
//! ```text
//!  0 destination (6)   6 source (6)   12 88 B5   14 version (1)   15 kind (1)     every frame begins so
//!
//! kinds Data and Ack: frames of a connection
//! 16 flags (2)         18 slot (2): the destination's table index    20 payload bytes (2)
//! 22 window (2): frames that the sender of this one takes unacknowledged
//! 24 identity (8): 64 random bits that the destination chose for this connection
//! 32 sequence (4)      36 acknowledgement (4): all frames before it have arrived
//! 40 message (4)       44 offset in the message (4)
//! 48 extensions, those that the flags name, in this order:
//!    selective acknowledgement (8): bit n is frame acknowledgement + 1 + n
//!    immediate data (4), with the last frame of a message only
//!    remote memory (16): address (8), handle (4), bytes of the whole RDMA transfer (4)
//!    CRC32C (4) over all from byte 14 to the payload's end, itself taken as 0
//!    then the payload
//!
//! other kinds: management
//! 16 bytes from 14 to the end (2)   18 slot (2)   20 CRC32C (4), as above
//! 24 the destination's identity (8), 0 where it has none yet     32 the sender's identity (8)
//! 40 the sender's station address (6): what the CRC covers is trusted, not the Ethernet header   46 zero (2)
//! 48 what the kind says, see the control module
//! ```
//!
//! Every frame of a connection has a sequence number of its own, acknowledgements have not. A message number
//! counts the peer's receives: message n goes to the nth receive posted since the connection was made, so that a
//! frame which comes early still finds its place. An RDMA write names its memory in every frame for the same
//! reason.
//!
//! An RDMA read is asked for by one frame without payload, and answered by a message of its own in the stream of the
//! other direction, between two others. In an answer the message number counts the reads of the connection, from 0 on.
//!
//! A frame counts only when slot and identity are those of a live connection: what is left over from an old one,
//! or sent by somebody who cannot read the wire, is not let in.

pub(crate) mod control;
pub(crate) mod crc;
pub(crate) mod data;
#[cfg(test)]
pub(crate) mod document;

/// Bytes of the Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// The part that all frames have; shorter ones are no frames of ours.
pub(crate) const FIXED: usize = 48;
/// Local experimental EtherType 1 (IEEE 802), as the bytes lie on the wire, then the version.
const SIGNATURE: [u8; 3] = [0x88, 0xb5, 1];

/// The first 48 bytes of a frame as the little-endian words that they are read and written in.
pub(crate) type Words = [u64; FIXED / 8];

/// EtherType and version, as they lie in the upper half of word 1, below the kind.
const SIGNATURE_BITS: u64 =
    (SIGNATURE[0] as u64) << 32 | (SIGNATURE[1] as u64) << 40 | (SIGNATURE[2] as u64) << 48;

/// The bits of word 1 that say that a frame is ours, and of which kind.
pub(crate) const SIGNATURE_AND_KIND: u64 = 0xffff_ffff_0000_0000;

/// These bits of a frame of that kind.
#[inline(always)]
pub(crate) fn signature(kind: u8) -> u64 {
    SIGNATURE_BITS | u64::from(kind) << 56
}

/// The kind of a frame; none for frames that are not ours or of another version.
#[inline(always)]
pub(crate) fn kind(head: &Words) -> Option<u8> {
    (head[1] & 0x00ff_ffff_0000_0000 == SIGNATURE_BITS).then_some((head[1] >> 56) as u8)
}

/// Writes all that comes before a frame's own fields.
pub(crate) fn put_start(frame: &mut [u8], to: [u8; 6], from: [u8; 6], kind: u8) {
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..15].copy_from_slice(&SIGNATURE);
    frame[15] = kind;
}

// Fields are read and written as arrays, which compiles to one load or store; slices would be copied by a call.

/// A field of a frame; all zero beyond its end, which no caller reads.
#[inline(always)]
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

#[inline(always)]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

/// Writes a field of a frame that is long enough for it.
#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *field = value;
    }
}

#[inline(always)]
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, value.to_le_bytes());
}

#[inline(always)]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, value.to_le_bytes());
}

#[inline(always)]
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, value.to_le_bytes());
}

/// The stations that a frame goes to and comes from.
pub(crate) fn stations(head: &Words) -> ([u8; 6], [u8; 6]) {
    let bytes = bytes(head);
    (mac_at(&bytes, 0), mac_at(&bytes, 6))
}

/// The words that the bytes are.
pub(crate) fn words(bytes: &[u8; FIXED]) -> Words {
    std::array::from_fn(|n| u64_at(bytes, 8 * n))
}

/// A station address in a frame.
pub(crate) fn mac_at(bytes: &[u8], at: usize) -> [u8; 6] {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes[at..at + 6]);
    mac
}

/// The words as the bytes that they stand for.
pub(crate) fn bytes(words: &Words) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    for (field, word) in bytes.chunks_exact_mut(8).zip(words) {
        field.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
