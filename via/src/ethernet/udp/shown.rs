//! Datagrams as WIRE.md describes them, and as Wireshark shows them.

use std::net::Ipv4Addr;

use uvia_driver::nic::RxFrame;

use super::header::{Look, OUTER, Outer, look};
use crate::engine::simulation::capture::dissect;
use crate::engine::simulation::rng::Rng;
use crate::wire::control::{Control, Envelope, emit};
use crate::wire::document::fields;
use crate::{MacAddress, UdpOptions};

const STATION: MacAddress = MacAddress([0x52, 1, 2, 3, 4, 5]);
const OWN: MacAddress = MacAddress([0x52, 6, 7, 8, 9, 10]);
const TO: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 2);

fn options() -> UdpOptions {
    "10.0.8.1/23".parse().unwrap()
}

/// A datagram with a frame in it, from us to there.
fn datagram(frame: &[u8]) -> Vec<u8> {
    let outer = Outer::new(STATION, OWN, &options(), TO);
    [&outer.before(frame.len())[..], frame].concat()
}

fn query(name: &str) -> Vec<u8> {
    let host = UdpOptions::host(options().address).0;
    let envelope =
        Envelope { to: UdpOptions::host(TO).0, from: host, slot: 0, identity: 0, sender: 0x0102_0304 };
    emit(&envelope, &Control::Query { name })
}

#[test]
fn the_document_says_where_each_field_lies() {
    let frame = query("host");
    let bytes = datagram(&frame);
    // Both tables of addresses are under the heading; the second begins at 0 too.
    let rows = crate::wire::document::rows("Over UDP and IPv4", "offset");
    let at = |name: &str| {
        let row = rows.iter().find(|row| row[2] == name).unwrap_or_else(|| panic!("no {name}"));
        let offset: usize = row[0].parse().unwrap();
        let len = if row[1].is_empty() { bytes.len() - offset } else { row[1].parse().unwrap() };
        &bytes[offset..offset + len]
    };
    assert_eq!(at("station to"), STATION.0);
    assert_eq!(at("station from"), OWN.0);
    assert_eq!(at("type"), [8, 0]);
    assert_eq!((at("version and length"), at("service")), (&[0x45][..], &[0][..]));
    assert_eq!(at("total length"), ((28 + frame.len()) as u16).to_be_bytes());
    assert_eq!((at("identification"), at("fragment")), (&[0, 0][..], &[0x40, 0][..]));
    assert_eq!((at("time to live"), at("protocol")), (&[64][..], &[17][..]));
    assert_eq!((at("source"), at("destination")), (&[10, 0, 8, 1][..], &[10, 0, 9, 2][..]));
    assert_eq!(at("source port"), UdpOptions::PORT.to_be_bytes());
    assert_eq!(at("destination port"), 34997u16.to_be_bytes());
    assert_eq!(at("udp length"), ((8 + frame.len()) as u16).to_be_bytes());
    assert_eq!(at("udp checksum"), [0, 0]);
    assert_eq!(at("frame"), frame);
    assert_eq!(rows.iter().find(|row| row[2] == "frame").map(|row| row[0]), Some("42"));
    assert_eq!(OUTER, 42);
    // The host's address.
    assert_eq!(at("prefix").len(), 2);
    let host = UdpOptions::host(TO).0;
    assert_eq!((&host[..2], &host[2..]), (&[2, 0][..], &TO.octets()[..]));
    assert_eq!(fields("Every frame")["from"], (6, 6));
}

#[test]
#[ignore = "needs tshark"]
fn dissected_datagrams_show_what_was_put_in() {
    let mut rng = Rng(6);
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    let them = UdpOptions { address: TO, ..options() };
    for n in 0..400 {
        let name = format!("host-{n}");
        let mut frame = datagram(&query(&name));
        let mut right = true;
        if n % 2 == 1 {
            // Behind the headers: those are not ours to judge. The destination is not under the check.
            let at = OUTER + 6 + rng.below((frame.len() - OUTER - 6) as u64) as usize;
            frame[at] ^= 1 << rng.below(8);
            let inner = &frame[OUTER..];
            right = crate::wire::control::parse(inner).is_some();
            if right {
                // Padding.
                assert!(at >= OUTER + 48 + 4 + name.len());
            }
        }
        assert!(matches!(look(&RxFrame::from_slice(&frame), &them), Look::Frame(_) | Look::Wrong));
        frames.push(frame);
        expected.push((name, right));
    }
    let names = ["uvia.name", "uvia.from", "uvia.malformed", "ip.checksum.status", "udp.length", "uvia.kind"];
    let rows = dissect(&frames, &names).unwrap();
    for ((row, (name, right)), frame) in rows.iter().zip(&expected).zip(&frames) {
        assert_eq!(row[2].is_empty(), *right, "{row:?}: {frame:02x?}");
        if *right {
            assert_eq!(
                (row[0].as_str(), row[1].as_str(), row[5].as_str()),
                (name.as_str(), "02000a000801", "24")
            );
            assert_eq!(row[4], (frame.len() - 34).to_string());
        }
    }
    assert!(expected.iter().filter(|(_, right)| !right).count() > 100);
}
