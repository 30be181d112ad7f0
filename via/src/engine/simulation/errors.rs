//! Which end is told of which error that no descriptor carries.

use super::pair::{MILLI, Pair, REGION, SECOND, attributes};
use super::world::World;
use crate::engine::Tuning;
use crate::{Descriptor, ErrorCode, MemoryAttributes, ReliabilityLevel, RemoteMemory, Segment, ViAttributes};

/// What a host was told, and is told no more of.
fn told(pair: &mut Pair, host: usize) -> Vec<ErrorCode> {
    let vi = pair.vi[host];
    let errors = std::mem::take(&mut pair.world.hosts[host].port.errors);
    assert!(errors.iter().all(|(of, _)| *of == vi));
    errors.into_iter().map(|(_, code)| code).collect()
}

fn remote(pair: &Pair, host: usize, offset: usize) -> RemoteMemory {
    pair.region[host].remote(offset).unwrap()
}

/// A connection whose second end may be read.
fn readable() -> Pair {
    let mut pair = Pair::new();
    for host in [0, 1] {
        pair.disconnect(host);
    }
    pair.world.run(MILLI);
    let mut attributes = attributes();
    attributes.rdma_read = true;
    for host in [0, 1] {
        pair.world.hosts[host].engine.set_vi_attributes(pair.vi[host], &attributes).unwrap();
    }
    pair.world.connect_these(0, pair.vi[0], 1, pair.vi[1]);
    pair.world.hosts.iter_mut().for_each(|host| host.port.errors.clear());
    pair
}

#[test]
fn who_is_left_is_told_and_who_leaves_is_not() {
    let mut pair = Pair::new();
    pair.disconnect(0);
    pair.world.run(MILLI);
    assert_eq!(told(&mut pair, 0), []);
    assert_eq!(told(&mut pair, 1), [ErrorCode::ConnectionLost]);
}

#[test]
fn a_silent_peer_is_a_lost_connection() {
    let mut pair = Pair::new();
    pair.world.hosts[1].dead = true;
    pair.world.run(20 * SECOND);
    assert_eq!(told(&mut pair, 0), [ErrorCode::ConnectionLost]);
}

#[test]
fn an_empty_receive_queue_is_told_where_it_is() {
    let mut pair = Pair::new();
    let message = pair.message(0, 0..10);
    pair.send(0, message);
    pair.world.run(MILLI);
    assert_eq!(told(&mut pair, 1), [ErrorCode::ReceiveQueueEmpty, ErrorCode::ConnectionLost]);
    assert_eq!(told(&mut pair, 0), [ErrorCode::ConnectionLost]);
}

#[test]
fn an_unreliable_connection_tells_of_it_and_goes_on() {
    let unreliable = ViAttributes { reliability: ReliabilityLevel::Unreliable, ..attributes() };
    let mut pair = Pair::of(World::good(Tuning::default()), &unreliable, REGION);
    let domain = pair.world.domain.clone();
    let message = pair.message(0, 0..10);
    pair.send(0, message);
    let local = pair.world.hosts[1].engine.regions();
    let region = local.allocate(domain, 100, MemoryAttributes::local(super::world::TAG)).unwrap();
    let write = Descriptor::rdma_write(vec![pair.region[0].whole()], region.remote(0).unwrap());
    pair.send(0, write);
    pair.world.run(MILLI);
    let told_there = told(&mut pair, 1);
    assert_eq!(told_there[0], ErrorCode::ReceiveQueueEmpty);
    assert!(
        told_there.len() > 1 && told_there[1..].iter().all(|code| *code == ErrorCode::RdmaWriteProtection)
    );
    assert_eq!(told(&mut pair, 0), []);
}

#[test]
fn refused_transfers_are_told_at_the_target() {
    let mut pair = readable();
    let mut to = remote(&pair, 1, 0);
    to.handle.0 ^= 1 << 20;
    let write = Descriptor::rdma_write(vec![pair.region[0].segment(0..10).unwrap()], to);
    pair.send(0, write);
    pair.world.run(MILLI);
    assert_eq!(told(&mut pair, 1), [ErrorCode::RdmaWriteProtection, ErrorCode::ConnectionLost]);
    assert_eq!(told(&mut pair, 0), [ErrorCode::ConnectionLost]);

    let mut pair = readable();
    let from = remote(&pair, 1, REGION - 9);
    let read = Descriptor::rdma_read(vec![pair.region[0].segment(0..10).unwrap()], from);
    pair.send(0, read);
    pair.world.run(MILLI);
    assert_eq!(told(&mut pair, 1), [ErrorCode::RdmaReadProtection, ErrorCode::ConnectionLost]);
}

/// More than a window at each end.
fn much(pair: &mut Pair) {
    let domain = pair.world.domain.clone();
    pair.region = [0, 1].map(|host| pair.world.hosts[host].region(&domain, 1 << 20));
}

/// The first end begins a transfer of all its region, and leaves in its middle.
fn cut_off(
    pair: &mut Pair,
    transfer: impl Fn(Vec<Segment>, RemoteMemory) -> Box<Descriptor>,
) -> Vec<ErrorCode> {
    much(pair);
    let delivered = pair.world.delivered;
    let transfer = transfer(vec![pair.region[0].whole()], remote(pair, 1, 0));
    pair.send(0, transfer);
    assert!(pair.world.until(SECOND, |world| world.delivered > delivered + 10));
    pair.disconnect(0);
    pair.world.run(20 * MILLI);
    told(pair, 1)
}

#[test]
fn a_transfer_that_is_cut_off_in_its_middle_is_told_at_the_target() {
    let told_there = cut_off(&mut Pair::new(), Descriptor::rdma_write);
    assert_eq!(told_there, [ErrorCode::RdmaWriteAbort, ErrorCode::ConnectionLost]);
    let told_there = cut_off(&mut readable(), Descriptor::rdma_read);
    assert_eq!(told_there, [ErrorCode::RdmaTransport, ErrorCode::ConnectionLost]);
}

#[test]
fn a_transfer_that_is_over_is_not() {
    for transfer in [Descriptor::rdma_write, Descriptor::rdma_read] {
        let mut pair = readable();
        much(&mut pair);
        let transfer = transfer(vec![pair.region[0].whole()], remote(&pair, 1, 0));
        pair.send(0, transfer);
        assert!(pair.wait(0).descriptor.status().is_success());
        pair.world.run(10 * MILLI);
        pair.disconnect(0);
        pair.world.run(20 * MILLI);
        assert_eq!(told(&mut pair, 1), [ErrorCode::ConnectionLost]);
    }
}
