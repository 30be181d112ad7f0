//! Two that ask each other.

use super::adapter::Behaviour;
use super::pair::{MILLI, SECOND, attributes};
use super::world::{Faults, World, config};
use crate::engine::{ConnectFailure, Event, Tuning};
use crate::{ConnectionLoss, NetAddress, ReliabilityLevel, ViAttributes, ViId, ViState};

fn ask(world: &mut World, host: usize, vi: ViId, names: (&[u8], &[u8]), timeout: u64) {
    let address = NetAddress::new(world.hosts[1 - host].mac, names.1).unwrap();
    let (now, engine, port) = world.at(host);
    engine.connect_peer(now, vi, names.0, &address, timeout, port).unwrap();
}

fn vis(world: &mut World) -> [ViId; 2] {
    [0, 1].map(|host| world.hosts[host].engine.create_vi(&attributes()).unwrap())
}

fn state(world: &World, host: usize, vi: ViId) -> ViState {
    world.hosts[host].engine.state(vi).unwrap()
}

fn met(world: &mut World, vi: [ViId; 2]) -> bool {
    world.until(30 * SECOND, |world| {
        [0, 1].iter().all(|host| state(world, *host, vi[*host]) == ViState::Connected)
    })
}

#[test]
fn they_meet_whoever_asks_first_and_over_bad_wires() {
    for seed in 0..200 {
        let faults = Faults {
            loss: [0, 100_000, 300_000][seed as usize % 3],
            duplication: 100_000,
            reordering: 100_000,
            late: 500_000,
            delay: 5_000 + seed * 100_000,
            ..Faults::default()
        };
        let behaviour = Behaviour { slots: 16, fetch: 0, notice: 0, copies: 0 };
        let configs = (0..2).map(|n| config(n, seed, Tuning::default())).collect();
        let mut world = World::new(seed, faults, &behaviour, configs);
        let vi = vis(&mut world);
        let first = seed as usize % 2;
        let names: [(&[u8], &[u8]); 2] = [(b"left", b"right"), (b"right", b"left")];
        ask(&mut world, first, vi[first], names[first], 60 * SECOND);
        assert_eq!(state(&world, first, vi[first]), ViState::ConnectPending);
        let pause = world.rng.below(100 * MILLI);
        world.run(pause);
        ask(&mut world, 1 - first, vi[1 - first], names[1 - first], 60 * SECOND);
        assert!(met(&mut world, vi), "seed {seed}");
        for host in 0..2 {
            assert!(matches!(world.event(host), Some(Event::Connected { .. })), "once, at each end");
            assert_eq!(world.event(host), None);
        }
        // They stay so, and go on without the requests.
        world.run(8 * SECOND);
        assert!(met(&mut world, vi) && world.event(0).is_none() && world.event(1).is_none(), "seed {seed}");
    }
}

#[test]
fn discriminators_have_to_match_crosswise() {
    let mut world = World::good(Tuning::default());
    let vi = vis(&mut world);
    ask(&mut world, 0, vi[0], (b"left", b"right"), SECOND);
    ask(&mut world, 1, vi[1], (b"right", b"other"), SECOND);
    world.run(2 * SECOND);
    for (host, vi) in vi.into_iter().enumerate() {
        assert_eq!(state(&world, host, vi), ViState::Idle);
        let failed = Event::ConnectFailed { vi, reason: ConnectFailure::Timeout };
        assert_eq!(world.event(host), Some(failed));
    }
    // And may ask again.
    ask(&mut world, 0, vi[0], (b"left", b"right"), SECOND);
    ask(&mut world, 1, vi[1], (b"right", b"left"), SECOND);
    assert!(met(&mut world, vi));
}

#[test]
fn interfaces_that_do_not_fit_do_not_meet() {
    let same = attributes();
    for other in [
        ViAttributes { reliability: ReliabilityLevel::Unreliable, ..same },
        ViAttributes { max_transfer_size: 1000, ..same },
        ViAttributes { qos: 1, ..same },
    ] {
        let mut world = World::good(Tuning::default());
        let vi = [
            world.hosts[0].engine.create_vi(&same).unwrap(),
            world.hosts[1].engine.create_vi(&other).unwrap(),
        ];
        ask(&mut world, 0, vi[0], (b"a", b"b"), SECOND);
        ask(&mut world, 1, vi[1], (b"b", b"a"), SECOND);
        world.run(2 * SECOND);
        for (host, vi) in vi.into_iter().enumerate() {
            assert_eq!(state(&world, host, vi), ViState::Idle);
            let Some(Event::ConnectFailed { reason, .. }) = world.event(host) else { panic!("no failure") };
            assert!(matches!(reason, ConnectFailure::Mismatch { .. } | ConnectFailure::Timeout));
        }
    }
}

#[test]
fn one_that_gave_up_is_not_met() {
    let mut world = World::good(Tuning::default());
    world.faults.delay = 100 * MILLI;
    let vi = vis(&mut world);
    // The first gives up while the answer is on its way.
    ask(&mut world, 0, vi[0], (b"a", b"b"), 110 * MILLI);
    world.run(20 * MILLI);
    ask(&mut world, 1, vi[1], (b"b", b"a"), 10 * SECOND);
    world.run(SECOND);
    assert_eq!(state(&world, 0, vi[0]), ViState::Idle);
    // The other took it for met, and is told that it is not so.
    let loss = world.hosts[1].engine.loss(vi[1]);
    assert!(matches!(loss, None | Some(ConnectionLoss::RequesterGone)), "{loss:?}");
    assert!(matches!(state(&world, 1, vi[1]), ViState::Error | ViState::ConnectPending));
}
