//! Longer frames than any network carries: found, used, and done without.

use super::adapter::Behaviour;
use super::pair::{MILLI, Pair, REGION, SECOND, attributes};
use super::world::{Faults, World, config, mac};
use crate::engine::{EngineConfig, Event, Tuning};
use crate::wire::control::{Control, Envelope, Probe, emit, parse};
use crate::wire::{ETHERNET, FIXED};
use crate::{ConnectionLoss, Descriptor, ReliabilityLevel, Status, ViAttributes, ViId};

/// What the adapters here take, and what goes into the least frame and into such a one. Bytes.
const LARGEST: usize = 8174;
const SMALL: usize = 1500 - (FIXED - ETHERNET);
const LONG: usize = LARGEST - (FIXED - ETHERNET);
/// How long what was found is kept.
const AGE: u64 = 600 * SECOND;

fn jumbo(n: usize) -> EngineConfig {
    EngineConfig { largest: LARGEST, ..config(n, 7, Tuning::default()) }
}

fn world(carries: [usize; 2], faults: Faults, configs: Vec<EngineConfig>) -> World {
    let behaviour = Behaviour { slots: 64, fetch: 0, notice: 0, copies: 0 };
    let mut world = World::new(7, faults, &behaviour, configs);
    world.carries.copy_from_slice(&carries);
    world.trace = Some(Vec::new());
    world
}

/// Two hosts whose adapters take long frames, on a wire that carries so many bytes of them in each direction.
fn pair(carries: [usize; 2]) -> Pair {
    let faults = Faults { delay: 5_000, ..Faults::default() };
    Pair::with(world(carries, faults, vec![jumbo(0), jumbo(1)]))
}

fn path(world: &World, (host, vi): (usize, ViId)) -> Option<usize> {
    world.hosts[host].engine.path_mtu(vi)
}

/// What each end's frames carry.
fn paths(pair: &Pair) -> [Option<usize>; 2] {
    [0, 1].map(|host| path(&pair.world, (host, pair.vi[host])))
}

/// Frames of probes and answers to them that went over the wire since the last call.
fn probes(world: &mut World) -> (usize, usize) {
    let trace = std::mem::take(world.trace.as_mut().unwrap());
    let of = |kind: u8| trace.iter().filter(|frame| frame[15] == kind).count();
    (of(27), of(28))
}

/// A message of so many bytes gets there.
fn transfer(pair: &mut Pair, from: usize, bytes: usize) {
    let to = 1 - from;
    let pattern: Vec<u8> = (0..bytes).map(|n| (n * 7 + n / 251 + bytes) as u8).collect();
    pair.region[from].write(0, &pattern).unwrap();
    pair.region[to].write(0, &vec![0; bytes]).unwrap();
    pair.post_receive(to, 0..bytes);
    let message = pair.message(from, 0..bytes);
    pair.send(from, message);
    for host in [to, from] {
        assert_eq!(pair.wait(host).descriptor.status(), Status::DONE);
    }
    let mut arrived = vec![0; bytes];
    pair.region[to].read(0, &mut arrived).unwrap();
    assert!(arrived == pattern);
}

/// Data frames of the next message of so many bytes.
fn frames(pair: &mut Pair, from: usize, bytes: usize) -> usize {
    pair.world.trace = Some(Vec::new());
    transfer(pair, from, bytes);
    pair.world.trace.as_ref().unwrap().iter().filter(|frame| frame[15] == 1).count()
}

#[test]
fn a_long_message_finds_that_longer_frames_come_and_the_next_goes_in_them() {
    let mut pair = pair([usize::MAX; 2]);
    assert_eq!(paths(&pair), [Some(SMALL); 2]);
    // One that fits asks for nothing.
    transfer(&mut pair, 0, SMALL);
    pair.world.run(SECOND);
    assert_eq!((probes(&mut pair.world), paths(&pair)), ((0, 0), [Some(SMALL); 2]));

    let short = frames(&mut pair, 0, SMALL + 1);
    assert_eq!(short, 2, "data does not wait for what a probe comes to");
    pair.world.run(SECOND);
    assert_eq!(probes(&mut pair.world), (1, 1));
    assert_eq!(paths(&pair), [Some(LONG), Some(SMALL)], "each end asks for itself");
    assert_eq!(frames(&mut pair, 0, LONG), 1);
    assert_eq!(frames(&mut pair, 0, 60_000), 60_000_usize.div_ceil(LONG & !7));
    assert_eq!(probes(&mut pair.world).0, 0);
}

