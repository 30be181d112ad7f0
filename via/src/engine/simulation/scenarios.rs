//! Single events, on a wire that is good but for what the scenario does to it.

use super::adapter::Behaviour;
use super::pair::{MILLI, Pair, REGION, SECOND, attributes};
use super::world::{Faults, TAG, World, config, mac};
use crate::engine::{
    ConnectFailure, Engine, EngineConfig, Event, MAX_LISTENERS, MAX_SEGMENTS, MAX_TRANSFER, MAX_VIS, Tuning,
};
use crate::wire::data;
use crate::{
    ConnectionLoss, Descriptor, Error, MemoryAttributes, MemoryHandle, NetAddress, ProtectionTag,
    ReliabilityLevel, RemoteMemory, Status, ViAttributes, ViId, ViState, WorkQueue,
};

fn kinds(world: &World, kind: u8) -> usize {
    world.trace.as_ref().unwrap().iter().filter(|frame| frame[15] == kind).count()
}

#[test]
fn a_ping_pong_takes_a_frame_each_way() {
    let mut pair = Pair::new();
    pair.world.trace = Some(Vec::new());
    for _ in 0..100 {
        for (from, to) in [(0, 1), (1, 0)] {
            pair.post_receive(to, 0..64);
            let ping = pair.message(from, 64..128);
            pair.send(from, ping);
            while pair.wait(to).queue != WorkQueue::Receive {}
        }
    }
    assert_eq!(kinds(&pair.world, data::DATA), 200);
    assert_eq!(kinds(&pair.world, data::ACK), 0, "acknowledgements ride on the answers");
}

#[test]
fn sixteen_mebibytes_and_none() {
    let mut pair = Pair::new();
    let domain = pair.world.domain.clone();
    let size = 16 << 20;
    let source = pair.world.hosts[0].region(&domain, size);
    let sink = pair.world.hosts[1].region(&domain, size);
    let bytes: Vec<u8> = (0..size as u32).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
    source.write(0, &bytes).unwrap();
    let receive = Descriptor::new(vec![sink.whole()]);
    let (_, engine, port) = pair.world.at(1);
    engine.post_receive(pair.vi[1], receive, port);
    engine.post_receive(pair.vi[1], Descriptor::new(Vec::new()), port);
    pair.send(0, Descriptor::new(vec![source.whole()]));
    let mut empty = Descriptor::new(Vec::new());
    empty.immediate = Some(0);
    pair.send(0, empty);
    assert_eq!(pair.wait(1).descriptor.length() as usize, size);
    let empty = pair.wait(1).descriptor;
    assert_eq!(
        (empty.length(), empty.immediate, empty.status()),
        (0, Some(0), Status::DONE | Status::IMMEDIATE)
    );
    let mut arrived = vec![0; size];
    sink.read(0, &mut arrived).unwrap();
    assert!(arrived == bytes);
    assert_eq!(pair.wait(0).descriptor.length() as usize, size);
    assert!(pair.wait(0).descriptor.status().is_success());
}

/// The longest message, in as many segments as a descriptor has. All of them name the same memory, a little further on
/// each, so that it does not take a gigabyte.
#[test]
fn a_gibibyte_in_252_segments() {
    let is_quick = std::env::var_os("UVIA_QUICK").is_some_and(|value| value == "1");
    let size: usize = if is_quick { 64 << 20 } else { MAX_TRANSFER as usize };
    let behaviour = Behaviour { slots: 64, fetch: 0, notice: 0, copies: 0 };
    let configs = (0..2).map(|n| EngineConfig { mtu: 65_000, ..config(n, 7, Tuning::default()) }).collect();
    let mut world = World::new(7, Faults { delay: 5_000, ..Faults::default() }, &behaviour, configs);
    let mut attributes = attributes();
    attributes.max_transfer_size = MAX_TRANSFER;
    let (client, server) = world.connect(0, 1, &attributes);
    let (each, step) = (size.div_ceil(MAX_SEGMENTS), 61);
    let domain = world.domain.clone();
    let room = each + step * MAX_SEGMENTS;
    let (source, sink) = (world.hosts[0].region(&domain, room), world.hosts[1].region(&domain, room));
    let bytes: Vec<u8> = (0..room as u32).map(|n| (n ^ n >> 7 ^ n >> 15) as u8).collect();
    source.write(0, &bytes).unwrap();
    let segments = |region: &crate::MemoryRegion| {
        let last = size - each * (MAX_SEGMENTS - 1);
        let len = |n| if n + 1 == MAX_SEGMENTS { last } else { each };
        (0..MAX_SEGMENTS).map(|n| region.segment(n * step..n * step + len(n)).unwrap()).collect()
    };
    let (_, engine, port) = world.at(1);
    engine.post_receive(server, Descriptor::new(segments(&sink)), port);
    let (now, engine, port) = world.at(0);
    engine.post_send(now, client, Descriptor::new(segments(&source)), port);
    for host in [1, 0] {
        assert!(world.until(1000 * SECOND, |world| !world.hosts[host].port.completions.is_empty()));
        let descriptor = world.hosts[host].port.completions.pop_front().unwrap().descriptor;
        assert_eq!((descriptor.status(), descriptor.length() as usize), (Status::DONE, size));
    }
    // Each segment went where the same one came from.
    let mut arrived = vec![0; room];
    sink.read(0, &mut arrived).unwrap();
    let end = room - step - (each - (size - each * (MAX_SEGMENTS - 1)));
    assert!(arrived[..end] == bytes[..end]);
}

