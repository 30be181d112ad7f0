//! Frames that can be told apart, and told from what else there is on a wire.

use uvia_driver::nic::MacAddress;

/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;
/// The shortest frame, without check sequence.
pub const SHORTEST: usize = 60;
/// Local experimental EtherType 2: what else comes along the wire is passed over.
const ETHERTYPE: [u8; 2] = [0x88, 0xb6];
/// Where a frame's token lies.
const TOKEN: std::ops::Range<usize> = HEADER..HEADER + 8;
/// Set in the tokens of probes, which only [`super::Pair::sync`] waits for.
pub const PROBE: u64 = 1 << 63;

/// The frame with this token: `len` bytes that depend on it.
pub fn content(from: MacAddress, to: MacAddress, token: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len.max(TOKEN.end));
    bytes.extend(to.0);
    bytes.extend(from.0);
    bytes.extend(ETHERTYPE);
    bytes.extend(token.to_le_bytes());
    let mut n = token.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while bytes.len() < len {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.push((n >> 56) as u8);
    }
    bytes.truncate(len);
    bytes
}

/// The token of a frame that is one of ours.
pub fn token(frame: &[u8]) -> Option<u64> {
    (frame.get(12..HEADER)? == ETHERTYPE).then_some(())?;
    Some(u64::from_le_bytes(frame.get(TOKEN)?.try_into().ok()?))
}
