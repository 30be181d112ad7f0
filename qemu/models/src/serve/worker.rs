//! Who does the adapters' work, and when.
//!
//! With doorbells that are *polled*, clients ring by a store into memory that both have mapped: no system call on
//! their side, and none on ours while there is work. The price is a thread that looks: all the time for a while
//! after the last activity, and then between naps, so that the first frame after a pause may wait for a nap's end:
//! the longer the pause was, the longer, up to half a millisecond.
//! With doorbells that are *trapped*, clients ring by a message: a system call each, and a thread that wakes up;
//! nothing runs while nothing happens.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::machine::Machine;

/// How the adapters learn of doorbells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doorbells {
    /// Memory that clients store into, and the worker looks at.
    Polled,
    /// Messages.
    Trapped,
}

/// How long the worker looks without a nap after it last found something.
const BUSY: Duration = Duration::from_micros(200);
/// Its naps with polled doorbells: one part in [`REST`] of the time since it last found something, within these.
const NAPS: RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_micros(500);
/// See [`NAPS`].
const REST: u32 = 64;
/// And its sleep while there is nothing to look at: a signal ends it.
const SLEEP: Duration = Duration::from_secs(1);
/// Rounds that a thread of a socket does by itself before it leaves the rest to the worker.
const ROUNDS: usize = 4;

/// The thread that gives adapters their turns.
pub struct Worker {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// For those that make work.
#[derive(Clone)]
pub(super) struct Handle {
    doorbells: Doorbells,
    thread: Thread,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Clients whose doorbells are to be looked at.
    clients: AtomicUsize,
}

impl Worker {
    /// Starts it for a machine that has all its adapters.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(machine: Arc<Machine>, doorbells: Doorbells) -> std::io::Result<Self> {
        let shared: Arc<Shared> = Arc::default();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("adapters".to_owned())
            .spawn(move || run(&machine, doorbells, &theirs))?;
        let handle = Handle { doorbells, thread: thread.thread().clone(), shared };
        Ok(Self { handle, thread: Some(thread) })
    }

    /// How doorbells are learned of.
    pub fn doorbells(&self) -> Doorbells {
        self.handle.doorbells
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Something that ends the worker's sleep: for frames that come from elsewhere.
    pub fn waker(&self) -> impl Fn() + Send + Sync + Clone + 'static {
        let thread = self.handle.thread.clone();
        move || thread.unpark()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.handle.shared.stop.store(true, Ordering::Relaxed);
        self.handle.thread.unpark();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// There may be work.
    pub(super) fn work(&self, machine: &Machine) {
        match self.doorbells {
            // Doorbells that were trapped are done with here and now: waking the worker would cost another switch.
            Doorbells::Trapped => {
                let work = machine.run(ROUNDS);
                if work.done > 0 || work.deadline.is_some() {
                    self.thread.unpark();
                }
            }
            // It naps at most, and looks after that: a driver that sets an adapter up by hundreds of messages would
            // interrupt as many naps, for nothing.
            Doorbells::Polled => (),
        }
    }

    /// A client is there.
    pub(super) fn arrived(&self) {
        self.shared.clients.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
    }

    /// It is gone.
    pub(super) fn left(&self) {
        self.shared.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

fn run(machine: &Machine, doorbells: Doorbells, shared: &Shared) {
    let mut active = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let work = machine.step();
        if work.done > 0 {
            active = Instant::now();
            continue;
        }
        let polling = doorbells == Doorbells::Polled && shared.clients.load(Ordering::Relaxed) > 0;
        if polling && active.elapsed() < BUSY {
            // Others may need this processor to make work for us.
            std::thread::yield_now();
            continue;
        }
        let longest = if polling { nap(active.elapsed()) } else { SLEEP };
        let until_due = work.deadline.map_or(longest, |due| due.saturating_sub(machine.now()));
        std::thread::park_timeout(longest.min(until_due));
    }
}

/// How long to nap when there was nothing for so long.
fn nap(idle: Duration) -> Duration {
    (idle / REST).clamp(*NAPS.start(), *NAPS.end())
}
