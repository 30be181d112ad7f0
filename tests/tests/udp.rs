//! Virtual interfaces over UDP: on one subnet, and by way of a router.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia::{
    Descriptor, Encapsulation, Error, MemoryAttributes, NetAddress, Nic, NicOptions, UdpOptions, ViState,
};
use uvia_driver::dma::{DmaDomain, DmaMemory, IdentityDomain, Rights};
use uvia_driver::nic::{MacAddress, Nic as Adapter, TxFrame};
use uvia_tests::{End, Faults, MemoryNic, PATIENCE, ViPair, join, memory_pair, memory_pair_with};

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn options(name: &str, address: &str, gateway: Option<&str>) -> NicOptions {
    let mut udp: UdpOptions = address.parse().unwrap();
    udp.gateway = gateway.map(ip);
    NicOptions {
        name: Some(name.to_owned()),
        encapsulation: Encapsulation::Udp(udp),
        ..NicOptions::default()
    }
}

fn open(adapter: Box<MemoryNic>, domain: &Arc<IdentityDomain>, options: NicOptions) -> Nic {
    Nic::with_adapter(adapter, domain.clone(), options).unwrap()
}

fn nics(faults: Faults) -> (Nic, Nic) {
    let (a, b, domain) = memory_pair_with(faults);
    (open(a, &domain, options("a", "10.0.0.1/24", None)), open(b, &domain, options("b", "10.0.0.2/24", None)))
}

/// Messages, writes and reads of many sizes, every byte looked at.
fn exchange(pair: &ViPair, mut drive: impl FnMut()) {
    let from = pair.a.memory(100_000).unwrap();
    let into = pair.b.nic.allocate(100_000, MemoryAttributes::remote(pair.b.tag)).unwrap();
    let back = pair.a.memory(100_000).unwrap();
    let mut reap = |end: &End| {
        let start = Instant::now();
        loop {
            if let Some(completion) = end.cq.poll().unwrap() {
                let status = completion.descriptor.status();
                assert!(status.is_success(), "{status:?}");
                return completion;
            }
            pair.a.nic.poll().unwrap();
            pair.b.nic.poll().unwrap();
            drive();
            assert!(start.elapsed() < PATIENCE, "nothing completed");
        }
    };
    for (round, size) in [0usize, 1, 64, 128, 129, 1370, 1424, 1425, 5000, 100_000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|n| (n * 7 + round) as u8).collect();
        from.write(0, &bytes).unwrap();
        pair.b.vi.post_receive(Descriptor::new(vec![into.segment(0..100_000).unwrap()])).unwrap();
        pair.a.vi.post_send(Descriptor::new(vec![from.segment(0..size).unwrap()])).unwrap();
        assert_eq!(reap(&pair.b).descriptor.length() as usize, size);
        reap(&pair.a);
        let mut got = vec![0; size];
        into.read(0, &mut got).unwrap();
        assert!(got == bytes, "a message of {size} bytes");
        // There and back.
        from.write(0, &vec![round as u8; size]).unwrap();
        let remote = into.remote(0).unwrap();
        pair.a.vi.post_send(Descriptor::rdma_write(vec![from.segment(0..size).unwrap()], remote)).unwrap();
        pair.a.vi.post_send(Descriptor::rdma_read(vec![back.segment(0..size).unwrap()], remote)).unwrap();
        reap(&pair.a);
        reap(&pair.a);
        back.read(0, &mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == round as u8), "{size} bytes there and back");
    }
}

#[test]
fn everything_works_over_udp_also_on_a_wire_that_loses_and_doubles() {
    for loss in [0, 20] {
        let (a, b) = nics(Faults { loss, duplicates: loss, seed: 5, ..Faults::default() });
        assert_eq!(a.properties().mac, UdpOptions::host(ip("10.0.0.1")));
        // Of the 1500 bytes that Ethernet carries: IPv4, UDP, the frame's first 14, and the fixed header's other 34.
        assert_eq!(a.properties().native_mtu, 1500 - 20 - 8 - 14 - 34);
        let pair = ViPair::connect(a, b, |attributes| attributes.rdma_read = true).unwrap();
        exchange(&pair, || ());
    }
}

