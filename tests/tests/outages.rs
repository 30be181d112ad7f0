//! Cables that are pulled, and adapters that somebody else resets, under connections with traffic: what a connection
//! survives it survives whole, and what breaks it is known at both ends in bounded time, with nothing lost silently. In
//! virtual time, on models. (`tests/run` does the same between two kernels.)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uvia::{
    ConnectionLoss, Descriptor, Error, MemoryRegion, Nic, ReliabilityLevel, Status, ViState, WorkQueue,
};
use uvia_driver::{DeviceFault, Error as DriverError};
use uvia_models::machine::Kind;
use uvia_tests::End;
use uvia_tests::bench::InProcess;
use uvia_tests::conformance::{Bench, Line};

/// What passes with each poll.
const STEP: Duration = Duration::from_micros(500);
/// When a peer that is not heard is taken for dead, and what may come on top.
const SILENCE: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(2);
/// How long an adapter's own fault may go unnoticed.
const NOTICED: Duration = Duration::from_secs(2);
/// Messages under way each way.
const WINDOW: usize = 8;
/// Bytes of a message: more than a frame, so that parts of messages are lost, too.
const SIZE: usize = 2000;
const KINDS: [Kind; 3] = [Kind::E1000, Kind::Virtio, Kind::VirtioPacked];

/// An end that sends numbered messages and checks those that come.
struct Talker {
    end: End,
    memory: MemoryRegion,
    sent: u32,
    completed: u32,
    received: u32,
    /// What the end of the connection has cut off, of both queues.
    failed: usize,
}

impl Talker {
    fn new(end: End) -> Self {
        let memory = end.memory(2 * WINDOW * SIZE).unwrap();
        let mut talker = Self { end, memory, sent: 0, completed: 0, received: 0, failed: 0 };
        for n in 0..WINDOW {
            talker.post_receive(n);
        }
        for _ in 0..WINDOW {
            talker.post_send();
        }
        talker
    }

    fn message(&self, at: usize) -> Box<Descriptor> {
        let mut descriptor = Descriptor::new(vec![self.memory.segment(at * SIZE..(at + 1) * SIZE).unwrap()]);
        descriptor.context = at as u64;
        descriptor
    }

    fn post_receive(&mut self, at: usize) {
        self.end.vi.post_receive(self.message(at)).unwrap();
    }

    fn post_send(&mut self) {
        let at = WINDOW + self.sent as usize % WINDOW;
        self.memory.write(at * SIZE, &self.sent.to_le_bytes()).unwrap();
        self.end.vi.post_send(self.message(at)).unwrap();
        self.sent += 1;
    }

    /// Takes what has completed, checks it, and goes on while the connection does.
    fn turn(&mut self) -> uvia::Result<()> {
        while let Some(done) = self.end.cq.poll()? {
            let status = done.descriptor.status();
            if !status.is_success() {
                // What was on its way, and what was not.
                assert!(status.intersects(Status::FLUSHED | Status::TRANSPORT_ERROR), "{status:?}");
                self.failed += 1;
                continue;
            }
            match done.queue {
                WorkQueue::Receive => {
                    assert_eq!(self.failed, 0, "a message behind the end");
                    let at = done.descriptor.context as usize;
                    let mut number = [0; 4];
                    self.memory.read(at * SIZE, &mut number).unwrap();
                    assert_eq!(u32::from_le_bytes(number), self.received, "each once, in order");
                    self.received += 1;
                    // Refused, and handed back, when the connection has just ended.
                    if self.end.vi.post_receive(done.descriptor).is_err() {
                        self.failed += 1;
                    }
                }
                WorkQueue::Send => {
                    self.completed += 1;
                    if self.end.vi.state() == ViState::Connected {
                        self.post_send();
                    }
                }
            }
        }
        Ok(())
    }

    /// All that was posted has come back, once.
    fn settle(&self) {
        assert_eq!(self.end.vi.state(), ViState::Error);
        assert_eq!(self.failed, WINDOW + (self.sent - self.completed) as usize);
    }
}

struct Traffic {
    bench: InProcess,
    now: Arc<AtomicU64>,
    a: Talker,
    b: Talker,
}

impl Traffic {
    /// Two that talk over models of this kind.
    fn over(kind: Kind, level: ReliabilityLevel) -> Self {
        let bench = InProcess::new([kind; 2]);
        let now = Arc::new(AtomicU64::new(0));
        let [a, b] = bench.nics(&now);
        Self::between(bench, now, a, b, level)
    }

