//! Objects of a NIC and what may be asked of and done to them: tags, regions, interfaces, queues.

use std::time::Instant;

use uvia::{
    Completion, ConnectionLoss, Descriptor, Error, MemoryAttributes, MemoryHandle, NetAddress, Nic,
    NicOptions, ReliabilityLevel, Request, Status, ViAttributes, ViState, WorkQueue,
};
use uvia_tests::{End, PATIENCE, ViPair, memory_pair};

fn pair() -> ViPair {
    ViPair::over_memory(memory_pair())
}

fn nics() -> (Nic, Nic) {
    let (a, b, domain) = memory_pair();
    let named = |name: &str| NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
    let a = Nic::with_adapter(a, domain.clone(), named("a")).unwrap();
    (a, Nic::with_adapter(b, domain, named("b")).unwrap())
}

fn next(pair: &ViPair, end: impl Fn(&ViPair) -> &End) -> Completion {
    pair.drive(|pair| end(pair).cq.poll().unwrap())
}

#[test]
fn a_region_is_found_by_its_handle_until_it_is_deregistered() {
    let (nic, other) = nics();
    let tag = nic.create_tag().unwrap();
    let region = nic.allocate(5000, MemoryAttributes::remote(tag)).unwrap();
    let handle = region.handle();
    assert!(handle.0 != 0 && handle.0 != u32::MAX);
    let found = nic.region(handle).unwrap();
    assert_eq!((found.as_ptr(), found.attributes()), (region.as_ptr(), MemoryAttributes::remote(tag)));
    // Two hold it.
    let (region, e) = nic.deregister(region).unwrap_err();
    assert!(matches!(e, Error::InUse(_)), "{e}");
    drop(found);
    // Another NIC's.
    let (region, e) = other.deregister(region).unwrap_err();
    assert!(matches!(e, Error::Parameter(_)), "{e}");
    nic.deregister(region).map_err(|(_, e)| e).unwrap();
    for stale in [handle.0, 0, u32::MAX, handle.0 ^ 1 << 20] {
        let outcome = nic.region(MemoryHandle(stale));
        assert!(matches!(outcome, Err(Error::Protection { handle, .. }) if handle.0 == stale));
    }
    // Its slot is used again, and the old handle does not mean the new region.
    let next = nic.allocate(5000, MemoryAttributes::local(tag)).unwrap();
    assert!(next.handle() != handle && nic.region(handle).is_err() && nic.region(next.handle()).is_ok());
}

#[test]
fn a_region_is_not_deregistered_while_a_descriptor_in_use_names_it() {
    let pair = pair();
    let region = pair.b.memory(100).unwrap();
    pair.b.vi.post_receive(Descriptor::new(vec![region.segment(0..100).unwrap()])).unwrap();
    let (region, e) = pair.b.nic.deregister(region).unwrap_err();
    assert!(matches!(e, Error::InUse(_)), "{e}");
    pair.b.vi.disconnect().unwrap();
    let flushed = next(&pair, |pair| &pair.b);
    let (region, _) = pair.b.nic.deregister(region).expect_err("the descriptor has it still");
    drop(flushed);
    pair.b.nic.deregister(region).map_err(|(_, e)| e).unwrap();
}

