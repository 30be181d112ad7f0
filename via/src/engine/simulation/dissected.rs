//! What Wireshark shows of frames is what the encoder put into them, and what it marks is what the engine drops.
//!
//! These need tshark: `tests/run` has it, `cargo test -p uvia --lib dissected -- --ignored` runs them alone.

use uvia_driver::nic::RxFrame;

use super::adapter::Behaviour;
use super::capture::{AGAIN, dissect, dissect_with};
use super::pair::{Pair, SECOND};
use super::rng::Rng;
use super::world::{Faults, TAG, World, config};
use crate::engine::{EngineConfig, Tuning};
use crate::wire::control::{CloseReason, Control, Envelope, MAX_CONTROL, Offer, Probe, emit, parse};
use crate::wire::data::{self, Extensions, Fixed, Remote, Route};
use crate::wire::{self, FIXED, put_u32};
use crate::{Descriptor, MacAddress, NetAddress, ReliabilityLevel, ViAttributes};

/// What a frame has to show: fields and values, as tshark writes them.
type Shown = Vec<(&'static str, String)>;

/// Every field of the dissector that has a value of its own.
const FIELDS: &[&str] = &[
    "uvia.version",
    "uvia.kind",
    "uvia.flags",
    "uvia.flags.last",
    "uvia.flags.immediate",
    "uvia.flags.write",
    "uvia.flags.sack",
    "uvia.flags.crc",
    "uvia.flags.dry",
    "uvia.flags.now",
    "uvia.flags.read",
    "uvia.flags.answer",
    "uvia.flags.not_ready",
    "uvia.flags.part",
    "uvia.flags.more",
    "uvia.slot",
    "uvia.payload_length",
    "uvia.window",
    "uvia.identity",
    "uvia.sequence",
    "uvia.ack",
    "uvia.message",
    "uvia.offset",
    "uvia.selective",
    "uvia.immediate",
    "uvia.remote.address",
    "uvia.remote.handle",
    "uvia.remote.total",
    "uvia.crc",
    "uvia.crc.status",
    "uvia.payload",
    "uvia.length",
    "uvia.sender",
    "uvia.host",
    "uvia.sender_slot",
    "uvia.level",
    "uvia.rights",
    "uvia.rights.write",
    "uvia.rights.read",
    "uvia.rights.crc",
    "uvia.longest_transfer",
    "uvia.first_sequence",
    "uvia.mtu",
    "uvia.discriminator.local",
    "uvia.discriminator.remote",
    "uvia.private_data",
    "uvia.reason",
    "uvia.name",
    "uvia.number",
    "uvia.malformed",
    "uvia.crc.bad",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bit(flags: u16, flag: u16) -> String {
    u8::from(flags & flag != 0).to_string()
}

fn bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    (0..rng.below(most + 1)).map(|_| rng.next() as u8).collect()
}

fn mac(rng: &mut Rng) -> [u8; 6] {
    let mut mac: [u8; 6] = std::array::from_fn(|_| rng.next() as u8);
    mac[0] &= 0xfe;
    mac
}

/// A sound frame of a connection, and what it has to show.
fn connected(rng: &mut Rng) -> (Vec<u8>, Shown) {
    let kind = if rng.chance(700_000) { data::DATA } else { data::ACK };
    let mut flags = rng.next() as u16 & (data::SACK | data::CRC | data::NOW);
    if kind == data::ACK {
        flags |= rng.next() as u16 & data::NOT_READY;
    }
    let mut payload = Vec::new();
    let (mut message, mut offset) = (0, 0);
    if kind == data::DATA {
        (message, offset) = (rng.next() as u32, rng.next() as u32 / 2);
        flags |= rng.next() as u16 & data::DRY;
        payload = bytes(rng, 600);
        match rng.below(4) {
            0 => {
                flags |= data::READ | data::LAST;
                payload.clear();
            }
            1 => flags |= data::ANSWER | rng.next() as u16 & data::LAST,
            _ => {
                flags |= rng.next() as u16 & (data::WRITE | data::LAST);
                if flags & data::LAST != 0 {
                    flags |= rng.next() as u16 & data::IMMEDIATE;
                }
            }
        }
        if payload.is_empty() {
            flags |= data::LAST;
            offset = 0;
        } else {
            flags |= rng.next() as u16 & data::PART;
        }
        if flags & data::PART != 0 && flags & data::LAST == 0 {
            flags |= rng.next() as u16 & data::MORE;
        }
    }
    let route = Route::new(mac(rng), mac(rng), rng.next() as u16, rng.next());
    let fixed = Fixed {
        flags,
        slot: 0,
        payload: payload.len() as u16,
        window: rng.next() as u16,
        identity: 0,
        sequence: rng.next() as u32,
        ack: rng.next() as u32,
        message,
        offset,
    };
    let extensions = Extensions {
        sack: rng.next(),
        immediate: rng.next() as u32,
        remote: Remote { address: rng.next(), handle: rng.next() as u32, total: rng.next() as u32 },
    };
    let mut header = fixed.header(&route, kind);
    let len = extensions.put(&mut header, flags);
    let mut frame = header[..len].to_vec();
    frame.extend_from_slice(&payload);
    // What the header says of its destination is in the route only.
    let made = Fixed::read(&wire::words(frame.first_chunk().unwrap()));
    let mut shown: Shown = vec![
        ("uvia.version", "1".to_owned()),
        ("uvia.kind", kind.to_string()),
        ("uvia.flags", format!("0x{flags:04x}")),
        ("uvia.flags.last", bit(flags, data::LAST)),
        ("uvia.flags.immediate", bit(flags, data::IMMEDIATE)),
        ("uvia.flags.write", bit(flags, data::WRITE)),
        ("uvia.flags.sack", bit(flags, data::SACK)),
        ("uvia.flags.crc", bit(flags, data::CRC)),
        ("uvia.flags.dry", bit(flags, data::DRY)),
        ("uvia.flags.now", bit(flags, data::NOW)),
        ("uvia.flags.read", bit(flags, data::READ)),
        ("uvia.flags.answer", bit(flags, data::ANSWER)),
        ("uvia.flags.not_ready", bit(flags, data::NOT_READY)),
        ("uvia.flags.part", bit(flags, data::PART)),
        ("uvia.flags.more", bit(flags, data::MORE)),
        ("uvia.slot", made.slot.to_string()),
        ("uvia.payload_length", payload.len().to_string()),
        ("uvia.window", fixed.window.to_string()),
        ("uvia.identity", format!("0x{:016x}", made.identity)),
        ("uvia.sequence", fixed.sequence.to_string()),
        ("uvia.ack", fixed.ack.to_string()),
        ("uvia.message", message.to_string()),
        ("uvia.offset", offset.to_string()),
    ];
    if flags & data::SACK != 0 {
        shown.push(("uvia.selective", format!("0x{:016x}", extensions.sack)));
    }
    if flags & data::IMMEDIATE != 0 {
        shown.push(("uvia.immediate", format!("0x{:08x}", extensions.immediate)));
    }
    if flags & (data::WRITE | data::READ) != 0 {
        shown.push(("uvia.remote.address", format!("0x{:016x}", extensions.remote.address)));
        shown.push(("uvia.remote.handle", format!("0x{:08x}", extensions.remote.handle)));
        shown.push(("uvia.remote.total", extensions.remote.total.to_string()));
    }
    if flags & data::CRC != 0 {
        let mut crc = crc32c::crc32c(&frame[14..]);
        let good = rng.chance(800_000);
        if !good {
            crc ^= 1 << rng.below(32);
            shown.push(("uvia.crc.bad", "1".to_owned()));
        }
        put_u32(&mut frame, len - 4, crc);
        shown.push(("uvia.crc", format!("0x{crc:08x}")));
        shown.push(("uvia.crc.status", if good { "good" } else { "bad" }.to_owned()));
    }
    if !payload.is_empty() {
        shown.push(("uvia.payload", hex(&payload)));
    }
    if frame.len() < 60 {
        frame.resize(60, 0);
    }
    (frame, shown)
}

/// A management frame, and what it has to show.
fn managing(rng: &mut Rng) -> (Vec<u8>, Shown) {
    let texts = [bytes(rng, 64), bytes(rng, 64), bytes(rng, 64)];
    let offer = Offer {
        slot: rng.next() as u16,
        level: [
            ReliabilityLevel::Unreliable,
            ReliabilityLevel::ReliableDelivery,
            ReliabilityLevel::ReliableReception,
        ][rng.below(3) as usize],
        rdma_write: rng.chance(500_000),
        rdma_read: rng.chance(500_000),
        integrity: rng.chance(500_000),
        max_transfer_size: rng.below((1 << 30) + 1) as u32,
        qos: rng.next() as u8,
        first_sequence: rng.next() as u32,
        window: 1 + rng.below(65_535) as u16,
        mtu: 67 + rng.below(65_469) as u16,
        local: &texts[0],
        remote: &texts[1],
        private_data: &texts[2],
    };
    let name: String =
        (0..=rng.below(15)).map(|_| ['a', 'Z', '7', '-', 'ä', '€'][rng.below(6) as usize]).collect();
    let reasons = [
        CloseReason::Disconnected,
        CloseReason::ReceiveQueueEmpty,
        CloseReason::Length,
        CloseReason::RdmaProtection,
        CloseReason::Protocol,
        CloseReason::Silent,
        CloseReason::MemoryGone,
    ];
    let (reason, ack) = (reasons[rng.below(reasons.len() as u64) as usize], rng.next() as u32);
    let probe = Probe { number: rng.next() as u32, mtu: 67 + rng.below(9_000) as u16 };
    let control = match rng.below(13) {
        0 => Control::Request(offer),
        1 => Control::Accept(offer),
        2 => Control::Peer(offer),
        3 => Control::Reject { private_data: &texts[2] },
        4 => Control::NoMatch,
        5 => Control::Cancel,
        6 => Control::Close { reason, ack },
        7 => Control::Closed,
        8 => Control::Reset,
        9 => Control::Query { name: &name },
        10 => Control::Probe(probe),
        11 => Control::Probed(probe),
        _ => Control::Answer { name: &name },
    };
    let envelope = Envelope {
        to: mac(rng),
        from: mac(rng),
        slot: rng.next() as u16,
        identity: rng.next(),
        sender: rng.next(),
    };
    let mut frame = emit(&envelope, &control);
    if let Control::Probe(probe) = control {
        frame.resize(14 + usize::from(probe.mtu), 0);
    }
    let mut shown: Shown = vec![
        ("uvia.version", "1".to_owned()),
        ("uvia.kind", frame[15].to_string()),
        ("uvia.length", u16::from_le_bytes([frame[16], frame[17]]).to_string()),
        ("uvia.slot", envelope.slot.to_string()),
        ("uvia.identity", format!("0x{:016x}", envelope.identity)),
        ("uvia.sender", format!("0x{:016x}", envelope.sender)),
        ("uvia.host", hex(&envelope.from)),
        ("uvia.crc", format!("0x{:08x}", wire::u32_at(&frame, 20))),
        ("uvia.crc.status", "good".to_owned()),
    ];
    match control {
        Control::Request(_) | Control::Accept(_) | Control::Peer(_) => {
            let rights = [offer.rdma_write, offer.rdma_read, offer.integrity].map(u8::from);
            let level = match offer.level {
                ReliabilityLevel::Unreliable => "0",
                ReliabilityLevel::ReliableDelivery => "1",
                ReliabilityLevel::ReliableReception => "2",
            };
            shown.extend([
                ("uvia.sender_slot", offer.slot.to_string()),
                ("uvia.level", level.to_owned()),
                ("uvia.rights", format!("0x{:02x}", rights[0] | rights[1] << 1 | rights[2] << 2)),
                ("uvia.rights.write", rights[0].to_string()),
                ("uvia.rights.read", rights[1].to_string()),
                ("uvia.rights.crc", rights[2].to_string()),
                ("uvia.longest_transfer", offer.max_transfer_size.to_string()),
                ("uvia.qos", offer.qos.to_string()),
                ("uvia.first_sequence", offer.first_sequence.to_string()),
                ("uvia.window", offer.window.to_string()),
                ("uvia.mtu", offer.mtu.to_string()),
                ("uvia.discriminator.local", hex(offer.local)),
                ("uvia.discriminator.remote", hex(offer.remote)),
                ("uvia.private_data", hex(offer.private_data)),
            ]);
        }
        Control::Reject { private_data } => shown.push(("uvia.private_data", hex(private_data))),
        Control::Close { reason, ack } => {
            shown.extend([("uvia.reason", (reason as u8).to_string()), ("uvia.ack", ack.to_string())]);
        }
        Control::Query { name } | Control::Answer { name } => shown.push(("uvia.name", name.to_owned())),
        Control::Probe(probe) | Control::Probed(probe) => {
            shown.extend([
                ("uvia.number", format!("0x{:08x}", probe.number)),
                ("uvia.mtu", probe.mtu.to_string()),
            ]);
        }
        Control::NoMatch | Control::Cancel | Control::Closed | Control::Reset => {}
    }
    (frame, shown)
}

fn sound(rng: &mut Rng) -> (Vec<u8>, Shown) {
    if rng.chance(500_000) { connected(rng) } else { managing(rng) }
}

fn long() -> bool {
    std::env::var_os("UVIA_LONG").is_some()
}

#[test]
#[ignore = "needs tshark"]
fn fields_show_what_the_encoder_put_in() {
    let mut rng = Rng(4);
    let (frames, expected): (Vec<_>, Vec<_>) =
        (0..if long() { 20_000 } else { 1_500 }).map(|_| sound(&mut rng)).unzip();
    let rows = dissect(&frames, FIELDS).unwrap();
    for ((frame, expected), row) in frames.iter().zip(&expected).zip(&rows) {
        for (field, found) in FIELDS.iter().zip(row) {
            let right = expected.iter().find(|(name, _)| name == field).map_or("", |(_, value)| value);
            let found = if field.ends_with(".bad") && !found.is_empty() { "1" } else { found };
            assert_eq!(found, right, "{field} of {}", hex(frame));
        }
    }
}

/// Whether the engine would take it, were all the rest right: without a look at connections.
pub(super) fn takes(frame: &[u8]) -> (bool, bool) {
    let Some(head) = RxFrame::from_slice(frame).words() else { return (false, true) };
    match wire::kind(&head) {
        Some(kind @ (data::DATA | data::ACK)) => {
            let fixed = Fixed::read(&head);
            let sound = fixed.is_sound(kind, frame.len());
            let checked = fixed.flags & data::CRC != 0;
            (sound, !sound || !checked || data::verify(&fixed, &RxFrame::from_slice(frame)))
        }
        Some(_) => match parse(&frame[..frame.len().min(MAX_CONTROL)]) {
            Some((_, Control::Probe(probe))) => (probe.is_whole(frame.len()), true),
            parsed => (parsed.is_some(), true),
        },
        None => (false, true),
    }
}

/// Damages a frame behind its EtherType, so that it is still one for the dissector.
fn damage(rng: &mut Rng, frame: &mut Vec<u8>) {
    match rng.below(4) {
        0 => frame.truncate(16 + rng.below(frame.len() as u64 - 15) as usize),
        1 => {
            let at = 14 + rng.below(frame.len().min(100) as u64 - 14) as usize;
            frame[at] = rng.next() as u8;
        }
        2 => {
            let bit = 14 * 8 + rng.below((frame.len().min(100) as u64 - 14) * 8) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        _ => {
            // Sender, kind or a field of management, and the check made right again: only the rest can tell.
            let at = [6, 15, 16, 40, 46, 48, 50, 51, 52, 64, 65, 66, 67][rng.below(13) as usize];
            if let Some(byte) = frame.get_mut(at) {
                *byte = rng.next() as u8;
            }
            let len = 14 + usize::from(wire::u16_at(frame, 16));
            if (FIXED..=frame.len()).contains(&len) && frame[15] > data::ACK {
                put_u32(frame, 20, 0);
                let crc = crc32c::crc32c(&frame[14..len]);
                put_u32(frame, 20, crc);
            }
        }
    }
}

#[test]
#[ignore = "needs tshark"]
fn what_the_engine_drops_is_marked_and_nothing_else() {
    let mut rng = Rng(5);
    let mut frames = Vec::new();
    for _ in 0..if long() { 40_000 } else { 3_000 } {
        let (mut frame, _) = sound(&mut rng);
        for _ in 0..=rng.below(2) {
            if frame.len() > 17 {
                damage(&mut rng, &mut frame);
            }
        }
        frames.push(frame);
    }
    let rows = dissect(&frames, &["uvia.malformed", "uvia.crc.bad", "uvia.kind"]).unwrap();
    let (mut dropped, mut taken) = (0, 0);
    for (frame, row) in frames.iter().zip(&rows) {
        let (sound, intact) = takes(frame);
        assert_eq!(row[0].is_empty(), sound, "{row:?}: {}", hex(frame));
        if sound {
            assert_eq!(row[1].is_empty(), intact, "{row:?}: {}", hex(frame));
        }
        *(if sound { &mut taken } else { &mut dropped }) += 1;
    }
    assert!(dropped > frames.len() / 4 && taken > frames.len() / 10, "{dropped} dropped, {taken} taken");
}

/// All that two hosts say to each other, over a wire that loses frames.
fn conversation() -> Vec<Vec<u8>> {
    let behaviour = Behaviour { slots: 64, fetch: 0, notice: 0, copies: 500_000 };
    let faults =
        Faults { delay: 5_000, loss: 30_000, reordering: 50_000, late: 100_000, ..Faults::default() };
    let tuning = Tuning { integrity: true, ..Tuning::default() };
    let configs = (0..2).map(|n| EngineConfig { largest: 4000, ..config(n, 3, tuning.clone()) }).collect();
    let mut world = World::new(3, faults, &behaviour, configs);
    world.trace = Some(Vec::new());
    let mut attributes = ViAttributes::new(TAG);
    attributes.rdma_read = true;
    let ends = world.connect(0, 1, &attributes);
    let mut pair = Pair { vi: [ends.0, ends.1], region: regions(&mut world), world };
    for n in 0..20 {
        pair.post_receive(1, 0..4096);
        let mut message = pair.message(0, 0..3000);
        message.immediate = Some(n);
        pair.send(0, message);
        let remote = pair.region[1].remote(8192).unwrap();
        let mut source = vec![pair.region[0].segment(0..5000).unwrap()];
        pair.send(0, Descriptor::rdma_write(source.clone(), remote));
        source.truncate(1);
        pair.send(0, Descriptor::rdma_read(source, remote));
    }
    pair.world.run(20 * SECOND);
    pair.disconnect(0);
    pair.world.run(SECOND);
    // What comes to nothing: nobody there, a name that nobody has, and a peer that does not ask back.
    let vi = pair.world.hosts[0].engine.create_vi(&attributes).unwrap();
    let nobody = NetAddress::new(pair.world.hosts[1].mac, b"nobody").unwrap();
    let (now, engine, port) = pair.world.at(0);
    engine.connect(now, vi, b"me", &nobody, SECOND, b"", port).unwrap();
    engine.resolve(now, "host1", SECOND, port).unwrap();
    pair.world.run(2 * SECOND);
    let (now, engine, port) = pair.world.at(0);
    engine.connect_peer(now, vi, b"me", &nobody, SECOND, port).unwrap();
    pair.world.run(2 * SECOND);
    pair.world.trace.unwrap()
}

fn regions(world: &mut World) -> [crate::MemoryRegion; 2] {
    let domain = world.domain.clone();
    [0, 1].map(|host| world.hosts[host].region(&domain, super::pair::REGION))
}

#[test]
#[ignore = "needs tshark"]
fn a_conversation_of_two_engines_has_nothing_to_mark() {
    let frames = conversation();
    let rows =
        dissect(&frames, &["uvia.malformed", "uvia.crc.bad", "uvia.kind", "uvia.crc.status", "eth.dst"])
            .unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for (row, frame) in rows.iter().zip(&frames) {
        assert!(row[0].is_empty() && row[1].is_empty(), "{row:?}: {}", hex(frame));
        assert_eq!(row[3], "good", "every frame carries the check");
        assert_eq!(row[4], hex(&frame[..6]));
        assert!(!row[2].contains(AGAIN));
        kinds.insert(row[2].parse::<u8>().unwrap());
    }
    for kind in [data::DATA, data::ACK, 16, 17, 19, 20, 21, 22, 24, 25, 26, 27, 28] {
        assert!(kinds.contains(&kind), "no frame of kind {kind} among {kinds:?}");
    }
}

/// An error in the script has to show: else the other tests would say little.
#[test]
#[ignore = "needs tshark"]
fn an_error_in_the_script_is_not_missed() {
    let script = std::env::temp_dir().join(format!("uvia-broken-{}.lua", std::process::id()));
    let broken = "local p = Proto('broken', 'Broken')\n\
                  function p.dissector(tvb, pinfo, tree) tree:add(p, tvb(0, 9999)) end\n\
                  DissectorTable.get('ethertype'):add(0x88b5, p)\n";
    std::fs::write(&script, broken).unwrap();
    let frame = emit(
        &Envelope { to: MacAddress::BROADCAST.0, from: [2, 0, 0, 0, 0, 1], slot: 0, identity: 0, sender: 1 },
        &Control::Query { name: "x" },
    );
    let outcome = dissect_with(&script, &[frame], &["frame.len"]);
    std::fs::remove_file(&script).unwrap();
    let said = outcome.unwrap_err().to_string();
    assert!(said.contains("Lua Error"), "{said}");
}
