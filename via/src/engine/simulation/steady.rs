//! The data path once it runs: it allocates nothing, and takes few instructions.
//!
//! For the latter: `valgrind --tool=callgrind --toggle-collect='*steady*exchange*'` on the test
//! `simulation::steady::ping_pong`, which prints how many messages that were.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use uvia_driver::nic::RxFrame;

use super::world::{TAG, World};
use crate::engine::{Engine, Event, FrameToken, Output, PayloadPart, Sent, Time, Tuning};
use crate::{Completion, Descriptor, ErrorCode, MemoryRegion, RemoteMemory, ViAttributes, ViId, WorkQueue};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    // A thread that is ending has no counter any more.
    let _ = ALLOCATIONS.try_with(|counter| counter.set(counter.get() + 1));
}

// SAFETY: all is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

const FRAME: usize = 2048;
const SLOTS: usize = 128;

/// Frames in a ring; they are copied when they are offered.
struct Direct {
    frames: Vec<[u8; FRAME]>,
    lengths: [usize; SLOTS],
    head: usize,
    tail: usize,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    sends: Vec<Box<Descriptor>>,
    #[expect(clippy::vec_box)]
    receives: Vec<Box<Descriptor>>,
}

impl Direct {
    fn new() -> Self {
        Self {
            frames: vec![[0; FRAME]; SLOTS],
            lengths: [0; SLOTS],
            head: 0,
            tail: 0,
            sends: Vec::with_capacity(256),
            receives: Vec::with_capacity(256),
        }
    }
}

impl Output for Direct {
    fn transmit(&mut self, header: &[u8], payload: &[PayloadPart<'_>], _token: FrameToken) -> Sent {
        if self.tail - self.head == SLOTS {
            return Sent::Full;
        }
        let frame = &mut self.frames[self.tail % SLOTS];
        frame[..header.len()].copy_from_slice(header);
        let mut at = header.len();
        for part in payload {
            part.region.read(part.offset, &mut frame[at..at + part.len]).unwrap();
            at += part.len;
        }
        self.lengths[self.tail % SLOTS] = at;
        self.tail += 1;
        Sent::Copied
    }

    fn probe(&mut self, _: &[u8], _: usize) -> Sent {
        Sent::Full
    }

    fn complete(&mut self, completion: Completion) {
        assert!(completion.descriptor.status().is_success());
        match completion.queue {
            WorkQueue::Send => self.sends.push(completion.descriptor),
            WorkQueue::Receive => self.receives.push(completion.descriptor),
        }
    }

    fn event(&mut self, event: Event) {
        panic!("{event:?}");
    }

    fn error(&mut self, vi: ViId, code: ErrorCode) {
        panic!("{vi:?}: {code:?}");
    }
}

/// Two engines, connected, each with memory.
struct Ends {
    engines: [Engine; 2],
    ports: [Direct; 2],
    vi: [ViId; 2],
    region: [MemoryRegion; 2],
    now: u64,
}

impl Ends {
    fn new() -> Self {
        let mut world = World::good(Tuning::default());
        let (client, server) = world.connect(0, 1, &ViAttributes::new(TAG));
        let domain = world.domain.clone();
        let region = [0, 1].map(|host| world.hosts[host].region(&domain, 1 << 20));
        let now = world.now;
        let mut engines = world.hosts.into_iter().map(|host| host.engine);
        let engines = [engines.next().unwrap(), engines.next().unwrap()];
        Self { engines, ports: [Direct::new(), Direct::new()], vi: [client, server], region, now }
    }

    fn post_receive(&mut self, end: usize, descriptor: Box<Descriptor>) {
        self.engines[end].post_receive(self.vi[end], descriptor, &mut self.ports[end]);
    }

    fn post_send(&mut self, end: usize, descriptor: Box<Descriptor>) {
        self.engines[end].post_send(Time(self.now), self.vi[end], descriptor, &mut self.ports[end]);
    }

    /// Carries one frame over from `end`; false when there is none.
    fn carry(&mut self, end: usize) -> bool {
        let [a, b] = &mut self.ports;
        let (from, to) = if end == 0 { (a, b) } else { (b, a) };
        if from.head == from.tail {
            return false;
        }
        let slot = from.head % SLOTS;
        let frame = RxFrame::from_slice(&from.frames[slot][..from.lengths[slot]]);
        self.engines[1 - end].begin_burst(Time(self.now));
        self.engines[1 - end].receive(frame, to);
        from.head += 1;
        true
    }

    /// One message of 64 bytes each way, `rounds` times.
    #[inline(never)]
    fn exchange(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for end in 0..2 {
                let descriptor = self.ports[end].sends.pop().unwrap();
                self.post_send(end, descriptor);
                assert!(self.carry(end));
                self.engines[1 - end].poll(Time(self.now), &mut self.ports[1 - end]);
                let descriptor = self.ports[1 - end].receives.pop().unwrap();
                self.post_receive(1 - end, descriptor);
                self.now += 1_000;
            }
        }
    }

    /// Carries frames until all is done, with time going by.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.now += 10_000;
            while self.carry(0) | self.carry(1) {}
            for end in 0..2 {
                self.engines[end].poll(Time(self.now), &mut self.ports[end]);
            }
        }
    }
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn ping_pong() {
    let mut ends = Ends::new();
    for end in 0..2 {
        for n in 0..4 {
            let receive = Descriptor::new(vec![ends.region[end].segment(n * 64..n * 64 + 64).unwrap()]);
            ends.post_receive(end, receive);
            let send = Descriptor::new(vec![ends.region[end].segment(1024..1088).unwrap()]);
            ends.ports[end].sends.push(send);
        }
    }
    let rounds = 5_000;
    let before = allocations();
    ends.exchange(rounds);
    assert_eq!(allocations() - before, 0);
    println!("{} messages", 2 * rounds);
}

#[test]
fn long_messages_and_writes_allocate_nothing() {
    let mut ends = Ends::new();
    let to: RemoteMemory = ends.region[1].remote(512 << 10).unwrap();
    let source = ends.region[0].clone();
    let receives: Vec<_> = (0..8)
        .map(|n| Descriptor::new(vec![ends.region[1].segment(n * 50_000..n * 50_000 + 50_000).unwrap()]))
        .collect();
    for receive in receives {
        ends.post_receive(1, receive);
    }
    for n in 0..8 {
        let parts = (0..9).map(|part| source.segment(part * 9_000..part * 9_000 + 5_000).unwrap()).collect();
        let mut descriptor =
            if n % 2 == 0 { Descriptor::new(parts) } else { Descriptor::rdma_write(parts, to) };
        descriptor.immediate = Some(n);
        ends.ports[0].sends.push(descriptor);
    }
    // The first round may still make room somewhere.
    for round in 0..20 {
        let before = allocations();
        for _ in 0..8 {
            let descriptor = ends.ports[0].sends.pop().unwrap();
            ends.post_send(0, descriptor);
        }
        ends.settle();
        assert_eq!(ends.ports[0].sends.len(), 8);
        assert_eq!(ends.ports[1].receives.len(), 8);
        while let Some(descriptor) = ends.ports[1].receives.pop() {
            ends.post_receive(1, descriptor);
        }
        assert!(round == 0 || allocations() == before, "{} allocations", allocations() - before);
    }
}