#[test]
fn a_change_of_a_regions_rights_and_tag_counts_at_once() {
    let spoil = |change: fn(&End) -> MemoryAttributes| {
        let pair = pair();
        let target = pair.b.nic.allocate(100, MemoryAttributes::local(pair.b.tag)).unwrap();
        let source = pair.a.memory(10).unwrap();
        let write = |fill: u8| {
            source.write(0, &[fill; 10]).unwrap();
            let to = target.remote(0).unwrap();
            pair.a.vi.post_send(Descriptor::rdma_write(vec![source.whole()], to)).unwrap();
            next(&pair, |pair| &pair.a).descriptor.status()
        };
        let byte = || {
            let mut byte = [0];
            target.read(0, &mut byte).unwrap();
            byte[0]
        };
        pair.b.nic.set_memory_attributes(&target, MemoryAttributes::remote_write(pair.b.tag)).unwrap();
        assert!(write(7).is_success() && byte() == 7);
        let attributes = change(&pair.b);
        pair.b.nic.set_memory_attributes(&target, attributes).unwrap();
        assert_eq!(target.attributes(), attributes);
        assert!(write(8).contains(Status::RDMA_PROTECTION_ERROR) && byte() == 7);
        pair
    };
    spoil(|b| MemoryAttributes::local(b.tag));
    let pair = spoil(|b| MemoryAttributes::remote_write(b.nic.create_tag().unwrap()));
    // Local use as well: a post is held to the tag as it is now.
    let mine = pair.a.memory(10).unwrap();
    let other = pair.a.nic.create_tag().unwrap();
    pair.a.nic.set_memory_attributes(&mine, MemoryAttributes::local(other)).unwrap();
    let refused = pair.a.vi.post_receive(Descriptor::new(vec![mine.whole()])).unwrap_err();
    assert!(matches!(refused.error, Error::Protection { handle, .. } if handle == mine.handle()));
    // A foreign tag is none.
    let e = pair.a.nic.set_memory_attributes(&mine, MemoryAttributes::local(pair.b.tag)).unwrap_err();
    assert!(matches!(e, Error::Parameter(_)), "{e}");
}

#[test]
fn a_tag_is_not_destroyed_while_it_is_used_and_not_used_once_it_is() {
    let (nic, other) = nics();
    let tag = nic.create_tag().unwrap();
    let region = nic.allocate(1, MemoryAttributes::local(tag)).unwrap();
    assert!(matches!(nic.destroy_tag(tag), Err(Error::InUse(_))));
    drop(region);
    let vi = nic.create_vi(&ViAttributes::new(tag), None, None).unwrap();
    assert!(matches!(nic.destroy_tag(tag), Err(Error::InUse(_))));
    drop(vi);
    assert!(matches!(other.destroy_tag(tag), Err(Error::Parameter(_))));
    nic.destroy_tag(tag).unwrap();
    assert!(matches!(nic.destroy_tag(tag), Err(Error::Parameter(_))));
    assert!(matches!(nic.allocate(1, MemoryAttributes::local(tag)), Err(Error::Parameter(_))));
    assert!(matches!(nic.create_vi(&ViAttributes::new(tag), None, None), Err(Error::Parameter(_))));
}

#[test]
fn an_idle_interface_takes_other_attributes_and_a_connected_one_does_not() {
    let pair = pair();
    let mut attributes = pair.a.vi.attributes();
    attributes.rdma_write = false;
    let e = pair.a.vi.set_attributes(&attributes).unwrap_err();
    assert!(matches!(e, Error::State(ViState::Connected)), "{e}");
    assert!(pair.a.vi.attributes().rdma_write);
    pair.a.vi.disconnect().unwrap();
    let tag = pair.a.nic.create_tag().unwrap();
    let mine = pair.a.nic.allocate(100, MemoryAttributes::local(tag)).unwrap();
    let post = || pair.a.vi.post_receive(Descriptor::new(vec![mine.whole()]));
    assert!(matches!(post().unwrap_err().error, Error::Protection { .. }));
    attributes.tag = tag;
    attributes.max_transfer_size = 99;
    attributes.reliability = ReliabilityLevel::Unreliable;
    pair.a.vi.set_attributes(&attributes).unwrap();
    assert_eq!(pair.a.vi.attributes(), attributes);
    post().unwrap();
    let long = pair.a.vi.post_send(Descriptor::new(vec![mine.segment(0..100).unwrap()])).unwrap_err();
    assert!(matches!(long.error, Error::TooLong { length: 100, limit: 99 }));
    // What cannot be, and what is fixed at creation.
    for spoil in [
        |a: &mut ViAttributes| a.max_transfer_size = u32::MAX,
        |a: &mut ViAttributes| a.send_depth += 1,
        |a: &mut ViAttributes| a.receive_depth = 1,
        |a: &mut ViAttributes| a.class = uvia::EndpointClass::Pio,
    ] {
        let mut wrong = attributes;
        spoil(&mut wrong);
        assert!(pair.a.vi.set_attributes(&wrong).is_err());
    }
    let foreign = ViAttributes { tag: pair.b.tag, ..attributes };
    assert!(matches!(pair.a.vi.set_attributes(&foreign), Err(Error::Parameter(_))));
    assert_eq!(pair.a.vi.attributes(), attributes);
}

