//! What a bad wire, or a bad neighbour on the same adapter, costs in throughput. In virtual time, over adapters that send
//! a gigabit a second.

use super::adapter::Behaviour;
use super::pair::{REGION, SECOND, attributes};
use super::world::{Faults, World, config};
use crate::engine::Tuning;
use crate::{Descriptor, ViAttributes, ViId, WorkQueue};

/// Nanoseconds a byte: a gigabit a second.
const PER_BYTE: u64 = 8;
/// Bytes of a message: eleven frames.
const SIZE: usize = 16_000;
const MESSAGES: usize = 500;

/// Hosts on a switch, each with an adapter of that rate.
fn world(seed: u64, hosts: usize, loss: u64) -> World {
    let faults = Faults { delay: 20_000, jitter: 5_000, loss, ..Faults::default() };
    let behaviour = Behaviour { slots: 256, fetch: 1_000, notice: 2_000, copies: 0 };
    let configs = (0..hosts).map(|n| config(n, seed, Tuning::default())).collect();
    let mut world = World::new(seed, faults, &behaviour, configs);
    world.hosts.iter_mut().for_each(|host| host.port.per_byte = PER_BYTE);
    world
}

/// Posts so many messages of host 0, and if `received`, the receives for them.
fn post(world: &mut World, (from, to): (ViId, ViId), host: usize, count: usize, received: bool) {
    let domain = world.domain.clone();
    let [source, target] = [0, host].map(|host| world.hosts[host].region(&domain, REGION));
    for _ in 0..count {
        if received {
            let (_, engine, port) = world.at(host);
            engine.post_receive(to, Descriptor::new(vec![target.segment(0..SIZE).unwrap()]), port);
        }
        let (now, engine, port) = world.at(0);
        engine.post_send(now, from, Descriptor::new(vec![source.segment(0..SIZE).unwrap()]), port);
    }
}

/// Megabytes a second from host 0 to host 1.
fn rate(world: &mut World, ends: (ViId, ViId)) -> u64 {
    let start = world.now;
    post(world, ends, 1, MESSAGES, true);
    let mut left = MESSAGES;
    let done = world.until(60 * SECOND, |world| {
        while let Some(done) = world.hosts[1].port.completions.pop_front() {
            assert!(done.queue == WorkQueue::Receive && done.descriptor.status().is_success());
            left -= 1;
        }
        left == 0
    });
    assert!(done, "{left} messages did not come");
    (MESSAGES * SIZE) as u64 * 1000 / (world.now - start)
}

#[test]
fn one_frame_lost_of_a_hundred_costs_less_than_a_tenth() {
    let over = |seed, loss| {
        let mut world = world(seed, 2, loss);
        let ends = world.connect(0, 1, &attributes());
        rate(&mut world, ends)
    };
    let whole = over(0, 0);
    // Of 125 on the wire: else it were not the wire that limits it, and loss would cost nothing.
    assert!(whole >= 110, "{whole} MB/s with no loss");
    let lossy: Vec<u64> = (0..8).map(|seed| over(seed, 10_000)).collect();
    println!("{whole} MB/s, and with loss {lossy:?}");
    assert!(lossy.iter().sum::<u64>() * 10 > lossy.len() as u64 * whole * 9, "{lossy:?} of {whole} MB/s");
}

/// A connection that does not get on, on the same adapter: its peer is dead, or has no receive posted.
#[test]
fn a_connection_that_is_stuck_keeps_no_other_waiting() {
    let mut alone = world(1, 3, 0);
    let ends = alone.connect(0, 1, &attributes());
    let alone = rate(&mut alone, ends);
    for dead in [true, false] {
        let mut world = world(1, 3, 0);
        let patient = ViAttributes { not_ready: Some(std::time::Duration::from_secs(60)), ..attributes() };
        let stuck: Vec<_> = (0..8).map(|_| world.connect(0, 2, &patient)).collect();
        let ends = world.connect(0, 1, &attributes());
        world.hosts[2].dead = dead;
        for ends in &stuck {
            post(&mut world, *ends, 2, 50, false);
        }
        let beside = rate(&mut world, ends);
        println!("{alone} MB/s alone, {beside} MB/s beside 8 that are stuck (dead: {dead})");
        assert!(beside * 10 > alone * 9, "{beside} MB/s of {alone}, dead: {dead}");
        assert!(world.hosts[2].port.completions.is_empty(), "they were not stuck");
    }
}
