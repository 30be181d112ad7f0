//! What the unreliable level promises, and what it does not.

use super::adapter::Behaviour;
use super::pair::{Pair, SECOND, attributes};
use super::rng::Rng;
use super::world::{Faults, World, config};
use crate::engine::Tuning;
use crate::{Descriptor, ReliabilityLevel, Status, ViAttributes, ViState, WorkQueue};

/// Messages of one seed.
const MESSAGES: usize = 300;
/// Room of a receive.
const ROOM: usize = 6000;

fn pair(world: World) -> Pair {
    let unreliable = ViAttributes { reliability: ReliabilityLevel::Unreliable, ..attributes() };
    Pair::of(world, &unreliable, 8 * ROOM)
}

fn bad_wire(seed: u64) -> World {
    let mut rng = Rng(seed);
    let faults = Faults {
        loss: rng.below(300_000),
        duplication: rng.below(100_000),
        reordering: rng.below(200_000),
        late: 100_000,
        delay: 5_000,
        ..Faults::default()
    };
    let behaviour = Behaviour { slots: 16, fetch: 2_000, notice: 5_000, copies: 500_000 };
    let configs = (0..2).map(|n| config(n, seed, Tuning::default())).collect();
    World::new(seed, faults, &behaviour, configs)
}

/// A message holds its number, again and again.
fn fill(number: u32, len: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

#[test]
fn each_message_at_most_once_whole_and_in_order() {
    let mut lost = 0;
    for seed in 0..40 {
        let mut pair = pair(bad_wire(seed));
        let mut rng = Rng(seed ^ 0x55);
        let lengths: Vec<usize> = (0..MESSAGES).map(|_| 4 + rng.below(5000) as usize).collect();
        let mut latest = None;
        let mut came = 0;
        for _ in 0..4 {
            pair.post_receive(1, 0..ROOM);
        }
        for (number, len) in lengths.iter().enumerate() {
            pair.region[0].write(0, &fill(number as u32, *len)).unwrap();
            let message = pair.message(0, 0..*len);
            pair.send(0, message);
            // A send is over when the adapter has its bytes, whether they arrive or not.
            let sent = pair.wait(0).descriptor;
            assert_eq!((sent.status(), sent.length() as usize), (Status::DONE, *len));
            pair.world.run(rng.below(200_000));
            while let Some(received) = pair.completion(1) {
                assert_eq!(received.queue, WorkQueue::Receive);
                let mut bytes = vec![0; received.descriptor.length() as usize];
                pair.region[1].read(0, &mut bytes).unwrap();
                let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                // The buffer is one for all receives: a later message may have begun in it, so only the last that
                // came is looked at whole.
                if pair.world.hosts[1].port.completions.is_empty() {
                    assert!(
                        latest.is_none_or(|latest| number >= latest),
                        "seed {seed}: {number} after {latest:?}"
                    );
                }
                latest = Some(latest.unwrap_or(0).max(number));
                came += 1;
                pair.post_receive(1, 0..ROOM);
            }
        }
        assert!(came <= MESSAGES);
        lost += MESSAGES - came;
        assert_eq!(pair.state(0), ViState::Connected);
        assert_eq!(pair.state(1), ViState::Connected);
    }
    assert!(lost > 0, "nothing was lost: the test shows little");
}

/// Each receive has memory of its own, so that every byte of every message that came can be looked at.
#[test]
fn what_comes_is_whole() {
    for seed in 100..140 {
        let mut pair = pair(bad_wire(seed));
        let mut rng = Rng(seed);
        for n in 0..8 {
            pair.post_receive(1, n * ROOM..(n + 1) * ROOM);
        }
        let mut latest = None;
        let lengths: Vec<usize> = (0..8).map(|_| 4 + rng.below(5000) as usize).collect();
        for (number, len) in lengths.iter().enumerate() {
            pair.region[0].write(0, &fill(number as u32, *len)).unwrap();
            let message = pair.message(0, 0..*len);
            pair.send(0, message);
            pair.wait(0);
        }
        pair.world.run(SECOND);
        let mut receive = 0;
        while let Some(received) = pair.completion(1) {
            assert_eq!(received.descriptor.status(), Status::DONE);
            let mut bytes = vec![0; received.descriptor.length() as usize];
            pair.region[1].read(receive * ROOM, &mut bytes).unwrap();
            let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            assert!(bytes == fill(number, lengths[number as usize]), "seed {seed}, message {number}");
            assert!(latest.is_none_or(|latest| number > latest), "once and in order");
            latest = Some(number);
            receive += 1;
        }
    }
}

#[test]
fn without_a_receive_a_message_is_dropped_and_the_connection_goes_on() {
    let mut pair = pair(World::good(Tuning::default()));
    for n in 0..3 {
        pair.region[0].write(0, &fill(n, 100)).unwrap();
        let message = pair.message(0, 0..100);
        pair.send(0, message);
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE);
        pair.world.run(100_000);
        if n == 1 {
            pair.post_receive(1, 0..50);
            pair.post_receive(1, 100..200);
        }
    }
    // The one that came after the receives were posted: too long for the first of them.
    assert_eq!(pair.wait(1).descriptor.status(), Status::DONE | Status::LENGTH_ERROR);
    let message = pair.message(0, 0..100);
    pair.send(0, message);
    let received = pair.wait(1).descriptor;
    assert_eq!((received.status(), received.length()), (Status::DONE, 100));
    assert_eq!((pair.state(0), pair.state(1)), (ViState::Connected, ViState::Connected));
}

#[test]
fn rdma_writes_that_are_not_allowed_are_dropped() {
    let mut pair = pair(World::good(Tuning::default()));
    pair.region[1].write(0, &[7; 8 * ROOM]).unwrap();
    pair.region[0].write(0, &[9; 100]).unwrap();
    let mut to = pair.region[1].remote(pair.region[1].len() - 10).unwrap();
    let write = |pair: &Pair, to| Descriptor::rdma_write(vec![pair.region[0].segment(0..100).unwrap()], to);
    let beyond = write(&pair, to);
    pair.send(0, beyond);
    to = pair.region[1].remote(500).unwrap();
    let good = write(&pair, to);
    pair.send(0, good);
    for _ in 0..2 {
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE);
    }
    pair.world.run(SECOND);
    let mut bytes = vec![0; 8 * ROOM];
    pair.region[1].read(0, &mut bytes).unwrap();
    assert!(bytes[..500].iter().chain(&bytes[600..]).all(|byte| *byte == 7));
    assert!(bytes[500..600].iter().all(|byte| *byte == 9));
    assert_eq!(pair.state(1), ViState::Connected);
}

#[test]
fn a_dead_peer_is_noticed_on_this_level_too() {
    let mut pair = pair(World::good(Tuning::default()));
    pair.world.hosts[1].dead = true;
    assert!(pair.world.until(60 * SECOND, |world| {
        world.hosts[0].port.events.iter().any(|e| matches!(e, crate::engine::Event::Broken { .. }))
    }));
    assert_eq!(pair.state(0), ViState::Error);
}