/// The answer takes longer than the first wait: the probe is sent twice, and answered twice.
#[test]
fn a_second_answer_on_a_slow_way_is_nothing_wrong() {
    let faults = Faults { delay: 25 * MILLI, ..Faults::default() };
    let mut pair = Pair::with(world([usize::MAX; 2], faults, vec![jumbo(0), jumbo(1)]));
    transfer(&mut pair, 0, 20_000);
    pair.world.run(SECOND);
    assert_eq!((probes(&mut pair.world), paths(&pair)[0]), ((2, 2), Some(LONG)));
    assert_eq!(pair.world.hosts[0].engine.counters().unsound, 0);
}

#[test]
fn a_way_that_carries_no_more_is_left_alone_for_its_time() {
    let mut pair = pair([1500; 2]);
    for _ in 0..20 {
        transfer(&mut pair, 0, 20_000);
        pair.world.run(SECOND / 10);
    }
    assert_eq!(paths(&pair), [Some(SMALL); 2]);
    // Four for the longest, four for the rung below.
    assert_eq!(probes(&mut pair.world), (8, 0));
    pair.world.run(AGE - 30 * SECOND);
    transfer(&mut pair, 0, 20_000);
    pair.world.run(SECOND);
    assert_eq!(probes(&mut pair.world), (0, 0));
    // It has become a better one, which nobody tells.
    pair.world.carries = vec![usize::MAX; 2];
    pair.world.run(60 * SECOND);
    assert_eq!(probes(&mut pair.world), (0, 0), "nobody asks who has nothing to send");
    transfer(&mut pair, 0, 20_000);
    pair.world.run(SECOND);
    assert_eq!(probes(&mut pair.world), (1, 1));
    assert_eq!(paths(&pair), [Some(LONG), Some(SMALL)]);
}

#[test]
fn the_rung_below_is_found_and_the_longest_is_tried_again_after_its_time() {
    let mut pair = pair([5000; 2]);
    transfer(&mut pair, 0, 20_000);
    pair.world.run(2 * SECOND);
    assert_eq!(probes(&mut pair.world), (5, 1));
    assert_eq!(paths(&pair)[0], Some(4352 - (FIXED - ETHERNET)));
    pair.world.carries = vec![usize::MAX; 2];
    pair.world.run(AGE);
    transfer(&mut pair, 0, 20_000);
    pair.world.run(SECOND);
    assert_eq!(paths(&pair)[0], Some(LONG));
}

#[test]
fn each_direction_is_a_way_of_its_own() {
    let mut pair = pair([usize::MAX, 1500]);
    for host in [0, 1] {
        transfer(&mut pair, host, 20_000);
        pair.world.run(2 * SECOND);
    }
    assert_eq!(paths(&pair), [Some(LONG), Some(SMALL)]);
    transfer(&mut pair, 0, 50_000);
    transfer(&mut pair, 1, 50_000);
}

#[test]
fn no_frame_is_longer_than_what_the_peer_takes() {
    for (theirs, found) in [(1500, SMALL), (4000, 4000 - 34), (65_000, LONG)] {
        let peer = EngineConfig { largest: theirs, ..jumbo(1) };
        let faults = Faults { delay: 5_000, ..Faults::default() };
        let mut pair = Pair::with(world([usize::MAX; 2], faults, vec![jumbo(0), peer]));
        for host in [0, 1] {
            transfer(&mut pair, host, 30_000);
            pair.world.run(2 * SECOND);
            transfer(&mut pair, host, 30_000);
        }
        assert_eq!(paths(&pair), [Some(found); 2]);
    }
}

