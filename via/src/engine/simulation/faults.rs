//! Many seeds over bad wires: every byte right, in order, exactly once, and nothing left over at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::adapter::Behaviour;
use super::rng::Rng;
use super::stream::{Shape, Stream};
use super::world::{Faults, TAG, World, config};
use crate::engine::{Event, Tuning};
use crate::{ConnectionLoss, ReliabilityLevel, ViAttributes, ViState};

const SECOND: u64 = 1_000_000_000;

/// Messages of a long seed, both ways, all connections: one seed in so many.
const MESSAGES: u64 = 2_400;
const LONG_ONE_IN: u64 = 9;
/// Of the others: enough for what a wire does to be seen, and for different wires to be seen in the time.
const FEW_MESSAGES: u64 = 160;

/// What a seed came to.
#[derive(Default)]
struct Outcome {
    /// A connection used longer frames than its network surely carries.
    long: bool,
    /// The wire came to carry less, and frames were sent in parts.
    shrunk: bool,
}

/// Of a million seeds, those whose wire comes to carry less while it is used.
const SHRINKING: u64 = 30_000;

fn run(seed: u64) -> Outcome {
    run_on(seed, SHRINKING)
}

fn run_on(seed: u64, shrinking: u64) -> Outcome {
    let mut rng = Rng(seed);
    let mut faults =
        Faults { delay: 1_000 + rng.below(50_000), jitter: rng.below(20_000), ..Faults::default() };
    let mut tuning = Tuning::default();
    // One seed of eight has a good wire; the others have one fault, or all of them.
    let all = rng.chance(300_000);
    let which = rng.below(8);
    if all || which == 1 || which == 2 {
        faults.loss = rng.below(200_001);
    }
    if all || which == 3 {
        faults.duplication = rng.below(200_000);
        faults.late = rng.below(1_000_000);
        faults.reordering = 200_000;
    }
    if all || which == 4 {
        faults.reordering = rng.below(500_000);
        faults.late = 10_000 + rng.below(3_000_000);
    }
    if all || which == 5 {
        faults.corruption = rng.below(100_000);
        tuning.integrity = true;
    }
    if which == 6 {
        // Dead for up to half a second at a time, as a guest that stalls.
        faults.dead_for = rng.below(SECOND / 2);
        faults.dead_every = SECOND / 20 + 2 * faults.dead_for;
    }
    if rng.chance(300_000) {
        tuning.integrity = true;
    }
    if rng.chance(300_000) {
        tuning.first_sequence = Some(u32::MAX - rng.below(500) as u32);
    }
    let hosts = if rng.chance(200_000) { 3 } else { 2 };
    faults.hub = rng.chance(300_000);
    let behaviour = Behaviour {
        slots: 2 + rng.below(64) as usize,
        fetch: rng.below(100_000),
        notice: if rng.chance(100_000) { 20_000_000 } else { rng.below(200_000) },
        copies: rng.below(1_000_001),
    };
    let mut configs: Vec<_> = (0..hosts).map(|n| config(n, seed, tuning.clone())).collect();
    for config in &mut configs {
        config.mtu = [1500, 1500, 1500, 576, 9000][rng.below(5) as usize];
        config.max_segments = 1 + rng.below(8) as usize;
        config.rx_slots = 16 + rng.below(500) as usize;
    }
    // How long frames may be is a matter of its own: whatever it is, the rest of a seed is the same.
    let mut ways = Rng(!seed);
    for config in &mut configs {
        if ways.chance(600_000) {
            config.largest = config.mtu + ways.below(9_000) as usize;
        }
    }
    let sure: Vec<_> = configs.iter().map(|config| config.mtu).collect();
    let mut world = World::new(rng.next(), faults, &behaviour, configs);
    for (carries, sure) in world.carries.iter_mut().zip(&sure) {
        if ways.chance(500_000) {
            *carries = sure + ways.below(9_000) as usize;
        }
    }
    let mut shrinks = if ways.chance(shrinking) { ways.below(SECOND / 20) } else { u64::MAX };

    if std::env::var("UVIA_SEED").is_ok() {
        println!("{:?} {behaviour:?} {hosts} hosts, {tuning:?}", world.faults);
    }
    let pairs = 1 + rng.below(4);
    let long = seed.is_multiple_of(LONG_ONE_IN);
    let mut attributes = ViAttributes::new(TAG);
    attributes.max_transfer_size = 32 << 20;
    attributes.rdma_read = true;
    if rng.chance(500_000) {
        attributes.reliability = ReliabilityLevel::ReliableReception;
    }
    let mut streams = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..pairs {
        let from = rng.below(hosts as u64) as usize;
        let to = (from + 1 + rng.below(hosts as u64 - 1) as usize) % hosts;
        let (client, server) = world.connect(from, to, &attributes);
        ends.push(((from, client), (to, server)));
        for (from, to) in [((from, client), (to, server)), ((to, server), (from, client))] {
            let huge = long && rng.chance(5_000);
            let messages = if long { MESSAGES } else { FEW_MESSAGES };
            let longest = if long { [3_000, 20_000, 200 << 10] } else { [200, 3_000, 20_000] };
            let shape = Shape {
                messages: if huge { 40 } else { (messages / (2 * pairs)) as usize },
                longest: if huge { 16 << 20 } else { longest[rng.below(3) as usize] },
                writes: [0, 200_000, 500_000, 1_000_000][rng.below(4) as usize],
                reads: [0, 100_000, 500_000, 1_000_000][rng.below(4) as usize],
                depth: if huge { 2 } else { 1 + rng.below(16) as usize },
            };
            streams.push(Stream::new(&mut world, from, to, shape, rng.next()));
        }
    }

    let mut outcome = Outcome::default();
    let limit = world.now + 3_000 * SECOND;
    while !streams.iter().all(Stream::is_done) {
        for stream in &mut streams {
            stream.work(&mut world);
        }
        if world.now >= shrinks {
            world.carries.clone_from(&sure);
            shrinks = 0;
        }
        if !world.step(limit) {
            let states: Vec<_> = streams.iter().map(Stream::messages).collect();
            panic!("no end after {} s of virtual time: {states:?} messages", world.now / SECOND);
        }
        hand_out(&mut world, &mut streams);
    }
    outcome.long = ends.iter().flat_map(|(a, b)| [a, b]).any(|(host, vi)| {
        let carried = world.hosts[*host].engine.path_mtu(*vi);
        carried.is_some_and(|bytes| bytes > sure[*host])
    });
    outcome.shrunk = world.hosts.iter().any(|host| host.engine.core.sent_parts != 0);
    finish(world, streams, &ends);
    outcome
}

