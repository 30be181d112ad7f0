//! WIRE.md says what the code does: its tables are read, and held against frames that the code makes.

use std::collections::BTreeMap;

use super::control::{CloseReason, Control, Envelope, Offer, Probe, emit};
use super::data::{self, Extensions, Fixed, MAX_HEADER, Remote, Route};
use crate::ReliabilityLevel;

const DOCUMENT: &str = include_str!("../../WIRE.md");

/// The rows of the tables that lie under a heading and begin with a column of this name.
pub(crate) fn rows<'a>(heading: &str, first: &str) -> Vec<Vec<&'a str>> {
    let mut under = heading.is_empty();
    let mut rows = Vec::new();
    let mut table = false;
    for line in DOCUMENT.lines() {
        if line.starts_with('#') {
            under = line.trim_start_matches('#').trim() == heading;
        }
        let Some(inner) = line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) else {
            table = false;
            continue;
        };
        let cells: Vec<_> = inner.split('|').map(str::trim).collect();
        if !under || cells[0].starts_with("---") {
            continue;
        }
        if cells[0] == first {
            table = true;
        } else if table {
            rows.push(cells);
        }
    }
    assert!(!rows.is_empty(), "no table of {first} under {heading:?}");
    rows
}

/// Where each field lies, and how long it is; 0 for the rest of the frame.
pub(crate) fn fields(heading: &str) -> BTreeMap<&str, (usize, usize)> {
    let mut at = None;
    rows(heading, "offset")
        .into_iter()
        .map(|row| {
            let offset = row[0].parse().unwrap();
            let bytes = if row[1].is_empty() { 0 } else { row[1].parse().unwrap() };
            // Fields lie one behind the other, with nothing between them.
            assert!(at.is_none() || at == Some(offset), "{heading}: a gap before {}", row[2]);
            at = Some(offset + bytes);
            (row[2], (offset, bytes))
        })
        .collect()
}

/// A little-endian field as the page places it.
fn value(frame: &[u8], fields: &BTreeMap<&str, (usize, usize)>, name: &str) -> u64 {
    let (offset, bytes) = fields.get(name).copied().unwrap_or_else(|| panic!("no field {name:?}"));
    let mut value = [0; 8];
    value[..bytes].copy_from_slice(&frame[offset..offset + bytes]);
    u64::from_le_bytes(value)
}

fn numbers(heading: &str, first: &str) -> BTreeMap<String, u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    rows(heading, first).into_iter().map(|row| (row[0].to_owned(), number(row[1]))).collect()
}

const TO: [u8; 6] = [0x52, 1, 2, 3, 4, 5];
const FROM: [u8; 6] = [0x52, 6, 7, 8, 9, 10];

fn station(bytes: [u8; 6]) -> u64 {
    let mut word = [0; 8];
    word[..6].copy_from_slice(&bytes);
    u64::from_le_bytes(word)
}

const ENVELOPE: Envelope = Envelope {
    to: TO,
    from: FROM,
    slot: 0x1122,
    identity: 0x0102_0304_0506_0708,
    sender: 0x1112_1314_1516_1718,
};

const OFFER: Offer<'_> = Offer {
    slot: 0x3344,
    level: ReliabilityLevel::ReliableReception,
    rdma_write: true,
    rdma_read: false,
    integrity: true,
    max_transfer_size: 0x00ab_cdef,
    qos: 0x77,
    first_sequence: 0x5566_7788,
    window: 0x0123,
    mtu: 0x0456,
    local: b"here",
    remote: b"over there",
    private_data: b"x",
};

const PROBE: Probe = Probe { number: 0x7a7b_7c7d, mtu: 0x2345 };

fn every_control() -> Vec<(&'static str, Control<'static>)> {
    vec![
        ("Request", Control::Request(OFFER)),
        ("Accept", Control::Accept(OFFER)),
        ("Peer", Control::Peer(OFFER)),
        ("Reject", Control::Reject { private_data: b"no" }),
        ("NoMatch", Control::NoMatch),
        ("Cancel", Control::Cancel),
        ("Close", Control::Close { reason: CloseReason::Length, ack: 0x99aa_bbcc }),
        ("Closed", Control::Closed),
        ("Reset", Control::Reset),
        ("Query", Control::Query { name: "host" }),
        ("Answer", Control::Answer { name: "host" }),
        ("Probe", Control::Probe(PROBE)),
        ("Probed", Control::Probed(PROBE)),
    ]
}

#[test]
fn kinds_and_the_first_bytes() {
    let kinds = numbers("Every frame", "kind");
    let first = fields("Every frame");
    for (name, control) in every_control() {
        let frame = emit(&ENVELOPE, &control);
        assert_eq!(value(&frame, &first, "kind"), kinds[name], "{name}");
        assert_eq!(value(&frame, &first, "to"), station(TO));
        assert_eq!(value(&frame, &first, "from"), station(FROM));
        assert_eq!(frame[first["type"].0..][..2], [0x88, 0xb5]);
        assert_eq!(value(&frame, &first, "version"), 1);
    }
    assert_eq!((kinds["Data"], kinds["Ack"]), (data::DATA.into(), data::ACK.into()));
    assert_eq!(kinds.len(), every_control().len() + 2);
}