#[test]
fn an_empty_receive_queue_breaks_the_connection() {
    let mut pair = Pair::new();
    pair.post_receive(1, 0..64);
    for _ in 0..3 {
        let message = pair.message(0, 0..64);
        pair.send(0, message);
    }
    assert!(pair.wait(1).descriptor.status().is_success());
    // The first arrived, the second was refused, the third was never looked at.
    assert_eq!(pair.wait(0).descriptor.status(), Status::DONE);
    assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::REMOTE_DESCRIPTOR_ERROR);
    assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::FLUSHED);
    pair.broken(ConnectionLoss::PeerReceiveQueueEmpty, ConnectionLoss::ReceiveQueueEmpty);
}

#[test]
fn a_message_longer_than_the_receive() {
    let mut pair = Pair::new();
    pair.region[1].write(0, &[7; REGION]).unwrap();
    pair.post_receive(1, 100..3100);
    pair.post_receive(1, 8000..9000);
    let message = pair.message(0, 0..5000);
    pair.send(0, message);
    assert_eq!(pair.wait(1).descriptor.status(), Status::DONE | Status::LENGTH_ERROR);
    assert_eq!(pair.wait(1).descriptor.status(), Status::DONE | Status::FLUSHED);
    assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::REMOTE_DESCRIPTOR_ERROR);
    pair.broken(ConnectionLoss::Length, ConnectionLoss::Length);
    let mut bytes = vec![0; REGION];
    pair.region[1].read(0, &mut bytes).unwrap();
    assert!(bytes[..100].iter().chain(&bytes[3100..]).all(|byte| *byte == 7));
}

#[test]
fn rdma_writes_that_are_not_allowed_touch_nothing() {
    let other = ProtectionTag::new(1, 2);
    for case in 0..8 {
        let mut world = World::good(Tuning::default());
        let mut refusing = attributes();
        refusing.rdma_write = case != 7;
        let client = world.hosts[0].engine.create_vi(&attributes()).unwrap();
        let server = world.hosts[1].engine.create_vi(&refusing).unwrap();
        world.connect_these(0, client, 1, server);
        let domain = world.domain.clone();
        let source = world.hosts[0].region(&domain, REGION);
        let mut register = |attributes| {
            world.hosts[1].engine.regions().allocate(domain.clone(), REGION, attributes).unwrap()
        };
        let target = register(MemoryAttributes::remote_write(TAG));
        let local = register(MemoryAttributes::local(TAG));
        let foreign = register(MemoryAttributes::remote_write(other));
        for region in [&target, &local, &foreign] {
            region.write(0, &[9; REGION]).unwrap();
        }
        let good = target.remote(0).unwrap();
        let to = match case {
            0 => RemoteMemory { handle: MemoryHandle(0), ..good },
            1 => RemoteMemory { handle: MemoryHandle(good.handle.0 + (1 << 20)), ..good },
            2 => RemoteMemory { address: good.address - 1, ..good },
            3 => target.remote(REGION - 4999).unwrap(),
            4 => RemoteMemory { address: u64::MAX - 10, ..good },
            5 => local.remote(0).unwrap(),
            6 => foreign.remote(0).unwrap(),
            _ => good,
        };
        let mut pair = Pair { world, vi: [client, server], region: [source.clone(), target.clone()] };
        pair.post_receive(1, 0..10);
        let mut write = Descriptor::rdma_write(vec![source.segment(0..5000).unwrap()], to);
        write.immediate = Some(1);
        pair.send(0, write);
        let behind = pair.message(0, 0..10);
        pair.send(0, behind);
        let failed = pair.wait(0).descriptor;
        assert_eq!(failed.status(), Status::DONE | Status::RDMA_PROTECTION_ERROR, "case {case}");
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::FLUSHED);
        assert_eq!(pair.wait(1).descriptor.status(), Status::DONE | Status::FLUSHED);
        pair.broken(ConnectionLoss::RdmaProtection, ConnectionLoss::RdmaProtection);
        for region in [&target, &local, &foreign] {
            let mut bytes = vec![0; REGION];
            region.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 9), "case {case}");
        }
    }
}