#[test]
fn names_are_found_and_addresses_are_names() {
    let (a, b) = nics(Faults::default());
    std::thread::scope(|scope| {
        let asker = scope.spawn(move || {
            let found = a.resolve("b", PATIENCE).unwrap();
            let there = a.resolve("10.0.0.77", PATIENCE).unwrap();
            let nobody = a.resolve("nobody", Duration::from_millis(50));
            (found, there, nobody.map_err(|e| matches!(e, Error::UnknownHost { .. })))
        });
        while !asker.is_finished() {
            b.poll().unwrap();
        }
        let (found, there, nobody) = asker.join().unwrap();
        assert_eq!(found, UdpOptions::host(ip("10.0.0.2")));
        assert_eq!(there, UdpOptions::host(ip("10.0.0.77")));
        assert_eq!(nobody, Err(true));
    });
}

#[test]
fn a_hosts_file_has_addresses_of_both_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    std::fs::write(&file, "10.0.0.2 there\n52:54:00:00:00:02 there\n").unwrap();
    let (a, b, domain) = memory_pair();
    let with = |options| NicOptions { hosts: Some(file.clone()), ..options };
    let a = open(a, &domain, with(options("a", "10.0.0.1/24", None)));
    let b = open(b, &domain, with(NicOptions::default()));
    assert_eq!(a.resolve("there", PATIENCE).unwrap(), UdpOptions::host(ip("10.0.0.2")));
    assert_eq!(b.resolve("there", PATIENCE).unwrap(), MacAddress([0x52, 0x54, 0, 0, 0, 2]));
}

#[test]
fn where_there_is_no_way_the_error_says_so() {
    let (a, _b) = nics(Faults::default());
    let end = End::new(a, |_| ()).unwrap();
    for (host, says) in [
        (UdpOptions::host(ip("10.0.1.1")), "no gateway"),
        (UdpOptions::host(ip("10.0.0.255")), "one host"),
        (MacAddress([0x52, 0x54, 0, 0, 0, 1]), "IPv4"),
    ] {
        let there = NetAddress::new(host, b"x").unwrap();
        let said = end.vi.connect_start(&there, PATIENCE, b"").unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
        assert_eq!(end.vi.state(), ViState::Idle);
    }
    // A neighbour that does not answer is waited for.
    let there = NetAddress::new(UdpOptions::host(ip("10.0.0.9")), b"x").unwrap();
    let outcome = end.vi.connect(&there, Duration::from_millis(200), b"");
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    let (a, _, domain) = memory_pair();
    for bad in
        [UdpOptions::new(ip("10.0.0.255"), 24), UdpOptions { port: 0, ..UdpOptions::new(ip("10.0.0.1"), 24) }]
    {
        let options = NicOptions { encapsulation: Encapsulation::Udp(bad), ..NicOptions::default() };
        let (adapter, _, _) = memory_pair();
        assert!(matches!(Nic::with_adapter(adapter, domain.clone(), options), Err(Error::Parameter(_))));
    }
    drop(a);
}

/// A router between two wires, by the letter of RFC 791, 826 and 1812; it shares no code with what is tested.
struct Router {
    ports: [Box<MemoryNic>; 2],
    addresses: [Ipv4Addr; 2],
    /// Stations that were heard, by port.
    known: [Vec<(Ipv4Addr, [u8; 6])>; 2],
    memory: DmaMemory,
    forwarded: usize,
    /// All that came, for tests that look.
    seen: Vec<Vec<u8>>,
}

impl Router {
    fn new(ports: [Box<MemoryNic>; 2], domain: Arc<dyn DmaDomain>, addresses: [Ipv4Addr; 2]) -> Self {
        let memory = DmaMemory::allocate(domain, 2048, Rights::READ).unwrap();
        let known = [Vec::new(), Vec::new()];
        Self { ports, addresses, known, memory, forwarded: 0, seen: Vec::new() }
    }

    fn send(&mut self, port: usize, frame: &[u8]) {
        self.memory.write_bytes(0, frame);
        let segments = [self.memory.segment(0..frame.len()).unwrap()];
        self.ports[port].reclaim(&mut |_| ()).unwrap();
        // A full ring loses frames, as routers do.
        let _ = self.ports[port].transmit(&TxFrame { segments: &segments, token: 0 }).unwrap();
        self.ports[port].flush().unwrap();
    }

    fn run(&mut self) {
        for port in 0..2 {
            let mut frames = Vec::new();
            self.ports[port]
                .receive(64, &mut |frame| {
                    let mut bytes = vec![0; frame.len()];
                    assert!(frame.read(0, &mut bytes));
                    frames.push(bytes);
                })
                .unwrap();
            for frame in frames {
                self.seen.push(frame.clone());
                self.take(port, frame);
            }
        }
    }

