//! Many threads on shared NICs and shared completion queues, doing anything at any moment: what they post comes back once,
//! in order, and with the right bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uvia::{
    Completion, CompletionQueue, Completions, Descriptor, MemoryAttributes, MemoryRegion, NetAddress, Nic,
    NicOptions, Progress, ProtectionTag, ReliabilityLevel, Status, Vi, ViAttributes, ViId, WorkQueue,
};
use uvia_tests::{Faults, PATIENCE, long_memory_pair};

/// Bytes of the longest message: five frames of the longest kind.
const MOST: usize = 40_000;
/// Threads, each with connections of its own on the two NICs.
const THREADS: usize = 3;
/// How long each kind of wire is tried.
const TIME: Duration = Duration::from_secs(1);

/// xorshift64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// One side: NIC, a queue that all threads share, and what came for whom.
struct Side {
    nic: Nic,
    tag: ProtectionTag,
    cq: CompletionQueue,
    mail: Mutex<HashMap<ViId, Vec<Completion>>>,
}

impl Side {
    fn new(nic: Nic) -> Self {
        let tag = nic.create_tag().unwrap();
        let cq = nic.create_cq(4096).unwrap();
        Self { nic, tag, cq, mail: Mutex::default() }
    }

    /// Takes what is there, in one way or another: under one lock, since order counts.
    fn pump(&self, rng: &mut Rng, batch: &mut Completions) {
        let mut mail = self.mail.lock().unwrap();
        match rng.below(4) {
            0 => {
                if let Some(c) = self.cq.poll().unwrap() {
                    mail.entry(c.vi).or_default().push(c);
                }
            }
            1 => {
                if let Some(c) = self.cq.wait(Duration::from_micros(30)).unwrap() {
                    mail.entry(c.vi).or_default().push(c);
                }
            }
            _ => {
                self.cq.poll_into(batch).unwrap();
                while let Some(c) = batch.pop() {
                    mail.entry(c.vi).or_default().push(c);
                }
            }
        }
    }

    fn take(&self, id: ViId) -> Vec<Completion> {
        self.mail.lock().unwrap().remove(&id).unwrap_or_default()
    }
}

/// A connection, both of whose ends belong to one thread.
struct Link {
    vis: [Vi; 2],
    /// Lengths and seeds of messages sent to each side, in order, that were not received yet.
    under_way: [VecDeque<(usize, u64)>; 2],
    /// Posted and not completed, by side.
    sends: [usize; 2],
    receives: [usize; 2],
    /// One end has left: what is posted may come back flushed.
    broken: bool,
}