#[test]
fn an_rdma_write_consumes_a_receive_with_immediate_data_only() {
    let mut pair = Pair::new();
    pair.post_receive(1, 0..0);
    let to = pair.region[1].remote(1000).unwrap();
    pair.region[0].write(0, &[5; 3000]).unwrap();
    let segment = pair.region[0].segment(0..3000).unwrap();
    pair.send(0, Descriptor::rdma_write(vec![segment.clone()], to));
    assert!(pair.wait(0).descriptor.status().is_success());
    assert!(pair.completion(1).is_none());
    let mut write = Descriptor::rdma_write(vec![segment], RemoteMemory { address: to.address + 3000, ..to });
    write.immediate = Some(0x1234_5678);
    pair.send(0, write);
    let receive = pair.wait(1).descriptor;
    assert_eq!(receive.status(), Status::DONE | Status::IMMEDIATE | Status::REMOTE_RDMA_WRITE);
    assert_eq!((receive.immediate, receive.length()), (Some(0x1234_5678), 3000));
    let mut bytes = [0; 6002];
    pair.region[1].read(999, &mut bytes).unwrap();
    assert!(bytes[1..6001].iter().all(|byte| *byte == 5) && bytes[0] == 0 && bytes[6001] == 0);
}

#[test]
fn a_peer_that_died_is_noticed_idle_or_not() {
    for busy in [false, true] {
        let mut pair = Pair::new();
        pair.world.hosts[1].dead = true;
        if busy {
            let message = pair.message(0, 0..64);
            pair.send(0, message);
        }
        pair.post_receive(0, 0..64);
        let start = pair.world.now;
        let found = pair.world.until(20 * SECOND, |world| !world.hosts[0].port.events.is_empty());
        assert!(found && pair.world.now - start < 8 * SECOND);
        assert_eq!(pair.loss(0), Some(ConnectionLoss::PeerSilent));
        if busy {
            assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::TRANSPORT_ERROR);
        }
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::FLUSHED);
    }
}

#[test]
fn a_stall_of_the_peer_or_of_ours_is_survived() {
    let mut pair = Pair::new();
    pair.post_receive(1, 0..64);
    pair.world.hosts[1].dead = true;
    let message = pair.message(0, 0..64);
    pair.send(0, message);
    pair.world.run(4 * SECOND);
    pair.world.hosts[1].dead = false;
    assert!(pair.wait(1).descriptor.status().is_success());
    assert!(pair.wait(0).descriptor.status().is_success());
    // Nobody polls us for much longer than the time-out: the peer breaks, but not we, of our own account.
    let mut pair = Pair::new();
    pair.post_receive(1, 0..64);
    pair.world.now += 30 * SECOND;
    let message = pair.message(0, 0..64);
    pair.send(0, message);
    assert!(pair.wait(0).descriptor.status().is_success());
    assert_eq!(pair.state(0), ViState::Connected);
}

#[test]
fn an_idle_connection_lives() {
    let mut pair = Pair::new();
    pair.world.run(60 * SECOND);
    assert_eq!((pair.state(0), pair.state(1)), (ViState::Connected, ViState::Connected));
}

#[test]
fn a_peer_that_was_started_anew_frees_us_fast() {
    let mut pair = Pair::new();
    pair.world.hosts[1].engine = Engine::new(config(1, 99, Tuning::default())).unwrap();
    let message = pair.message(0, 0..64);
    pair.send(0, message);
    pair.world.run(10 * MILLI);
    assert_eq!(pair.loss(0), Some(ConnectionLoss::PeerReset));
    assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::TRANSPORT_ERROR);
}

#[test]
fn connections_are_made_over_a_bad_wire() {
    for seed in 0..200 {
        let faults = Faults {
            loss: 200_000,
            duplication: 200_000,
            reordering: 300_000,
            corruption: 50_000,
            delay: 5_000,
            late: 50_000_000,
            ..Faults::default()
        };
        let behaviour = Behaviour { slots: 8, fetch: 1000, notice: 1000, copies: 0 };
        let tuning = Tuning { integrity: true, ..Tuning::default() };
        let configs = (0..2).map(|n| config(n, seed, tuning.clone())).collect();
        let mut world = World::new(seed, faults, &behaviour, configs);
        for _ in 0..5 {
            let (client, server) = world.connect(0, 1, &attributes());
            let leaver = (seed % 2) as usize;
            let other = 1 - leaver;
            let vi = [client, server];
            let (now, engine, port) = world.at(leaver);
            engine.disconnect(now, vi[leaver], port).unwrap();
            assert!(world.until(30 * SECOND, |world| {
                world.hosts[other].engine.state(vi[other]) == Some(ViState::Error)
            }));
            let loss = world.hosts[other].engine.loss(vi[other]);
            assert!(matches!(loss, Some(ConnectionLoss::PeerDisconnected | ConnectionLoss::PeerReset)));
            let (now, engine, port) = world.at(other);
            engine.disconnect(now, vi[other], port).unwrap();
            world.hosts[other].port.events.clear();
        }
        world.run(30 * SECOND);
        for host in &world.hosts {
            assert!(host.engine.is_quiet() && host.port.events.is_empty(), "{:?}", host.port.events);
        }
    }
}

