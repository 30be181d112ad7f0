//! Messages in a window, counted where they arrive.
//!
//! The end that sends keeps a window of messages under way. A message that finds no receive posted would break
//! the connection, so that the other end tells when it has posted receives again: a credit message, a window at
//! a time. It also says when all has arrived; only then the clock stops.

use std::time::Instant;

use uvia::{Descriptor, RemoteMemory, ViState, WorkQueue};
use uvia_tools::Failure;

use super::order::Order;
use super::side::{CREDITS, Idle, Idling, SPARE, Side};
use crate::cli::Op;
use crate::report::Bandwidth;

/// Immediate data of the message that tells that all was sent, and of the answer. Credits are smaller.
const FINISH: u32 = u32::MAX;
/// Receives for credits, and sends of them, at the two ends.
const CONTROL: usize = SPARE / 2;

/// The end that sends.
pub struct Source {
    side: Side,
    op: Op,
    idle: Idle,
    finish: Option<Box<Descriptor>>,
    credits: u64,
    left: u64,
    finishing: bool,
    finished: bool,
}

impl Source {
    /// Posts the first receives; the interface may be connected afterwards.
    pub fn new(side: Side, order: &Order) -> Result<Self, Failure> {
        for _ in 0..CONTROL {
            side.receive(Descriptor::new(Vec::new()))?;
        }
        Ok(Self {
            side,
            op: order.op,
            idle: Vec::with_capacity(usize::from(order.window)),
            finish: Some(Descriptor::new(Vec::new())),
            credits: (CREDITS * usize::from(order.window)) as u64,
            left: 0,
            finishing: false,
            finished: false,
        })
    }

    /// Makes the messages, once it is known where they go.
    pub fn aim(&mut self, order: &Order, remote: RemoteMemory) -> Result<(), Failure> {
        // All messages are fetched from the same memory: their contents are not what is measured.
        let size = order.size as usize;
        let source = self.side.memory(size, false)?;
        for _ in 0..order.window {
            let segments = vec![source.segment(0..size)?];
            self.idle.push(match order.op {
                Op::Send => Descriptor::new(segments),
                Op::Write => Descriptor::rdma_write(segments, remote),
            });
        }
        Ok(())
    }

    /// Its connection.
    pub fn side(&self) -> &Side {
        &self.side
    }

    /// Begins to send so many messages.
    fn start(&mut self, messages: u64) {
        self.left = messages;
        self.finishing = false;
        self.finished = false;
    }

    /// Does what can be done now; answers whether there was something to do.
    #[inline]
    fn step(&mut self) -> Result<bool, Failure> {
        let mut busy = false;
        while self.left > 0 && (self.op == Op::Write || self.credits > 0) {
            let Some(descriptor) = self.idle.pop() else { break };
            self.side.send(descriptor)?;
            self.left -= 1;
            if self.op == Op::Send {
                self.credits -= 1;
            }
            busy = true;
        }
        if self.left == 0
            && !self.finishing
            && (self.op == Op::Write || self.credits > 0)
            && let Some(mut finish) = self.finish.take()
        {
            finish.immediate = Some(FINISH);
            self.side.send(finish)?;
            self.finishing = true;
            busy = true;
            if self.op == Op::Send {
                self.credits -= 1;
            }
        }
        while let Some(done) = self.side.poll()? {
            busy = true;
            match (done.queue, done.descriptor.immediate) {
                (WorkQueue::Send, Some(FINISH)) => self.finish = Some(done.descriptor),
                (WorkQueue::Send, _) => self.idle.push(done.descriptor),
                (WorkQueue::Receive, immediate) => {
                    match immediate {
                        Some(FINISH) => self.finished = true,
                        Some(credits) => self.credits += u64::from(credits),
                        None => return Err(Failure::failed("the other end sent what was not expected")),
                    }
                    self.side.receive(done.descriptor)?;
                }
            }
        }
        Ok(busy)
    }

