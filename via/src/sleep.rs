//! Waiting: poll for a moment, then sleep until the adapter interrupts or the engine's next deadline.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::nic::Shared;
use crate::{Error, Result};

/// How long a wait polls before it sleeps: about what a sleep and a wake-up cost.
const SPIN: Duration = Duration::from_micros(50);
/// The longest sleep; bounds the harm of an interrupt that does not come.
const LONGEST: Duration = Duration::from_millis(100);
/// The sleep of an adapter without interrupts.
const WITHOUT_INTERRUPT: Duration = Duration::from_micros(100);

/// Threads that sleep on a NIC: the first arms its interrupt, the last disarms it.
#[derive(Default)]
pub(crate) struct Sleepers(AtomicUsize);

/// Waits for `ready` to answer with something, up to `timeout`; `None` when it did not. `ready` drives the NIC; told
/// to be patient, it waits for its turn to do so, where it otherwise answers with nothing.
pub(crate) fn wait<T>(
    nic: &Shared,
    sleepers: &Sleepers,
    timeout: Duration,
    mut ready: impl FnMut(bool) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ready(false)? {
            return Ok(Some(answer));
        }
        let waited = start.elapsed();
        if waited >= timeout {
            return Ok(None);
        }
        if waited < SPIN {
            std::hint::spin_loop();
            continue;
        }
        let asleep = Asleep::new(nic, sleepers)?;
        // What came between the last look and the arming is not signalled any more, and what another thread has
        // taken from the adapter for us never was.
        if let Some(answer) = ready(true)? {
            return Ok(Some(answer));
        }
        asleep.sleep(timeout - waited)?;
    }
}

/// A thread about to sleep; the interrupt is armed while there is one.
struct Asleep<'a> {
    nic: &'a Shared,
    sleepers: &'a Sleepers,
    interrupt: Option<RawFd>,
}

impl<'a> Asleep<'a> {
    fn new(nic: &'a Shared, sleepers: &'a Sleepers) -> Result<Self> {
        let mut core = nic.core();
        // Counted under the lock, as the disarming is, so that the last to go never disarms the next to come.
        sleepers.0.fetch_add(1, Ordering::Relaxed);
        let interrupt = core.provider.interrupt().map(|fd| fd.as_raw_fd());
        let asleep = Self { nic, sleepers, interrupt };
        if interrupt.is_some() {
            let armed = core.provider.arm(true);
            drop(core);
            armed?;
        }
        Ok(asleep)
    }

    fn sleep(&self, longest: Duration) -> Result<()> {
        let deadline = self.nic.core().provider.idle_for().unwrap_or(LONGEST);
        let limit = if self.interrupt.is_some() { LONGEST } else { WITHOUT_INTERRUPT };
        let time = longest.min(deadline).min(limit);
        let time = libc::timespec { tv_sec: 0, tv_nsec: time.as_nanos() as libc::c_long };
        let mut fds = [libc::pollfd { fd: self.interrupt.unwrap_or(-1), events: libc::POLLIN, revents: 0 }];
        // SAFETY: one pollfd and one timespec of ours; the descriptor belongs to the adapter, which `nic` keeps
        // open, and -1 is passed over.
        let outcome = unsafe { libc::ppoll(fds.as_mut_ptr(), 1, &time, std::ptr::null()) };
        if outcome < 0 {
            let source = io::Error::last_os_error();
            if source.kind() != io::ErrorKind::Interrupted {
                return Err(Error::Driver(uvia_driver::Error::io(
                    "sleeping on the adapter's interrupt",
                    source,
                )));
            }
        }
        Ok(())
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut core = self.nic.core();
        if self.sleepers.0.fetch_sub(1, Ordering::Relaxed) == 1
            && self.interrupt.is_some()
            && let Err(e) = core.provider.arm(false)
        {
            tracing::warn!("disarming the interrupt: {e}");
        }
    }
}
