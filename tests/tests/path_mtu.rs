//! Adapters that take longer frames than the network surely carries: whole NICs over them find out by themselves what comes.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use uvia::{
    Descriptor, Encapsulation, MemoryAttributes, Nic, NicOptions, ReliabilityLevel, UdpOptions, ViAttributes,
};
use uvia_tests::{End, Faults, PATIENCE, ViPair, join, long_memory_pair};

/// Bytes of a frame's payload that are not the message's, and of headers before it over UDP.
const HEADER: usize = 34;
const UDP: usize = 42;
/// What a frame of 1500 bytes carries of a message, and the longest of such an adapter.
const SMALL: usize = 1500 - HEADER;
const LONG: usize = 8174 - HEADER;
const BYTES: usize = 200_000;

fn options(name: &str, over: Encapsulation) -> NicOptions {
    NicOptions { name: Some(name.to_owned()), encapsulation: over, ..NicOptions::default() }
}

fn udp(host: u8) -> Encapsulation {
    Encapsulation::Udp(UdpOptions::new(Ipv4Addr::new(10, 0, 0, host), 24))
}

fn pair_over([a, b]: [Encapsulation; 2], faults: Faults, change: impl Fn(&mut ViAttributes)) -> ViPair {
    let (left, right, domain) = long_memory_pair(faults);
    let a = Nic::with_adapter(left, domain.clone(), options("a", a)).unwrap();
    let b = Nic::with_adapter(right, domain, options("b", b)).unwrap();
    ViPair::connect(a, b, change).unwrap()
}

fn pair(faults: Faults) -> ViPair {
    pair_over([Encapsulation::Ethernet; 2], faults, |_| ())
}

/// Messages, writes and reads of several sizes, every byte looked at.
fn exchange(a: &End, b: &End) {
    let region = |end: &End| end.nic.allocate(BYTES, MemoryAttributes::remote(end.tag)).unwrap();
    let (from, into, back) = (region(a), region(b), region(a));
    let reap = |end: &End| {
        let start = Instant::now();
        loop {
            if let Some(completion) = end.cq.poll().unwrap() {
                assert!(completion.descriptor.status().is_success(), "{:?}", completion.descriptor.status());
                return;
            }
            a.nic.poll().unwrap();
            b.nic.poll().unwrap();
            assert!(start.elapsed() < PATIENCE, "nothing completed");
        }
    };
    for (round, size) in [1, SMALL, SMALL + 1, LONG - 16, LONG, LONG + 1, BYTES].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|n| (n * 7 + n / 251 + round) as u8).collect();
        from.write(0, &bytes).unwrap();
        let came = |region: &uvia::MemoryRegion| {
            let mut came = vec![0; size];
            region.read(0, &mut came).unwrap();
            assert!(came == bytes, "{size} bytes");
            region.write(0, &vec![0; size]).unwrap();
        };
        b.vi.post_receive(Descriptor::new(vec![into.segment(0..BYTES).unwrap()])).unwrap();
        a.vi.post_send(Descriptor::new(vec![from.segment(0..size).unwrap()])).unwrap();
        reap(b);
        reap(a);
        came(&into);
        if a.vi.attributes().reliability == ReliabilityLevel::Unreliable {
            continue;
        }
        let segment = |region: &uvia::MemoryRegion| vec![region.segment(0..size).unwrap()];
        a.vi.post_send(Descriptor::rdma_write(segment(&from), into.remote(0).unwrap())).unwrap();
        reap(a);
        a.vi.post_send(Descriptor::rdma_read(segment(&back), into.remote(0).unwrap())).unwrap();
        reap(a);
        came(&back);
        came(&into);
    }
}

/// Drives both ends for a while.
fn go_on(pair: &ViPair, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        pair.a.nic.poll().unwrap();
        pair.b.nic.poll().unwrap();
    }
}

/// What each end's frames carry.
fn paths(pair: &ViPair) -> [Option<usize>; 2] {
    [pair.a.vi.path_mtu(), pair.b.vi.path_mtu()]
}

fn frames(end: &End) -> u64 {
    end.nic.statistics().adapter.tx_frames
}