/// Asks host 1 for a connection to `name`.
fn ask(world: &mut World, vi: ViId, name: &[u8], timeout: u64) {
    let address = NetAddress::new(mac(1), name).unwrap();
    let (now, engine, port) = world.at(0);
    engine.connect(now, vi, b"here", &address, timeout, b"ask", port).unwrap();
}

#[test]
fn requests_that_come_to_nothing() {
    let mut world = World::good(Tuning::default());
    let vi = world.hosts[0].engine.create_vi(&attributes()).unwrap();
    let failed = |reason| Some(Event::ConnectFailed { vi, reason });
    // Programs spin on this.
    for _ in 0..1000 {
        ask(&mut world, vi, b"nobody", SECOND);
        world.run(100_000);
        assert_eq!(world.event(0), failed(ConnectFailure::NoMatch));
    }
    assert_eq!(world.hosts[0].engine.state(vi), Some(ViState::Idle));
    let listener = world.hosts[1].engine.listen(b"there", 2).unwrap();
    ask(&mut world, vi, b"there", SECOND);
    assert_eq!(world.hosts[0].engine.state(vi), Some(ViState::ConnectPending));
    world.run(2 * SECOND);
    assert_eq!(world.event(0), failed(ConnectFailure::Timeout));
    assert_eq!(world.event(1), Some(Event::Request { listener }));
    assert!(world.hosts[1].engine.next_request(listener).is_none(), "it was cancelled");
    ask(&mut world, vi, b"there", SECOND);
    world.run(MILLI);
    let request = world.hosts[1].engine.next_request(listener).unwrap();
    assert_eq!(request.remote, NetAddress::new(mac(0), *b"here").unwrap());
    let (now, engine, port) = world.at(1);
    engine.reject(now, request.id, b"no", port).unwrap();
    assert!(engine.reject(now, request.id, b"no", port).is_err());
    world.run(MILLI);
    assert_eq!(world.event(0), failed(ConnectFailure::Rejected { private_data: b"no".to_vec() }));
    assert!(world.hosts[1].engine.next_request(listener).is_none());
    // A rejection that gets lost is repeated when the request is.
    world.hosts[1].port.events.clear();
    ask(&mut world, vi, b"there", SECOND);
    world.run(MILLI);
    let request = world.hosts[1].engine.next_request(listener).unwrap();
    world.cut = Some(1);
    let (now, engine, port) = world.at(1);
    engine.reject(now, request.id, b"no", port).unwrap();
    world.run(MILLI);
    world.cut = None;
    world.run(100 * MILLI);
    assert_eq!(world.event(0), failed(ConnectFailure::Rejected { private_data: b"no".to_vec() }));
    // The listener goes away.
    ask(&mut world, vi, b"there", SECOND);
    world.run(MILLI);
    let (now, engine, port) = world.at(1);
    engine.unlisten(now, listener, port);
    world.run(MILLI);
    assert_eq!(world.event(0), failed(ConnectFailure::Rejected { private_data: Vec::new() }));
    ask(&mut world, vi, b"there", SECOND);
    world.run(MILLI);
    assert_eq!(world.event(0), failed(ConnectFailure::NoMatch));
    world.hosts[0].engine.destroy_vi(vi).unwrap();
}

