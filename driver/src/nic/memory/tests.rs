//! Several adapters on a segment; processes that are killed, and one that keeps no rules.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::layout::{CONTROL, LANE, MAX_FRAME, PORTS, port};
use super::mapping::Mapping;
use super::segment::Segment;
use crate::dma::{DmaMemory, IdentityDomain, Rights};
use crate::nic::{MacAddress, Nic, NicConfig, RxFilter, TxFrame};

const PATIENCE: Duration = Duration::from_secs(30);
/// Tells a child the segment's name, and whom to send to.
const SEGMENT: &str = "UVIA_TEST_SEGMENT";
const TARGET: &str = "UVIA_TEST_TARGET";

/// A sequence of numbers for a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn rounds(usual: u64, quick: u64, long: u64) -> u64 {
    let set = |name| std::env::var(name).is_ok_and(|value| value == "1");
    match (set("UVIA_LONG"), set("UVIA_QUICK")) {
        (true, _) => long,
        (_, true) => quick,
        _ => usual,
    }
}

fn name(what: &str) -> String {
    format!("test-{what}-{}", std::process::id())
}

/// The segment's file, which must not be left behind.
fn file(name: &str) -> PathBuf {
    // SAFETY: asks for a number.
    PathBuf::from(format!("/dev/shm/uvia-{}-{name}", unsafe { libc::geteuid() }))
}

/// Sees that it is not. A child of another test's may just have been forked: until it runs its program it has all that
/// we have open, and then whoever closes is not the last, nor can it be opened meanwhile.
fn is_gone(name: &str) {
    let start = Instant::now();
    while file(name).exists() {
        assert!(start.elapsed() < PATIENCE, "the segment's file is left behind");
        std::thread::sleep(Duration::from_millis(1));
        drop(super::open(name, &NicConfig::default()));
    }
}