#[test]
fn long_frames_are_found_and_used_and_the_program_sees_it() {
    let readers = |attributes: &mut ViAttributes| attributes.rdma_read = true;
    let pair = pair_over([Encapsulation::Ethernet; 2], Faults::default(), readers);
    assert_eq!(pair.a.nic.properties().native_mtu, SMALL, "what surely fits");
    assert_eq!(paths(&pair), [Some(SMALL); 2]);
    exchange(&pair.a, &pair.b);
    assert_eq!(paths(&pair), [Some(LONG); 2], "reads are answered in them too");
    let before = frames(&pair.a);
    let (from, into) = (pair.a.memory(BYTES).unwrap(), pair.b.memory(BYTES).unwrap());
    let write = Descriptor::rdma_write(vec![from.segment(0..BYTES).unwrap()], into.remote(0).unwrap());
    pair.a.vi.post_send(write).unwrap();
    pair.drive(|pair| pair.a.cq.poll().unwrap());
    let took = frames(&pair.a) - before;
    let fewest = BYTES.div_ceil((LONG - 16) & !7) as u64;
    assert!((fewest..fewest + 3).contains(&took), "{took} frames, {fewest} are enough");
    pair.a.vi.disconnect().unwrap();
    assert_eq!(pair.a.vi.path_mtu(), None);
}

#[test]
fn a_wire_that_loses_long_frames_is_done_without() {
    for (carries, found) in [(1514, SMALL), (8187, 4352 - HEADER), (4000, SMALL)] {
        let readers = |attributes: &mut ViAttributes| attributes.rdma_read = true;
        let faults = Faults { carries, ..Faults::default() };
        let pair = pair_over([Encapsulation::Ethernet; 2], faults, readers);
        exchange(&pair.a, &pair.b);
        go_on(&pair, Duration::from_millis(1000));
        assert_eq!(paths(&pair), [Some(found); 2]);
        exchange(&pair.b, &pair.a);
    }
}

#[test]
fn a_wire_that_loses_and_repeats_frames_carries_long_ones() {
    let readers = |attributes: &mut ViAttributes| attributes.rdma_read = true;
    let faults = Faults { loss: 50, duplicates: 50, seed: 11, carries: 0 };
    let pair = pair_over([Encapsulation::Ethernet; 2], faults, readers);
    for _ in 0..4 {
        exchange(&pair.a, &pair.b);
        exchange(&pair.b, &pair.a);
    }
    assert!(paths(&pair).iter().all(|path| path.is_some_and(|bytes| bytes > SMALL)), "{:?}", paths(&pair));
}

#[test]
fn datagrams_may_be_long_too() {
    for (carries, found) in [(0, LONG), (1514, SMALL), (4352 + 14 + UDP, 4352 - HEADER + UDP)] {
        let readers = |attributes: &mut ViAttributes| attributes.rdma_read = true;
        let faults = Faults { carries, ..Faults::default() };
        let pair = pair_over([udp(1), udp(2)], faults, readers);
        assert_eq!(paths(&pair), [Some(SMALL - UDP); 2]);
        exchange(&pair.a, &pair.b);
        go_on(&pair, Duration::from_millis(1000));
        assert_eq!(paths(&pair), [Some(found - UDP); 2]);
        exchange(&pair.b, &pair.a);
    }
}

#[test]
fn nobody_would_notice_on_an_unreliable_connection() {
    let unreliable = |attributes: &mut ViAttributes| attributes.reliability = ReliabilityLevel::Unreliable;
    let pair = pair_over([Encapsulation::Ethernet; 2], Faults::default(), unreliable);
    exchange(&pair.a, &pair.b);
    go_on(&pair, Duration::from_millis(100));
    assert_eq!(paths(&pair), [Some(SMALL); 2]);
}

#[test]
fn within_one_host_there_is_nothing_to_find_out() {
    let pair = pair(Faults { carries: 1514, ..Faults::default() });
    let end = || End::new(pair.a.nic.clone(), |attributes| attributes.rdma_read = true).unwrap();
    let (one, two) = (end(), end());
    join(&one, &two, b"here").unwrap();
    assert_eq!([one.vi.path_mtu(), two.vi.path_mtu()], [Some(LONG); 2]);
    exchange(&one, &two);
}
