//! Receivers that are not ready, and let their peers wait.

use std::time::Duration;

use super::adapter::Behaviour;
use super::pair::{MILLI, Pair, REGION, SECOND, attributes};
use super::world::{Faults, World, config};
use crate::engine::Tuning;
use crate::wire::data;
use crate::{ConnectionLoss, Descriptor, Status, ViAttributes, ViState, WorkQueue};

/// A pair whose ends let wait for that long.
fn patient(world: World, patience: Duration) -> Pair {
    Pair::of(world, &ViAttributes { not_ready: Some(patience), ..attributes() }, REGION)
}

fn good(patience: Duration) -> Pair {
    patient(World::good(Tuning::default()), patience)
}

#[test]
fn a_message_waits_for_its_receive() {
    let mut pair = good(Duration::from_secs(2));
    pair.region[0].write(0, &[7; 5000]).unwrap();
    for n in 0..3 {
        let message = pair.message(0, n..5000);
        pair.send(0, message);
    }
    pair.world.run(SECOND);
    assert_eq!((pair.state(0), pair.state(1)), (ViState::Connected, ViState::Connected));
    assert!(pair.completion(0).is_none() && pair.completion(1).is_none());
    let before = pair.world.delivered;
    assert!(before < 1000, "{before} frames: it is asked at intervals");
    for n in 0..3 {
        pair.post_receive(1, n * 10_000..n * 10_000 + 5000);
    }
    // Soon: it has not gone to sleep over it.
    pair.world.run(50 * MILLI);
    for n in 0..3 {
        let got = pair.completion(1).expect("it has come").descriptor;
        assert!(got.status().is_success() && got.length() == 5000 - n);
        assert!(pair.completion(0).expect("it is acknowledged").descriptor.status().is_success());
    }
    // The time counts for each message anew.
    for _ in 0..3 {
        let message = pair.message(0, 0..10);
        pair.send(0, message);
        pair.world.run(1500 * MILLI);
        pair.post_receive(1, 0..10);
        assert!(pair.wait(1).descriptor.status().is_success());
    }
    assert!(pair.world.hosts.iter().all(|host| host.port.errors.is_empty()));
}

#[test]
fn not_for_longer_than_it_is_let() {
    let mut pair = good(Duration::from_millis(300));
    let message = pair.message(0, 0..10);
    pair.send(0, message);
    pair.world.run(299 * MILLI);
    assert_eq!(pair.state(1), ViState::Connected);
    pair.world.run(10 * MILLI);
    assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::REMOTE_DESCRIPTOR_ERROR);
    pair.broken(ConnectionLoss::PeerReceiveQueueEmpty, ConnectionLoss::ReceiveQueueEmpty);
}

#[test]
fn a_write_with_immediate_data_waits_for_its_receive_too() {
    let mut pair = good(Duration::from_secs(2));
    pair.region[0].write(0, &[9; 10_000]).unwrap();
    let mut write = Descriptor::rdma_write(
        vec![pair.region[0].segment(0..10_000).unwrap()],
        pair.region[1].remote(0).unwrap(),
    );
    write.immediate = Some(5);
    pair.send(0, write);
    let message = pair.message(0, 0..10);
    pair.send(0, message);
    pair.world.run(400 * MILLI);
    assert!(pair.completion(0).is_none() && pair.completion(1).is_none());
    pair.post_receive(1, 20_000..20_010);
    let got = pair.wait(1).descriptor;
    assert_eq!((got.immediate, got.length()), (Some(5), 10_000));
    assert!(got.status().contains(Status::DONE | Status::REMOTE_RDMA_WRITE));
    let mut there = vec![0; 10_000];
    pair.region[1].read(0, &mut there).unwrap();
    assert!(there.iter().all(|byte| *byte == 9));
    pair.post_receive(1, 20_000..20_010);
    assert_eq!(pair.wait(1).descriptor.length(), 10);
}

/// On a bad wire, with receives that always come late: every message comes once, whole and in order.
#[test]
fn nothing_is_lost_or_doubled_by_waiting() {
    for seed in 1..=20 {
        let faults = Faults {
            loss: 30_000,
            duplication: 30_000,
            reordering: 100_000,
            corruption: 0,
            delay: 5_000,
            jitter: 5_000,
            late: 200_000,
            ..Faults::default()
        };
        let behaviour = Behaviour { slots: 64, fetch: 500, notice: 500, copies: 0 };
        let configs = (0..2).map(|n| config(n, seed, Tuning::default())).collect();
        let mut pair = patient(World::new(seed, faults, &behaviour, configs), Duration::from_secs(30));
        let total = 60u32;
        for n in 0..total {
            let len = 1 + (n as usize * 977) % 6000;
            let mut message = if n % 3 == 2 {
                let to = pair.region[1].remote(30_000).unwrap();
                Descriptor::rdma_write(vec![pair.region[0].segment(0..len).unwrap()], to)
            } else {
                pair.message(0, 0..len)
            };
            message.immediate = Some(n);
            pair.send(0, message);
        }
        for n in 0..total {
            if n % 4 == 0 {
                let time = pair.world.rng.below(40) * MILLI;
                pair.world.run(time);
            }
            pair.post_receive(1, 0..6000);
            let got = pair.wait(1);
            assert_eq!((got.queue, got.descriptor.immediate), (WorkQueue::Receive, Some(n)), "seed {seed}");
            assert_eq!(got.descriptor.length() as usize, 1 + (n as usize * 977) % 6000);
        }
        for _ in 0..total {
            assert!(pair.wait(0).descriptor.status().is_success());
        }
    }
}

/// As WIRE.md says: it comes again after the time-out, doubled once and no more, and each copy is answered.
#[test]
fn it_is_asked_again_at_even_intervals_and_answered_each_time() {
    let mut pair = good(Duration::from_secs(5));
    // Until the round trip is known.
    for _ in 0..100 {
        pair.post_receive(1, 0..100);
        let message = pair.message(0, 0..10);
        pair.send(0, message);
        assert!(
            pair.wait(1).descriptor.status().is_success() && pair.wait(0).descriptor.status().is_success()
        );
    }
    let message = pair.message(0, 0..10);
    pair.send(0, message);
    pair.world.run(100 * MILLI);
    pair.world.trace = Some(Vec::new());
    pair.world.run(SECOND);
    let trace = pair.world.trace.take().unwrap();
    let asked = trace.iter().filter(|frame| frame[15] == data::DATA).count() as u64;
    let not_ready = |frame: &[u8]| u16::from_le_bytes([frame[16], frame[17]]) & data::NOT_READY != 0;
    let answered = trace.iter().filter(|frame| frame[15] == data::ACK && not_ready(frame)).count() as u64;
    // Up to a quarter is taken off, differently each time.
    let interval = 2 * Tuning::default().rto_min;
    println!("asked {asked} times");
    assert!((SECOND / interval - 1..=SECOND / (interval * 3 / 4) + 1).contains(&asked), "{asked}");
    assert!(asked.abs_diff(answered) <= 1, "{asked} times asked, {answered} answered");
    pair.post_receive(1, 0..100);
    let start = pair.world.now;
    assert!(pair.wait(1).descriptor.status().is_success());
    assert!(pair.world.now - start <= interval, "the next copy finds its receive");
}