    fn take(&mut self, port: usize, mut frame: Vec<u8>) {
        let own = self.ports[port].properties().mac.0;
        if frame[12..14] == [8, 6] {
            let (sender, target) = (address(&frame, 28), address(&frame, 38));
            let station: [u8; 6] = frame[22..28].try_into().unwrap();
            self.known[port].retain(|(known, _)| *known != sender);
            self.known[port].push((sender, station));
            if frame[21] == 1 && target == self.addresses[port] {
                frame.copy_within(22..32, 32);
                frame[21] = 2;
                frame[22..28].copy_from_slice(&own);
                frame[28..32].copy_from_slice(&target.octets());
                frame[..6].copy_from_slice(&station);
                frame[6..12].copy_from_slice(&own);
                self.send(port, &frame);
            }
            return;
        }
        if frame[12..14] != [8, 0] || frame[..6] != own || frame[22] <= 1 {
            return;
        }
        assert_eq!(ones(&frame[14..34]), 0xffff, "a header with a wrong checksum");
        frame[22] -= 1;
        frame[24..26].fill(0);
        let checksum = !ones(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        let to = address(&frame, 30);
        let out = 1 - port;
        let station = self.known[out].iter().find(|(known, _)| *known == to).map(|(_, station)| *station);
        let other = self.ports[out].properties().mac.0;
        match station {
            Some(station) => {
                frame[..6].copy_from_slice(&station);
                frame[6..12].copy_from_slice(&other);
                self.forwarded += 1;
                self.send(out, &frame);
            }
            None => {
                // The frame is lost meanwhile.
                let mut question = vec![0xff; 6];
                question.extend_from_slice(&other);
                question.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
                question.extend_from_slice(&other);
                question.extend_from_slice(&self.addresses[out].octets());
                question.extend_from_slice(&[0; 6]);
                question.extend_from_slice(&to.octets());
                self.send(out, &question);
            }
        }
    }
}

fn address(frame: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3])
}

fn ones(bytes: &[u8]) -> u16 {
    let mut sum = bytes
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum::<u64>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Two hosts on two subnets, and the router between them.
fn routed() -> (Nic, Nic, Router) {
    let (a, left, domain) = memory_pair();
    let (right, b, _) = memory_pair();
    let router = Router::new([left, right], domain.clone(), [ip("10.1.0.1"), ip("10.2.0.1")]);
    let a = open(a, &domain, options("a", "10.1.0.9/24", Some("10.1.0.1")));
    let b = open(b, &domain, options("b", "10.2.0.9/24", Some("10.2.0.1")));
    (a, b, router)
}

#[test]
fn hosts_on_two_subnets_talk_by_way_of_a_router() {
    let (a, b, router) = routed();
    let router = std::sync::Mutex::new(router);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                router.lock().unwrap().run();
                std::thread::yield_now();
            }
        });
        let finish = Finish(&done);
        let (a, b) =
            (End::new(a, |v| v.rdma_read = true).unwrap(), End::new(b, |v| v.rdma_read = true).unwrap());
        join(&a, &b, b"far").unwrap();
        exchange(&ViPair { a, b }, std::thread::yield_now);
        drop(finish);
    });
    let router = router.into_inner().unwrap();
    assert!(router.forwarded > 200, "{} datagrams forwarded", router.forwarded);
    for frame in router.seen.iter().filter(|frame| frame[12..14] == [8, 0]) {
        assert_eq!(frame[20..22], [0x40, 0], "not to be fragmented");
        assert!(frame.len() <= 1514);
    }
}

