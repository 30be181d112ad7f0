//! Management frames: making and ending connections, and names.
//!
//! ```text
//! Request, Accept, Peer
//!                   48 sender's slot (2)   50 level (1)   51 rights (1): 1 RDMA write, 2 RDMA read, 4 wants the check
//!                   52 longest transfer (4)   56 first sequence number (4)   60 window (2)   62 MTU (2)
//!                   64 bytes of local, remote discriminator, private data (1 + 1 + 1)
//!                   67 quality of service (1)   68 these bytes
//! Reject            48 bytes of private data (1), zero (3)   52 these bytes
//! Close             48 reason (1), zero (3)   52 acknowledgement (4)
//! Query, Answer     48 bytes of the name (1), zero (3)   52 these bytes; the sender's identity is a nonce that
//!                   the answer gives back as the destination's
//! Probe, Probed     48 number (4)   52 bytes of the probe from 14 on (2), zero (2)
//! NoMatch, Cancel, Closed, Reset: nothing more
//! ```
//!
//! Peer is both request and acceptance between two that ask each other: with the destination's identity 0 it asks, with
//! the destination's identity it says that the two have met.

use super::{FIXED, mac_at, put_start, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::engine::{MAX_NAME, MAX_PRIVATE_DATA, MAX_TRANSFER};
use crate::{NetAddress, ReliabilityLevel};

/// Kinds are these numbers.
const REQUEST: u8 = 16;
const ACCEPT: u8 = 17;
const REJECT: u8 = 18;
const NO_MATCH: u8 = 19;
const CANCEL: u8 = 20;
const CLOSE: u8 = 21;
const CLOSED: u8 = 22;
const RESET: u8 = 23;
const QUERY: u8 = 24;
const ANSWER: u8 = 25;
const PEER: u8 = 26;
const PROBE: u8 = 27;
const PROBED: u8 = 28;

const LENGTH_AT: usize = 16;
const SLOT_AT: usize = 18;
const CRC_AT: usize = 20;
const IDENTITY_AT: usize = 24;
const SENDER_AT: usize = 32;
const MAC_AT: usize = 40;
const ZERO_AT: usize = 46;

/// Longest management frame.
pub(crate) const MAX_CONTROL: usize = 68 + 2 * NetAddress::MAX_DISCRIMINATOR + MAX_PRIVATE_DATA;
/// Shortest Ethernet frame without its check sequence: shorter ones are padded.
const SHORTEST: usize = 60;

/// What all management frames have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub to: [u8; 6],
    pub from: [u8; 6],
    pub slot: u16,
    pub identity: u64,
    pub sender: u64,
}

/// What an interface offers to its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer<'a> {
    pub slot: u16,
    pub level: ReliabilityLevel,
    pub rdma_write: bool,
    pub rdma_read: bool,
    pub integrity: bool,
    pub max_transfer_size: u32,
    pub qos: u8,
    pub first_sequence: u32,
    pub window: u16,
    pub mtu: u16,
    pub local: &'a [u8],
    pub remote: &'a [u8],
    pub private_data: &'a [u8],
}

/// Why a connection is closed, as the closer says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CloseReason {
    Disconnected = 0,
    ReceiveQueueEmpty = 1,
    Length = 2,
    RdmaProtection = 3,
    Protocol = 4,
    Silent = 5,
    MemoryGone = 6,
}

/// A frame of a length that the way to the peer may not carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe {
    /// What its answer is known by.
    pub number: u32,
    /// Bytes of the frame after its first 14, as of an MTU.
    pub mtu: u16,
}

impl Probe {
    /// Whether a frame of `len` bytes is as long as it says. It may be padded further.
    pub(crate) fn is_whole(&self, len: usize) -> bool {
        len >= super::ETHERNET + usize::from(self.mtu)
    }
}

