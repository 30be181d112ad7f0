//! The end-to-end check: either end may ask for it, and what was damaged on the way is dropped and counted.

use super::adapter::Behaviour;
use super::pair::{MILLI, Pair, SECOND, attributes};
use super::rng::Rng;
use super::world::{Faults, World, config};
use crate::engine::{Counters, Event, Tuning};
use crate::wire::data;
use crate::{Status, ViState};

/// Two hosts on a good wire, of which these want the check.
fn world(wanted: [bool; 2]) -> World {
    let behaviour = Behaviour { slots: 64, fetch: 0, notice: 0, copies: 0 };
    let configs =
        (0..2).map(|n| config(n, 9, Tuning { integrity: wanted[n], ..Tuning::default() })).collect();
    World::new(9, Faults { delay: 5_000, ..Faults::default() }, &behaviour, configs)
}

/// Whether frames of the connection carry it, of either end; all of them, or none.
fn carried(wanted: [bool; 2]) -> bool {
    let mut pair = Pair::with(world(wanted));
    pair.world.trace = Some(Vec::new());
    for (from, to) in [(0, 1), (1, 0)] {
        for size in [0, 64, 5000] {
            pair.post_receive(to, 0..8192);
            let message = pair.message(from, 0..size);
            pair.send(from, message);
            assert!(pair.wait(from).descriptor.status().is_success());
            assert!(pair.wait(to).descriptor.status().is_success());
        }
    }
    let trace = pair.world.trace.take().unwrap();
    let flags: Vec<bool> = trace
        .iter()
        .filter(|frame| frame[15] == data::DATA || frame[15] == data::ACK)
        .map(|frame| u16::from(frame[16]) & data::CRC != 0)
        .collect();
    assert!(flags.len() > 8 && flags.iter().all(|has| *has == flags[0]));
    flags[0]
}

#[test]
fn it_is_there_when_either_end_asks() {
    assert!(!carried([false, false]));
    assert!(carried([true, false]));
    assert!(carried([false, true]));
    assert!(carried([true, true]));
}

#[test]
fn who_is_asked_sees_whether_the_other_wants_it() {
    for wanted in [[true, false], [false, true]] {
        let mut world = world(wanted);
        let client = world.hosts[0].engine.create_vi(&attributes()).unwrap();
        let server = world.hosts[1].engine.create_vi(&attributes()).unwrap();
        let listener = world.hosts[1].engine.listen(b"x", 1).unwrap();
        let there = crate::NetAddress::new(world.hosts[1].mac, b"x").unwrap();
        let (now, engine, port) = world.at(0);
        engine.connect(now, client, b"", &there, SECOND, b"", port).unwrap();
        world.run(10 * MILLI);
        let request = world.hosts[1].engine.next_request(listener).unwrap();
        assert_eq!(request.attributes.integrity, wanted[0]);
        let (now, engine, port) = world.at(1);
        engine.accept(now, request.id, server, b"", port).unwrap();
        world.run(10 * MILLI);
        let Some(Event::Connected { attributes, .. }) = world.event(0) else { panic!("not connected") };
        assert_eq!(attributes.integrity, wanted[1]);
    }
}

/// Every bit of a frame that is under the check, one after the other: none is let in, all are counted.
#[test]
fn every_damaged_bit_is_dropped_and_counted() {
    let mut pair = Pair::with(world([true, false]));
    pair.region[0].write(0, b"a message that is worth a check").unwrap();
    pair.region[1].write(0, &[0; 64]).unwrap();
    pair.post_receive(1, 0..64);
    pair.world.trace = Some(Vec::new());
    pair.world.cut = Some(0);
    let message = pair.message(0, 0..31);
    pair.send(0, message);
    pair.world.run(MILLI);
    let trace = pair.world.trace.take().unwrap();
    let frame = trace.iter().find(|frame| frame[15] == data::DATA).expect("it was sent").clone();
    let before = pair.world.hosts[1].engine.counters();
    assert_eq!(before, Counters::default());
    let mut delivered = 0;
    // From the flags on: without version, kind, slot and identity it is no frame of this connection at all.
    let bits =
        (16..18).chain(20..24).chain(32..frame.len()).flat_map(|byte| (0..8).map(move |bit| (byte, bit)));
    for (byte, bit) in bits {
        let mut damaged = frame.clone();
        damaged[byte] ^= 1 << bit;
        pair.world.deliver(1, &damaged);
        delivered += 1;
    }
    let Counters { damaged, unsound } = pair.world.hosts[1].engine.counters();
    assert_eq!(damaged + unsound, delivered, "{damaged} and {unsound}");
    assert!(damaged > delivered / 2 && unsound > 0);
    assert!(pair.completion(1).is_none(), "nothing was let in");
    let mut bytes = [0; 64];
    pair.region[1].read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64], "no byte was touched");
    // The frame itself comes again, and is right.
    pair.world.cut = None;
    let done = pair.wait(1);
    assert_eq!((done.descriptor.status() & !Status::DONE, done.descriptor.length()), (Status::empty(), 31));
    assert_eq!([0, 1].map(|host| pair.state(host)), [ViState::Connected; 2]);
}

/// Without the check a damaged payload arrives: that is what it is for.
#[test]
fn without_it_damage_is_not_seen() {
    let mut pair = Pair::with(world([false, false]));
    pair.post_receive(1, 0..64);
    pair.world.trace = Some(Vec::new());
    pair.world.cut = Some(0);
    let message = pair.message(0, 0..31);
    pair.send(0, message);
    pair.world.run(MILLI);
    let trace = pair.world.trace.take().unwrap();
    let mut frame = trace.iter().find(|frame| frame[15] == data::DATA).expect("it was sent").clone();
    let at = frame.len() - 1;
    frame[at] ^= 1;
    pair.world.deliver(1, &frame);
    assert!(pair.wait(1).descriptor.status().is_success());
    assert_eq!(pair.world.hosts[1].engine.counters(), Counters::default());
}

/// Over a wire that damages one frame of ten, all bytes are right and the damage is counted.
#[test]
fn a_wire_that_damages_frames_costs_time_and_no_byte() {
    let mut rng = Rng(77);
    let mut pair = Pair::with(world([false, true]));
    pair.world.faults.corruption = 100_000;
    for _ in 0..60 {
        let size = rng.below(20_000) as usize;
        let bytes: Vec<u8> = (0..size).map(|_| rng.next() as u8).collect();
        pair.region[0].write(0, &bytes).unwrap();
        pair.post_receive(1, 0..20_000);
        let message = pair.message(0, 0..size);
        pair.send(0, message);
        assert!(pair.wait(1).descriptor.status().is_success());
        assert!(pair.wait(0).descriptor.status().is_success());
        let mut got = vec![0; size];
        pair.region[1].read(0, &mut got).unwrap();
        assert!(got == bytes, "{size} bytes");
    }
    let Counters { damaged, .. } = pair.world.hosts[1].engine.counters();
    assert!(damaged > 5, "{damaged} were counted");
}