/// Ends the router's thread, also when a test fails.
struct Finish<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn questions_and_echo_requests_are_answered() {
    let (a, wire, domain) = memory_pair();
    let nic = open(a, &domain, options("a", "10.0.0.1/24", None));
    let (spare, _, _) = memory_pair();
    let mut router = Router::new([wire, spare], domain, [ip("10.0.0.2"), ip("10.9.0.1")]);
    let mut question = vec![0xff; 6];
    question
        .extend_from_slice(&[2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2]);
    question.extend_from_slice(&[0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    router.send(0, &question);
    nic.poll().unwrap();
    router.run();
    let answer = router.seen.pop().expect("an answer");
    assert_eq!(answer[..6], [2, 0, 0, 0, 0, 2]);
    assert_eq!(
        (&answer[20..22], &answer[28..32], &answer[38..42]),
        (&[0, 2][..], &[10, 0, 0, 1][..], &[10, 0, 0, 2][..])
    );
    let station: [u8; 6] = answer[22..28].try_into().unwrap();

    // For somebody else: silence.
    let mut other = question.clone();
    other[41] = 7;
    router.send(0, &other);
    nic.poll().unwrap();
    router.run();
    assert!(router.seen.is_empty());

    for len in [0usize, 1, 56, 1472] {
        let mut ping = station.to_vec();
        ping.extend_from_slice(&[2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
        ping.extend_from_slice(&((28 + len) as u16).to_be_bytes());
        ping.extend_from_slice(&[1, 2, 0x40, 0, 9, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
        ping.extend_from_slice(&[8, 0, 0, 0, 0x12, 0x34, 0, 5]);
        ping.extend((0..len).map(|n| n as u8));
        for (at, from, to) in [(24, 14, 34), (36, 34, ping.len())] {
            let sum = !ones(&ping[from..to]);
            ping[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut padded = ping.clone();
        padded.resize(ping.len().max(60), 0xaa);
        router.send(0, &padded);
        nic.poll().unwrap();
        router.seen.clear();
        router.run();
        let pong = router.seen.pop().expect("an echo");
        assert_eq!(pong.len(), ping.len());
        assert_eq!((pong[34], &pong[38..]), (0, &ping[38..]));
        assert_eq!((ones(&pong[14..34]), ones(&pong[34..])), (0xffff, 0xffff));
        assert_eq!((&pong[26..30], &pong[30..34], pong[22]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..], 64));
    }
}

/// What is wrong around a frame of a live connection is dropped, and neither the connection nor the way to the peer
/// suffers from it.
#[test]
fn noise_around_a_live_connection_is_dropped_and_counted() {
    let (a, left, domain) = memory_pair();
    let (right, b, _) = memory_pair();
    // One subnet; the wire is in our hands.
    let a = End::new(open(a, &domain, options("a", "10.0.0.1/24", None)), |v| v.rdma_read = true).unwrap();
    let b = End::new(open(b, &domain, options("b", "10.0.0.2/24", None)), |v| v.rdma_read = true).unwrap();
    let wire = std::cell::RefCell::new(Router::new([left, right], domain, [ip("10.0.0.1"), ip("10.0.0.2")]));
    let carry = || {
        let mut wire = wire.borrow_mut();
        for port in 0..2 {
            let mut frames = Vec::new();
            wire.ports[port]
                .receive(64, &mut |frame| {
                    let mut bytes = vec![0; frame.len()];
                    assert!(frame.read(0, &mut bytes));
                    frames.push(bytes);
                })
                .unwrap();
            for frame in frames {
                wire.send(1 - port, &frame);
                wire.seen.push(frame);
            }
        }
    };
    let listener = b.nic.listen(b"near", 4).unwrap();
    let there = NetAddress::new(b.nic.properties().mac, b"near").unwrap();
    a.vi.connect_start(&there, PATIENCE, b"").unwrap();
    loop {
        carry();
        if let Some(request) = listener.poll().unwrap() {
            request.accept(&b.vi, b"").map_err(|(_, e)| e).unwrap();
        }
        if a.vi.connect_done().unwrap().is_some() {
            break;
        }
    }
    let pair = ViPair { a, b };
    exchange(&pair, carry);
    let frames = std::mem::take(&mut wire.borrow_mut().seen);
    let mut state = 1u64;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for round in 0..if std::env::var_os("UVIA_LONG").is_some() { 300_000 } else { 20_000 } {
        let mut frame = frames[random(frames.len())].clone();
        let datagram = frame[12..14] == [8, 0];
        // Behind the stations, and before the frame's own fields: those can break a connection, as they should.
        let end = if datagram { 54 } else { frame.len() };
        for _ in 0..=random(3) {
            let at = 12 + random(end - 12);
            frame[at] = random(256) as u8;
        }
        if !datagram {
            // From no single station: else it would be the truth, and change the way.
            frame[22] |= 1;
        } else if round % 2 == 0 {
            frame[24..26].fill(0);
            let checksum = !ones(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        if random(10) == 0 {
            frame.truncate(1 + random(frame.len()));
        }
        wire.borrow_mut().send(random(2), &frame);
        pair.a.nic.poll().unwrap();
        pair.b.nic.poll().unwrap();
        if round % 64 == 0 {
            carry();
        }
    }
    for end in [&pair.a, &pair.b] {
        assert_eq!(end.vi.state(), ViState::Connected, "{:?}", end.vi.loss());
        assert!(end.nic.statistics().adapter.rx_errors > 1000, "{:?}", end.nic.statistics());
    }
    exchange(&pair, carry);
}