#[test]
fn the_fixed_part() {
    let heading = "Frames of a connection: Data and Ack";
    let fixed = Fixed {
        flags: data::LAST | data::SACK,
        slot: 0,
        payload: 0x0201,
        window: 0x0403,
        identity: 0,
        sequence: 0x1413_1211,
        ack: 0x2423_2221,
        message: 0x3433_3231,
        offset: 0x4443_4241,
    };
    let route = Route::new(TO, FROM, 0x0605, 0x5857_5655_5453_5251);
    let frame = fixed.header(&route, data::DATA);
    let fields = fields(heading);
    for (name, expected) in [
        ("flags", u64::from(fixed.flags)),
        ("slot", 0x0605),
        ("payload", fixed.payload.into()),
        ("window", fixed.window.into()),
        ("identity", 0x5857_5655_5453_5251),
        ("sequence", fixed.sequence.into()),
        ("acknowledgement", fixed.ack.into()),
        ("message", fixed.message.into()),
        ("offset", fixed.offset.into()),
    ] {
        assert_eq!(value(&frame, &fields, name), expected, "{name}");
    }
    assert_eq!(fields.len(), 9, "a field that is not looked at");
    let end = fields.values().map(|(offset, bytes)| offset + bytes).max();
    assert_eq!(end, Some(super::FIXED));
}

#[test]
fn flags_and_extensions() {
    let heading = "Frames of a connection: Data and Ack";
    let known = [
        ("LAST", data::LAST),
        ("IMMEDIATE", data::IMMEDIATE),
        ("WRITE", data::WRITE),
        ("SACK", data::SACK),
        ("CRC", data::CRC),
        ("DRY", data::DRY),
        ("NOW", data::NOW),
        ("READ", data::READ),
        ("ANSWER", data::ANSWER),
        ("NOT_READY", data::NOT_READY),
        ("PART", data::PART),
        ("MORE", data::MORE),
    ];
    let bits = numbers(heading, "flag");
    assert_eq!(bits.len(), known.len());
    assert_eq!(known.iter().fold(0, |all, (_, bit)| all | bit), data::KNOWN);
    for (name, bit) in known {
        assert_eq!(bits[name], u64::from(bit), "{name}");
    }
    for row in rows(heading, "flag") {
        let bytes: usize = row[2].parse().unwrap();
        assert_eq!(data::extension_bytes(bits[row[0]] as u16), bytes, "{}", row[0]);
    }
    // The order, and the bytes of each: all of them in one header.
    let flags = data::SACK | data::IMMEDIATE | data::WRITE | data::CRC;
    let extensions = Extensions {
        sack: 0x0807_0605_0403_0201,
        immediate: 0x0c0b_0a09,
        remote: Remote { address: 0x1817_1615_1413_1211, handle: 0x1c1b_1a19, total: 0x2423_2221 },
    };
    let mut header = [0xff; MAX_HEADER];
    let len = extensions.put(&mut header, flags);
    let mut at = super::FIXED;
    for row in rows(heading, "extension") {
        let bytes: usize = row[1].parse().unwrap();
        let expected: Vec<u8> = match row[0] {
            "SACK" => (1..=8).collect(),
            "IMMEDIATE" => (9..=12).collect(),
            "REMOTE" => (0x11..=0x1c).chain(0x21..=0x24).collect(),
            "CRC" => vec![0; 4],
            other => panic!("{other}"),
        };
        assert_eq!(header[at..at + bytes], expected, "{}", row[0]);
        at += bytes;
    }
    assert_eq!((at, len), (MAX_HEADER, MAX_HEADER));
}

#[test]
fn management() {
    let common = fields("Frames that manage");
    for (name, control) in every_control() {
        let frame = emit(&ENVELOPE, &control);
        let len = 14 + value(&frame, &common, "length") as usize;
        assert!(len <= frame.len() && frame[len..].iter().all(|byte| *byte == 0), "{name}");
        assert!(frame.len() >= 60);
        let mut summed = frame[..len].to_vec();
        let (at, bytes) = common["check"];
        summed[at..at + bytes].fill(0);
        assert_eq!(value(&frame, &common, "check"), u64::from(crc32c::crc32c(&summed[14..])), "{name}");
        for (field, expected) in [
            ("slot", u64::from(ENVELOPE.slot)),
            ("identity", ENVELOPE.identity),
            ("sender", ENVELOPE.sender),
            ("host", station(FROM)),
            ("zero", 0),
        ] {
            assert_eq!(value(&frame, &common, field), expected, "{name}: {field}");
        }
        if matches!(control, Control::NoMatch | Control::Cancel | Control::Closed | Control::Reset) {
            assert_eq!(len, super::FIXED, "{name}");
        }
    }
    assert_eq!(common.len(), 7, "a field that is not looked at");
}

