//! Messages in a window, counted where they arrive.
//!
//! The end that sends keeps a window of messages under way. A message that finds no receive posted would break
//! the connection, so that the other end tells when it has posted receives again: a credit message, a window at
//! a time. It also says how many have arrived once it hears that all were sent; only then the clock stops.
//!
//! Where messages may be lost (at the unreliable level), so may those of this module: what is not answered for a while
//! is said again, and credits that do not come are taken.

use std::time::{Duration, Instant};

use uvia::{Descriptor, MemoryRegion, RemoteMemory, ViState, WorkQueue};
use uvia_tools::Failure;

use super::order::Order;
use super::side::{CREDITS, Idle, Idling, SPARE, Side};
use crate::cli::{Level, Op};
use crate::report::Bandwidth;

/// Immediate data of the message that tells that all of the n-th run was sent, and of the answer, is this less n. Credits
/// are smaller.
const FINISH: u32 = u32::MAX;
/// What it may be: there are two runs.
const FINISHES: std::ops::RangeInclusive<u32> = FINISH - 1..=FINISH;
/// Bytes of the answer: how many messages of the run came.
const ANSWER: usize = 8;
/// So long without anything: what may be lost is lost.
const AGAIN: Duration = Duration::from_millis(100);
/// Receives for credits, and sends of them, at the two ends.
const CONTROL: usize = SPARE / 2;

/// The end that sends, or reads.
pub struct Source {
    side: Side,
    op: Op,
    /// Whether messages may be lost.
    lossy: bool,
    window: u64,
    idle: Idle,
    finish: Option<Box<Descriptor>>,
    answers: MemoryRegion,
    credits: u64,
    left: u64,
    /// Runs so far.
    runs: u32,
    finishing: bool,
    finished: bool,
    /// How many of this run came, by the other end's word.
    arrived: u64,
}

impl Source {
    /// Posts the first receives; the interface may be connected afterwards.
    pub fn new(side: Side, order: &Order) -> Result<Self, Failure> {
        let answers = side.memory(CONTROL * ANSWER, false)?;
        for n in 0..CONTROL {
            let mut receive = Descriptor::new(vec![answers.segment(n * ANSWER..(n + 1) * ANSWER)?]);
            receive.context = n as u64;
            side.receive(receive)?;
        }
        let mut finish = Descriptor::new(Vec::new());
        // Not before what was read is here.
        finish.fence = order.op == Op::Read;
        Ok(Self {
            side,
            op: order.op,
            lossy: order.manner.level == Level::Unreliable,
            window: order.window.into(),
            idle: Vec::with_capacity(usize::from(order.window)),
            finish: Some(finish),
            answers,
            credits: (CREDITS * usize::from(order.window)) as u64,
            left: 0,
            runs: 0,
            finishing: false,
            finished: true,
            arrived: 0,
        })
    }