#[test]
fn an_acceptance_that_does_not_fit_sends_nothing() {
    let mut world = World::good(Tuning::default());
    let vi = world.hosts[0].engine.create_vi(&attributes()).unwrap();
    let listener = world.hosts[1].engine.listen(b"there", 2).unwrap();
    ask(&mut world, vi, b"there", SECOND);
    world.run(MILLI);
    let request = world.hosts[1].engine.next_request(listener).unwrap();
    assert_eq!(request.attributes.max_transfer_size, attributes().max_transfer_size);
    let mut other = attributes();
    other.max_transfer_size = 1 << 20;
    let size = world.hosts[1].engine.create_vi(&other).unwrap();
    other = attributes();
    other.reliability = ReliabilityLevel::ReliableReception;
    let level = world.hosts[1].engine.create_vi(&other).unwrap();
    let qos = world.hosts[1].engine.create_vi(&ViAttributes { qos: 7, ..attributes() }).unwrap();
    let fits = world.hosts[1].engine.create_vi(&attributes()).unwrap();
    let (now, engine, port) = world.at(1);
    assert!(matches!(
        engine.accept(now, request.id, size, b"", port),
        Err(Error::TransferSizeMismatch { local, remote }) if local == 1 << 20 && remote == 16 << 20
    ));
    assert!(matches!(
        engine.accept(now, request.id, level, b"", port),
        Err(Error::ReliabilityMismatch { remote: ReliabilityLevel::ReliableDelivery, .. })
    ));
    assert!(matches!(
        engine.accept(now, request.id, qos, b"", port),
        Err(Error::QosMismatch { local: 7, remote: 0 })
    ));
    world.run(MILLI);
    assert_eq!(world.event(0), None);
    let (now, engine, port) = world.at(1);
    engine.accept(now, request.id, fits, b"well", port).unwrap();
    assert!(engine.accept(now, request.id, fits, b"well", port).is_err());
    world.run(MILLI);
    assert!(matches!(
        world.event(0),
        Some(Event::Connected { private_data, .. }) if private_data == b"well"
    ));
}

#[test]
fn a_yes_that_comes_too_late_ends_at_both_ends() {
    // What the client says when it gives up is lost; it is there still, or not even that.
    for there in [true, false] {
        let mut world = World::good(Tuning::default());
        let vi = world.hosts[0].engine.create_vi(&attributes()).unwrap();
        let server = world.hosts[1].engine.create_vi(&attributes()).unwrap();
        let listener = world.hosts[1].engine.listen(b"there", 2).unwrap();
        ask(&mut world, vi, b"there", 100 * MILLI);
        world.run(MILLI);
        let request = world.hosts[1].engine.next_request(listener).unwrap();
        world.cut = Some(0);
        world.run(SECOND);
        assert!(matches!(world.event(0), Some(Event::ConnectFailed { .. })));
        if there {
            world.cut = None;
        }
        let (now, engine, port) = world.at(1);
        engine.accept(now, request.id, server, b"", port).unwrap();
        let patience = if there { MILLI } else { 6 * SECOND };
        world.run(patience);
        assert_eq!(world.hosts[1].engine.loss(server), Some(ConnectionLoss::RequesterGone));
        assert_eq!(world.hosts[0].engine.state(vi), Some(ViState::Idle));
    }
}

#[test]
fn a_request_that_was_given_up_is_not_there_to_be_accepted() {
    let mut world = World::good(Tuning::default());
    let vi = world.hosts[0].engine.create_vi(&attributes()).unwrap();
    let server = world.hosts[1].engine.create_vi(&attributes()).unwrap();
    let listener = world.hosts[1].engine.listen(b"there", 2).unwrap();
    ask(&mut world, vi, b"there", 100 * MILLI);
    world.run(MILLI);
    let request = world.hosts[1].engine.next_request(listener).unwrap();
    world.run(SECOND);
    let (now, engine, port) = world.at(1);
    assert!(matches!(engine.accept(now, request.id, server, b"", port), Err(Error::Parameter(_))));
    assert_eq!(world.hosts[1].engine.state(server), Some(ViState::Idle));
}

#[test]
fn both_ends_leave_at_once() {
    let mut pair = Pair::new();
    for host in 0..2 {
        pair.post_receive(host, 0..64);
    }
    let message = pair.message(0, 0..64);
    pair.send(0, message);
    pair.disconnect(0);
    pair.disconnect(1);
    // Twice does no harm.
    pair.disconnect(0);
    pair.world.run(SECOND);
    for host in 0..2 {
        assert_eq!(pair.state(host), ViState::Idle);
        assert_eq!(pair.world.event(host), None);
        assert!(pair.world.hosts[host].engine.is_quiet());
        while let Some(completion) = pair.completion(host) {
            assert_eq!(completion.descriptor.status(), Status::DONE | Status::FLUSHED);
        }
        pair.world.hosts[host].engine.destroy_vi(pair.vi[host]).unwrap();
    }
}