fn open(name: &str) -> Box<dyn Nic> {
    super::open(name, &NicConfig::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// A place for one frame.
struct Frame(DmaMemory);

impl Frame {
    fn new() -> Self {
        Self(DmaMemory::allocate(Arc::new(IdentityDomain::default()), MAX_FRAME, Rights::READ).unwrap())
    }

    /// Sends a frame of `len` bytes, each of which depends on `seed`.
    fn send(&self, from: &mut dyn Nic, to: MacAddress, seed: u64, len: usize) -> bool {
        let mut bytes = vec![0; len];
        fill(&mut bytes, to, seed);
        self.0.write_bytes(0, &bytes);
        let segment = self.0.segment(0..len).unwrap();
        let taken = from.transmit(&TxFrame { segments: &[segment], token: seed }).unwrap();
        from.flush().unwrap();
        from.reclaim(&mut |_| ()).unwrap();
        taken
    }
}

fn fill(bytes: &mut [u8], to: MacAddress, seed: u64) {
    bytes[..6].copy_from_slice(&to.0);
    bytes[6..14].copy_from_slice(&seed.to_le_bytes());
    for (n, byte) in bytes[14..].iter_mut().enumerate() {
        *byte = (seed as usize + n * 31) as u8;
    }
}

/// Takes frames, and sees that each is one as `fill` makes them: their seeds.
fn take(nic: &mut dyn Nic, own: MacAddress) -> Vec<u64> {
    let mut seeds = Vec::new();
    nic.receive(64, &mut |frame| {
        let mut bytes = vec![0; frame.len()];
        assert!(frame.read(0, &mut bytes));
        let seed = u64::from_le_bytes(bytes[6..14].try_into().unwrap());
        let mut expected = vec![0; bytes.len()];
        fill(&mut expected, own, seed);
        assert!(bytes == expected, "frame {seed} of {} bytes is damaged", bytes.len());
        seeds.push(seed);
    })
    .unwrap();
    seeds
}

#[test]
fn ports_are_bounded_come_back_and_leave_nothing_behind() {
    let name = name("ports");
    let mut nics: Vec<_> = (0..PORTS).map(|_| open(&name)).collect();
    let error = super::open(&name, &NicConfig::default()).err().expect("there are no more ports").to_string();
    assert!(error.contains("64 ports"), "{error}");
    let frame = Frame::new();
    let macs: Vec<_> = nics.iter().map(|nic| nic.properties().mac).collect();
    // Each to its neighbour and to all; nobody hears itself.
    for n in 0..PORTS {
        let to = (n + 1) % PORTS;
        assert!(frame.send(&mut *nics[n], macs[to], n as u64, 1000 + n));
        assert_eq!(take(&mut *nics[to], macs[to]), [n as u64]);
        assert!(frame.send(&mut *nics[n], macs[n], 1, 100));
    }
    assert!(frame.send(&mut *nics[5], MacAddress::BROADCAST, 77, 500));
    for (n, nic) in nics.iter_mut().enumerate() {
        let expected: &[u64] = if n == 5 { &[] } else { &[77] };
        assert_eq!(take(&mut **nic, MacAddress::BROADCAST), expected, "port {n}");
    }
    // A port that is free again is somebody else's: what is sent to the old one reaches nobody.
    let gone = macs[9];
    nics.remove(9);
    let mut next = open(&name);
    let mac = next.properties().mac;
    assert!(mac != gone && mac.0[5] == gone.0[5], "{mac} {gone}");
    assert!(frame.send(&mut *nics[0], gone, 1, 100) && frame.send(&mut *nics[0], mac, 2, 5000));
    assert_eq!(take(&mut *next, mac), [2]);
    assert!(file(&name).exists());
    drop((nics, next));
    is_gone(&name);
}

#[test]
fn frames_of_all_sizes_fill_a_lane_to_the_brim_and_wait_for_room() {
    let name = name("brim");
    let (mut a, mut b) = (open(&name), open(&name));
    let (own, frame) = (b.properties().mac, Frame::new());
    let mut random = Random(3);
    let (mut sent, mut came, mut full) = (0, 0, 0);
    let count = rounds(20_000, 3000, 500_000);
    while came < count {
        // Until there is no room, then some are taken.
        while sent < count {
            let len = match sent % 3 {
                0 => 14 + random.below(300) as usize,
                1 => MAX_FRAME - random.below(4000) as usize,
                _ => 14 + random.below(3000) as usize,
            };
            if !frame.send(&mut *a, own, sent, len) {
                full += 1;
                break;
            }
            sent += 1;
        }
        for _ in 0..1 + random.below(4) {
            for seed in take(&mut *b, own) {
                assert_eq!(seed, came);
                came += 1;
            }
        }
    }
    println!("{count} frames, {full} times without room");
    assert!(full > 0);
}

#[test]
fn who_takes_nothing_for_long_is_in_nobodys_way() {
    let name = name("stall");
    let (mut a, mut deaf, mut b) = (open(&name), open(&name), open(&name));
    let (deaf_mac, own, frame) = (deaf.properties().mac, b.properties().mac, Frame::new());
    let start = Instant::now();
    let mut taken = 0u64;
    while frame.send(&mut *a, deaf_mac, taken, 60) {
        taken += 1;
    }
    assert_eq!(taken, 256, "as many as there are slots");
    // The others are not concerned; and after a while it is not waited for.
    assert!(frame.send(&mut *a, own, 5, 60));
    assert_eq!(take(&mut *b, own), [5]);
    while !frame.send(&mut *a, deaf_mac, 1000, 60) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(start.elapsed() >= super::STALL);
    // It gets what was not dropped, and what is sent once it takes something.
    let mut got = Vec::new();
    while got.len() < 256 {
        got.extend(take(&mut *deaf, deaf_mac));
    }
    assert_eq!(got, (0..256).collect::<Vec<_>>());
    assert!(frame.send(&mut *a, deaf_mac, 9, 60));
    assert_eq!(take(&mut *deaf, deaf_mac), [9]);
}

/// Another process of the same user, which writes whatever it likes wherever it likes: nobody crashes or waits for
/// ever, and frames are no longer than frames are.
#[test]
fn a_process_that_scribbles_over_the_segment_harms_only_what_is_sent() {
    for seed in 0..rounds(120, 15, 5000) {
        let name = format!("{}-{seed}", name("scribble"));
        let mut random = Random(seed);
        let mut nics = [open(&name), open(&name), open(&name)];
        let hostile = Segment::open(&name, None).unwrap();
        let control = hostile.map_control().unwrap();
        let lanes: Vec<Mapping> = [(0, 1), (1, 0), (0, 2), (2, 1), (3, 0)]
            .map(|(from, to)| hostile.map_any_lane(from, to).unwrap())
            .into();
        let frame = Frame::new();
        let macs = nics.each_ref().map(|nic| nic.properties().mac);
        for _ in 0..400 {
            let value = match random.below(6) {
                0 => 0,
                1 => u64::MAX,
                2 => random.next(),
                3 => random.below(256),
                // A header that could be: generation, number, any length.
                4 => (1 + random.below(4)) << 40 | random.below(40) << 16 | random.below(1 << 16),
                _ => (1 + random.below(4)) << 32 | random.below(600),
            };
            let (map, offset) = match random.below(3) {
                0 => (&control, (random.below(0x6000 / 8) * 8) as usize),
                1 => (&lanes[random.below(5) as usize], (random.below(LANE as u64 / 8) * 8) as usize),
                _ => (&lanes[random.below(5) as usize], (4096 + random.below(80) * 256) as usize),
            };
            // What is at the very beginning says which version it is, and is looked at only once.
            if random.below(3) != 0 {
                map.word(offset).store(value, Ordering::Relaxed);
            } else if random.below(4) == 0 {
                hostile
                    .port_word(random.below(3) as usize, port::OPENED)
                    .fetch_or(random.next(), Ordering::Relaxed);
            }
            let start = Instant::now();
            let n = random.below(3) as usize;
            let nic = &mut *nics[n];
            match random.below(8) {
                0..=2 => {
                    let to = macs[random.below(3) as usize];
                    let len = if random.below(4) == 0 { 14 + random.below(9000) as usize } else { 60 };
                    frame.send(nic, to, random.next(), len);
                }
                3 => drop(frame.send(nic, MacAddress::BROADCAST, 1, 60)),
                4 => nic.arm(random.below(2) == 0).unwrap(),
                5 if random.below(8) == 0 => nic.reset().unwrap(),
                6 if random.below(4) == 0 => {
                    nic.set_filter(RxFilter { promiscuous: random.below(2) == 0, all_multicast: true })
                        .unwrap();
                }
                _ => {
                    let mut shown = 0;
                    let count = nic
                        .receive(64, &mut |frame| {
                            shown += 1;
                            assert!(frame.len() <= MAX_FRAME && !frame.is_empty());
                            let mut bytes = vec![0; frame.len()];
                            assert!(frame.read(0, &mut bytes));
                        })
                        .unwrap();
                    assert!(count == shown && count <= 64);
                }
            }
            assert!(start.elapsed() < PATIENCE, "seed {seed}: it hangs");
        }
        drop(nics);
        drop(hostile);
        is_gone(&name);
    }
    const { assert!(CONTROL > 0x6000) };
}

#[test]
fn a_forked_child_does_not_give_its_parents_port_back() {
    let name = name("fork");
    let (mut a, mut b) = (open(&name), open(&name));
    // SAFETY: the child drops what it has, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(b);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let mac = b.properties().mac;
    assert!(Frame::new().send(&mut *a, mac, 3, 60));
    assert_eq!(take(&mut *b, mac), [3]);
}

/// What a child does: it sends to the port that it was told of, and to all, until it is killed.
#[test]
fn child_that_sends_until_it_is_killed() {
    let (Ok(segment), Ok(target)) = (std::env::var(SEGMENT), std::env::var(TARGET)) else { return };
    let mut nic = open(&segment);
    let (to, frame) = (target.parse().unwrap(), Frame::new());
    let own = nic.properties().mac;
    println!("\nchild {own}");
    let mut random = Random(u64::from(own.0[2]));
    for seed in 0.. {
        let len = 14 + random.below(if seed % 8 == 0 { 20_000 } else { 300 }) as usize;
        while !frame.send(&mut *nic, to, seed, len) {
            std::thread::yield_now();
        }
        if seed % 64 == 0 {
            nic.arm(seed % 128 == 0).unwrap();
            nic.receive(64, &mut |_| ()).unwrap();
        }
    }
}

fn child(segment: &str, target: MacAddress) -> (Child, MacAddress) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nic::memory::tests::child_that_sends_until_it_is_killed", "--nocapture"])
        .env(SEGMENT, segment)
        .env(TARGET, target.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mac = output.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("child ")?.parse().ok());
    (child, mac.expect("the child says its address"))
}

/// Whatever a process does when it is killed, others go on, no frame is damaged, its port is free again, and when all
/// are gone so is the memory.
#[test]
fn processes_that_are_killed_leave_whole_frames_and_a_free_port() {
    let name = name("kill");
    let mut nic = open(&name);
    let (own, frame) = (nic.properties().mac, Frame::new());
    for seed in 0..rounds(25, 4, 1000) {
        let mut random = Random(seed);
        let (mut child, mac) = child(&name, own);
        let wanted = 1 + random.below(3000);
        let (mut came, start) = (0, Instant::now());
        while came < wanted {
            for seed in take(&mut *nic, own) {
                assert_eq!(seed, came, "in order, none lost");
                came += 1;
            }
            if random.below(40) == 0 {
                frame.send(&mut *nic, mac, came, 200);
            }
            assert!(start.elapsed() < PATIENCE, "{came} of {wanted} frames came");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What was published before is whole too.
        loop {
            let seeds = take(&mut *nic, own);
            if seeds.is_empty() {
                break;
            }
            for seed in seeds {
                assert_eq!(seed, came);
                came += 1;
            }
        }
        // Nobody takes what is sent there, and that is noticed as soon as its lane is full.
        if seed % 8 == 0 {
            let start = Instant::now();
            for n in 0..300 {
                while !frame.send(&mut *nic, mac, n, 60) {
                    assert!(start.elapsed() < PATIENCE);
                    std::thread::yield_now();
                }
            }
        }
    }
    drop(nic);
    is_gone(&name);

    // The last one is killed: a file of some bytes is left, and the next who makes a segment removes it, whoever that is.
    let (mut last, _) = child(&name, own);
    last.kill().unwrap();
    last.wait().unwrap();
    // Or another test here has done so already.
    assert!(file(&name).metadata().map_or(0, |about| about.len()) < 4096, "its memory is left");
    drop(open(&format!("{name}-next")));
    assert!(!file(&name).exists(), "what was left is not removed");
}