#[test]
fn writes_and_answers_to_reads_go_in_long_frames_too_and_change_to_them_in_the_middle() {
    let faults = Faults { delay: 300_000, ..Faults::default() };
    const BYTES: usize = 1 << 20;
    let attributes = ViAttributes { rdma_read: true, max_transfer_size: 1 << 20, ..attributes() };
    let mut pair = Pair::of(world([usize::MAX; 2], faults, vec![jumbo(0), jumbo(1)]), &attributes, BYTES);
    let pattern: Vec<u8> = (0..BYTES).map(|n| (n * 11 + n / 253) as u8).collect();
    for (from, to) in [(0, 1), (1, 0)] {
        // From host 0 it is written, from host 1 it is read.
        pair.world.trace = Some(Vec::new());
        pair.region[from].write(0, &pattern).unwrap();
        pair.region[to].write(0, &vec![0; BYTES]).unwrap();
        let (local, remote) =
            (vec![pair.region[0].segment(0..BYTES).unwrap()], pair.region[1].remote(0).unwrap());
        pair.send(
            0,
            if from == 0 {
                Descriptor::rdma_write(local, remote)
            } else {
                Descriptor::rdma_read(local, remote)
            },
        );
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE);
        let mut arrived = vec![0; BYTES];
        pair.region[to].read(0, &mut arrived).unwrap();
        assert!(arrived == pattern, "from host {from}");
        assert_eq!(paths(&pair)[from], Some(LONG));
        let trace = pair.world.trace.as_ref().unwrap();
        let long = trace.iter().filter(|frame| frame[15] == 1 && frame.len() > 1514).count();
        let short = trace.iter().filter(|frame| frame[15] == 1 && frame.len() > 1400).count() - long;
        assert!(long > 50 && short > 32, "{short} short frames, {long} long ones");
    }
}

#[test]
fn a_bad_wire_hides_it_from_nobody_for_long() {
    for seed in 0..60 {
        let faults = Faults {
            loss: 150_000,
            duplication: 200_000,
            reordering: 300_000,
            corruption: if seed % 2 == 0 { 0 } else { 20_000 },
            late: 50 * MILLI,
            delay: 5_000 + seed * 100_000,
            ..Faults::default()
        };
        let configs = [0, 1].map(|n| {
            let tuning = Tuning { integrity: true, ..Tuning::default() };
            EngineConfig { largest: LARGEST, ..config(n, seed, tuning) }
        });
        let mut world = world([usize::MAX, usize::MAX], faults, configs.into());
        world.rng = super::rng::Rng(seed);
        let mut pair = Pair::with(world);
        transfer(&mut pair, 0, 30_000);
        pair.world.run(3 * SECOND);
        // What an answer says is what was asked: neither rung is found where the other was.
        let found = paths(&pair)[0].unwrap();
        let check = 4;
        assert!(found == LONG - check || found == 4352 - 34 - check, "seed {seed}: {found}");
        transfer(&mut pair, 0, 60_000);
    }
}

#[test]
fn of_many_connections_to_a_host_one_asks_and_later_ones_know() {
    let mut world =
        world([usize::MAX; 2], Faults { delay: MILLI, ..Faults::default() }, vec![jumbo(0), jumbo(1)]);
    let ends: Vec<_> = (0..40).map(|_| world.connect(0, 1, &attributes())).collect();
    let domain = world.domain.clone();
    let region = [0, 1].map(|host| world.hosts[host].region(&domain, REGION));
    let send = |world: &mut World, (from, to): (ViId, ViId)| {
        let (_, engine, port) = world.at(1);
        engine.post_receive(to, Descriptor::new(vec![region[1].segment(0..20_000).unwrap()]), port);
        let (now, engine, port) = world.at(0);
        engine.post_send(now, from, Descriptor::new(vec![region[0].segment(0..20_000).unwrap()]), port);
    };
    for ends in &ends {
        send(&mut world, *ends);
    }
    world.run(SECOND);
    for ends in &ends {
        send(&mut world, *ends);
    }
    world.run(SECOND);
    assert_eq!(probes(&mut world), (1, 1));
    for (vi, _) in &ends {
        assert_eq!(path(&world, (0, *vi)), Some(LONG));
    }
    let (late, _) = world.connect(0, 1, &attributes());
    assert_eq!(path(&world, (0, late)), Some(LONG));
    // Nobody would notice there that long frames come no more.
    let unreliable = ViAttributes { reliability: ReliabilityLevel::Unreliable, ..attributes() };
    let ends = world.connect(0, 1, &unreliable);
    send(&mut world, ends);
    world.run(SECOND);
    assert_eq!(path(&world, (0, ends.0)), Some(SMALL));
    assert_eq!(probes(&mut world), (0, 0));
    // What was found is not known for ever.
    world.run(AGE);
    let ends = world.connect(0, 1, &attributes());
    assert_eq!(path(&world, (0, ends.0)), Some(SMALL));
    send(&mut world, ends);
    world.run(SECOND);
    assert_eq!((probes(&mut world), path(&world, (0, ends.0))), ((1, 1), Some(LONG)));
}

