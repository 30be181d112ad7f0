//! Work for a connection: messages and RDMA writes one way, every byte of which is checked.

use super::rng::Rng;
use super::world::World;
use crate::{Completion, Descriptor, MemoryRegion, Status, ViId, WorkQueue};

/// What memory holds that nobody has written to.
const CANARY: u8 = 0xee;
/// Canaries before and behind.
const MARGIN: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    Read,
}

#[derive(Debug, Clone, Copy)]
struct Op {
    kind: Kind,
    len: usize,
    immediate: Option<u32>,
    fence: bool,
    /// How many receives were consumed before it.
    receive: usize,
    /// How many writes were before it.
    write: usize,
}

impl Op {
    fn consumes(&self) -> bool {
        self.kind == Kind::Send || self.immediate.is_some()
    }
}

/// How long messages are, and how many of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) messages: usize,
    pub(super) longest: usize,
    /// Of a million, RDMA writes.
    pub(super) writes: u64,
    /// Of a million of the others, RDMA reads.
    pub(super) reads: u64,
    pub(super) depth: usize,
}

/// One direction of a connection.
pub(super) struct Stream {
    seed: u64,
    pub(super) from: (usize, ViId),
    pub(super) to: (usize, ViId),
    depth: usize,
    slot: usize,
    ops: Vec<Op>,
    consuming: Vec<usize>,
    posted: usize,
    completed: usize,
    receives_posted: usize,
    receives_completed: usize,
    writes_checked: usize,
    /// Messages before it hold no write that is still to be checked.
    looked_at: usize,
    source: MemoryRegion,
    sink: MemoryRegion,
    target: MemoryRegion,
    /// Where reads are from.
    origin: MemoryRegion,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    spare_sends: Vec<Box<Descriptor>>,
    #[expect(clippy::vec_box)]
    spare_receives: Vec<Box<Descriptor>>,
    /// What the receives that are posted look like.
    layouts: Vec<Vec<(usize, usize)>>,
    scratch: Vec<u8>,
    expected: Vec<u8>,
    rng: Rng,
}

