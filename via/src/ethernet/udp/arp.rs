//! The protocol that finds the station of an IPv4 address (RFC 826): its packets.

use std::net::Ipv4Addr;

use super::header::address_at;
use crate::MacAddress;

/// Bytes of a packet behind the Ethernet header.
pub(super) const BYTES: usize = 28;
/// Ethernet, IPv4, and the lengths of their addresses.
const KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Shortest Ethernet frame without its check sequence.
const SHORTEST: usize = 60;

/// A question or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) is_answer: bool,
    pub(super) sender: MacAddress,
    pub(super) sender_address: Ipv4Addr,
    /// In a question zero.
    pub(super) target: MacAddress,
    pub(super) target_address: Ipv4Addr,
}

impl Packet {
    /// Reads what follows an Ethernet header; none for what makes no sense.
    pub(super) fn parse(bytes: &[u8; BYTES]) -> Option<Self> {
        let mac = |at: usize| MacAddress(std::array::from_fn(|n| bytes[at + n]));
        let is_answer = match bytes[6..8] {
            [0, 1] => false,
            [0, 2] => true,
            _ => return None,
        };
        let packet = Self {
            is_answer,
            sender: mac(8),
            sender_address: address_at(bytes, 14),
            target: mac(18),
            target_address: address_at(bytes, 24),
        };
        (bytes[..6] == KINDS && packet.sender.is_unicast()).then_some(packet)
    }

    /// As a frame to a station.
    pub(super) fn frame(&self, to: MacAddress) -> [u8; SHORTEST] {
        let mut frame = [0; SHORTEST];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&self.sender.0);
        frame[12..14].copy_from_slice(&[8, 6]);
        frame[14..20].copy_from_slice(&KINDS);
        frame[20..22].copy_from_slice(&[0, if self.is_answer { 2 } else { 1 }]);
        frame[22..28].copy_from_slice(&self.sender.0);
        frame[28..32].copy_from_slice(&self.sender_address.octets());
        frame[32..38].copy_from_slice(&self.target.0);
        frame[38..42].copy_from_slice(&self.target_address.octets());
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(is_answer: bool) -> Packet {
        Packet {
            is_answer,
            sender: MacAddress([0x52, 1, 2, 3, 4, 5]),
            sender_address: Ipv4Addr::new(10, 0, 0, 1),
            target: MacAddress([0x52, 6, 7, 8, 9, 10]),
            target_address: Ipv4Addr::new(10, 0, 0, 2),
        }
    }

    fn parse(frame: &[u8]) -> Option<Packet> {
        Packet::parse(frame[14..14 + BYTES].try_into().unwrap())
    }

    #[test]
    fn what_is_made_is_read() {
        for is_answer in [false, true] {
            let frame = packet(is_answer).frame(MacAddress::BROADCAST);
            assert_eq!(parse(&frame), Some(packet(is_answer)));
            assert_eq!(frame[..6], [0xff; 6]);
        }
        // As RFC 826 lays it out.
        let frame = packet(false).frame(MacAddress::BROADCAST);
        assert_eq!(frame[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    }

    #[test]
    fn what_makes_no_sense_is_not() {
        for (at, value) in [(14, 1), (15, 6), (16, 0x86), (18, 8), (19, 16), (20, 1), (21, 3), (22, 0x53)] {
            let mut frame = packet(true).frame(MacAddress::BROADCAST);
            frame[at] = value;
            assert_eq!(parse(&frame), None, "byte {at} as {value}");
        }
    }
}