#[test]
fn a_connection_that_ends_while_it_tries_leaves_it_to_the_next() {
    let mut pair = pair([1500; 2]);
    transfer(&mut pair, 0, 20_000);
    pair.disconnect(0);
    pair.world.run(SECOND);
    pair.disconnect(1);
    pair.world.carries = vec![usize::MAX; 2];
    pair.world.connect_these(0, pair.vi[0], 1, pair.vi[1]);
    transfer(&mut pair, 0, 20_000);
    pair.world.run(SECOND);
    assert_eq!(paths(&pair)[0], Some(LONG));
}

/// A pair whose host 0 has asked, and the frames of the probe and of its answer, which did not arrive.
fn asked() -> (Pair, Vec<u8>, Vec<u8>) {
    let mut pair = pair([usize::MAX; 2]);
    pair.world.run(MILLI);
    pair.post_receive(1, 0..20_000);
    let message = pair.message(0, 0..20_000);
    pair.send(0, message);
    let sent = |world: &World, kind: u8| {
        world.trace.as_ref().unwrap().iter().find(|frame| frame[15] == kind).cloned()
    };
    assert!(pair.world.until(MILLI, |world| sent(world, 27).is_some()));
    let probe = sent(&pair.world, 27).unwrap();
    // It came, and what goes back is lost.
    pair.world.cut = Some(1);
    assert!(pair.world.until(MILLI, |world| sent(world, 28).is_some()));
    let answer = sent(&pair.world, 28).unwrap();
    assert_eq!(probe.len(), LARGEST + ETHERNET);
    assert_eq!(answer.len(), 60);
    (pair, probe, answer)
}

#[test]
fn only_the_answer_to_what_was_asked_counts() {
    let (mut pair, probe, answer) = asked();
    let (envelope, control) = parse(&answer).unwrap();
    let Control::Probed(right) = control else { panic!("{control:?}") };
    assert_eq!(usize::from(right.mtu), LARGEST);
    let forged = [
        // Another length than was asked for, another number; of no connection, of another, of another host.
        (envelope, Probe { mtu: 65_000, ..right }),
        (envelope, Probe { mtu: right.mtu - 1, ..right }),
        (envelope, Probe { mtu: 1500, ..right }),
        (envelope, Probe { number: right.number ^ 1, ..right }),
        (Envelope { slot: envelope.slot + 1, ..envelope }, right),
        (Envelope { slot: u16::MAX, ..envelope }, right),
        (Envelope { identity: envelope.identity ^ 1, ..envelope }, right),
        (Envelope { identity: 0, ..envelope }, right),
        (Envelope { sender: envelope.sender ^ 1, ..envelope }, right),
        (Envelope { from: [2; 6], ..envelope }, right),
    ];
    let count = forged.len() as u64;
    for (envelope, probed) in forged {
        pair.world.deliver(0, &emit(&envelope, &Control::Probed(probed)));
        assert_eq!(paths(&pair)[0], Some(SMALL), "{envelope:?} {probed:?}");
    }
    assert_eq!(pair.world.hosts[0].engine.counters().unsound, count);
    // Nor what is no answer, and what the other end did not ask.
    pair.world.deliver(0, &probe);
    pair.world.deliver(1, &answer);
    assert_eq!(paths(&pair), [Some(SMALL); 2]);
    pair.world.deliver(0, &answer);
    assert_eq!(paths(&pair), [Some(LONG), Some(SMALL)]);
    assert_eq!(pair.world.hosts[0].engine.counters().unsound, count);
    // A copy of it is nothing new, and nothing wrong; what differs from it was asked no more than before.
    pair.world.deliver(0, &answer);
    assert_eq!(paths(&pair), [Some(LONG), Some(SMALL)]);
    assert_eq!(pair.world.hosts[0].engine.counters().unsound, count);
    for probed in [Probe { mtu: right.mtu - 1, ..right }, Probe { number: right.number ^ 1, ..right }] {
        pair.world.deliver(0, &emit(&envelope, &Control::Probed(probed)));
    }
    pair.world.deliver(0, &emit(&Envelope { from: [2; 6], ..envelope }, &Control::Probed(right)));
    assert_eq!(paths(&pair), [Some(LONG), Some(SMALL)]);
    assert_eq!(pair.world.hosts[0].engine.counters().unsound, count + 3);
    pair.world.cut = None;
    transfer(&mut pair, 1, 100);
}