/// A management frame's own part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    Request(Offer<'a>),
    Accept(Offer<'a>),
    Peer(Offer<'a>),
    Reject { private_data: &'a [u8] },
    NoMatch,
    Cancel,
    Close { reason: CloseReason, ack: u32 },
    Closed,
    Reset,
    Query { name: &'a str },
    Answer { name: &'a str },
    Probe(Probe),
    Probed(Probe),
}

/// Reads a management frame from a copy of it; none unless every field is right.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Envelope, Control<'_>)> {
    let kind = super::kind(&super::words(bytes.first_chunk::<FIXED>()?))?;
    let len = super::ETHERNET + u16_at(bytes, LENGTH_AT) as usize;
    if len < FIXED || len > bytes.len() || len > MAX_CONTROL {
        return None;
    }
    let bytes = &bytes[..len];
    let envelope = Envelope {
        to: mac_at(bytes, 0),
        from: mac_at(bytes, MAC_AT),
        slot: u16_at(bytes, SLOT_AT),
        identity: u64_at(bytes, IDENTITY_AT),
        sender: u64_at(bytes, SENDER_AT),
    };
    let sound = check(bytes) == u32_at(bytes, CRC_AT)
        && u16_at(bytes, ZERO_AT) == 0
        && mac_at(bytes, 6) == envelope.from
        && envelope.from[0] & 1 == 0;
    if !sound {
        return None;
    }
    let body = &bytes[FIXED..];
    let control = match kind {
        REQUEST => Control::Request(parse_offer(body)?),
        ACCEPT => Control::Accept(parse_offer(body)?),
        PEER => Control::Peer(parse_offer(body)?),
        REJECT => Control::Reject { private_data: counted(body, MAX_PRIVATE_DATA)? },
        CLOSE => {
            if body.len() != 8 || body[1..4] != [0; 3] {
                return None;
            }
            let reason = match body[0] {
                0 => CloseReason::Disconnected,
                1 => CloseReason::ReceiveQueueEmpty,
                2 => CloseReason::Length,
                3 => CloseReason::RdmaProtection,
                4 => CloseReason::Protocol,
                5 => CloseReason::Silent,
                6 => CloseReason::MemoryGone,
                _ => return None,
            };
            Control::Close { reason, ack: u32_at(body, 4) }
        }
        QUERY | ANSWER => {
            let name = std::str::from_utf8(counted(body, MAX_NAME)?).ok().filter(|n| !n.is_empty())?;
            if kind == QUERY { Control::Query { name } } else { Control::Answer { name } }
        }
        PROBE => Control::Probe(parse_probe(body)?),
        PROBED => Control::Probed(parse_probe(body)?),
        NO_MATCH if body.is_empty() => Control::NoMatch,
        CANCEL if body.is_empty() => Control::Cancel,
        CLOSED if body.is_empty() => Control::Closed,
        RESET if body.is_empty() => Control::Reset,
        _ => return None,
    };
    Some((envelope, control))
}

fn parse_offer(body: &[u8]) -> Option<Offer<'_>> {
    let (fixed, rest) = body.split_at_checked(20)?;
    let level = match fixed[2] {
        0 => ReliabilityLevel::Unreliable,
        1 => ReliabilityLevel::ReliableDelivery,
        2 => ReliabilityLevel::ReliableReception,
        _ => return None,
    };
    let rights = fixed[3];
    let (local, rest) = rest.split_at_checked(fixed[16] as usize)?;
    let (remote, private_data) = rest.split_at_checked(fixed[17] as usize)?;
    let offer = Offer {
        slot: u16_at(fixed, 0),
        level,
        rdma_write: rights & 1 != 0,
        rdma_read: rights & 2 != 0,
        integrity: rights & 4 != 0,
        max_transfer_size: u32_at(fixed, 4),
        qos: fixed[19],
        first_sequence: u32_at(fixed, 8),
        window: u16_at(fixed, 12),
        mtu: u16_at(fixed, 14),
        local,
        remote,
        private_data,
    };
    let sound = rights & !7 == 0
        && private_data.len() == fixed[18] as usize
        && private_data.len() <= MAX_PRIVATE_DATA
        && local.len() <= NetAddress::MAX_DISCRIMINATOR
        && remote.len() <= NetAddress::MAX_DISCRIMINATOR
        && offer.max_transfer_size <= MAX_TRANSFER
        && offer.window > 0
        && offer.mtu as usize > super::data::OVERHEAD;
    sound.then_some(offer)
}

fn parse_probe(body: &[u8]) -> Option<Probe> {
    let probe = Probe { number: u32_at(body, 0), mtu: u16_at(body, 4) };
    let sound = body.len() == 8 && body[6..] == [0; 2] && probe.mtu as usize > super::data::OVERHEAD;
    sound.then_some(probe)
}

/// Bytes with their count before them, which must be all that there is.
fn counted(body: &[u8], limit: usize) -> Option<&[u8]> {
    let (fixed, bytes) = body.split_at_checked(4)?;
    (fixed[1..] == [0; 3] && fixed[0] as usize == bytes.len() && bytes.len() <= limit).then_some(bytes)
}

/// Makes a management frame. Discriminators, private data and names are within their limits.
pub(crate) fn emit(envelope: &Envelope, control: &Control<'_>) -> Vec<u8> {
    let mut frame = Vec::with_capacity(MAX_CONTROL);
    frame.resize(FIXED, 0);
    let kind = match control {
        Control::Request(_) => REQUEST,
        Control::Accept(_) => ACCEPT,
        Control::Peer(_) => PEER,
        Control::Reject { .. } => REJECT,
        Control::NoMatch => NO_MATCH,
        Control::Cancel => CANCEL,
        Control::Close { .. } => CLOSE,
        Control::Closed => CLOSED,
        Control::Reset => RESET,
        Control::Query { .. } => QUERY,
        Control::Answer { .. } => ANSWER,
        Control::Probe(_) => PROBE,
        Control::Probed(_) => PROBED,
    };
    put_start(&mut frame, envelope.to, envelope.from, kind);
    put_u16(&mut frame, SLOT_AT, envelope.slot);
    put_u64(&mut frame, IDENTITY_AT, envelope.identity);
    put_u64(&mut frame, SENDER_AT, envelope.sender);
    frame[MAC_AT..MAC_AT + 6].copy_from_slice(&envelope.from);
    match control {
        Control::Request(offer) | Control::Accept(offer) | Control::Peer(offer) => {
            put_offer(&mut frame, offer);
        }
        Control::Reject { private_data } => put_counted(&mut frame, private_data),
        Control::Close { reason, ack } => {
            frame.extend_from_slice(&[*reason as u8, 0, 0, 0]);
            frame.extend_from_slice(&ack.to_le_bytes());
        }
        Control::Query { name } | Control::Answer { name } => put_counted(&mut frame, name.as_bytes()),
        Control::Probe(probe) | Control::Probed(probe) => {
            frame.extend_from_slice(&probe.number.to_le_bytes());
            frame.extend_from_slice(&probe.mtu.to_le_bytes());
            frame.extend_from_slice(&[0; 2]);
        }
        Control::NoMatch | Control::Cancel | Control::Closed | Control::Reset => {}
    }
    let len = frame.len() - super::ETHERNET;
    put_u16(&mut frame, LENGTH_AT, len as u16);
    let crc = check(&frame);
    put_u32(&mut frame, CRC_AT, crc);
    if frame.len() < SHORTEST {
        frame.resize(SHORTEST, 0);
    }
    frame
}

fn put_offer(frame: &mut Vec<u8>, offer: &Offer<'_>) {
    let level = match offer.level {
        ReliabilityLevel::Unreliable => 0,
        ReliabilityLevel::ReliableDelivery => 1,
        ReliabilityLevel::ReliableReception => 2,
    };
    let rights = u8::from(offer.rdma_write) | u8::from(offer.rdma_read) << 1 | u8::from(offer.integrity) << 2;
    frame.extend_from_slice(&offer.slot.to_le_bytes());
    frame.extend_from_slice(&[level, rights]);
    frame.extend_from_slice(&offer.max_transfer_size.to_le_bytes());
    frame.extend_from_slice(&offer.first_sequence.to_le_bytes());
    frame.extend_from_slice(&offer.window.to_le_bytes());
    frame.extend_from_slice(&offer.mtu.to_le_bytes());
    let counts = [offer.local.len(), offer.remote.len(), offer.private_data.len()];
    frame.extend_from_slice(&counts.map(|count| count as u8));
    frame.push(offer.qos);
    for bytes in [offer.local, offer.remote, offer.private_data] {
        frame.extend_from_slice(bytes);
    }
}

fn put_counted(frame: &mut Vec<u8>, bytes: &[u8]) {
    frame.extend_from_slice(&[bytes.len() as u8, 0, 0, 0]);
    frame.extend_from_slice(bytes);
}

/// The check over a frame, its own field taken as 0.
fn check(frame: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&frame[super::ETHERNET..CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &frame[CRC_AT + 4..])
}