impl Stream {
    pub(super) fn new(
        world: &mut World,
        from: (usize, ViId),
        to: (usize, ViId),
        shape: Shape,
        seed: u64,
    ) -> Self {
        let mut rng = Rng(seed);
        let mut ops = Vec::with_capacity(shape.messages);
        let mut consuming = Vec::new();
        let mut writes = 0;
        for n in 0..shape.messages {
            let longest = shape.longest as u64;
            let len = match rng.below(100) {
                0..60 => rng.below(200),
                60..70 => 0,
                70..90 => rng.below(3000),
                90..97 => rng.below(20_000),
                _ => rng.below(longest + 1),
            };
            let kind = if rng.chance(shape.writes) {
                Kind::Write
            } else if rng.chance(shape.reads) {
                Kind::Read
            } else {
                Kind::Send
            };
            let immediate = (kind != Kind::Read && rng.chance(300_000)).then(|| rng.next() as u32);
            let op = Op {
                kind,
                len: len.min(longest) as usize,
                immediate,
                fence: rng.chance(50_000),
                receive: consuming.len(),
                write: writes,
            };
            if op.consumes() {
                consuming.push(n);
            }
            writes += usize::from(kind == Kind::Write);
            ops.push(op);
        }
        // Room for gaps between segments and for receives that are longer than what comes.
        let slot = (shape.longest + 1024).next_multiple_of(64);
        let domain = world.domain.clone();
        let mut region = |host: usize| world.hosts[host].region(&domain, slot * shape.depth);
        let (source, sink, target, origin) = (region(from.0), region(to.0), region(to.0), region(to.0));
        world.hosts[to.0].port.shared.push(origin.handle());
        for region in [&sink, &target] {
            region.write(0, &vec![CANARY; region.len()]).unwrap();
        }
        Self {
            seed,
            from,
            to,
            depth: shape.depth,
            slot,
            ops,
            consuming,
            posted: 0,
            completed: 0,
            receives_posted: 0,
            receives_completed: 0,
            writes_checked: 0,
            looked_at: 0,
            source,
            sink,
            target,
            origin,
            spare_sends: Vec::new(),
            spare_receives: Vec::new(),
            layouts: vec![Vec::new(); shape.depth],
            scratch: Vec::new(),
            expected: Vec::new(),
            rng,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.completed == self.ops.len() && self.receives_completed == self.consuming.len()
    }

    /// In the end all that came was looked at, and nothing came since.
    pub(super) fn check_end(&mut self) {
        assert_eq!(self.looked_at, self.ops.len());
        let (sink, target) = (self.sink.clone(), self.target.clone());
        self.check_untouched(&sink, 0, sink.len());
        self.check_untouched(&target, 0, target.len());
    }

    /// Messages that arrived.
    pub(super) fn messages(&self) -> usize {
        self.completed
    }

    /// Posts what can be posted. A receive is there before its message, as the architecture demands.
    pub(super) fn work(&mut self, world: &mut World) {
        while self.receives_posted < self.consuming.len()
            && self.receives_posted - self.receives_completed < self.depth
        {
            self.post_receive(world);
        }
        while self.posted < self.ops.len() && self.posted - self.completed < self.depth {
            let op = self.ops[self.posted];
            if op.consumes() && op.receive >= self.receives_posted {
                break;
            }
            if op.kind == Kind::Write && op.write >= self.writes_checked + self.depth {
                break;
            }
            self.post_send(world, op);
        }
    }

    fn post_receive(&mut self, world: &mut World) {
        let index = self.receives_posted % self.depth;
        let op = self.ops[self.consuming[self.receives_posted]];
        let mut descriptor = self.spare_receives.pop().unwrap_or_default();
        descriptor.segments.clear();
        descriptor.immediate = Some(0xdead);
        let base = index * self.slot;
        let needed = if op.kind == Kind::Send { op.len } else { 0 };
        // Sometimes a receive has room to spare.
        let capacity = needed + if self.rng.chance(300_000) { self.rng.below(200) as usize } else { 0 };
        let layout = &mut self.layouts[index];
        layout.clear();
        let pieces = if self.rng.chance(700_000) { 1 } else { 1 + self.rng.below(9) as usize };
        let mut at = base + MARGIN;
        let mut left = capacity;
        for n in 0..pieces {
            let len = if n + 1 == pieces { left } else { self.rng.below(left as u64 + 1) as usize };
            layout.push((at, len));
            descriptor.segments.push(self.sink.segment(at..at + len).unwrap());
            at += len + 1 + self.rng.below(20) as usize;
            left -= len;
        }
        if capacity == 0 && self.rng.chance(500_000) {
            descriptor.segments.clear();
        }
        descriptor.context = self.receives_posted as u64;
        self.receives_posted += 1;
        let (_, engine, port) = world.at(self.to.0);
        engine.post_receive(self.to.1, descriptor, port);
    }

    fn post_send(&mut self, world: &mut World, op: Op) {
        let base = self.posted % self.depth * self.slot;
        pattern(self.seed, self.posted, op.len, &mut self.expected);
        let mut descriptor = self.spare_sends.pop().unwrap_or_default();
        descriptor.segments.clear();
        let pieces = match self.rng.below(100) {
            0..70 => 1,
            70..95 => 1 + self.rng.below(9) as usize,
            _ => 1 + self.rng.below(crate::engine::MAX_SEGMENTS as u64) as usize,
        };
        let (mut at, mut done) = (base, 0);
        for n in 0..pieces {
            let left = op.len - done;
            let share = (left / (pieces - n)) as u64 * 2;
            let len = if n + 1 == pieces { left } else { (self.rng.below(share + 1) as usize).min(left) };
            if op.kind != Kind::Read {
                self.source.write(at, &self.expected[done..done + len]).unwrap();
            }
            descriptor.segments.push(self.source.segment(at..at + len).unwrap());
            at += len + self.rng.below(4) as usize;
            done += len;
        }
        descriptor.operation = crate::Operation::Send;
        if op.kind == Kind::Write {
            let start = self.target_start(op);
            self.check_untouched(&self.target.clone(), start - MARGIN, op.len + 2 * MARGIN);
            descriptor.operation = crate::Operation::RdmaWrite(self.target.remote(start).unwrap());
        }
        if op.kind == Kind::Read {
            let start = base + op.write * 5 % 64;
            self.origin.write(start, &self.expected).unwrap();
            descriptor.operation = crate::Operation::RdmaRead(self.origin.remote(start).unwrap());
        }
        descriptor.immediate = op.immediate;
        descriptor.fence = op.fence;
        descriptor.context = self.posted as u64;
        self.posted += 1;
        let (now, engine, port) = world.at(self.from.0);
        engine.post_send(now, self.from.1, descriptor, port);
    }

    fn target_start(&self, op: Op) -> usize {
        op.write % self.depth * self.slot + MARGIN + op.write * 7 % 64
    }

    /// Something that was posted has come back.
    pub(super) fn take(&mut self, completion: Completion) {
        match completion.queue {
            WorkQueue::Send => self.take_send(completion.descriptor),
            WorkQueue::Receive => self.take_receive(completion.descriptor),
        }
    }

    fn take_send(&mut self, descriptor: Box<Descriptor>) {
        assert_eq!(descriptor.context, self.completed as u64, "sends complete in order");
        let op = self.ops[self.completed];
        assert_eq!(descriptor.status(), Status::DONE, "send {} of {op:?}", self.completed);
        assert_eq!(descriptor.length() as usize, op.len);
        self.check_writes(self.completed + 1);
        if op.kind == Kind::Read {
            self.check_read(&descriptor, op);
        }
        // It is the program's again: the adapter notices if a frame refers to it still.
        for segment in &descriptor.segments {
            self.scratch.clear();
            self.scratch.resize(segment.len() as usize, 0x55);
            segment.region().write(segment.offset(), &self.scratch).unwrap();
        }
        self.completed += 1;
        self.spare_sends.push(descriptor);
    }

    /// What was read is what was there.
    fn check_read(&mut self, descriptor: &Descriptor, op: Op) {
        let number = self.completed;
        pattern(self.seed, number, op.len, &mut self.expected);
        let mut done = 0;
        for segment in &descriptor.segments {
            self.scratch.resize(segment.len() as usize, 0);
            segment.region().read(segment.offset(), &mut self.scratch).unwrap();
            let here = &self.expected[done..done + self.scratch.len()];
            assert!(self.scratch[..] == *here, "read {number} {op:?}");
            done += self.scratch.len();
        }
        assert_eq!(done, op.len);
        // What is read later is found out, if it is this.
        self.scratch.clear();
        self.scratch.resize(op.len, 0xab);
        self.origin.write(number % self.depth * self.slot + op.write * 5 % 64, &self.scratch).unwrap();
    }

    fn take_receive(&mut self, descriptor: Box<Descriptor>) {
        let n = self.receives_completed;
        assert_eq!(descriptor.context, n as u64, "receives complete in order");
        let number = self.consuming[n];
        let op = self.ops[number];
        let mut status = Status::DONE;
        if op.immediate.is_some() {
            status |= Status::IMMEDIATE;
        }
        if op.kind == Kind::Write {
            status |= Status::REMOTE_RDMA_WRITE;
        }
        assert_eq!(descriptor.status(), status, "receive {n}, message {number} {op:?}");
        assert_eq!(descriptor.immediate, op.immediate);
        assert_eq!(descriptor.length() as usize, op.len);
        // What was sent before it is there too.
        self.check_writes(number);
        let index = n % self.depth;
        let layout = std::mem::take(&mut self.layouts[index]);
        if op.kind == Kind::Send {
            pattern(self.seed, number, op.len, &mut self.expected);
        } else {
            self.expected.clear();
        }
        let mut done = 0;
        let mut end = index * self.slot;
        let sink = self.sink.clone();
        for (at, len) in &layout {
            self.check_untouched(&sink, end, at - end);
            let here = (*len).min(self.expected.len() - done);
            self.scratch.resize(here, 0);
            sink.read(*at, &mut self.scratch).unwrap();
            assert!(
                self.scratch[..] == self.expected[done..done + here],
                "receive {n}, message {number} {op:?}"
            );
            self.scratch.fill(CANARY);
            sink.write(*at, &self.scratch).unwrap();
            done += here;
            end = at + here;
        }
        assert_eq!(done, self.expected.len());
        self.check_untouched(&sink, end, MARGIN);
        self.layouts[index] = layout;
        self.check_writes(number + 1);
        self.receives_completed += 1;
        self.spare_receives.push(descriptor);
    }

    fn check_untouched(&mut self, region: &MemoryRegion, at: usize, len: usize) {
        self.scratch.resize(len, 0);
        region.read(at, &mut self.scratch).unwrap();
        assert!(self.scratch.iter().all(|byte| *byte == CANARY), "bytes {at}+{len} were written to");
    }

    /// Checks the writes among the first `count` messages that were not checked before.
    fn check_writes(&mut self, count: usize) {
        while self.looked_at < count {
            let number = self.looked_at;
            self.looked_at += 1;
            if self.ops[number].kind == Kind::Write {
                self.check_write(number);
            }
        }
    }

    fn check_write(&mut self, number: usize) {
        let op = self.ops[number];
        pattern(self.seed, number, op.len, &mut self.expected);
        let start = self.target_start(op);
        let target = self.target.clone();
        self.check_untouched(&target, start - MARGIN, MARGIN);
        self.check_untouched(&target, start + op.len, MARGIN);
        self.scratch.resize(op.len, 0);
        target.read(start, &mut self.scratch).unwrap();
        assert!(self.scratch == self.expected, "write {number} {op:?}");
        self.scratch.fill(CANARY);
        target.write(start, &self.scratch).unwrap();
        self.writes_checked += 1;
    }
}

/// What message `number` of a stream holds.
fn pattern(seed: u64, number: usize, len: usize, into: &mut Vec<u8>) {
    into.clear();
    let mut word = Rng(seed ^ (number as u64) << 20).next();
    while into.len() < len {
        word = word.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(0x9e37_79b9);
        into.extend_from_slice(&(word ^ word >> 29).to_le_bytes());
    }
    into.truncate(len);
}