/// Gives completions to the streams that they belong to.
fn hand_out(world: &mut World, streams: &mut [Stream]) {
    for host in 0..world.hosts.len() {
        if let Some(event) = world.event(host) {
            panic!("host {host} at {} us: {event:?}; {:?}", world.now / 1000, world.faults);
        }
        while let Some(completion) = world.hosts[host].port.completions.pop_front() {
            let is_send = completion.queue == crate::WorkQueue::Send;
            let stream = streams
                .iter_mut()
                .find(|s| (if is_send { s.from } else { s.to }) == (host, completion.vi))
                .unwrap();
            stream.take(completion);
        }
    }
}

type End = (usize, crate::ViId);

/// One end leaves, the other hears of it, and nothing is left.
fn finish(mut world: World, mut streams: Vec<Stream>, ends: &[(End, End)]) {
    for ((leaver, its), (left, theirs)) in ends.iter().copied() {
        let (now, engine, port) = world.at(leaver);
        engine.disconnect(now, its, port).unwrap();
        let heard =
            world.until(60 * SECOND, |world| world.hosts[left].engine.state(theirs) == Some(ViState::Error));
        assert!(heard, "the other end never heard of the disconnection");
        let loss = world.hosts[left].engine.loss(theirs).unwrap();
        assert!(
            matches!(
                loss,
                ConnectionLoss::PeerDisconnected | ConnectionLoss::PeerReset | ConnectionLoss::PeerSilent
            ),
            "{loss:?}"
        );
        world.hosts[left].port.events.retain(|e| !matches!(e, Event::Broken { vi, .. } if *vi == theirs));
        let (now, engine, port) = world.at(left);
        engine.disconnect(now, theirs, port).unwrap();
    }
    let quiet = world.until(60 * SECOND, |world| {
        world.hosts.iter().all(|host| host.engine.is_quiet() && host.port.is_empty())
    });
    assert!(quiet, "something is still under way");
    assert!(world.hosts.iter().all(|host| host.engine.holds_nothing()));
    for ((from, its), (to, theirs)) in ends.iter().copied() {
        world.hosts[from].engine.destroy_vi(its).unwrap();
        world.hosts[to].engine.destroy_vi(theirs).unwrap();
    }
    for host in &mut world.hosts {
        assert!(host.port.completions.is_empty() && host.port.events.is_empty(), "{:?}", host.port.events);
    }
    streams.iter_mut().for_each(Stream::check_end);
    drop(streams);
    let domain = world.domain.clone();
    drop(world);
    assert_eq!(domain.mapped(), 0, "regions are still registered");
}

