//! Ping-pong over connections in turn, by messages or by writes into each other's memory; and reads of memory.

use std::time::{Duration, Instant};

use uvia::{Descriptor, MemoryRegion, Nic, RemoteMemory, WorkQueue};
use uvia_tools::Failure;

use super::order::Order;
use super::side::{Done, Idle, Idling, More, Side};
use crate::report::Latency;

/// Sends under way before the first must have completed: a completion may come a little after the answer.
const SENDS: usize = 4;

/// Receives are posted again so many at a time, as drivers give buffers back to their adapters.
const BACK: usize = 8;

/// One end of a ping-pong.
pub trait Exchange {
    /// Sends the next message.
    fn send(&mut self) -> Result<(), Failure>;

    /// Waits for the other end's next message, driving `other` too, where that is the sender's NIC.
    fn receive(&mut self, other: Option<&Nic>) -> Result<(), Failure>;

    /// Its connection.
    fn side(&self) -> &Side;
}

/// Drives the sender's NIC every `stride` polls.
#[inline]
fn drive(other: Option<&Nic>, idling: &Idling, stride: u32) -> Result<(), Failure> {
    if let Some(other) = other
        && idling.polls().is_multiple_of(stride)
    {
        other.poll()?;
    }
    Ok(())
}

/// By messages.
pub struct Messages {
    side: Side,
    size: usize,
    idle: Idle,
    /// What was received into: posted again when there are a few, behind a send, when the adapter is at work and not the
    /// peer that waits. Others are posted.
    emptied: Idle,
    /// What is sent where no memory has to be registered for it.
    injected: Option<Vec<u8>>,
    /// Polls of this end between those of a sender that has more frames to send.
    stride: u32,
}

/// The sender's NIC needs driving when messages are longer than a frame, and to repeat what was lost.
fn stride(side: &Side, size: usize) -> u32 {
    if size <= side.nic.properties().native_mtu { 256 } else { 1 }
}

impl Messages {
    /// Posts the first receives; the interface may be connected afterwards.
    pub fn new(side: Side, size: usize) -> Result<Self, Failure> {
        let memory = side.memory(2 * size, false)?;
        let mut idle = Vec::with_capacity(SENDS);
        for _ in 0..SENDS {
            idle.push(Descriptor::new(vec![memory.segment(0..size)?]));
        }
        for _ in 0..SENDS + BACK {
            side.receive(Descriptor::new(vec![memory.segment(size..2 * size)?]))?;
        }
        let stride = stride(&side, size);
        let injected = side.injects().then(|| vec![0; size]);
        Ok(Self { side, size, idle, emptied: Vec::with_capacity(BACK), injected, stride })
    }
}

impl Messages {
    /// Takes a completion: whether the other end's message came with it.
    #[inline(always)]
    fn is_message(&mut self, done: Done) -> Result<bool, Failure> {
        if done.queue == WorkQueue::Send {
            self.idle.push(done.descriptor);
            return Ok(false);
        }
        let len = done.descriptor.length() as usize;
        if len != self.size {
            return Err(Failure::failed(format!("a message of {len} bytes came instead of {}", self.size)));
        }
        self.emptied.push(done.descriptor);
        Ok(true)
    }
}

impl Exchange for Messages {
    #[inline]
    fn send(&mut self) -> Result<(), Failure> {
        let mut idling = Idling::default();
        loop {
            if let Some(descriptor) = self.idle.pop() {
                match &self.injected {
                    None => self.side.send(descriptor)?,
                    Some(bytes) => self.side.inject(descriptor, bytes)?,
                }
                if self.emptied.len() == BACK {
                    self.side.vi.post_receives(&mut self.emptied)?;
                }
                return Ok(());
            }
            match self.side.poll()? {
                Some(done) if done.queue == WorkQueue::Send => self.idle.push(done.descriptor),
                Some(_) => return Err(Failure::failed("the other end sent out of turn")),
                None => idling.tick(&mut self.side)?,
            }
        }
    }

