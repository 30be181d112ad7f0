//! Virtual interfaces as programs see them, over adapters made of memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use uvia::{
    Completion, ConnectionLoss, Descriptor, EndpointClass, Error, MemoryAttributes, MemoryRegion, NetAddress,
    Nic, NicOptions, ReliabilityLevel, Status, ViAttributes, ViState, WorkQueue,
};
use uvia_tests::{End, Faults, PATIENCE, ViPair, join, memory_pair, memory_pair_with};

fn pair() -> ViPair {
    ViPair::over_memory(memory_pair())
}

fn nics() -> (Nic, Nic) {
    let (a, b, domain) = memory_pair();
    let named = |name: &str| NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
    let a = Nic::with_adapter(a, domain.clone(), named("a")).unwrap();
    (a, Nic::with_adapter(b, domain, named("b")).unwrap())
}

fn filled(end: &End, bytes: &[u8]) -> MemoryRegion {
    let memory = end.memory(bytes.len().max(1)).unwrap();
    memory.write(0, bytes).unwrap();
    memory
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251) as u8).collect()
}

fn contents(memory: &MemoryRegion, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

/// The next completion of one end, with both driven.
fn next(pair: &ViPair, end: impl Fn(&ViPair) -> &End) -> Completion {
    pair.drive(|pair| end(pair).cq.poll().unwrap())
}

#[test]
fn a_message_is_gathered_and_scattered() {
    let pair = pair();
    let data = bytes(10_000);
    let from = filled(&pair.a, &data);
    let to = pair.b.memory(12_000).unwrap();
    let receive = vec![
        to.segment(5000..5001).unwrap(),
        to.segment(0..0).unwrap(),
        to.segment(0..4000).unwrap(),
        to.segment(6000..12_000).unwrap(),
    ];
    pair.b.vi.post_receive(Descriptor::new(receive)).unwrap();
    let send = vec![from.segment(1..3).unwrap(), from.segment(0..1).unwrap(), from.segment(3..9000).unwrap()];
    let mut send = Descriptor::new(send);
    send.immediate = Some(0xfeed);
    send.context = 7;
    pair.a.vi.post_send(send).unwrap();

    let got = next(&pair, |pair| &pair.b);
    assert_eq!(got.queue, WorkQueue::Receive);
    assert!(got.is_of(&pair.b.vi) && got.descriptor.status().contains(Status::DONE | Status::IMMEDIATE));
    assert_eq!((got.descriptor.length(), got.descriptor.immediate), (9000, Some(0xfeed)));
    let mut sent = data[1..3].to_vec();
    sent.push(data[0]);
    sent.extend(&data[3..9000]);
    let there = contents(&to, 12_000);
    assert_eq!(there[5000], sent[0]);
    assert_eq!(there[..4000], sent[1..4001]);
    assert_eq!(there[6000..6000 + 4999], sent[4001..]);
    let done = next(&pair, |pair| &pair.a);
    assert!(done.queue == WorkQueue::Send && done.descriptor.status().is_success());
    assert_eq!((done.descriptor.context, done.descriptor.length()), (7, 9000));
}

#[test]
fn messages_of_every_kind_of_size() {
    let pair = pair();
    let most = 16 << 20;
    let data = bytes(most);
    let from = filled(&pair.a, &data);
    let to = pair.b.memory(most).unwrap();
    for size in [0, 1, 59, 60, 128, 129, 1400, 1450, 1460, 1461, 1500, 2900, 65_536, 1 << 20, most] {
        pair.b.vi.post_receive(Descriptor::new(vec![to.segment(0..size).unwrap()])).unwrap();
        pair.a.vi.post_send(Descriptor::new(vec![from.segment(0..size).unwrap()])).unwrap();
        let got = next(&pair, |pair| &pair.b);
        assert!(got.descriptor.status().is_success(), "{size}: {:?}", got.descriptor.status());
        assert_eq!(got.descriptor.length() as usize, size);
        assert!(contents(&to, size) == data[..size], "{size} bytes differ");
        assert!(next(&pair, |pair| &pair.a).descriptor.status().is_success());
    }
}

#[test]
fn rdma_writes_need_no_receive_but_for_immediate_data() {
    let pair = pair();
    let data = bytes(5000);
    let from = filled(&pair.a, &data);
    let to = pair.b.memory(8192).unwrap();
    let write = Descriptor::rdma_write(vec![from.segment(0..5000).unwrap()], to.remote(100).unwrap());
    pair.a.vi.post_send(write).unwrap();
    let done = next(&pair, |pair| &pair.a);
    assert!(done.descriptor.status().is_success());
    assert!(pair.b.cq.poll().unwrap().is_none(), "the target's queues are not touched");
    assert_eq!(contents(&to, 5100)[100..], data);

    pair.b.vi.post_receive(Descriptor::new(vec![])).unwrap();
    let mut write = Descriptor::rdma_write(vec![from.segment(0..10).unwrap()], to.remote(0).unwrap());
    write.immediate = Some(9);
    pair.a.vi.post_send(write).unwrap();
    let got = next(&pair, |pair| &pair.b);
    assert!(got.descriptor.status().contains(Status::DONE | Status::IMMEDIATE | Status::REMOTE_RDMA_WRITE));
    assert_eq!(got.descriptor.immediate, Some(9));
    assert_eq!(contents(&to, 10), data[..10]);
}

/// An RDMA write that the target must refuse: nothing is touched, and both ends know.
fn refused(pair: &ViPair, descriptor: Box<Descriptor>, target: &MemoryRegion) {
    let before = contents(target, target.len());
    pair.a.vi.post_send(descriptor).unwrap();
    let done = next(pair, |pair| &pair.a);
    assert!(done.descriptor.status().contains(Status::DONE | Status::RDMA_PROTECTION_ERROR));
    pair.drive(|pair| (pair.b.vi.state() == ViState::Error).then_some(()));
    assert_eq!(pair.a.vi.state(), ViState::Error);
    assert_eq!(pair.a.vi.loss(), Some(ConnectionLoss::RdmaProtection));
    assert_eq!(pair.b.vi.loss(), Some(ConnectionLoss::RdmaProtection));
    assert!(contents(target, target.len()) == before, "the memory was touched");
}

#[test]
fn rdma_writes_are_held_to_handle_bounds_tag_and_rights() {
    type Spoil = fn(&ViPair, &mut uvia::RemoteMemory) -> MemoryRegion;
    let good = |pair: &ViPair, remote: &mut uvia::RemoteMemory| {
        let memory = pair.b.memory(4096).unwrap();
        *remote = memory.remote(0).unwrap();
        memory
    };
    let _: Spoil = good;
    let spoils: [(&str, Spoil); 6] = [
        ("beyond the end", |pair, remote| {
            let memory = pair.b.memory(4096).unwrap();
            *remote = memory.remote(4096 - 99).unwrap();
            memory
        }),
        ("before the start", |pair, remote| {
            let memory = pair.b.memory(4096).unwrap();
            *remote = memory.remote(0).unwrap();
            remote.address -= 1;
            memory
        }),
        ("wrapping", |pair, remote| {
            let memory = pair.b.memory(4096).unwrap();
            *remote = memory.remote(0).unwrap();
            remote.address = u64::MAX - 10;
            memory
        }),
        ("a forged handle", |pair, remote| {
            let memory = pair.b.memory(4096).unwrap();
            *remote = memory.remote(0).unwrap();
            remote.handle.0 ^= 1 << 20;
            memory
        }),
        ("another tag", |pair, remote| {
            let tag = pair.b.nic.create_tag().unwrap();
            let memory = pair.b.nic.allocate(4096, MemoryAttributes::remote_write(tag)).unwrap();
            *remote = memory.remote(0).unwrap();
            memory
        }),
        ("no right", |pair, remote| {
            let memory = pair.b.nic.allocate(4096, MemoryAttributes::local(pair.b.tag)).unwrap();
            *remote = memory.remote(0).unwrap();
            memory
        }),
    ];
    for (what, spoil) in spoils {
        let pair = pair();
        let from = filled(&pair.a, &[0xaa; 100]);
        let mut remote = from.remote(0).unwrap();
        let target = spoil(&pair, &mut remote);
        println!("{what}");
        refused(&pair, Descriptor::rdma_write(vec![from.segment(0..100).unwrap()], remote), &target);
    }
    // A region that is gone.
    let pair = pair();
    let from = filled(&pair.a, &[0xaa; 100]);
    let (kept, gone) = (pair.b.memory(4096).unwrap(), pair.b.memory(4096).unwrap());
    let remote = gone.remote(0).unwrap();
    drop(gone);
    refused(&pair, Descriptor::rdma_write(vec![from.segment(0..100).unwrap()], remote), &kept);
}

#[test]
fn what_cannot_be_posted_comes_back() {
    let pair = pair();
    let memory = pair.a.memory(4096).unwrap();
    // Another NIC's memory, and another tag's.
    let foreign = pair.b.memory(4096).unwrap();
    let e = pair.a.vi.post_send(Descriptor::new(vec![foreign.whole()])).unwrap_err();
    assert!(matches!(e.error, Error::Protection { .. }), "{e}");
    assert_eq!(e.descriptor.segments.len(), 1);
    let tag = pair.a.nic.create_tag().unwrap();
    let other = pair.a.nic.allocate(4096, MemoryAttributes::local(tag)).unwrap();
    let e = pair.a.vi.post_receive(Descriptor::new(vec![other.whole()])).unwrap_err();
    assert!(matches!(e.error, Error::Protection { .. }), "{e}");
    // Too long, too many segments, RDMA on a receive queue.
    let most = pair.a.vi.attributes().max_transfer_size as usize;
    let segments: Vec<_> = (0..most / 4096 + 1).map(|_| memory.whole()).collect();
    let e = pair.a.vi.post_send(Descriptor::new(segments)).unwrap_err();
    assert!(matches!(e.error, Error::Resource { .. } | Error::TooLong { .. }), "{e}");
    let e = pair.a.vi.post_receive(Descriptor::rdma_write(vec![], memory.remote(0).unwrap())).unwrap_err();
    assert!(matches!(e.error, Error::Parameter(_)), "{e}");
    // A queue takes as many as it is deep.
    let depth = pair.a.vi.attributes().receive_depth;
    for _ in 0..depth {
        pair.a.vi.post_receive(Descriptor::new(vec![])).unwrap();
    }
    let e = pair.a.vi.post_receive(Descriptor::new(vec![])).unwrap_err();
    assert!(matches!(e.error, Error::QueueFull { depth: d } if d == depth), "{e}");
}

#[test]
fn an_empty_receive_queue_breaks_the_connection_and_both_ends_know_why() {
    let pair = pair();
    let from = filled(&pair.a, b"unexpected");
    pair.a.vi.post_receive(Descriptor::new(vec![])).unwrap();
    pair.a.vi.post_send(Descriptor::new(vec![from.segment(0..10).unwrap()])).unwrap();
    let mut flushed = 0;
    let sent = loop {
        let completion = next(&pair, |pair| &pair.a);
        match completion.queue {
            WorkQueue::Send => break completion.descriptor,
            WorkQueue::Receive => flushed += 1,
        }
    };
    assert!(
        sent.status().intersects(Status::REMOTE_DESCRIPTOR_ERROR | Status::TRANSPORT_ERROR),
        "{:?}",
        sent.status()
    );
    pair.drive(|pair| (pair.b.vi.state() == ViState::Error).then_some(()));
    assert_eq!(pair.b.vi.loss(), Some(ConnectionLoss::ReceiveQueueEmpty));
    assert_eq!(pair.a.vi.loss(), Some(ConnectionLoss::PeerReceiveQueueEmpty));
    while flushed == 0 {
        let completion = next(&pair, |pair| &pair.a);
        assert!(completion.descriptor.status().contains(Status::DONE | Status::FLUSHED));
        flushed += 1;
    }
    // What is posted now comes back flushed; after a disconnect the pair can be used again.
    pair.a.vi.post_send(Descriptor::new(vec![])).unwrap();
    assert!(next(&pair, |pair| &pair.a).descriptor.status().contains(Status::FLUSHED));
    pair.a.vi.disconnect().unwrap();
    pair.b.vi.disconnect().unwrap();
    assert_eq!((pair.a.vi.state(), pair.b.vi.state()), (ViState::Idle, ViState::Idle));
    join(&pair.a, &pair.b, b"again").unwrap();
    assert_eq!(pair.a.vi.loss(), None);
}

#[test]
fn a_message_longer_than_its_receive_is_an_error_at_both_ends() {
    let pair = pair();
    let from = filled(&pair.a, &bytes(5000));
    let to = pair.b.memory(8192).unwrap();
    pair.b.vi.post_receive(Descriptor::new(vec![to.segment(0..4999).unwrap()])).unwrap();
    pair.a.vi.post_send(Descriptor::new(vec![from.segment(0..5000).unwrap()])).unwrap();
    let got = next(&pair, |pair| &pair.b);
    assert!(
        got.descriptor.status().contains(Status::DONE | Status::LENGTH_ERROR),
        "{:?}",
        got.descriptor.status()
    );
    assert_eq!(contents(&to, 8192)[4999..], [0; 8192 - 4999], "nothing beyond the receive is touched");
    let sent = next(&pair, |pair| &pair.a);
    assert!(!sent.descriptor.status().is_success());
    assert_eq!((pair.a.vi.state(), pair.b.vi.state()), (ViState::Error, ViState::Error));
}

#[test]
fn requests_are_accepted_rejected_and_not_matched() {
    let (a, b) = nics();
    let (a, b) = (End::new(a, |_| ()).unwrap(), End::new(b, |_| ()).unwrap());
    let there = |discriminator: &[u8]| NetAddress::new(b.nic.properties().mac, discriminator).unwrap();
    let outcome = |a: &End| {
        let start = Instant::now();
        loop {
            match a.vi.connect_done() {
                Ok(None) => {
                    b.nic.poll().unwrap();
                }
                other => return other.map(|peer| peer.expect("an answer")),
            }
            assert!(start.elapsed() < PATIENCE);
        }
    };
    // Nobody waits.
    a.vi.connect_start(&there(b"nobody"), PATIENCE, &[]).unwrap();
    assert_eq!(a.vi.state(), ViState::ConnectPending);
    assert!(matches!(outcome(&a), Err(Error::NoMatch(_))));
    assert_eq!(a.vi.state(), ViState::Idle);
    // Rejected, with a reason.
    let listener = b.nic.listen(b"here", 2).unwrap();
    assert!(b.nic.listen(b"here", 2).is_err(), "one listener a discriminator");
    a.vi.connect_start(&there(b"here"), PATIENCE, b"let me in").unwrap();
    let request = loop {
        a.nic.poll().unwrap();
        if let Some(request) = listener.poll().unwrap() {
            break request;
        }
    };
    assert_eq!(request.peer().private_data, b"let me in");
    assert_eq!(request.peer().address.host, a.nic.properties().mac);
    request.reject(b"no").unwrap();
    match outcome(&a) {
        Err(Error::Rejected { private_data }) => assert_eq!(private_data, b"no"),
        other => panic!("{other:?}"),
    }
    // Another maximum transfer size: the request stays, for an interface that fits.
    let mut attributes = ViAttributes::new(b.tag);
    attributes.max_transfer_size = 4096;
    let misfit = b.nic.create_vi(&attributes, None, None).unwrap();
    a.vi.connect_start(&there(b"here"), PATIENCE, &[]).unwrap();
    let request = loop {
        a.nic.poll().unwrap();
        if let Some(request) = listener.poll().unwrap() {
            break request;
        }
    };
    let (request, e) = request.accept(&misfit, &[]).expect_err("a misfit");
    assert!(matches!(e, Error::TransferSizeMismatch { local: 4096, .. }), "{e}");
    request.accept(&b.vi, b"welcome").map_err(|(_, e)| e).unwrap();
    let peer = outcome(&a).unwrap();
    assert_eq!((peer.private_data.as_slice(), peer.rdma_write), (&b"welcome"[..], true));
    assert_eq!(a.vi.state(), ViState::Connected);
    assert!(matches!(
        a.vi.connect_start(&there(b"here"), PATIENCE, &[]),
        Err(Error::State(ViState::Connected))
    ));
    // A listener that goes away rejects; a disconnect is seen.
    a.vi.disconnect().unwrap();
    let start = Instant::now();
    while b.vi.state() != ViState::Error {
        a.nic.poll().unwrap();
        b.nic.poll().unwrap();
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(b.vi.loss(), Some(ConnectionLoss::PeerDisconnected));
    a.vi.connect_start(&there(b"here"), PATIENCE, &[]).unwrap();
    a.nic.poll().unwrap();
    b.nic.poll().unwrap();
    drop(listener);
    assert!(matches!(outcome(&a), Err(Error::Rejected { .. } | Error::NoMatch(_))));
    // Nobody there at all.
    let nobody = NetAddress::new(uvia::MacAddress([2, 9, 9, 9, 9, 9]), b"x").unwrap();
    assert!(matches!(a.vi.connect(&nobody, Duration::from_millis(200), &[]), Err(Error::Timeout { .. })));
}

#[test]
fn hosts_are_found_by_name() {
    let (a, b) = nics();
    let mac = b.properties().mac;
    let server = thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            b.poll().unwrap();
        }
    });
    assert_eq!(a.resolve("b", PATIENCE).unwrap(), mac);
    assert_eq!(a.resolve("a", PATIENCE).unwrap(), a.properties().mac);
    match a.resolve("nobody", Duration::from_millis(300)) {
        Err(Error::UnknownHost { name, .. }) => assert_eq!(name, "nobody"),
        other => panic!("{other:?}"),
    }
    server.join().unwrap();
}