#[test]
fn frames_of_an_old_connection_never_touch_a_new_one() {
    // With the same numbers in both, only the identity tells them apart.
    let mut pair = Pair::with(World::good(Tuning { first_sequence: Some(5), ..Tuning::default() }));
    pair.world.trace = Some(Vec::new());
    pair.post_receive(1, 0..64);
    pair.region[0].write(0, &[1; 64]).unwrap();
    let message = pair.message(0, 0..64);
    pair.send(0, message);
    pair.wait(1);
    pair.disconnect(0);
    pair.world.run(SECOND);
    pair.disconnect(1);
    pair.world.run(SECOND);
    let old = pair.world.trace.take().unwrap();
    for host in 0..2 {
        pair.world.hosts[host].port.events.clear();
        pair.world.hosts[host].port.completions.clear();
    }
    pair.world.connect_these(0, pair.vi[0], 1, pair.vi[1]);
    pair.region[1].write(0, &[2; 64]).unwrap();
    pair.post_receive(1, 0..64);
    for frame in &old {
        for host in 0..2 {
            pair.world.deliver(host, frame);
        }
        pair.world.run(MILLI);
    }
    for host in 0..2 {
        assert_eq!(pair.state(host), ViState::Connected);
        assert!(pair.completion(host).is_none() && pair.world.event(host).is_none());
    }
    let mut bytes = [0; 64];
    pair.region[1].read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 64]);
    let message = pair.message(0, 0..64);
    pair.send(0, message);
    assert!(pair.wait(1).descriptor.status().is_success());
}

#[test]
fn a_full_adapter_keeps_all_in_order() {
    let mut pair = Pair::new();
    pair.world.hosts[0].port.behaviour.slots = 0;
    for n in 0..20 {
        pair.post_receive(1, n * 100..n * 100 + 50);
        pair.region[0].write(n * 100, &[n as u8; 50]).unwrap();
        let message = pair.message(0, n * 100..n * 100 + 50);
        pair.send(0, message);
    }
    let offered = pair.world.hosts[0].port.offered;
    pair.world.run(3 * SECOND);
    let tries = pair.world.hosts[0].port.offered - offered;
    assert!(tries < 100_000, "the engine asked {tries} times in 3 s");
    assert!(pair.completion(1).is_none());
    assert_eq!(pair.state(0), ViState::Connected);
    pair.world.hosts[0].port.behaviour.slots = 2;
    for n in 0..20 {
        assert!(pair.wait(1).descriptor.status().is_success());
        let mut bytes = [0; 50];
        pair.region[1].read(n * 100, &mut bytes).unwrap();
        assert_eq!(bytes, [n as u8; 50]);
        assert!(pair.wait(0).descriptor.status().is_success());
    }
}

#[test]
fn what_is_flushed_comes_back_when_the_adapter_is_done_with_it_and_in_order() {
    let mut pair = Pair::new();
    pair.world.hosts[0].port.behaviour.fetch = 100 * MILLI;
    for n in 0..5 {
        let mut message = pair.message(0, 0..5000);
        message.context = n;
        pair.send(0, message);
    }
    pair.post_receive(0, 0..64);
    pair.disconnect(0);
    assert_eq!(pair.state(0), ViState::Idle);
    let busy = pair.world.hosts[0].engine.destroy_vi(pair.vi[0]);
    assert!(matches!(busy, Err(Error::InUse(_))), "the adapter refers to its memory");
    // What is posted now comes back behind them.
    let mut late = pair.message(0, 0..10);
    late.context = 5;
    pair.send(0, late);
    assert_eq!(pair.wait(0).queue, WorkQueue::Receive);
    assert!(pair.completion(0).is_none());
    for n in 0..6 {
        let descriptor = pair.wait(0).descriptor;
        assert_eq!((descriptor.context, descriptor.status()), (n, Status::DONE | Status::FLUSHED));
    }
    pair.world.hosts[0].engine.destroy_vi(pair.vi[0]).unwrap();
}

#[test]
fn posts_to_interfaces_that_are_not_connected() {
    let mut world = World::good(Tuning::default());
    let domain = world.domain.clone();
    let vi = world.hosts[0].engine.create_vi(&attributes()).unwrap();
    let region = [0, 1].map(|host| world.hosts[host].region(&domain, REGION));
    let mut pair = Pair { world, vi: [vi, vi], region };
    pair.post_receive(0, 0..10);
    let message = pair.message(0, 0..10);
    pair.send(0, message);
    assert_eq!(pair.completion(0).unwrap().queue, WorkQueue::Send);
    assert!(pair.completion(0).is_none(), "the receive waits for a connection");
    assert!(matches!(pair.world.hosts[0].engine.destroy_vi(vi), Err(Error::InUse(_))));
    pair.disconnect(0);
    assert_eq!(pair.completion(0).unwrap().descriptor.status(), Status::DONE | Status::FLUSHED);
    pair.world.hosts[0].engine.destroy_vi(vi).unwrap();
    assert!(
        pair.world.hosts[0].engine.destroy_vi(vi).is_err() && pair.world.hosts[0].engine.state(vi).is_none()
    );
}