#[test]
fn a_probe_that_was_cut_short_or_is_of_no_connection_is_not_answered() {
    let (mut pair, probe, _) = asked();
    let (envelope, control) = parse(&probe[..260]).unwrap();
    pair.world.run(100_000);
    let answered = |pair: &mut Pair, frame: &[u8]| {
        pair.world.trace = Some(Vec::new());
        pair.world.deliver(1, frame);
        pair.world.step(pair.world.now + 1);
        probes(&mut pair.world).1
    };
    assert_eq!(answered(&mut pair, &probe), 1);
    let before = pair.world.hosts[1].engine.counters().unsound;
    assert_eq!(answered(&mut pair, &probe[..probe.len() - 1]), 0);
    assert_eq!(answered(&mut pair, &probe[..60]), 0);
    assert_eq!(pair.world.hosts[1].engine.counters().unsound, before + 2);
    for other in [
        Envelope { identity: envelope.identity ^ 1, ..envelope },
        Envelope { sender: envelope.sender ^ 1, ..envelope },
        Envelope { slot: envelope.slot + 1, ..envelope },
        Envelope { from: [2; 6], ..envelope },
    ] {
        let mut frame = emit(&other, &control);
        frame.resize(probe.len(), 0);
        assert_eq!(answered(&mut pair, &frame), 0, "{other:?}");
    }
}

#[test]
fn a_late_answer_never_touches_a_new_connection_of_the_same_interfaces() {
    let (mut pair, probe, answer) = asked();
    pair.world.cut = None;
    pair.disconnect(0);
    pair.world.run(SECOND);
    pair.disconnect(1);
    pair.world.run(SECOND);
    while pair.completion(0).is_some() || pair.completion(1).is_some() {}
    // The way has become worse meanwhile.
    pair.world.carries = vec![1500; 2];
    pair.world.connect_these(0, pair.vi[0], 1, pair.vi[1]);
    let late = |pair: &mut Pair| {
        pair.world.trace = Some(Vec::new());
        pair.world.deliver(0, &answer);
        pair.world.deliver(1, &probe);
        pair.world.run(MILLI);
        assert_eq!(probes(&mut pair.world).1, 0);
        assert_eq!(paths(pair), [Some(SMALL); 2]);
    };
    late(&mut pair);
    transfer(&mut pair, 0, 20_000);
    // While the new connection tries, and when it has given up.
    late(&mut pair);
    pair.world.run(2 * SECOND);
    late(&mut pair);
    transfer(&mut pair, 0, 20_000);
}

/// The way comes to carry less than it did: what is in flight has its number, and goes on in parts.
#[test]
fn a_way_that_shrinks_is_noticed_in_bounded_time_and_what_was_in_flight_arrives() {
    // A frame of six parts; seven of them, and one of three.
    for (bytes, parts) in [(LONG, 6), (60_000, 45)] {
        for slots in [64, 2] {
            let mut pair = pair([usize::MAX; 2]);
            transfer(&mut pair, 0, 20_000);
            pair.world.run(SECOND);
            assert_eq!(paths(&pair)[0], Some(LONG));
            pair.world.carries = vec![1500; 2];
            pair.world.hosts[0].port.behaviour.slots = slots;
            // What is short gets through.
            transfer(&mut pair, 0, 1000);
            let start = pair.world.now;
            transfer(&mut pair, 0, bytes);
            let took = pair.world.now - start;
            assert!((SECOND..2 * SECOND).contains(&took), "{took} ns");
            assert_eq!(pair.world.hosts[0].engine.core.sent_parts, parts, "each frame once");
            assert_eq!(paths(&pair)[0], Some(SMALL));
            // Others know it from the first, and so does the next.
            let (other, _) = pair.world.connect(0, 1, &attributes());
            assert_eq!(path(&pair.world, (0, other)), Some(SMALL));
            let start = pair.world.now;
            for _ in 0..3 {
                transfer(&mut pair, 0, 60_000);
            }
            assert!(pair.world.now - start < SECOND / 10, "it goes on as before");
            assert!(pair.world.event(0).is_none() && pair.world.event(1).is_none());
            // And is found to be better again.
            pair.world.carries = vec![usize::MAX; 2];
            pair.world.run(AGE);
            transfer(&mut pair, 0, 60_000);
            pair.world.run(SECOND);
            assert_eq!(paths(&pair)[0], Some(LONG));
            let parts = pair.world.hosts[0].engine.core.sent_parts;
            transfer(&mut pair, 0, 60_000);
            assert_eq!(pair.world.hosts[0].engine.core.sent_parts, parts);
        }
    }
}

