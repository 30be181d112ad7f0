//! Waiting: poll for a moment, then sleep until the adapter interrupts or the engine's next deadline.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::nic::{Core, Shared};
use crate::{Error, Result};

/// How long a wait polls before it sleeps: about what a sleep and a wake-up cost.
const SPIN: Duration = Duration::from_micros(50);
/// The longest sleep; bounds the harm of an interrupt that does not come.
pub(crate) const LONGEST: Duration = Duration::from_millis(100);
/// What a wait for something that ends by itself at a time-out waits longer, for word of that end to come through.
const MARGIN: Duration = Duration::from_secs(1);
/// The sleep of an adapter without interrupts.
pub(crate) const WITHOUT_INTERRUPT: Duration = Duration::from_micros(100);

/// Threads that sleep on a NIC: the first arms its interrupt, the last disarms it.
#[derive(Default)]
pub(crate) struct Sleepers(AtomicUsize);

/// How long to wait for the outcome of what ends by itself at `timeout`, which may be as long as can be said.
pub(crate) fn beyond(timeout: Duration) -> Duration {
    timeout.saturating_add(MARGIN)
}

/// Waits for `ready` to answer with something, up to `timeout`; `None` when it did not. `ready` drives the NIC; told
/// to be patient, it waits for its turn to do so, where it otherwise answers with nothing.
pub(crate) fn wait<T>(
    nic: &Shared,
    timeout: Duration,
    ready: impl FnMut(bool) -> Result<Option<T>>,
) -> Result<Option<T>> {
    wait_with(timeout, ready, |ready, left| {
        let asleep = Asleep::new(nic)?;
        // What came between the last look and the arming is not signalled any more, and what another thread has
        // taken from the adapter for us never was.
        let answer = ready(true)?;
        if answer.is_none() {
            asleep.sleep(left)?;
        }
        Ok(answer)
    })
}

/// As [`wait`]: looks for a moment, then again and again by `sleep`, which is given how to look and the time that is
/// left, and answers with what its last look before sleeping has found.
pub(crate) fn wait_with<T, R: FnMut(bool) -> Result<Option<T>>>(
    timeout: Duration,
    mut ready: R,
    mut sleep: impl FnMut(&mut R, Duration) -> Result<Option<T>>,
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
        // While it spins there is no hint of it to the processor: a look takes long enough to leave room for others, the hint
        // would take as long again on many, and an emulated one stops for it.
        if waited >= SPIN
            && let Some(answer) = sleep(&mut ready, timeout - waited)?
        {
            return Ok(Some(answer));
        }
    }
}

/// A thread about to sleep; the interrupt is armed while there is one.
pub(crate) struct Asleep<'a> {
    nic: &'a Shared,
    interrupt: Option<RawFd>,
}

impl<'a> Asleep<'a> {
    pub(crate) fn new(nic: &'a Shared) -> Result<Self> {
        let interrupt = Self::begin(nic)?;
        Ok(Self { nic, interrupt })
    }

    fn begin(nic: &Shared) -> Result<Option<RawFd>> {
        Self::begin_with(nic, &mut nic.core())
    }

    /// One more sleeps; answers the interrupt, armed, where there is one. To be ended by [`Asleep::end_with`]. By who has
    /// the turn, as that is.
    pub(crate) fn begin_with(nic: &Shared, core: &mut Core) -> Result<Option<RawFd>> {
        // Counted under the lock, as the disarming is, so that the last to go never disarms the next to come.
        nic.sleepers.0.fetch_add(1, Ordering::Relaxed);
        let interrupt = core.provider.interrupt().map(|fd| fd.as_raw_fd());
        if interrupt.is_some()
            && let Err(e) = core.provider.arm(true)
        {
            Self::end_with(nic, core, true);
            return Err(e);
        }
        Ok(interrupt)
    }

    /// One sleeps no more.
    pub(crate) fn end_with(nic: &Shared, core: &mut Core, armed: bool) {
        if nic.sleepers.0.fetch_sub(1, Ordering::Relaxed) == 1
            && armed
            && let Err(e) = core.provider.arm(false)
        {
            tracing::warn!("disarming the interrupt: {e}");
        }
    }

    fn sleep(&self, longest: Duration) -> Result<()> {
        let deadline = self.nic.core().provider.idle_for().unwrap_or(LONGEST);
        let limit = if self.interrupt.is_some() { LONGEST } else { WITHOUT_INTERRUPT };
        // SAFETY: the descriptor belongs to the adapter, which `nic` keeps open for as long as this lives.
        let interrupt = self.interrupt.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        on(&[interrupt], longest.min(deadline).min(limit))
    }

    /// Sleeps until the adapter interrupts or `event` is signalled, for so long at most.
    pub(crate) fn sleep_with(&self, event: BorrowedFd<'_>, longest: Duration) -> Result<()> {
        // SAFETY: as above.
        let interrupt = self.interrupt.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        on(&[interrupt, Some(event)], longest)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        Self::end_with(self.nic, &mut self.nic.core(), self.interrupt.is_some());
    }
}

/// Sleeps until one of these has something to read or is closed, for so long at most.
pub(crate) fn on(fds: &[Option<BorrowedFd<'_>>], longest: Duration) -> Result<()> {
    // The system knows no more seconds than that, and takes what is more for less than none.
    let tv_sec = libc::time_t::try_from(longest.as_secs()).unwrap_or(libc::time_t::MAX);
    let time = libc::timespec { tv_sec, tv_nsec: longest.subsec_nanos().into() };
    let mut polled = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 2];
    for (entry, fd) in polled.iter_mut().zip(fds) {
        entry.fd = fd.map_or(-1, |fd| fd.as_raw_fd());
    }
    // SAFETY: so many entries and one timespec of ours; the descriptors are borrowed for the call, and -1 is passed over.
    let outcome =
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &time, std::ptr::null()) };
    if outcome < 0 {
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(Error::Driver(uvia_driver::Error::io("sleeping on the adapter's interrupt", source)));
        }
    }
    Ok(())
}