#[test]
fn two_threads_and_blocking_calls() {
    let (a, b) = nics();
    let mac = b.properties().mac;
    let server = thread::spawn(move || {
        let end = End::new(b, |_| ()).unwrap();
        let memory = end.memory(1000).unwrap();
        let listener = end.nic.listen(b"echo", 1).unwrap();
        end.vi.post_receive(Descriptor::new(vec![memory.whole()])).unwrap();
        let request = listener.wait(PATIENCE).unwrap().expect("a request");
        request.accept(&end.vi, &[]).map_err(|(_, e)| e).unwrap();
        for _ in 0..100 {
            let got = loop {
                let completion = end.cq.wait(PATIENCE).unwrap().expect("a completion");
                if completion.queue == WorkQueue::Receive {
                    break completion;
                }
            };
            let length = got.descriptor.length() as usize;
            let answer = Descriptor::new(vec![memory.segment(0..length).unwrap()]);
            end.vi.post_receive(got.descriptor).unwrap();
            end.vi.post_send(answer).unwrap();
        }
        while end.vi.state() == ViState::Connected {
            end.cq.wait(Duration::from_millis(10)).unwrap();
        }
    });
    let tag = a.create_tag().unwrap();
    let vi = a.create_vi(&ViAttributes::new(tag), None, None).unwrap();
    vi.connect(&NetAddress::new(mac, b"echo").unwrap(), PATIENCE, &[]).unwrap();
    let memory = a.allocate(8192, MemoryAttributes::local(tag)).unwrap();
    for n in 0..100usize {
        memory.write(0, &bytes(n * 10)).unwrap();
        vi.post_receive(Descriptor::new(vec![memory.segment(4096..8192).unwrap()])).unwrap();
        vi.post_send(Descriptor::new(vec![memory.segment(0..n * 10).unwrap()])).unwrap();
        let got = vi.receive_wait(PATIENCE).unwrap().expect("an answer");
        assert_eq!(got.length() as usize, n * 10);
        let mut there = vec![0; n * 10];
        memory.read(4096, &mut there).unwrap();
        assert_eq!(there, bytes(n * 10));
        assert!(vi.send_wait(PATIENCE).unwrap().expect("the send").status().is_success());
    }
    drop(vi);
    server.join().unwrap();
}

