//! Many requests at a time: floods, refusals, such that cross and such that come again; and what is left of connections
//! that are no more.

use super::adapter::Behaviour;
use super::pair::{MILLI, Pair, SECOND, attributes};
use super::rng::Rng;
use super::world::{Faults, World, config, mac};
use crate::engine::{ConnectFailure, Event, Tuning};
use crate::{NetAddress, ViAttributes, ViId, ViState};

/// Interfaces that take little.
fn small() -> ViAttributes {
    let mut attributes = attributes();
    (attributes.send_depth, attributes.receive_depth) = (4, 4);
    attributes
}

fn hosts(count: usize, faults: Faults) -> World {
    let behaviour = Behaviour { slots: 64, fetch: 0, notice: 0, copies: 0 };
    let configs = (0..count).map(|n| config(n, 7, Tuning::default())).collect();
    World::new(7, faults, &behaviour, configs)
}

fn ask(world: &mut World, from: usize, to: usize, place: &[u8], timeout: u64) -> ViId {
    let vi = world.hosts[from].engine.create_vi(&small()).unwrap();
    let address = NetAddress::new(mac(to), place).unwrap();
    let (now, engine, port) = world.at(from);
    engine.connect(now, vi, b"here", &address, timeout, b"ask", port).unwrap();
    vi
}

#[test]
fn a_flood_of_requests_of_one_host_starves_no_other() {
    let mut world = hosts(3, Faults { delay: 5_000, ..Faults::default() });
    let listener = world.hosts[1].engine.listen(b"there", 8).unwrap();
    for _ in 0..500 {
        ask(&mut world, 0, 1, b"there", 300 * SECOND);
    }
    world.run(SECOND);
    ask(&mut world, 2, 1, b"there", 300 * SECOND);
    // Whoever decides there takes its time, and says no.
    let mut decided = 0;
    loop {
        world.run(50 * MILLI);
        let Some(request) = world.hosts[1].engine.next_request(listener) else { continue };
        decided += 1;
        let (now, engine, port) = world.at(1);
        engine.reject(now, request.id, b"", port).unwrap();
        if request.remote.host == mac(2) {
            break;
        }
        assert!(decided < 40, "a host with one request waits behind {decided} of another's");
    }
    println!("its turn came after {decided} decisions");
}

#[test]
fn thousands_of_requests_that_are_refused_leave_nothing_behind() {
    let mut world = World::good(Tuning::default());
    let listener = world.hosts[1].engine.listen(b"there", 8).unwrap();
    let vi = world.hosts[0].engine.create_vi(&small()).unwrap();
    let mut entries = None;
    for n in 0..20_000 {
        let rejected = n % 4 == 0;
        let address = NetAddress::new(mac(1), if rejected { &b"there"[..] } else { b"nobody" }).unwrap();
        let (now, engine, port) = world.at(0);
        engine.connect(now, vi, b"here", &address, SECOND, b"", port).unwrap();
        world.run(50_000);
        if rejected {
            let request = world.hosts[1].engine.next_request(listener).unwrap();
            let (now, engine, port) = world.at(1);
            engine.reject(now, request.id, b"no", port).unwrap();
            world.run(50_000);
            world.hosts[1].port.events.clear();
        }
        match world.event(0) {
            Some(Event::ConnectFailed { reason: ConnectFailure::NoMatch, .. }) => assert!(!rejected),
            Some(Event::ConnectFailed { reason: ConnectFailure::Rejected { .. }, .. }) => assert!(rejected),
            other => panic!("request {n}: {other:?}"),
        }
        let now = [0, 1].map(|host: usize| world.hosts[host].engine.core.directory.len());
        assert_eq!(*entries.get_or_insert(now), now, "request {n} is remembered");
        assert!(world.hosts.iter().all(|host| host.engine.core.farewells.is_empty()));
    }
    world.hosts[0].engine.destroy_vi(vi).unwrap();
    assert_eq!(world.hosts[0].engine.core.directory.len(), 0);
    // Time that passes is not used for any of them.
    let before = world.delivered;
    world.run(10 * SECOND);
    assert_eq!(world.delivered, before);
}