#[test]
fn offers() {
    let fields = fields("Request, Accept, Peer");
    for control in [Control::Request(OFFER), Control::Accept(OFFER), Control::Peer(OFFER)] {
        let frame = emit(&ENVELOPE, &control);
        for (field, expected) in [
            ("sender slot", u64::from(OFFER.slot)),
            ("level", 2),
            ("rights", 1 | 4),
            ("longest transfer", OFFER.max_transfer_size.into()),
            ("first sequence", OFFER.first_sequence.into()),
            ("window", OFFER.window.into()),
            ("mtu", OFFER.mtu.into()),
            ("local count", 4),
            ("remote count", 10),
            ("private count", 1),
            ("quality of service", 0x77),
        ] {
            assert_eq!(value(&frame, &fields, field), expected, "{field}");
        }
        assert_eq!(&frame[fields["local, remote, private data"].0..], b"hereover therex");
    }
    assert_eq!(fields.len(), 12, "a field that is not looked at");
}

#[test]
fn what_other_kinds_say() {
    let reject = fields("Reject");
    let frame = emit(&ENVELOPE, &Control::Reject { private_data: b"nono" });
    assert_eq!((value(&frame, &reject, "private count"), value(&frame, &reject, "zero")), (4, 0));
    assert_eq!(&frame[reject["private data"].0..][..4], b"nono");

    let name = fields("Query, Answer");
    let frame = emit(&ENVELOPE, &Control::Query { name: "who" });
    assert_eq!((value(&frame, &name, "name count"), value(&frame, &name, "zero")), (3, 0));
    assert_eq!(&frame[name["name"].0..][..3], b"who");

    let probe = fields("Probe, Probed");
    for control in [Control::Probe(PROBE), Control::Probed(PROBE)] {
        let frame = emit(&ENVELOPE, &control);
        for (field, expected) in [("number", PROBE.number.into()), ("mtu", PROBE.mtu.into()), ("zero", 0)] {
            assert_eq!(value(&frame, &probe, field), expected, "{field}");
        }
    }
    assert_eq!(probe.len(), 3, "a field that is not looked at");

    let close = fields("Close");
    let reasons = numbers("Close", "reason");
    for (name, reason) in [
        ("Disconnected", CloseReason::Disconnected),
        ("ReceiveQueueEmpty", CloseReason::ReceiveQueueEmpty),
        ("Length", CloseReason::Length),
        ("RdmaProtection", CloseReason::RdmaProtection),
        ("Protocol", CloseReason::Protocol),
        ("Silent", CloseReason::Silent),
        ("MemoryGone", CloseReason::MemoryGone),
    ] {
        let frame = emit(&ENVELOPE, &Control::Close { reason, ack: 0x0403_0201 });
        assert_eq!(value(&frame, &close, "reason"), reasons[name], "{name}");
        assert_eq!(value(&frame, &close, "zero"), 0);
        assert_eq!(value(&frame, &close, "acknowledgement"), 0x0403_0201);
    }
    assert_eq!(reasons.len(), 7);
}

#[test]
fn times_and_limits() {
    use crate::engine::search;
    let tuning = crate::engine::Tuning::default();
    let flat = DOCUMENT.split_whitespace().collect::<Vec<_>>().join(" ");
    let (milli, micro, second) = (1_000_000, 1_000, 1_000_000_000);
    for sentence in [
        format!("after {} frames (or a quarter of the window)", tuning.ack_every),
        format!("after {} ms, with DRY after {} us", tuning.ack_delay / milli, tuning.ack_delay_dry / micro),
        format!("nothing was heard for {} s", tuning.keep_alive / second),
        format!("acknowledged for {} s although the peer was heard", tuning.keep_alive / second),
        format!("has been silent for {} s", tuning.peer_timeout / second),
        format!("At most {} are in flight", tuning.window),
        format!("from {} to {} ms", tuning.rto_min / milli, tuning.rto_max / milli),
        format!("and {} ms before there was a round trip", tuning.rto_initial / milli),
        format!("so not before {} ms", tuning.rto_min / milli),
        format!("after {} s at most, by Close", crate::ViAttributes::MAX_NOT_READY.as_secs()),
        format!("At most {} wait;", crate::ethernet::LOOPED),
        format!("tried {} times, after 20, 40, 80 ms", search::TRIES),
        format!("then {} and then {}", search::RUNGS[0], search::RUNGS[1]),
        format!("known for {} s", crate::engine::paths::AGE / second),
        format!("the last {} hosts", crate::engine::paths::HOSTS),
    ] {
        assert!(flat.contains(&sentence), "WIRE.md does not say {sentence:?}");
    }
}
