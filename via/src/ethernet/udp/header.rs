//! The headers of Ethernet, IPv4 and UDP before a frame: made, and checked. `WIRE.md` has the layout.

use std::net::Ipv4Addr;

use uvia_driver::nic::RxFrame;

use crate::wire::FIXED;
use crate::{MacAddress, UdpOptions};

/// Bytes of all headers.
pub(super) const OUTER: usize = 42;
/// What is read of a frame in one go: the headers, and the first 14 bytes of what is in them.
const HEAD: usize = OUTER + 14;

/// Where IPv4's header begins, and UDP's.
pub(super) const IP: usize = 14;
pub(super) const UDP: usize = 34;
/// Bytes of IPv4's header, which has no options here.
const IP_HEADER: usize = UDP - IP;
const UDP_HEADER: usize = OUTER - UDP;

pub(super) const ICMP: u8 = 1;
const UDP_PROTOCOL: u8 = 17;
pub(super) const TIME_TO_LIVE: u8 = 64;
/// Do not fragment; the identification then means nothing (RFC 6864).
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

/// What stays the same in the headers of all frames to one host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outer {
    bytes: [u8; OUTER],
    /// Of IPv4's header without the total length.
    sum: u32,
}

impl Outer {
    /// To a host, by way of a station.
    pub(super) fn new(
        station: MacAddress,
        own: MacAddress,
        options: &UdpOptions,
        destination: Ipv4Addr,
    ) -> Self {
        let mut bytes = [0; OUTER];
        bytes[..6].copy_from_slice(&station.0);
        bytes[6..12].copy_from_slice(&own.0);
        bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        bytes[20..22].copy_from_slice(&DONT_FRAGMENT);
        bytes[22..24].copy_from_slice(&[TIME_TO_LIVE, UDP_PROTOCOL]);
        bytes[26..30].copy_from_slice(&options.address.octets());
        bytes[30..34].copy_from_slice(&destination.octets());
        bytes[34..36].copy_from_slice(&options.port.to_be_bytes());
        bytes[36..38].copy_from_slice(&options.port.to_be_bytes());
        Self { sum: sum(&bytes[IP..UDP]), bytes }
    }

    /// Before a frame of so many bytes, which an adapter can send.
    #[inline]
    pub(super) fn before(&self, len: usize) -> [u8; OUTER] {
        let mut bytes = self.bytes;
        let total = (IP_HEADER + UDP_HEADER + len) as u16;
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        bytes[24..26].copy_from_slice(&finish(self.sum + u32::from(total)).to_be_bytes());
        bytes[38..40].copy_from_slice(&((UDP_HEADER + len) as u16).to_be_bytes());
        bytes
    }
}

/// The words of network order, added up (RFC 1071).
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|word| match word {
        [high, low] => u32::from(*high) << 8 | u32::from(*low),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    words.sum()
}

/// The checksum that a sum comes to; 0 over what carries the right one.
pub(super) fn finish(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    !((once >> 16) + once) as u16
}

/// What a received frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// A datagram for us: so many bytes from [`OUTER`] on.
    Frame(usize),
    /// Of the protocol that finds stations.
    Arp,
    /// A message of ICMP for us alone, whose datagram has so many bytes.
    Icmp(usize),
    /// Nothing of ours.
    Foreign,
    /// For us, and wrong.
    Wrong,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// An address in a copy of a header.
pub(super) fn address_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

/// Looks at a received frame. All is decided by one copy of its head.
pub(super) fn look(frame: &RxFrame<'_>, us: &UdpOptions) -> Look {
    let mut head = [0; HEAD];
    if !frame.read(0, &mut head) {
        // Of what is so short nothing but a question without padding is of interest.
        let mut start = [0; IP];
        let question = frame.read(0, &mut start) && start[12..] == [8, 6];
        return if question { Look::Arp } else { Look::Foreign };
    }
    match [head[12], head[13]] {
        [8, 6] => return Look::Arp,
        [8, 0] => {}
        _ => return Look::Foreign,
    }
    let (source, destination) = (address_at(&head, 26), address_at(&head, 30));
    let broadcast = destination == us.broadcast() || destination == Ipv4Addr::BROADCAST;
    if destination != us.address && !broadcast {
        return Look::Foreign;
    }
    let total = usize::from(u16_at(&head, 16));
    let right = head[IP] == 0x45
        && total >= IP_HEADER + UDP_HEADER
        && IP + total <= frame.len()
        && u16_at(&head, 20) & !u16::from_be_bytes(DONT_FRAGMENT) == 0
        && finish(sum(&head[IP..UDP])) == 0
        && us.is_one_host(source)
        && source != us.address;
    if !right {
        return Look::Wrong;
    }
    match head[23] {
        UDP_PROTOCOL => {}
        ICMP if !broadcast => return Look::Icmp(total),
        _ => return Look::Foreign,
    }
    if u16_at(&head, 36) != us.port {
        return Look::Foreign;
    }
    let len = usize::from(u16_at(&head, 38));
    let right = len >= UDP_HEADER + FIXED
        && len <= total - IP_HEADER
        && head[OUTER + 6..OUTER + 12] == UdpOptions::host(source).0
        && (u16_at(&head, 40) == 0 || has_right_checksum(frame, &head, len));
    if right { Look::Frame(len - UDP_HEADER) } else { Look::Wrong }
}