/// The next request at `b`, with both driven.
fn request(a: &End, listener: &uvia::Listener) -> Request {
    let start = Instant::now();
    loop {
        a.nic.poll().unwrap();
        if let Some(request) = listener.poll().unwrap() {
            return request;
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_server_that_does_not_match_changes_its_interface_and_accepts() {
    let (a, b) = nics();
    let a = End::new(a, |attributes| {
        attributes.reliability = ReliabilityLevel::ReliableReception;
        attributes.max_transfer_size = 4096;
        attributes.qos = 3;
        attributes.rdma_read = true;
    });
    let a = a.unwrap();
    let b = End::new(b, |attributes| attributes.rdma_write = false).unwrap();
    let listener = b.nic.listen(b"here", 2).unwrap();
    let there = NetAddress::new(b.nic.properties().mac, b"here").unwrap();
    a.vi.connect_start(&there, PATIENCE, &[]).unwrap();
    let asks = request(&a, &listener);
    assert_eq!(asks.peer().reliability, ReliabilityLevel::ReliableReception);
    let (asks, e) = asks.accept(&b.vi, &[]).unwrap_err();
    let (local, remote) = (ReliabilityLevel::ReliableDelivery, ReliabilityLevel::ReliableReception);
    assert!(
        matches!(e, Error::ReliabilityMismatch { local: l, remote: r } if (l, r) == (local, remote)),
        "{e}"
    );
    let mut attributes = b.vi.attributes();
    attributes.reliability = asks.peer().reliability;
    b.vi.set_attributes(&attributes).unwrap();
    let (asks, e) = asks.accept(&b.vi, &[]).unwrap_err();
    assert!(matches!(e, Error::TransferSizeMismatch { remote: 4096, .. }), "{e}");
    // Nothing was sent: who asks waits still.
    assert!(a.vi.connect_done().unwrap().is_none());
    attributes.max_transfer_size = asks.peer().max_transfer_size;
    b.vi.set_attributes(&attributes).unwrap();
    let (asks, e) = asks.accept(&b.vi, &[]).unwrap_err();
    assert!(matches!(e, Error::QosMismatch { local: 0, remote: 3 }), "{e}");
    attributes.qos = asks.peer().qos;
    b.vi.set_attributes(&attributes).unwrap();
    let peer = asks.accept(&b.vi, b"yes").map_err(|(_, e)| e).unwrap();
    assert_eq!((peer.rdma_write, peer.rdma_read), (true, true));
    assert_eq!((peer.max_transfer_size, peer.qos), (4096, 3));
    let start = Instant::now();
    let peer = loop {
        if let Some(peer) = a.vi.connect_done().unwrap() {
            break peer;
        }
        b.nic.poll().unwrap();
        assert!(start.elapsed() < PATIENCE);
    };
    assert_eq!((peer.rdma_write, peer.rdma_read), (false, false), "rights need not match, and are told");
    assert_eq!((peer.reliability, peer.private_data.as_slice()), (remote, &b"yes"[..]));
}

#[test]
fn a_queue_is_empty_when_all_that_was_posted_was_reaped() {
    let pair = pair();
    let memory = pair.b.memory(10).unwrap();
    let out = |pair: &ViPair| [WorkQueue::Send, WorkQueue::Receive].map(|q| pair.b.vi.outstanding(q));
    assert_eq!(out(&pair), [0, 0]);
    pair.b.vi.post_receive(Descriptor::new(vec![memory.whole()])).unwrap();
    pair.b.vi.post_receive(Descriptor::new(vec![memory.whole()])).unwrap();
    pair.b.vi.post_send(Descriptor::new(vec![])).unwrap();
    assert_eq!(out(&pair), [1, 2]);
    pair.a.vi.disconnect().unwrap();
    pair.drive(|pair| (pair.b.vi.state() == ViState::Error).then_some(()));
    assert_eq!(pair.b.vi.loss(), Some(ConnectionLoss::PeerDisconnected));
    for left in (0..3).rev() {
        next(&pair, |pair| &pair.b);
        assert_eq!(out(&pair).iter().sum::<usize>(), left);
    }
}

#[test]
fn what_a_nic_says_of_its_limits_is_so() {
    let (nic, _other) = nics();
    let limits = nic.properties().clone();
    let queues: Vec<_> = (0..limits.max_cqs).map(|_| nic.create_cq(1).unwrap()).collect();
    assert!(matches!(nic.create_cq(1), Err(Error::Resource { limit, .. }) if limit == limits.max_cqs));
    // Work queues without one have their own beside them.
    let tag = nic.create_tag().unwrap();
    assert!(nic.create_vi(&ViAttributes::new(tag), None, None).is_ok());
    drop(queues);
    assert!(nic.create_cq(limits.max_cq_entries).is_ok());
    let tags: Vec<_> = (1..limits.max_tags).map(|_| nic.create_tag().unwrap()).collect();
    assert!(matches!(nic.create_tag(), Err(Error::Resource { limit, .. }) if limit == limits.max_tags));
    nic.destroy_tag(tags[0]).unwrap();
    nic.create_tag().unwrap();
    let over = usize::try_from(limits.max_region_bytes).unwrap() + 1;
    let outcome = nic.allocate(over, MemoryAttributes::local(tag));
    assert!(matches!(outcome, Err(Error::TooLong { limit, .. }) if limit == limits.max_region_bytes));
    assert!(limits.max_registered_bytes >= limits.max_region_bytes && limits.max_regions > 1000);
    let long = vec![0; limits.max_discriminator + 1];
    assert!(matches!(nic.listen(&long, 1), Err(Error::Parameter(_))));
    let listeners: Vec<_> =
        (0..limits.max_listeners).map(|n| nic.listen(&n.to_le_bytes(), 1).unwrap()).collect();
    assert!(matches!(nic.listen(b"more", 1), Err(Error::Resource { limit, .. }) if limit == listeners.len()));
}

#[test]
fn receives_that_are_posted_together_leave_the_programs_room_for_them_alone() {
    let pair = pair();
    let region = pair.b.memory(100).unwrap();
    let depth = pair.b.vi.attributes().receive_depth;
    let receive = |n: u64| {
        // Of two segments: posted one by one.
        let mut receive =
            Descriptor::new(vec![region.segment(0..10).unwrap(), region.segment(10..20).unwrap()]);
        receive.context = n;
        receive
    };
    let mut list = Vec::with_capacity(2 * depth);
    list.extend((0..depth as u64 + 3).map(receive));
    let e = pair.b.vi.post_receives(&mut list).unwrap_err();
    assert!(matches!(e, Error::QueueFull { .. }), "{e}");
    let left: Vec<_> = list.iter().map(|receive| receive.context).collect();
    assert_eq!(left, [0, 1, 2].map(|n| depth as u64 + n));
    assert_eq!(list.capacity(), 2 * depth);
    // In order: all come back so.
    pair.b.vi.disconnect().unwrap();
    for n in 0..depth as u64 {
        assert_eq!(next(&pair, |pair| &pair.b).descriptor.context, n);
    }
    pair.b.vi.post_receives(&mut list).unwrap();
    assert!(list.is_empty() && list.capacity() == 2 * depth);
}