#[test]
fn many_threads_post_and_reap_one_nic() {
    let pair = Arc::new(pair());
    let messages = 2000u64;
    let memory = pair.b.memory(64).unwrap();
    for _ in 0..pair.b.vi.attributes().receive_depth {
        pair.b
            .vi
            .post_receive(Descriptor::new(vec![memory.whole().clone()]))
            .unwrap_or_else(|e| panic!("{e}"));
    }
    let senders: Vec<_> = (0..4u64)
        .map(|thread| {
            let pair = pair.clone();
            thread::spawn(move || {
                let memory = pair.a.memory(64).unwrap();
                for n in 0..messages / 4 {
                    let mut descriptor = Descriptor::new(vec![memory.segment(0..8).unwrap()]);
                    descriptor.immediate = Some((thread << 16 | n) as u32);
                    loop {
                        match pair.a.vi.post_send(descriptor) {
                            Ok(()) => break,
                            Err(e) => {
                                assert!(matches!(e.error, Error::QueueFull { .. }), "{e}");
                                descriptor = e.descriptor;
                                // Somebody else may get this completion: all are sends of this interface.
                                drop(pair.a.cq.poll().unwrap());
                            }
                        }
                    }
                }
            })
        })
        .collect();
    let mut seen = [0u64; 4];
    let start = Instant::now();
    while seen.iter().sum::<u64>() < messages {
        drop(pair.a.cq.poll().unwrap());
        if let Some(completion) = pair.b.cq.poll().unwrap() {
            assert!(completion.descriptor.status().is_success());
            let immediate = u64::from(completion.descriptor.immediate.expect("immediate data"));
            let (thread, n) = ((immediate >> 16) as usize, immediate & 0xffff);
            assert_eq!(n, seen[thread], "in the order of each thread's posts");
            seen[thread] += 1;
            pair.b.vi.post_receive(completion.descriptor).unwrap_or_else(|e| panic!("{e}"));
        }
        assert!(start.elapsed() < PATIENCE, "{seen:?}");
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn a_lossy_wire_is_not_seen() {
    let faults = Faults { loss: 100, duplicates: 50, seed: 42, ..Faults::default() };
    let pair = ViPair::over_memory(memory_pair_with(faults));
    let data = bytes(300_000);
    let from = filled(&pair.a, &data);
    let to = pair.b.memory(300_000).unwrap();
    for n in 0..20 {
        let len = 300_000 / (n + 1);
        pair.b.vi.post_receive(Descriptor::new(vec![to.segment(0..len).unwrap()])).unwrap();
        pair.a.vi.post_send(Descriptor::new(vec![from.segment(0..len).unwrap()])).unwrap();
        let got = next(&pair, |pair| &pair.b);
        assert_eq!((got.queue, got.descriptor.length() as usize), (WorkQueue::Receive, len));
        assert!(contents(&to, len) == data[..len]);
        assert!(next(&pair, |pair| &pair.a).descriptor.status().is_success());
    }
}

#[test]
fn a_peer_that_vanishes_is_missed() {
    let nics = memory_pair();
    let cable = nics.0.cable();
    let pair = ViPair::over_memory(nics);
    cable.store(1, Ordering::Relaxed);
    let start = Instant::now();
    while pair.a.vi.state() == ViState::Connected {
        assert!(pair.a.cq.wait(Duration::from_millis(100)).unwrap().is_none());
        assert!(start.elapsed() < Duration::from_secs(15), "an idle connection is probed");
    }
    assert_eq!(pair.a.vi.loss(), Some(ConnectionLoss::PeerSilent));
}

#[test]
fn anything_may_be_dropped_in_any_order() {
    // Everything of one end in every order, with work posted and completions not reaped.
    for order in 0..120usize {
        let ViPair { a, b } = pair();
        let memory = a.memory(100_000).unwrap();
        let _ = a.vi.post_receive(Descriptor::new(vec![memory.segment(0..10).unwrap()]));
        let _ = a.vi.post_send(Descriptor::new(vec![memory.whole()]));
        let End { nic, cq, vi, .. } = a;
        let listener = nic.listen(b"more", 1).unwrap();
        let mut things: Vec<Option<Box<dyn std::any::Any>>> = vec![
            Some(Box::new(nic)),
            Some(Box::new(cq)),
            Some(Box::new(vi)),
            Some(Box::new(memory)),
            Some(Box::new(listener)),
        ];
        let mut rest = order;
        for left in (1..=things.len()).rev() {
            let nth = rest % left;
            rest /= left;
            let at =
                things.iter().enumerate().filter(|(_, t)| t.is_some()).nth(nth).map(|(at, _)| at).unwrap();
            things[at] = None;
            b.nic.poll().unwrap();
        }
    }
}

#[test]
fn limits_are_real() {
    let (nic, _other) = nics();
    let limits = nic.properties().clone();
    let tag = nic.create_tag().unwrap();
    assert!(matches!(nic.create_cq(0), Err(Error::Parameter(_))));
    assert!(matches!(nic.create_cq(limits.max_cq_entries + 1), Err(Error::Resource { .. })));
    assert!(matches!(nic.allocate(0, MemoryAttributes::local(tag)), Err(Error::Parameter(_))));
    let mut attributes = ViAttributes::new(tag);
    attributes.class = EndpointClass::Pio;
    let e = nic.create_vi(&attributes, None, None).err().unwrap();
    assert!(matches!(e, Error::ClassUnavailable { class: EndpointClass::Pio, .. }), "{e}");
    attributes = ViAttributes::new(tag);
    attributes.send_depth = limits.max_depth + 1;
    assert!(nic.create_vi(&attributes, None, None).is_err());
    attributes = ViAttributes::new(tag);
    for level in [
        ReliabilityLevel::Unreliable,
        ReliabilityLevel::ReliableDelivery,
        ReliabilityLevel::ReliableReception,
    ] {
        attributes.reliability = level;
        let offered = limits.reliability_levels.contains(&level);
        assert_eq!(nic.create_vi(&attributes, None, None).is_ok(), offered, "{level:?}");
    }
    // A completion queue cannot be promised to more than fits.
    attributes = ViAttributes::new(tag);
    (attributes.send_depth, attributes.receive_depth) = (4, 4);
    let cq = nic.create_cq(10).unwrap();
    let first = nic.create_vi(&attributes, Some(&cq), Some(&cq)).unwrap();
    assert!(matches!(nic.create_vi(&attributes, Some(&cq), None), Err(Error::Resource { .. })));
    drop(first);
    let mut all = Vec::new();
    (attributes.send_depth, attributes.receive_depth) = (1, 1);
    let e = loop {
        match nic.create_vi(&attributes, None, None) {
            Ok(vi) => all.push(vi),
            Err(e) => break e,
        }
    };
    assert!(matches!(e, Error::Resource { .. }), "{e}");
    assert_eq!(all.len(), limits.max_vis);
    drop(all);
    assert!(nic.create_vi(&attributes, None, None).is_ok());
}