    #[inline]
    fn receive(&mut self, other: Option<&Nic>) -> Result<(), Failure> {
        let mut idling = Idling::default();
        loop {
            while let Some(done) = self.side.taken()? {
                if self.is_message(done)? {
                    return Ok(());
                }
            }
            match self.side.take_more()? {
                More::Taken => {}
                More::One(done) => {
                    if self.is_message(done)? {
                        return Ok(());
                    }
                }
                More::Nothing => {
                    idling.tick(&mut self.side)?;
                    drive(other, &idling, self.stride)?;
                }
            }
        }
    }

    fn side(&self) -> &Side {
        &self.side
    }
}

/// By RDMA writes: each end watches the last byte of its memory.
pub struct Writes {
    side: Side,
    size: usize,
    source: MemoryRegion,
    target: MemoryRegion,
    idle: Idle,
    sent: u8,
    received: u8,
    stride: u32,
}

impl Writes {
    /// `target` is written by the peer, and `remote` is the peer's.
    pub fn new(side: Side, size: usize, target: MemoryRegion, remote: RemoteMemory) -> Result<Self, Failure> {
        // A source for each write under way: it must not change until its write has completed.
        let source = side.memory(SENDS * size, false)?;
        let mut idle = Vec::with_capacity(SENDS);
        for n in 0..SENDS {
            let mut descriptor =
                Descriptor::rdma_write(vec![source.segment(n * size..(n + 1) * size)?], remote);
            descriptor.context = n as u64;
            idle.push(descriptor);
        }
        let stride = stride(&side, size);
        Ok(Self { side, size, source, target, idle, sent: 0, received: 0, stride })
    }

    #[inline]
    fn reap(&mut self) -> Result<bool, Failure> {
        match self.side.poll()? {
            Some(done) if done.queue == WorkQueue::Send => {
                self.idle.push(done.descriptor);
                Ok(true)
            }
            Some(_) => Err(Failure::failed("the other end sent a message instead of writing")),
            None => Ok(false),
        }
    }
}

impl Exchange for Writes {
    #[inline]
    fn send(&mut self) -> Result<(), Failure> {
        let mut idling = Idling::default();
        let descriptor = loop {
            if let Some(descriptor) = self.idle.pop() {
                break descriptor;
            }
            if !self.reap()? {
                idling.tick(&mut self.side)?;
            }
        };
        self.sent = self.sent.wrapping_add(1);
        let last = (descriptor.context as usize + 1) * self.size - 1;
        self.source.write(last, &[self.sent])?;
        self.side.send(descriptor)
    }

    #[inline]
    fn receive(&mut self, other: Option<&Nic>) -> Result<(), Failure> {
        self.received = self.received.wrapping_add(1);
        let mut idling = Idling::default();
        let mut last = [0];
        loop {
            self.target.read(self.size - 1, &mut last)?;
            if last[0] == self.received {
                return Ok(());
            }
            if !self.reap()? {
                idling.tick(&mut self.side)?;
                drive(other, &idling, self.stride)?;
            }
        }
    }

    fn side(&self) -> &Side {
        &self.side
    }
}

/// Reads of the peer's memory, one at a time.
pub struct Reads {
    side: Side,
    size: usize,
    idle: Idle,
}

impl Reads {
    /// `remote` is the peer's.
    pub fn new(side: Side, size: usize, remote: RemoteMemory) -> Result<Self, Failure> {
        let memory = side.memory(size, false)?;
        let idle = vec![Descriptor::rdma_read(vec![memory.segment(0..size)?], remote)];
        Ok(Self { side, size, idle })
    }

    /// Posts a read and waits for its end, driving `other` too, where that is the NIC that is read from.
    #[inline]
    fn read(&mut self, other: Option<&Nic>) -> Result<(), Failure> {
        let descriptor = self.idle.pop().ok_or_else(|| Failure::failed("two reads at a time"))?;
        self.side.send(descriptor)?;
        let mut idling = Idling::default();
        loop {
            match self.side.poll()? {
                Some(done) if done.queue == WorkQueue::Send => {
                    let len = done.descriptor.length() as usize;
                    if len != self.size {
                        return Err(Failure::failed(format!("{len} bytes were read and not {}", self.size)));
                    }
                    self.idle.push(done.descriptor);
                    return Ok(());
                }
                Some(_) => {
                    return Err(Failure::failed("the other end sent a message and is to be read only"));
                }
                None => {
                    // Nobody else would answer the read.
                    drive(other, &idling, 1)?;
                    idling.tick(&mut self.side)?;
                }
            }
        }
    }
}