    /// Makes the messages, once it is known where they go or come from.
    pub fn aim(&mut self, order: &Order, remote: RemoteMemory) -> Result<(), Failure> {
        // All messages are in the same memory: their contents are not what is measured.
        let size = order.size as usize;
        let memory = self.side.memory(size, false)?;
        for _ in 0..order.window {
            let segments = vec![memory.segment(0..size)?];
            self.idle.push(match order.op {
                Op::Send => Descriptor::new(segments),
                Op::Write => Descriptor::rdma_write(segments, remote),
                Op::Read => Descriptor::rdma_read(segments, remote),
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
        self.runs += 1;
        self.finishing = false;
        self.finished = false;
    }

    /// Whether a receive is posted for the next message.
    #[inline]
    fn may_send(&self) -> bool {
        self.op != Op::Send || self.credits > 0
    }

    /// Does what can be done now; answers whether there was something to do.
    #[inline]
    fn step(&mut self) -> Result<bool, Failure> {
        let mut busy = false;
        while self.left > 0 && self.may_send() {
            let Some(descriptor) = self.idle.pop() else { break };
            self.side.send(descriptor)?;
            self.left -= 1;
            if self.op == Op::Send {
                self.credits -= 1;
            }
            busy = true;
        }
        if self.left == 0 && !self.finishing && self.may_send() {
            busy |= self.say_finish()?;
        }
        while let Some(done) = self.side.poll()? {
            busy = true;
            match (done.queue, done.descriptor.immediate) {
                (WorkQueue::Send, Some(_)) => self.finish = Some(done.descriptor),
                (WorkQueue::Send, None) => self.idle.push(done.descriptor),
                (WorkQueue::Receive, Some(finish)) if FINISHES.contains(&finish) => {
                    if finish == self.mark() {
                        let mut bytes = [0; ANSWER];
                        self.answers.read(done.descriptor.context as usize * ANSWER, &mut bytes)?;
                        self.arrived = u64::from_le_bytes(bytes);
                        self.finished = true;
                    }
                    self.side.receive(done.descriptor)?;
                }
                (WorkQueue::Receive, Some(credits)) => {
                    self.credits += u64::from(credits);
                    self.side.receive(done.descriptor)?;
                }
                (WorkQueue::Receive, None) => {
                    return Err(Failure::failed("the other end sent what was not expected"));
                }
            }
        }
        Ok(busy)
    }

    /// This run's immediate data.
    fn mark(&self) -> u32 {
        FINISH - (self.runs - 1)
    }

    /// Says that all was sent, unless that is just being said.
    fn say_finish(&mut self) -> Result<bool, Failure> {
        let mark = self.mark();
        let Some(mut finish) = self.finish.take() else { return Ok(false) };
        finish.immediate = Some(mark);
        self.side.send(finish)?;
        self.finishing = true;
        if self.op == Op::Send {
            self.credits = self.credits.saturating_sub(1);
        }
        Ok(true)
    }

    /// Nothing has come for a while: what may have been lost is done again.
    #[cold]
    fn repeat(&mut self) -> Result<(), Failure> {
        if !self.lossy || self.finished {
            return Ok(());
        }
        if self.finishing {
            self.say_finish()?;
        } else if self.op == Op::Send && self.credits == 0 {
            self.credits = self.window;
        }
        Ok(())
    }
}

/// Sends `total` messages over all connections, until the other end has them all; `others` are that, when both are in this
/// thread. Answers how many came.
fn run(sources: &mut [Source], total: u64, others: &mut [Sink], order: &Order) -> Result<u64, Failure> {
    for (n, source) in sources.iter_mut().enumerate() {
        source.start(order.share(total, n));
    }
    let mut idling = Idling::default();
    let mut quiet: Option<Instant> = None;
    loop {
        let (mut busy, mut finished) = (false, true);
        for source in &mut *sources {
            busy |= source.step()?;
            finished &= source.finished;
        }
        if finished {
            return Ok(sources.iter().map(|source| source.arrived).sum());
        }
        for sink in &mut *others {
            busy |= sink.step()?;
        }
        if busy {
            idling = Idling::default();
            quiet = None;
            continue;
        }
        let lossy = sources.first().is_some_and(|source| source.lossy);
        if lossy && quiet.get_or_insert_with(Instant::now).elapsed() > AGAIN {
            quiet = None;
            sources.iter_mut().try_for_each(Source::repeat)?;
        }
        // One that has finished may be left by the other end.
        if let Some(waits) = sources.iter_mut().find(|source| !source.finished) {
            idling.tick(&mut waits.side)?;
        }
    }
}

/// The end that receives, or is read from.
pub struct Sink {
    side: Side,
    op: Op,
    lossy: bool,
    window: u64,
    /// Descriptors for credits and answers; the answer's bytes.
    control: Idle,
    answer_bytes: MemoryRegion,
    /// Messages of this run.
    received: u64,
    /// Receives posted again of which the other end does not know.
    owed: u64,
    /// The answer that is to be sent: of which run.
    answer: Option<u32>,
    /// How many messages each run has.
    expected: [u64; 2],
    runs: usize,
}

impl Sink {
    /// For the n-th connection. Posts the first receives; the interface may be connected afterwards.
    pub fn new(side: Side, order: &Order, n: usize) -> Result<Self, Failure> {
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
        let answer_bytes = side.memory(ANSWER, false)?;
        Ok(Self {
            side,
            op: order.op,
            lossy: order.manner.level == Level::Unreliable,
            window: u64::from(order.window),
            control: (0..CONTROL).map(|_| Descriptor::new(Vec::with_capacity(1))).collect(),
            answer_bytes,
            received: 0,
            owed: 0,
            answer: None,
            expected: [order.share(order.warmup, n), order.share(order.iterations, n)],
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
                Some(mark) => self.finish(mark)?,
                None => self.received += 1,
            }
            self.side.receive(done.descriptor)?;
            self.owed += 1;
        }
        if self.op == Op::Send
            && self.owed >= self.window
            && let Some(mut credit) = self.control.pop()
        {
            credit.segments.clear();
            credit.immediate = Some(self.owed as u32);
            self.owed = 0;
            self.side.send(credit)?;
            busy = true;
        }
        if let Some(mark) = self.answer
            && let Some(mut answer) = self.control.pop()
        {
            answer.segments.clear();
            answer.segments.push(self.answer_bytes.segment(0..ANSWER)?);
            answer.immediate = Some(mark);
            self.answer = None;
            self.side.send(answer)?;
            busy = true;
        }
        Ok(busy)
    }

    /// The other end has sent all of a run; since the connection keeps the order, all of it that comes is here.
    fn finish(&mut self, mark: u32) -> Result<(), Failure> {
        if !FINISHES.contains(&mark) {
            return Err(Failure::failed("the other end sent what was not expected"));
        }
        let run = (FINISH - mark) as usize;
        if run < self.runs {
            // Once more, since the answer was lost, or late.
            self.answer = Some(mark);
            return Ok(());
        }
        let expected = self.expected.get(run).copied().unwrap_or(0);
        // Of a run that is not the next one, the end before it was lost; that the numbers are mixed up then is no help.
        let right = self.received == expected
            || self.lossy && run > self.runs
            || self.lossy && self.received < expected;
        if self.op == Op::Send && !right {
            return Err(Failure::failed(format!(
                "{} messages came where {expected} were sent",
                self.received
            )));
        }
        let came = if self.op == Op::Send { self.received.min(expected) } else { expected };
        self.answer_bytes.write(0, &came.to_le_bytes())?;
        self.received = 0;
        self.runs = run + 1;
        self.answer = Some(mark);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.runs == self.expected.len() && self.answer.is_none()
    }
}

/// Receives until both runs are over on all connections, and the other end knows.
pub fn receive(sinks: &mut [Sink]) -> Result<(), Failure> {
    let mut idling = Idling::default();
    loop {
        let (mut busy, mut done) = (false, true);
        for sink in &mut *sinks {
            // One that is done may have been left: that is the other end's right.
            if !sink.is_done() {
                busy |= sink.step()?;
                done &= sink.is_done();
            }
        }
        if done {
            break;
        }
        match busy {
            true => idling = Idling::default(),
            false => {
                if let Some(waits) = sinks.iter_mut().find(|sink| !sink.is_done()) {
                    idling.tick(&mut waits.side)?;
                }
            }
        }
    }
    for sink in sinks {
        linger(sink)?;
    }
    Ok(())
}

/// Stays until the other end has left, to say again what it may not have heard.
fn linger(sink: &mut Sink) -> Result<(), Failure> {
    if !sink.lossy {
        if sink.side.vi.state() == ViState::Connected {
            sink.side.linger();
        }
        return Ok(());
    }
    let start = Instant::now();
    while sink.side.vi.state() == ViState::Connected && start.elapsed() < Duration::from_secs(1) {
        // What breaks now breaks after the test.
        if sink.step().is_err() {
            break;
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Sends to the other end, which is `others` when both are in this thread.
pub fn send(sources: &mut [Source], others: &mut [Sink], order: &Order) -> Result<Bandwidth, Failure> {
    run(sources, order.warmup, others, order)?;
    let start = Instant::now();
    let messages = run(sources, order.iterations, others, order)?;
    let elapsed = start.elapsed();
    // What is read comes from the other end.
    let sender = match order.op {
        Op::Read => others.first().map(Sink::side),
        Op::Send | Op::Write => sources.first().map(Source::side),
    };
    let frame = sender.and_then(|side| side.vi.path_mtu()).unwrap_or(0);
    Ok(Bandwidth { messages, elapsed, sent: order.iterations, iterations: order.iterations, frame })
}