/// Both hosts ask each other at once, as clients and as peers, on a wire that repeats, reorders and loses.
#[test]
fn requests_that_cross_and_come_again_make_one_connection_each() {
    const EACH: usize = 60;
    let faults = Faults {
        delay: 5_000,
        loss: 100_000,
        duplication: 300_000,
        reordering: 300_000,
        late: 100 * MILLI,
        ..Faults::default()
    };
    let mut world = hosts(2, faults);
    let listeners = [0, 1].map(|host: usize| world.hosts[host].engine.listen(b"there", 16).unwrap());
    for n in 0..EACH {
        for host in [0, 1] {
            ask(&mut world, host, 1 - host, b"there", 100 * SECOND);
            let vi = world.hosts[host].engine.create_vi(&small()).unwrap();
            let place = |host: usize| [b"peer", &n.to_le_bytes()[..], &[host as u8]].concat();
            let address = NetAddress::new(mac(1 - host), place(1 - host)).unwrap();
            let (now, engine, port) = world.at(host);
            engine.connect_peer(now, vi, &place(host), &address, 100 * SECOND, port).unwrap();
        }
    }
    let (mut accepted, mut connected) = ([0; 2], [0; 2]);
    let done = world.until(200 * SECOND, |world| {
        for host in [0, 1] {
            while let Some(request) = world.hosts[host].engine.next_request(listeners[host]) {
                let vi = world.hosts[host].engine.create_vi(&small()).unwrap();
                let (now, engine, port) = world.at(host);
                engine.accept(now, request.id, vi, b"yes", port).unwrap();
                accepted[host] += 1;
            }
            while let Some(event) = world.event(host) {
                match event {
                    Event::Connected { .. } => connected[host] += 1,
                    Event::Request { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        connected == [2 * EACH; 2]
    });
    assert!(done, "{connected:?} connected, {accepted:?} accepted");
    // Whatever comes late makes no more, and ends none.
    world.run(10 * SECOND);
    assert_eq!(accepted, [EACH; 2]);
    for host in &mut world.hosts {
        assert!(host.port.events.iter().all(|event| matches!(event, Event::Request { .. })));
        assert_eq!(host.engine.core.connections as usize, 3 * EACH);
    }
    for host in [0, 1] {
        assert!(
            world.hosts[host].engine.next_request(listeners[host]).is_none(),
            "an old request is new again"
        );
    }
}

/// Frames of fifty connections of the same two interfaces, all with the same numbers, come again in any order.
#[test]
fn late_frames_of_many_old_connections_never_touch_a_new_one() {
    let mut pair = Pair::with(World::good(Tuning { first_sequence: Some(5), ..Tuning::default() }));
    let mut old: Vec<Vec<u8>> = Vec::new();
    pair.world.trace = Some(Vec::new());
    for _ in 0..50 {
        for (from, to) in [(0, 1), (1, 0)] {
            pair.region[from].write(0, &[1; 64]).unwrap();
            pair.post_receive(to, 64..128);
            let message = pair.message(from, 0..64);
            pair.send(from, message);
            while pair.wait(to).queue != crate::WorkQueue::Receive {}
        }
        pair.disconnect(0);
        pair.world.run(SECOND);
        pair.disconnect(1);
        pair.world.run(SECOND);
        old.append(pair.world.trace.as_mut().unwrap());
        for host in &mut pair.world.hosts {
            host.port.events.clear();
            host.port.completions.clear();
        }
        pair.world.connect_these(0, pair.vi[0], 1, pair.vi[1]);
    }
    pair.world.trace = None;
    let mut rng = Rng(11);
    for host in 0..2 {
        pair.region[host].write(0, &[2; 128]).unwrap();
        pair.post_receive(host, 0..128);
    }
    for _ in 0..5_000 {
        let frame = &old[rng.below(old.len() as u64) as usize];
        pair.world.deliver(rng.below(2) as usize, frame);
        pair.world.run(rng.below(100_000));
    }
    for host in 0..2 {
        assert_eq!(pair.state(host), ViState::Connected);
        assert!(pair.completion(host).is_none(), "an old frame completed something");
        let mut bytes = [0; 128];
        pair.region[host].read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [2; 128]);
    }
    assert!(old.len() > 300, "{} old frames", old.len());
}
