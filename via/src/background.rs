//! Progress without the program: a thread that drives a NIC whose program does not.
//!
//! While the program polls, the thread only looks now and then whether it still does. Once it has stopped, the thread
//! drives the NIC, and sleeps on the adapter's interrupt while there is nothing to do. So an RDMA write lands, a peer is
//! answered and a keep-alive is sent with no call by the program; and a program that polls pays nothing for it.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::nic::{Core, Shared};
use crate::sleep::{self, Asleep};
use crate::sync::Backoff;
use crate::turn::Guard;
use crate::{Error, Result};

/// How long a program may be silent before its NIC is driven for it.
const PATIENCE: Duration = Duration::from_millis(2);
/// The sleep of a thread that waits for the adapter alone.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the thread polls after there was something to do, before it sleeps.
const LINGER: Duration = Duration::from_micros(100);
/// How long it sleeps between two looks whether it can have the NIC.
const LOOK: Duration = Duration::from_micros(20);

/// The thread of a NIC. Ends, and is waited for, when dropped.
pub(crate) struct Background {
    /// Its end is what the thread waits for.
    alive: Option<UnixStream>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts driving `nic`.
    ///
    /// # Errors
    /// The system gives no thread or socket.
    pub(crate) fn start(nic: &Arc<Shared>) -> Result<Self> {
        let failed = |e| Error::Driver(uvia_driver::Error::io("starting a NIC's progress thread", e));
        let (alive, end) = UnixStream::pair().map_err(failed)?;
        alive.set_nonblocking(true).and_then(|()| end.set_nonblocking(true)).map_err(failed)?;
        let interrupt = match nic.core().provider.interrupt() {
            // Its own, so that it may sleep on it without keeping the NIC open.
            Some(fd) => Some(fd.try_clone_to_owned().map_err(failed)?),
            None => None,
        };
        let nic = Arc::downgrade(nic);
        let ended = Arc::new(AtomicBool::new(false));
        let until = ended.clone();
        let thread = std::thread::Builder::new()
            .name("uvia-progress".to_owned())
            .spawn(move || run(&nic, interrupt.as_ref(), &end, &until))
            .map_err(failed)?;
        Ok(Self { alive: Some(alive), ended, thread: Some(thread) })
    }

    /// The program is about to do something else, or to sleep: the thread need not find out by itself.
    pub(crate) fn kick(&self) {
        // Full of kicks: it is awake already. Closed: it has ended.
        let _ = self.alive.as_ref().map(|mut alive| alive.write(&[1]));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Relaxed: nothing else hangs on it; the end of the stream wakes the thread if it sleeps.
        self.ended.store(true, Ordering::Relaxed);
        drop(self.alive.take());
        // It never is the thread itself that does this: it has no handle, and calls nothing of the program's.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a NIC's progress thread has panicked");
        }
    }
}

/// Until the NIC is gone.
fn run(nic: &Weak<Shared>, interrupt: Option<&OwnedFd>, end: &UnixStream, ended: &AtomicBool) {
    let mut seen = 0;
    let mut active = Instant::now();
    while !ended.load(Ordering::Relaxed) {
        let Some(held) = nic.upgrade() else { return };
        let turns = held.try_core().map(|core| core.turns());
        let time = if turns == Some(seen) {
            drive(&held, &mut active, interrupt.is_some())
        } else {
            // The program drives it: some call of it has the turn now, or has had it since the last look.
            seen = turns.unwrap_or(seen);
            Ok((PATIENCE, false))
        };
        drop(held);
        let (time, armed) = match time {
            Ok(time) => time,
            Err(e) => {
                // The program meets it too, at its next call.
                if let Some(held) = nic.upgrade() {
                    held.fault(&e);
                }
                (sleep::LONGEST, false)
            }
        };
        let interrupt = interrupt.filter(|_| armed).map(AsFd::as_fd);
        if !time.is_zero()
            && let Err(e) = sleep::on(&[interrupt, Some(end.as_fd())], time)
        {
            tracing::error!("sleeping in the background: {e}");
            std::thread::sleep(PATIENCE);
        }
        if armed && let Some(held) = nic.upgrade() {
            held.rouse();
            Asleep::end_with(&held, &mut when_free(&held), true);
        }
        if !time.is_zero()
            && kicked(end)
            && let Some(held) = nic.upgrade()
        {
            seen = when_free(&held).turns();
            active = Instant::now();
        }
    }
}

/// Whether the thread is to take over now.
fn kicked(mut end: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    matches!(end.read(&mut bytes), Ok(count) if count != 0)
}

/// The NIC, once nobody has it. Who polls meanwhile is not kept off for that: it may be long until this thread, which
/// sleeps between its looks, is given a processor, where those who poll have them all.
fn when_free(nic: &Shared) -> Guard<'_, Core> {
    let backoff = Backoff::new();
    loop {
        if let Some(core) = nic.try_core() {
            return core;
        }
        if backoff.is_completed() {
            std::thread::sleep(LOOK);
        } else {
            backoff.snooze();
        }
    }
}

/// Drives the NIC once; answers how long there will be nothing to do, and whether its interrupt is armed for that time.
fn drive(nic: &Shared, active: &mut Instant, interrupts: bool) -> Result<(Duration, bool)> {
    if when_free(nic).drive()? != 0 {
        *active = Instant::now();
    }
    nic.works();
    if active.elapsed() < LINGER {
        return Ok((Duration::ZERO, false));
    }
    let mut core = when_free(nic);
    if !interrupts {
        let deadline = core.provider.idle_for().unwrap_or(sleep::WITHOUT_INTERRUPT);
        return Ok((deadline.min(sleep::WITHOUT_INTERRUPT), false));
    }
    Asleep::begin_with(nic, &mut core)?;
    // What came before the arming is not signalled any more.
    match core.drive() {
        Ok(0) => Ok((nic.doze(&core).unwrap_or(FOREVER), true)),
        outcome => {
            Asleep::end_with(nic, &mut core, true);
            *active = Instant::now();
            outcome.map(|_| (Duration::ZERO, false))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nic, NicOptions, Progress};

    /// Whoever polls would find nothing for as long as the thread waited in their way, and that is until it is run again:
    /// for ever where those who poll have all processors at real-time priority.
    #[test]
    fn the_thread_keeps_nobody_off_while_it_waits_for_the_nic() {
        let device = format!("shm:background-{}", std::process::id());
        let nic =
            Nic::open(&device, NicOptions { progress: Progress::Thread, ..NicOptions::default() }).unwrap();
        let shared = nic.shared();
        for _ in 0..10 {
            // It sleeps, or is about to; this wakes it, and it has to take back that it sleeps.
            let held = shared.core();
            let end = Instant::now() + 2 * PATIENCE;
            while Instant::now() < end {
                assert!(!shared.is_awaited(), "the NIC's thread keeps others off");
                std::thread::sleep(PATIENCE / 10);
            }
            drop(held);
            std::thread::sleep(PATIENCE);
        }
    }
}