/// Reads from the other end, whose NIC is `other` when it is of this thread. What is timed is all of a read.
pub fn read(reads: &mut [Reads], other: Option<&Nic>, order: &Order) -> Result<Latency, Failure> {
    let record = |result: &mut Latency, time| result.record(time);
    measure(order, reads.len(), record, |n| reads[n].read(other))
}

/// The end that is read from: drives its NIC until the other end leaves.
pub fn be_read(sides: &mut [Side]) -> Result<(), Failure> {
    for side in sides {
        side.until_left()?;
    }
    Ok(())
}

/// Both ends in this thread.
pub fn pair<E: Exchange>(a: &mut [E], b: &mut [E], order: &Order) -> Result<Latency, Failure> {
    let (Some(first_a), Some(first_b)) = (a.first(), b.first()) else { return Err(no_connection()) };
    let (nic_a, nic_b) = (first_a.side().nic.clone(), first_b.side().nic.clone());
    measure(order, a.len(), Latency::record_round_trip, |n| {
        let (a, b) = (&mut a[n], &mut b[n]);
        a.send()?;
        b.receive(Some(&nic_a))?;
        b.send()?;
        a.receive(Some(&nic_b))
    })
}

/// Round trips over two connections in turn, both ends in this thread; each is measured by itself.
pub fn in_turn(mut ends: [(Messages, Messages); 2], order: &Order) -> Result<[Latency; 2], Failure> {
    let mut results = [Latency::new()?, Latency::new()?];
    let (nic_a, nic_b) = (ends[0].0.side.nic.clone(), ends[0].1.side.nic.clone());
    for n in 0..order.warmup + order.iterations {
        for ((a, b), result) in ends.iter_mut().zip(&mut results) {
            let start = Instant::now();
            a.send()?;
            b.receive(Some(&nic_a))?;
            b.send()?;
            a.receive(Some(&nic_b))?;
            if n >= order.warmup {
                result.record_round_trip(start.elapsed());
            }
        }
    }
    Ok(results)
}

/// The asking end.
pub fn ask<E: Exchange>(exchanges: &mut [E], order: &Order) -> Result<Latency, Failure> {
    measure(order, exchanges.len(), Latency::record_round_trip, |n| {
        exchanges[n].send()?;
        exchanges[n].receive(None)
    })
}

/// The answering end.
pub fn answer<E: Exchange>(exchanges: &mut [E], order: &Order) -> Result<(), Failure> {
    let mut turns = Turns::of(exchanges.len());
    for _ in 0..order.warmup + order.iterations {
        let exchange = &mut exchanges[turns.next()];
        exchange.receive(None)?;
        exchange.send()?;
    }
    for exchange in exchanges {
        exchange.side().linger();
    }
    Ok(())
}

/// Connections, one after the other. Their number is no power of two, and a division for each message would show.
struct Turns {
    next: usize,
    count: usize,
}

impl Turns {
    fn of(count: usize) -> Self {
        Self { next: 0, count }
    }

    #[inline]
    fn next(&mut self) -> usize {
        let n = self.next;
        self.next = if n + 1 == self.count { 0 } else { n + 1 };
        n
    }
}

fn no_connection() -> Failure {
    Failure::failed("there is no connection to measure")
}

/// Times rounds over so many connections in turn.
fn measure(
    order: &Order,
    connections: usize,
    record: impl Fn(&mut Latency, Duration),
    mut round: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Latency, Failure> {
    let mut result = Latency::new()?;
    let mut turns = Turns::of(connections);
    for _ in 0..order.warmup {
        round(turns.next())?;
    }
    for _ in 0..order.iterations {
        let n = turns.next();
        let start = Instant::now();
        round(n)?;
        record(&mut result, start.elapsed());
    }
    Ok(result)
}