    fn between(bench: InProcess, now: Arc<AtomicU64>, a: Nic, b: Nic, level: ReliabilityLevel) -> Self {
        while !(a.ready().unwrap() && b.ready().unwrap()) {}
        let end = |nic| End::new(nic, |attributes| attributes.reliability = level).unwrap();
        let (a, b) = (end(a), end(b));
        uvia_tests::join(&a, &b, b"talk").unwrap();
        Self { bench, now, a: Talker::new(a), b: Talker::new(b) }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Lets both go on for so long.
    fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.now.fetch_add(STEP.as_nanos() as u64, Ordering::Relaxed);
            self.a.turn().unwrap();
            self.b.turn().unwrap();
        }
    }

    /// Runs until so many more messages came at each end.
    fn flows(&mut self) {
        let wanted = [self.a.received + 100, self.b.received + 100];
        let start = self.now();
        while self.a.received < wanted[0] || self.b.received < wanted[1] {
            self.run(STEP);
            assert!(self.now() - start < SILENCE, "{} and {} came", self.a.received, self.b.received);
        }
    }

    /// Runs until both have noticed that the connection is no more; after how long each.
    fn breaks(&mut self) -> [Duration; 2] {
        let start = self.now();
        let mut noticed = [None; 2];
        while noticed.contains(&None) {
            self.run(STEP);
            let passed = self.now() - start;
            for (noticed, talker) in noticed.iter_mut().zip([&self.a, &self.b]) {
                if noticed.is_none() && talker.end.vi.state() != ViState::Connected {
                    *noticed = Some(passed);
                }
            }
            assert!(passed < SILENCE + SLACK, "{noticed:?} of {passed:?}");
        }
        self.run(Duration::from_millis(10));
        noticed.map(Option::unwrap_or_default)
    }
}

const LEVELS: [ReliabilityLevel; 2] =
    [ReliabilityLevel::ReliableDelivery, ReliabilityLevel::ReliableReception];

#[test]
fn a_short_outage_of_the_link_loses_nothing_and_breaks_nothing() {
    for (kind, level) in KINDS.into_iter().flat_map(|kind| LEVELS.map(|level| (kind, level))) {
        let mut traffic = Traffic::over(kind, level);
        for (end, millis) in [(0, 3), (1, 50), (0, 400), (1, 3000)] {
            traffic.flows();
            traffic.bench.cable(end, Line::Pulled);
            let before = traffic.a.received;
            traffic.run(Duration::from_millis(millis));
            assert!(traffic.a.received <= before + WINDOW as u32, "{kind:?}: frames without a link");
            traffic.bench.cable(end, Line::Plugged);
            traffic.flows();
        }
        for talker in [&traffic.a, &traffic.b] {
            assert_eq!((talker.failed, talker.end.vi.loss()), (0, None), "{kind:?}");
        }
    }
}

#[test]
fn a_long_outage_of_the_link_breaks_both_ends_in_bounded_time_and_new_connections_work() {
    for (kind, level) in KINDS.into_iter().zip(LEVELS.into_iter().cycle()) {
        let mut traffic = Traffic::over(kind, level);
        traffic.flows();
        traffic.bench.cable(0, Line::Pulled);
        let noticed = traffic.breaks();
        println!("{kind:?}: {noticed:?}");
        assert!(noticed.iter().all(|after| *after >= SILENCE - Duration::from_secs(1)), "{noticed:?}");
        for talker in [&traffic.a, &traffic.b] {
            assert_eq!(talker.end.vi.loss(), Some(ConnectionLoss::PeerSilent));
            talker.settle();
        }
        traffic.bench.cable(0, Line::Plugged);
        let Traffic { bench, now, a, b } = traffic;
        let (a, b) = (a.end.nic.clone(), b.end.nic.clone());
        Traffic::between(bench, now, a, b, level).flows();
    }
}

/// The program of an adapter that another resets has an error, and its peer a lost connection: neither goes on as if
/// nothing were. Opened anew, it works.
#[test]
fn an_adapter_that_somebody_else_resets_in_the_middle_of_traffic_is_noticed_at_both_ends() {
    for kind in KINDS {
        let mut traffic = Traffic::over(kind, ReliabilityLevel::ReliableDelivery);
        traffic.flows();
        let machine = traffic.bench.machine().clone();
        machine.nics()[0].call(machine.now(), |function, outside| function.reset(outside));
        let start = traffic.now();
        let error = loop {
            traffic.now.fetch_add(STEP.as_nanos() as u64, Ordering::Relaxed);
            traffic.b.turn().unwrap();
            if let Err(error) = traffic.a.turn() {
                break error;
            }
            assert!(traffic.now() - start < NOTICED, "{kind:?}: its own program does not notice");
        };
        let fault = match &error {
            Error::Driver(DriverError::Device { fault, .. }) => fault,
            _ => panic!("{kind:?}: {error}"),
        };
        assert_eq!(*fault, DeviceFault::WasReset);
        while traffic.b.end.vi.state() == ViState::Connected {
            traffic.now.fetch_add(STEP.as_nanos() as u64, Ordering::Relaxed);
            traffic.b.turn().unwrap();
            assert!(traffic.now() - start < SILENCE + SLACK, "{kind:?}: its peer does not notice");
        }
        traffic.b.turn().unwrap();
        traffic.b.settle();
        assert_eq!(traffic.b.end.vi.loss(), Some(ConnectionLoss::PeerSilent));
        let Traffic { bench, now, a, b } = traffic;
        drop((a, b));
        let [a, b] = bench.nics(&now);
        Traffic::between(bench, now, a, b, ReliabilityLevel::ReliableDelivery).flows();
    }
}

/// The test itself: a pair that is left alone goes on and on.
#[test]
fn without_an_outage_nothing_breaks() {
    let mut traffic = Traffic::over(Kind::Virtio, ReliabilityLevel::ReliableDelivery);
    traffic.run(SILENCE + SLACK);
    assert!(traffic.a.received > 1000 && traffic.b.received > 1000);
    assert_eq!(traffic.a.end.vi.state(), ViState::Connected);
}