#[test]
fn names() {
    let mut world = World::good(Tuning::default());
    let resolve = |world: &mut World, name: &str| {
        let (now, engine, port) = world.at(0);
        engine.resolve(now, name, 500 * MILLI, port).unwrap();
        world.run(SECOND);
        world.event(0)
    };
    let found = |name: &str, mac| Some(Event::Resolved { name: name.into(), mac });
    assert_eq!(resolve(&mut world, "host1"), found("host1", mac(1)));
    assert_eq!(resolve(&mut world, "host0"), found("host0", mac(0)));
    assert_eq!(resolve(&mut world, "host2"), Some(Event::Unresolved { name: "host2".into() }));
    world.hosts[0].engine.add_host("host2", mac(2)).unwrap();
    assert_eq!(resolve(&mut world, "host2"), found("host2", mac(2)));
    let (now, engine, port) = world.at(0);
    assert!(engine.resolve(now, "", 1, port).is_err() && engine.add_host(&"x".repeat(65), mac(0)).is_err());
}

#[test]
fn limits_are_errors() {
    let mut world = World::good(Tuning::default());
    let engine = &mut world.hosts[0].engine;
    let mut wrong = attributes();
    wrong.send_depth = 0;
    assert!(matches!(engine.create_vi(&wrong), Err(Error::Parameter(_))));
    let mut small = attributes();
    (small.send_depth, small.receive_depth) = (1, 1);
    let all: Vec<_> = (0..MAX_VIS).map(|_| engine.create_vi(&small).unwrap()).collect();
    assert!(matches!(engine.create_vi(&small), Err(Error::Resource { limit: MAX_VIS, .. })));
    engine.destroy_vi(all[5]).unwrap();
    let again = engine.create_vi(&small).unwrap();
    assert!(engine.state(again).is_some() && engine.state(all[5]).is_none());
    for n in 0..MAX_LISTENERS {
        engine.listen(&n.to_le_bytes(), 1).unwrap();
    }
    assert!(matches!(engine.listen(b"one more", 1), Err(Error::Resource { .. })));
    assert!(matches!(engine.listen(&0usize.to_le_bytes(), 1), Err(Error::InUse(_))));
}

#[test]
fn a_backlog_is_bounded_and_nobody_is_lost() {
    let mut world = World::good(Tuning::default());
    let listener = world.hosts[1].engine.listen(b"there", 2).unwrap();
    for _ in 0..5 {
        let vi = world.hosts[0].engine.create_vi(&attributes()).unwrap();
        ask(&mut world, vi, b"there", 10 * SECOND);
    }
    world.run(100 * MILLI);
    let requests = world.hosts[1].port.events.iter().filter(|e| matches!(e, Event::Request { .. })).count();
    assert_eq!(requests, 2);
    for _ in 0..5 {
        let mut request = None;
        assert!(world.until(2 * SECOND, |world| {
            request = world.hosts[1].engine.next_request(listener);
            request.is_some()
        }));
        let server = world.hosts[1].engine.create_vi(&attributes()).unwrap();
        let (now, engine, port) = world.at(1);
        engine.accept(now, request.unwrap().id, server, b"", port).unwrap();
    }
    world.run(SECOND);
    let connected =
        world.hosts[0].port.events.iter().filter(|e| matches!(e, Event::Connected { .. })).count();
    assert_eq!(connected, 5);
    let (now, engine, port) = world.at(1);
    engine.disconnect_all(now, port);
    world.run(SECOND);
    let broken = world.hosts[0].port.events.iter().filter(|e| matches!(e, Event::Broken { .. })).count();
    assert_eq!(broken, 5);
    assert!(world.hosts.iter().all(|host| host.engine.is_quiet()));
}

/// Memory at both ends, and a connection over which both may read.
fn readable_pair(change: impl Fn(&mut crate::ViAttributes)) -> Pair {
    let mut world = World::good(Tuning::default());
    let mut there = attributes();
    there.rdma_read = true;
    change(&mut there);
    let client = world.hosts[0].engine.create_vi(&attributes()).unwrap();
    let server = world.hosts[1].engine.create_vi(&there).unwrap();
    world.connect_these(0, client, 1, server);
    let domain = world.domain.clone();
    let region = [0, 1].map(|host| world.hosts[host].region(&domain, REGION));
    Pair { world, vi: [client, server], region }
}