/// A network that carries less than any should: nothing can be done, and there is an end.
#[test]
fn a_way_that_carries_less_than_any_ends_the_connection() {
    for largest in [1500, LARGEST] {
        let faults = Faults { delay: 5_000, ..Faults::default() };
        let configs = [0, 1].map(|n| EngineConfig { largest, ..jumbo(n) });
        let mut pair = Pair::with(world([1000; 2], faults, configs.into()));
        transfer(&mut pair, 0, 900);
        let start = pair.world.now;
        let message = pair.message(0, 0..20_000);
        pair.post_receive(1, 0..20_000);
        pair.send(0, message);
        assert!(pair.world.until(60 * SECOND, |world| world.event(0).is_some()));
        let took = pair.world.now - start;
        assert!((20 * SECOND..22 * SECOND).contains(&took), "{took} ns");
        assert_eq!(pair.loss(0), Some(ConnectionLoss::PeerSilent));
        assert_eq!(pair.world.hosts[0].engine.core.sent_parts, 0);
    }
}

/// A pair with more memory, whose host 0 knows that long frames come, and a write of that memory posted.
fn writing(bytes: usize) -> Pair {
    let faults = Faults { delay: 5 * MILLI, ..Faults::default() };
    let world = world([usize::MAX; 2], faults, vec![jumbo(0), jumbo(1)]);
    let attributes = ViAttributes { max_transfer_size: 1 << 20, ..attributes() };
    let mut pair = Pair::of(world, &attributes, bytes);
    transfer(&mut pair, 0, 20_000);
    pair.world.run(SECOND);
    assert_eq!(paths(&pair)[0], Some(LONG));
    let local = vec![pair.region[0].segment(0..bytes).unwrap()];
    let write = Descriptor::rdma_write(local, pair.region[1].remote(0).unwrap());
    pair.world.trace = Some(Vec::new());
    pair.send(0, write);
    pair
}

/// A lost frame has many parts: as few frames are sent again at a time as after any time-out, until the last.
#[test]
fn parts_of_many_frames_are_no_flood() {
    let mut pair = writing(400_000);
    pair.world.carries = vec![1500; 2];
    let mut most = 0;
    while pair.completion(0).is_none() {
        pair.world.trace = Some(Vec::new());
        // A round trip.
        pair.world.run(10 * MILLI);
        let trace = pair.world.trace.as_ref().unwrap();
        let parts = trace.iter().filter(|frame| frame[15] == 1 && frame[17] & 4 != 0).count();
        most = most.max(parts);
        assert!(pair.world.now < 60 * SECOND);
    }
    assert!((6..=2 * 4 * 6).contains(&most), "{most} parts in a round trip");
}

#[test]
fn long_frames_that_come_early_are_kept_as_short_ones_are() {
    let mut pair = writing(200_000);
    // The first is lost, what comes behind it is an early part of a write.
    pair.world.cut = Some(0);
    let sent = |world: &World| world.trace.as_ref().unwrap().len();
    assert!(pair.world.until(MILLI, |world| sent(world) > 0));
    let all = pair.world.trace.take().unwrap();
    pair.world.cut = None;
    pair.world.trace = Some(Vec::new());
    for frame in &all[1..] {
        pair.world.deliver(1, frame);
    }
    assert_eq!(pair.wait(0).descriptor.status(), Status::DONE);
    let again = pair.world.trace.as_ref().unwrap().iter().filter(|frame| frame[15] == 1).count();
    assert_eq!((again, all.len() > 20), (1, true), "only the first is sent again");
}

/// A peer that is dead says nothing of the way to it.
#[test]
fn a_peer_that_dies_leaves_the_way_unknown() {
    let mut pair = pair([usize::MAX; 2]);
    transfer(&mut pair, 0, 20_000);
    pair.world.run(SECOND);
    pair.world.hosts[1].dead = true;
    let message = pair.message(0, 0..60_000);
    pair.send(0, message);
    assert!(pair.world.until(60 * SECOND, |world| world.event(0).is_some()));
    assert_eq!(pair.loss(0), Some(ConnectionLoss::PeerSilent));
    let now = crate::engine::Time(pair.world.now);
    assert_eq!(pair.world.hosts[0].engine.core.paths.find(mac(1), now), None);
}

#[test]
fn an_adapter_that_is_full_delays_probes_and_loses_none() {
    let mut pair = pair([usize::MAX; 2]);
    pair.world.hosts[0].port.behaviour.slots = 1;
    pair.world.hosts[0].port.per_byte = 100;
    for _ in 0..4 {
        transfer(&mut pair, 0, 60_000);
    }
    assert_eq!(paths(&pair)[0], Some(LONG));
    assert!(!matches!(pair.world.event(0), Some(Event::Broken { .. })));
}