/// What a message of that seed says.
fn fill(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed | 1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A descriptor of so many bytes of memory, in one segment or now and then in two; its context is where they begin.
fn descriptor(rng: &mut Rng, memory: &MemoryRegion, at: usize, len: usize) -> Box<Descriptor> {
    let whole = memory.segment(at..at + len).unwrap();
    let segments = match rng.below(4) {
        0 if len > 1 => {
            let cut = at + 1 + rng.below(len - 1);
            vec![memory.segment(at..cut).unwrap(), memory.segment(cut..at + len).unwrap()]
        }
        _ => vec![whole],
    };
    let mut descriptor = Descriptor::new(segments);
    descriptor.context = at as u64;
    descriptor
}

fn connect(sides: &[Side; 2], name: &[u8], rng: &mut Rng) -> Link {
    let depth = 1 + rng.below(40);
    let reliability = match rng.below(4) {
        0 => ReliabilityLevel::ReliableReception,
        _ => ReliabilityLevel::ReliableDelivery,
    };
    let make = |side: &Side| {
        let attributes = ViAttributes {
            send_depth: depth,
            receive_depth: depth,
            reliability,
            rdma_read: true,
            ..ViAttributes::new(side.tag)
        };
        side.nic.create_vi(&attributes, Some(&side.cq), Some(&side.cq)).unwrap()
    };
    let vis = [make(&sides[0]), make(&sides[1])];
    let listener = sides[1].nic.listen(name, 4).unwrap();
    vis[0]
        .connect_start(&NetAddress::new(sides[1].nic.properties().mac, name).unwrap(), PATIENCE, &[])
        .unwrap();
    let start = Instant::now();
    loop {
        if let Some(request) = listener.poll().unwrap() {
            request.accept(&vis[1], &[]).map_err(|(_, e)| e).unwrap();
        }
        match vis[0].connect_done() {
            Ok(Some(_)) => break,
            Ok(None) => {}
            Err(e) => panic!("connect: {e}"),
        }
        assert!(start.elapsed() < PATIENCE, "no connection");
        thread::yield_now();
    }
    Link { vis, under_way: Default::default(), sends: [0; 2], receives: [0; 2], broken: false }
}

/// Connects, does anything, and leaves in one of several ways; again and again.
fn worker(n: usize, seed: u64, sides: &[Side; 2], stop: &AtomicBool, count: &AtomicU64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut batches =
        [Completions::with_capacity(1 + rng.below(9)), Completions::with_capacity(1 + rng.below(30))];
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let name = format!("{n}.{round}");
        let mut link = connect(sides, name.as_bytes(), &mut rng);
        let memory: Vec<MemoryRegion> = (0..2)
            .map(|s| sides[s].nic.allocate(1 << 20, MemoryAttributes::remote(sides[s].tag)).unwrap())
            .collect();
        let steps = 50 + rng.below(3000);
        // Places in the memory that no descriptor names; those that are posted have theirs as context.
        let mut free: Vec<Vec<usize>> = (0..2).map(|_| (0..20).map(|k| k * MOST).collect()).collect();
        for _ in 0..steps {
            let s = rng.below(2);
            match rng.below(12) {
                0..=3 => {
                    // Post receives.
                    let many = 1 + rng.below(6);
                    let mut list = Vec::new();
                    for _ in 0..many {
                        if link.receives[s] + list.len() >= link.vis[s].attributes().receive_depth {
                            break;
                        }
                        let Some(at) = free[s].pop() else { break };
                        list.push(descriptor(&mut rng, &memory[s], at, MOST));
                    }
                    link.receives[s] += list.len();
                    if rng.below(2) == 0 {
                        link.vis[s].post_receives(&mut list).unwrap();
                        assert!(list.is_empty());
                    } else {
                        for d in list {
                            link.vis[s].post_receive(d).unwrap();
                        }
                    }
                }
                4..=7 => {
                    // Send to the other side, as far as there are receives.
                    let o = 1 - s;
                    if link.broken
                        || link.under_way[o].len() >= link.receives[o]
                        || link.sends[s] >= link.vis[s].attributes().send_depth
                    {
                        continue;
                    }
                    let Some(at) = free[s].pop() else { continue };
                    let len = match rng.below(6) {
                        0 => rng.below(100),
                        1 => rng.below(1500),
                        2 => rng.below(9000),
                        3 => 8100 + rng.below(100),
                        _ => rng.below(MOST),
                    };
                    let seed = rng.next();
                    memory[s].write(at, &fill(seed, len)).unwrap();
                    let mut d = descriptor(&mut rng, &memory[s], at, len);
                    if rng.below(5) == 0 {
                        d.immediate = Some(seed as u32);
                    }
                    link.sends[s] += 1;
                    link.under_way[o].push_back((len, seed));
                    link.vis[s].post_send(d).unwrap();
                }
                8 => {
                    if rng.below(10) == 0 {
                        let cq = &sides[s].cq;
                        let _ = cq.resize(3000 + rng.below(4000));
                    }
                    let out = link.vis[s].outstanding(WorkQueue::Send);
                    assert!(out <= 64, "outstanding {out}");
                    let out = link.vis[s].outstanding(WorkQueue::Receive);
                    assert!(out <= 64, "outstanding {out}");
                }
                _ => {
                    sides[s].pump(&mut rng, &mut batches[s]);
                }
            }
            take_mail(&mut link, sides, &memory, &mut free, count);
        }
        // The end: one side leaves, or both are just dropped, or all is waited for.
        match rng.below(3) {
            0 => {
                let start = Instant::now();
                while link.under_way.iter().any(|u| !u.is_empty()) || link.sends != [0; 2] {
                    for (side, batch) in sides.iter().zip(&mut batches) {
                        side.pump(&mut rng, batch);
                    }
                    take_mail(&mut link, sides, &memory, &mut free, count);
                    assert!(
                        start.elapsed() < PATIENCE,
                        "{n}: nothing comes: {:?} {:?} {:?} {:?}",
                        link.under_way,
                        link.sends,
                        link.receives,
                        link.vis.iter().map(|v| (v.state(), v.loss())).collect::<Vec<_>>()
                    );
                }
            }
            1 => {
                let s = rng.below(2);
                link.broken = true;
                link.vis[s].disconnect().unwrap();
                // All comes back at that end.
                let start = Instant::now();
                while link.sends[s] != 0 || link.receives[s] != 0 {
                    sides[s].pump(&mut rng, &mut batches[s]);
                    sides[1 - s].pump(&mut rng, &mut batches[1 - s]);
                    take_mail(&mut link, sides, &memory, &mut free, count);
                    assert!(
                        start.elapsed() < PATIENCE,
                        "{n}: not flushed: {:?} {:?}",
                        link.sends,
                        link.receives
                    );
                }
                assert_eq!(link.vis[s].outstanding(WorkQueue::Send), 0);
                assert_eq!(link.vis[s].outstanding(WorkQueue::Receive), 0);
            }
            _ => {}
        }
        drop(link);
    }
}