/// We send none, but somebody on the way might.
#[cold]
fn has_right_checksum(frame: &RxFrame<'_>, head: &[u8; HEAD], len: usize) -> bool {
    let mut total = sum(&head[26..34]) + u32::from(UDP_PROTOCOL) + len as u32;
    let mut chunk = [0; 512];
    let mut done = 0;
    while done < len {
        let now = (len - done).min(chunk.len());
        if !frame.read(UDP + done, &mut chunk[..now]) {
            return false;
        }
        total += sum(&chunk[..now]);
        done += now;
    }
    finish(total) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> UdpOptions {
        "10.0.0.1/24".parse().unwrap()
    }

    fn sender() -> UdpOptions {
        "10.0.0.2/24".parse().unwrap()
    }

    /// A datagram with a frame of so many bytes, all but its source zero.
    fn datagram(len: usize) -> Vec<u8> {
        let outer = Outer::new(MacAddress([2; 6]), MacAddress([4; 6]), &sender(), options().address);
        let mut bytes = outer.before(len).to_vec();
        bytes.resize(OUTER + len, 0);
        bytes[OUTER + 6..OUTER + 12].copy_from_slice(&UdpOptions::host(sender().address).0);
        bytes
    }

    fn looks(bytes: &[u8]) -> Look {
        look(&RxFrame::from_slice(bytes), &options())
    }

    fn put_ip_checksum(bytes: &mut [u8]) {
        bytes[24..26].fill(0);
        let sum = finish(sum(&bytes[IP..UDP]));
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }

    #[test]
    fn the_published_checksum() {
        // RFC 1071, section 3.
        assert_eq!(finish(sum(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7])), !0xddf2);
        assert_eq!(finish(0x1_ffff), 0xfffe);
        assert_eq!(sum(&[1, 2, 3]), 0x0102 + 0x0300);
    }

    #[test]
    fn what_is_made_is_taken_with_padding_too() {
        for len in [FIXED, 60, 1458] {
            let mut bytes = datagram(len);
            assert_eq!(looks(&bytes), Look::Frame(len));
            bytes.extend_from_slice(&[7; 9]);
            assert_eq!(looks(&bytes), Look::Frame(len));
        }
    }

    #[test]
    fn every_field_is_checked() {
        let wrong: &[(usize, u8, Look)] = &[
            (12, 0x86, Look::Foreign),
            (14, 0x46, Look::Wrong),
            (14, 0x65, Look::Wrong),
            (16, 0xff, Look::Wrong),
            (20, 0x60, Look::Wrong),
            (20, 0xc0, Look::Wrong),
            (21, 1, Look::Wrong),
            (23, 6, Look::Foreign),
            (23, ICMP, Look::Icmp(28 + 100)),
            (26, 224, Look::Wrong),
            (26, 0, Look::Wrong),
            (29, 1, Look::Wrong),
            (29, 0, Look::Wrong),
            (29, 255, Look::Wrong),
            (29, 3, Look::Wrong),
            (33, 7, Look::Foreign),
            (33, 255, Look::Frame(100)),
            (37, 1, Look::Foreign),
            (38, 0xff, Look::Wrong),
            (39, 8, Look::Wrong),
            (40, 1, Look::Wrong),
            (OUTER + 6, 4, Look::Wrong),
            (OUTER + 11, 9, Look::Wrong),
        ];
        for (at, value, expected) in wrong {
            let mut bytes = datagram(100);
            bytes[*at] = *value;
            put_ip_checksum(&mut bytes);
            assert_eq!(looks(&bytes), *expected, "byte {at} as {value:#x}");
        }
        let mut bytes = datagram(100);
        bytes[24] ^= 1;
        assert_eq!(looks(&bytes), Look::Wrong, "the header's checksum");
        bytes = datagram(100);
        bytes.pop();
        assert_eq!(looks(&bytes), Look::Wrong, "a datagram that is cut off");
        bytes = datagram(FIXED - 1);
        assert_eq!(looks(&bytes), Look::Wrong, "no frame is so short");
        assert_eq!(looks(&bytes[..20]), Look::Foreign);
        assert_eq!(looks(&[]), Look::Foreign);
    }

    #[test]
    fn a_checksum_that_is_there_has_to_be_right() {
        for len in [60, 61, 1000] {
            let mut bytes = datagram(len);
            bytes[OUTER + len - 1] = 0xab;
            let pseudo = sum(&bytes[26..34]) + 17 + (len + 8) as u32;
            let made = finish(pseudo + sum(&bytes[UDP..]));
            bytes[40..42].copy_from_slice(&made.to_be_bytes());
            assert_eq!(looks(&bytes), Look::Frame(len));
            bytes[OUTER + len - 1] ^= 1;
            assert_eq!(looks(&bytes), Look::Wrong);
        }
    }

    #[test]
    fn noise_is_looked_at_without_harm() {
        let mut state = 1u64;
        for round in 0..200_000 {
            let mut bytes = datagram(80);
            for _ in 0..1 + round % 6 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % bytes.len().min(60);
                bytes[at] = (state >> 25) as u8;
            }
            bytes.truncate((state >> 40) as usize % (bytes.len() + 1));
            if let Look::Frame(len) = looks(&bytes) {
                assert!(OUTER + len <= bytes.len() && len >= FIXED);
            }
        }
    }
}