    /// Sends so many messages until the other end has them all, driving `other` in between.
    fn run(&mut self, messages: u64, other: &mut Option<&mut Sink>) -> Result<(), Failure> {
        self.start(messages);
        let mut idling = Idling::default();
        while !self.finished {
            let mut busy = self.step()?;
            if let Some(other) = other {
                busy |= other.step()?;
            }
            match busy {
                true => idling = Idling::default(),
                false => idling.tick(&self.side)?,
            }
        }
        Ok(())
    }
}

/// The end that receives.
pub struct Sink {
    side: Side,
    op: Op,
    window: u64,
    /// Descriptors for credits and the answer.
    control: Idle,
    /// Messages of this run.
    received: u64,
    /// Receives posted again of which the other end does not know.
    owed: u64,
    /// Whether the end's answer is to be sent.
    answer: bool,
    /// How many messages each run has.
    expected: [u64; 2],
    runs: usize,
}

impl Sink {
    /// Posts the first receives; the interface may be connected afterwards.
    pub fn new(side: Side, order: &Order) -> Result<Self, Failure> {
        let size = order.size as usize;
        if order.op == Op::Send {
            // All messages are received into the same memory: their contents are not what is measured.
            let memory = side.memory(size, false)?;
            for _ in 0..CREDITS * usize::from(order.window) {
                side.receive(Descriptor::new(vec![memory.segment(0..size)?]))?;
            }
        } else {
            for _ in 0..CONTROL {
                side.receive(Descriptor::new(Vec::new()))?;
            }
        }
        Ok(Self {
            side,
            op: order.op,
            window: u64::from(order.window),
            control: (0..CONTROL).map(|_| Descriptor::new(Vec::new())).collect(),
            received: 0,
            owed: 0,
            answer: false,
            expected: [order.warmup, order.iterations],
            runs: 0,
        })
    }

    /// Its connection.
    pub fn side(&self) -> &Side {
        &self.side
    }

    /// Does what can be done now; answers whether there was something to do.
    #[inline]
    fn step(&mut self) -> Result<bool, Failure> {
        let mut busy = false;
        while let Some(done) = self.side.poll()? {
            busy = true;
            if done.queue == WorkQueue::Send {
                self.control.push(done.descriptor);
                continue;
            }
            match done.descriptor.immediate {
                Some(FINISH) => self.finish()?,
                _ => self.received += 1,
            }
            self.side.receive(done.descriptor)?;
            self.owed += 1;
        }
        if self.op == Op::Send
            && self.owed >= self.window
            && let Some(mut credit) = self.control.pop()
        {
            credit.immediate = Some(self.owed as u32);
            self.owed = 0;
            self.side.send(credit)?;
            busy = true;
        }
        if self.answer
            && let Some(mut answer) = self.control.pop()
        {
            answer.immediate = Some(FINISH);
            self.answer = false;
            self.side.send(answer)?;
            busy = true;
        }
        Ok(busy)
    }

    /// The other end has sent all of a run, and since the connection keeps the order, all of it is here.
    fn finish(&mut self) -> Result<(), Failure> {
        let expected = self.expected.get(self.runs).copied().unwrap_or(0);
        if self.op == Op::Send && self.received != expected {
            return Err(Failure::failed(format!(
                "{} messages came where {expected} were sent",
                self.received
            )));
        }
        self.received = 0;
        self.runs += 1;
        self.answer = true;
        Ok(())
    }

    /// Receives until both runs are over and the other end knows.
    pub fn run(&mut self) -> Result<(), Failure> {
        let mut idling = Idling::default();
        while self.runs < self.expected.len() || self.answer {
            match self.step()? {
                true => idling = Idling::default(),
                // Between the last run and the answer's posting the other end may leave: that is its right.
                false => idling.tick(&self.side)?,
            }
        }
        if self.side.vi.state() == ViState::Connected {
            self.side.linger();
        }
        Ok(())
    }
}

/// Sends to the other end, which is `other` when both are in this thread.
pub fn send(source: &mut Source, mut other: Option<&mut Sink>, order: &Order) -> Result<Bandwidth, Failure> {
    source.run(order.warmup, &mut other)?;
    let start = Instant::now();
    source.run(order.iterations, &mut other)?;
    Ok(Bandwidth {
        messages: order.iterations,
        elapsed: start.elapsed(),
        sent: order.iterations,
        iterations: order.iterations,
    })
}