#[test]
fn rdma_reads_bring_the_bytes_and_use_no_receive() {
    let mut pair = readable_pair(|_| ());
    let bytes: Vec<u8> = (0..REGION).map(|n| (n * 7 + n / 256) as u8).collect();
    pair.region[1].write(0, &bytes).unwrap();
    // More than may be asked for at a time, with a message behind them that has to wait for its turn to complete.
    for n in 0..40 {
        let from = pair.region[1].remote(n * 1500).unwrap();
        let into = pair.region[0].segment(n * 1500..(n + 1) * 1500).unwrap();
        pair.send(0, Descriptor::rdma_read(vec![into], from));
    }
    pair.post_receive(1, 0..10);
    let message = pair.message(0, 60_000..60_010);
    pair.send(0, message);
    for n in 0..41 {
        let done = pair.wait(0).descriptor;
        assert_eq!(done.status(), Status::DONE);
        assert_eq!(done.length(), if n < 40 { 1500 } else { 10 });
    }
    let mut got = vec![0; 60_000];
    pair.region[0].read(0, &mut got).unwrap();
    assert!(got == bytes[..60_000]);
    assert_eq!(pair.wait(1).queue, WorkQueue::Receive);
    assert!(pair.completion(1).is_none(), "answers are not the program's");
    pair.world.run(SECOND);
    pair.disconnect(0);
    pair.world.run(SECOND);
    assert!(pair.world.hosts.iter().all(|host| host.engine.is_quiet()));
}

#[test]
fn a_fenced_send_waits_for_the_reads_before_it() {
    let mut pair = readable_pair(|_| ());
    pair.post_receive(1, 200..300);
    pair.post_receive(1, 400..500);
    // What is read last is what the fenced message sends.
    pair.region[1].write(0, b"read before it is sent").unwrap();
    let from = pair.region[1].remote(0).unwrap();
    let into = pair.region[0].segment(0..22).unwrap();
    pair.send(0, Descriptor::rdma_read(vec![into], from));
    let mut fenced = pair.message(0, 0..22);
    fenced.fence = true;
    pair.send(0, fenced);
    let behind = pair.message(0, 100..101);
    pair.send(0, behind);
    for _ in 0..3 {
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE);
    }
    let got = pair.wait(1).descriptor;
    assert_eq!(got.length(), 22);
    let mut bytes = [0; 22];
    pair.region[1].read(200, &mut bytes).unwrap();
    assert_eq!(&bytes, b"read before it is sent");
}

#[test]
fn rdma_reads_that_are_not_allowed_bring_nothing() {
    let other = ProtectionTag::new(1, 2);
    for case in 0..7 {
        let mut pair = readable_pair(|there| there.rdma_read = case != 6);
        let domain = pair.world.domain.clone();
        let mut register = |attributes| {
            pair.world.hosts[1].engine.regions().allocate(domain.clone(), REGION, attributes).unwrap()
        };
        let local = register(MemoryAttributes::remote_write(TAG));
        let foreign = register(MemoryAttributes::remote(other));
        pair.region[0].write(0, &[9; REGION]).unwrap();
        let good = pair.region[1].remote(0).unwrap();
        let from = match case {
            0 => RemoteMemory { handle: MemoryHandle(good.handle.0 + (1 << 20)), ..good },
            1 => RemoteMemory { address: good.address - 1, ..good },
            2 => pair.region[1].remote(REGION - 4999).unwrap(),
            3 => RemoteMemory { address: u64::MAX - 10, ..good },
            4 => local.remote(0).unwrap(),
            5 => foreign.remote(0).unwrap(),
            _ => good,
        };
        let into = pair.region[0].segment(0..5000).unwrap();
        pair.send(0, Descriptor::rdma_read(vec![into], from));
        let behind = pair.message(0, 0..10);
        pair.send(0, behind);
        let failed = pair.wait(0).descriptor;
        assert_eq!(failed.status(), Status::DONE | Status::RDMA_PROTECTION_ERROR, "case {case}");
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE | Status::FLUSHED);
        pair.broken(ConnectionLoss::RdmaProtection, ConnectionLoss::RdmaProtection);
        let mut bytes = vec![0; REGION];
        pair.region[0].read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 9));
    }
}

#[test]
fn reads_whose_peer_leaves_come_back_flushed() {
    let mut pair = readable_pair(|_| ());
    for n in 0..20 {
        let from = pair.region[1].remote(0).unwrap();
        let into = pair.region[0].segment(n * 3000..(n + 1) * 3000).unwrap();
        pair.send(0, Descriptor::rdma_read(vec![into], from));
    }
    pair.disconnect(1);
    let mut flushed = 0;
    for _ in 0..20 {
        let status = pair.wait(0).descriptor.status();
        assert!(status == Status::DONE || status == Status::DONE | Status::FLUSHED, "{status:?}");
        flushed += usize::from(status != Status::DONE);
    }
    assert!(flushed > 0);
    pair.world.run(10 * SECOND);
    assert!(pair.completion(1).is_none());
    pair.disconnect(0);
    for host in 0..2 {
        let vi = pair.vi[host];
        pair.world.hosts[host].engine.destroy_vi(vi).unwrap();
    }
}