/// Looks at all that has completed on both sides of a connection.
fn take_mail(
    link: &mut Link,
    sides: &[Side; 2],
    memory: &[MemoryRegion],
    free: &mut [Vec<usize>],
    count: &AtomicU64,
) {
    for (s, side) in sides.iter().enumerate() {
        for completion in side.take(link.vis[s].id()) {
            check(link, s, completion, memory, free, count);
        }
    }
}

/// Looks at what has completed on a side of a connection.
fn check(
    link: &mut Link,
    s: usize,
    c: Completion,
    memory: &[MemoryRegion],
    free: &mut [Vec<usize>],
    count: &AtomicU64,
) {
    let status = c.descriptor.status();
    let at = c.descriptor.context as usize;
    free[s].push(at);
    match c.queue {
        WorkQueue::Send => link.sends[s] -= 1,
        WorkQueue::Receive => link.receives[s] -= 1,
    }
    if !status.is_success() {
        assert!(
            link.broken,
            "{status:?} {:?}",
            link.vis.iter().map(|v| (v.state(), v.loss())).collect::<Vec<_>>()
        );
        return;
    }
    if c.queue == WorkQueue::Receive {
        count.fetch_add(1, Ordering::Relaxed);
        let (len, seed) = link.under_way[s].pop_front().expect("a message that nobody sent");
        assert_eq!(c.descriptor.length() as usize, len);
        let mut got = vec![0; len];
        memory[s].read(at, &mut got).unwrap();
        assert!(got == fill(seed, len), "wrong bytes of {len}");
        assert_eq!(status.contains(Status::IMMEDIATE), c.descriptor.immediate.is_some());
        if let Some(i) = c.descriptor.immediate {
            assert_eq!(i, seed as u32);
        }
    }
}

fn storm(faults: Faults, progress: Progress) {
    let (a, b, domain) = long_memory_pair(faults);
    let open = |adapter, name: &str| {
        Nic::with_adapter(
            adapter,
            domain.clone(),
            NicOptions { name: Some(name.to_owned()), progress, ..NicOptions::default() },
        )
        .unwrap()
    };
    let sides = [Side::new(open(a, "a")), Side::new(open(b, "b"))];
    for side in &sides {
        side.nic.wait_ready(PATIENCE).unwrap();
    }
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (sides, stop, count) = (&sides, &stop, &count);
            scope.spawn(move || worker(n, 1 + n as u64, sides, stop, count));
        }
        thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(count.load(Ordering::Relaxed) > 0, "no message has come");
    // What is left in the queues is of interfaces that are no more: with it all entries are free again.
    let mut batch = Completions::with_capacity(64);
    let start = Instant::now();
    while sides.iter().any(|side| side.cq.promised() != 0) {
        for side in &sides {
            side.cq.poll_into(&mut batch).unwrap();
            while batch.pop().is_some() {}
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{faults:?}: {:?}",
            sides.each_ref().map(|side| side.cq.promised())
        );
    }
}

#[test]
fn many_threads_get_back_what_they_post_once_and_in_order() {
    for faults in [
        Faults::default(),
        Faults { loss: 20, duplicates: 20, seed: 1, carries: 0 },
        Faults { loss: 5, duplicates: 5, seed: 1, carries: 5000 },
    ] {
        for progress in [Progress::Caller, Progress::Thread] {
            storm(faults, progress);
        }
    }
}
