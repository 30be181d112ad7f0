//! What the transmitter does to a packet: checksums and segmentation (8254x manual, 3.5 and 3.3.6).
//!
//! All offsets are the client's, so each is held against the packet before it is used; what cannot be done is
//! left undone.

/// A context descriptor's content (3.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffloadContext {
    /// Start, offset and end of the IP checksum.
    pub ip: ChecksumPlace,
    /// Start, offset and end of the TCP or UDP checksum.
    pub transport: ChecksumPlace,
    /// Bytes of all headers.
    pub header: u8,
    /// Most payload of a segment.
    pub mss: u16,
    /// TCP, and not UDP.
    pub tcp: bool,
    /// IPv4, and not IPv6.
    pub ipv4: bool,
}

/// Where a checksum is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChecksumPlace {
    /// First byte summed.
    pub start: u8,
    /// Where the sum goes.
    pub offset: u8,
    /// Last byte summed; 0 for the packet's end.
    pub end: u16,
}

/// Which checksums are put in: the options of a data descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksums {
    /// IP's.
    pub ip: bool,
    /// TCP's or UDP's.
    pub transport: bool,
}

impl ChecksumPlace {
    /// Puts the sum in. What the field has before (a pseudo header's sum) counts.
    pub fn put(&self, packet: &mut [u8]) {
        let (start, offset) = (usize::from(self.start), usize::from(self.offset));
        let end = match self.end {
            0 => packet.len(),
            end => packet.len().min(usize::from(end) + 1),
        };
        if start >= end || offset + 2 > packet.len() {
            return;
        }
        let sum = !fold(sum(&packet[start..end]));
        packet[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn add(&self, packet: &mut [u8], value: u32) {
        let offset = usize::from(self.offset);
        if let Some(field) = get16(packet, offset) {
            put16(packet, offset, fold(u32::from(field) + fold(value) as u32));
        }
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let mut pairs = bytes.chunks_exact(2);
    let mut sum: u32 = pairs.by_ref().map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    if let [last] = pairs.remainder() {
        sum += u32::from(*last) << 8;
    }
    sum
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn get16(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

fn put16(packet: &mut [u8], at: usize, value: u16) {
    if let Some(bytes) = packet.get_mut(at..at + 2) {
        bytes.copy_from_slice(&value.to_be_bytes());
    }
}

/// Puts the checksums that are asked for into a packet.
pub fn checksums(packet: &mut [u8], context: &OffloadContext, which: Checksums) {
    if which.transport {
        context.transport.put(packet);
    }
    if which.ip {
        context.ip.put(packet);
    }
}

/// Cuts a packet into segments with a header each; answers how many there were. 0: it cannot be cut.
pub fn segment(
    packet: &[u8],
    context: &OffloadContext,
    which: Checksums,
    send: &mut dyn FnMut(Vec<u8>),
) -> usize {
    let header = usize::from(context.header);
    let mss = usize::from(context.mss);
    if mss == 0 || header == 0 || header >= packet.len() {
        return 0;
    }
    let (header, payload) = packet.split_at(header);
    let count = payload.len().div_ceil(mss);
    for (n, part) in payload.chunks(mss).enumerate() {
        let mut segment = Vec::with_capacity(header.len() + part.len());
        segment.extend_from_slice(header);
        segment.extend_from_slice(part);
        finish(&mut segment, context, which, n, n * mss, n + 1 == count);
        send(segment);
    }
    count
}

/// Makes segment `n`, of the payload from `offset` on, a packet of its own.
fn finish(
    segment: &mut [u8],
    context: &OffloadContext,
    which: Checksums,
    n: usize,
    offset: usize,
    last: bool,
) {
    let (ip, transport) = (usize::from(context.ip.start), usize::from(context.transport.start));
    let len = segment.len();
    if context.ipv4 {
        put16(segment, ip + 2, len.saturating_sub(ip) as u16);
        if let Some(id) = get16(segment, ip + 4) {
            put16(segment, ip + 4, id.wrapping_add(n as u16));
        }
    } else {
        put16(segment, ip + 4, len.saturating_sub(ip + 40) as u16);
    }
    if context.tcp {
        if let Some(bytes) = segment.get_mut(transport + 4..transport + 8) {
            let sequence = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            bytes.copy_from_slice(&sequence.wrapping_add(offset as u32).to_be_bytes());
        }
        // FIN and PSH are for the last one.
        if let Some(flags) = segment.get_mut(transport + 13).filter(|_| !last) {
            *flags &= !0x09;
        }
    } else {
        put16(segment, transport + 4, len.saturating_sub(transport) as u16);
    }
    if which.transport {
        // Software summed the pseudo header without the length, which differs from segment to segment.
        context.transport.add(segment, len.saturating_sub(transport) as u32);
    }
    checksums(segment, context, which);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Ethernet, IPv4, TCP: headers of 14, 20 and 20 bytes, and the sum of the pseudo header without length.
    fn packet(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 54 + payload];
        packet[12] = 8;
        packet[14] = 0x45;
        packet[18..20].copy_from_slice(&0xfffeu16.to_be_bytes());
        packet[23] = 6;
        packet[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[38..42].copy_from_slice(&0xffff_fff0u32.to_be_bytes());
        packet[46] = 0x50;
        packet[47] = 0x19; // FIN, PSH, ACK
        let pseudo = fold(sum(&packet[26..34]) + 6);
        packet[50..52].copy_from_slice(&pseudo.to_be_bytes());
        Random::new(3).fill(&mut packet[54..]);
        packet
    }

    fn context() -> OffloadContext {
        OffloadContext {
            ip: ChecksumPlace { start: 14, offset: 24, end: 33 },
            transport: ChecksumPlace { start: 34, offset: 50, end: 0 },
            header: 54,
            mss: 1448,
            tcp: true,
            ipv4: true,
        }
    }

    const BOTH: Checksums = Checksums { ip: true, transport: true };

    #[test]
    fn segments_are_packets_with_right_sums() {
        let whole = packet(5001);
        let mut segments = Vec::new();
        assert_eq!(segment(&whole, &context(), BOTH, &mut |s| segments.push(s)), 4);
        let mut joined = Vec::new();
        for (n, s) in segments.iter().enumerate() {
            assert_eq!(get16(s, 16).unwrap() as usize, s.len() - 14);
            assert_eq!(get16(s, 18).unwrap(), 0xfffeu16.wrapping_add(n as u16));
            let sequence = u32::from_be_bytes(s[38..42].try_into().unwrap());
            assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(joined.len() as u32));
            assert_eq!(s[47], if n == 3 { 0x19 } else { 0x10 });
            assert_eq!(fold(sum(&s[14..34])), 0xffff);
            let pseudo = sum(&s[26..34]) + 6 + (s.len() - 34) as u32;
            assert_eq!(fold(pseudo + fold(sum(&s[34..])) as u32), 0xffff);
            joined.extend_from_slice(&s[54..]);
        }
        assert!(joined == whole[54..]);
    }

    #[test]
    fn one_packet_keeps_its_length() {
        let mut whole = packet(1001);
        // Not segmented, so that software summed the length too.
        let seed = fold(u32::from(get16(&whole, 50).unwrap()) + (whole.len() - 34) as u32);
        whole[50..52].copy_from_slice(&seed.to_be_bytes());
        checksums(&mut whole, &context(), BOTH);
        let pseudo = sum(&whole[26..34]) + 6 + (whole.len() - 34) as u32;
        assert_eq!(fold(pseudo + fold(sum(&whole[34..])) as u32), 0xffff);
    }

    #[test]
    fn impossible_offsets_are_survived() {
        let mut random = Random::new(9);
        for _ in 0..20_000 {
            let mut draw = |bound| random.below(bound);
            let place =
                |a: u64, b: u64, c: u64| ChecksumPlace { start: a as u8, offset: b as u8, end: c as u16 };
            let context = OffloadContext {
                ip: place(draw(256), draw(256), draw(65536)),
                transport: place(draw(256), draw(256), draw(300)),
                header: draw(256) as u8,
                mss: draw(100) as u16,
                tcp: draw(2) == 0,
                ipv4: draw(2) == 0,
            };
            let mut bytes = vec![7; draw(300) as usize];
            segment(&bytes, &context, BOTH, &mut |_| ());
            checksums(&mut bytes, &context, BOTH);
        }
    }
}