/// Seeds of all parts together; ten times as many with UVIA_LONG=1, a twentieth with UVIA_QUICK=1, and as many as
/// UVIA_SEEDS says: `UVIA_SEEDS=1000000 cargo test -p uvia --lib simulation::faults` runs a million.
const SEEDS: u64 = 10_000;
/// Test functions that they are split over, so that all processors have something to do.
const PARTS: u64 = 8;

fn part(n: u64) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
    let seeds = match (std::env::var("UVIA_SEEDS"), is_set("UVIA_LONG"), is_set("UVIA_QUICK")) {
        (Ok(seeds), ..) => seeds.parse().expect("UVIA_SEEDS is a number"),
        (_, true, _) => 10 * SEEDS,
        (_, _, true) => SEEDS / 20,
        _ => SEEDS,
    };
    let (mut long, mut shrunk) = (0, 0);
    for seed in (n..seeds).step_by(PARTS as usize) {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(outcome) => {
                long += u64::from(outcome.long);
                shrunk += u64::from(outcome.shrunk);
            }
            Err(_) => panic!(
                "seed {seed} failed; again: UVIA_SEED={seed} cargo test -p uvia --lib simulation::faults::replay"
            ),
        }
    }
    println!("of {} seeds {long} had long frames, and {shrunk} sent some in parts", seeds / PARTS);
    assert!(seeds < 400 || long * PARTS * 20 > seeds, "hardly a seed finds that longer frames come");
    assert!(seeds < SEEDS || shrunk > 0, "no seed sends frames in parts");
}

#[test]
fn seeds_part_0() {
    part(0);
}

#[test]
fn seeds_part_1() {
    part(1);
}

#[test]
fn seeds_part_2() {
    part(2);
}

#[test]
fn seeds_part_3() {
    part(3);
}

#[test]
fn seeds_part_4() {
    part(4);
}

#[test]
fn seeds_part_5() {
    part(5);
}

#[test]
fn seeds_part_6() {
    part(6);
}

#[test]
fn seeds_part_7() {
    part(7);
}

/// Wires of all kinds, each of which comes to carry less in the middle.
#[test]
fn what_was_in_flight_when_a_way_shrinks_arrives() {
    let shrunk = (0..240).filter(|seed| run_on(*seed, 1_000_000).shrunk).count();
    println!("in {shrunk} of 240 seeds frames went in parts");
    assert!(shrunk > 20, "{shrunk}");
}

/// Runs the seed of UVIA_SEED, if there is one.
#[test]
fn replay() {
    if let Ok(seed) = std::env::var("UVIA_SEED") {
        run(seed.parse().expect("UVIA_SEED is a number"));
    }
}
