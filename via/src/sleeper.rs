//! A thread's sleep until something comes for it, with no look in between.
//!
//! [`sleep`](crate::sleep) looks now and then, since what one thread takes from the adapter for another wakes nobody. Who
//! sleeps by a [`Sleeper`] has said what it sleeps for: whoever finishes that, by driving the NIC or by a call, signals it.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::cq::Ring;
use crate::handle::Handle;
use crate::sinks::signal;
use crate::sleep::{self, Asleep};
use crate::{CompletionQueue, Error, Nic, Result, Vi, WorkQueue};

/// What a thread sleeps by: made once, used for any number of sleeps, on any NICs. [`Sleeper::wake`] ends a sleep, or the
/// next one, whatever it is for.
pub struct Sleeper(Arc<OwnedFd>);

/// What a thread waits for.
#[derive(Clone, Copy)]
pub enum Awaited<'a> {
    /// A completion in a work queue that has no completion queue.
    Queue(&'a Vi, WorkQueue),
    /// A completion in a completion queue.
    Completions(&'a CompletionQueue),
    /// News of the NIC's connections: a request, an outcome of asking, a loss; or of names.
    News(&'a Nic),
}

impl<'a> Awaited<'a> {
    fn ring(&self) -> Result<Option<&'a Ring>> {
        Ok(match self {
            Self::Queue(vi, queue) => Some(vi.own_ring(*queue)?),
            Self::Completions(cq) => Some(cq.ring()),
            Self::News(_) => None,
        })
    }

    fn nic(&self) -> &'a Handle {
        match self {
            Self::Queue(vi, _) => vi.nic(),
            Self::Completions(cq) => cq.ring().nic(),
            Self::News(nic) => nic.handle(),
        }
    }
}

impl Sleeper {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no file descriptor.
    pub fn new() -> Result<Self> {
        // SAFETY: makes a new file descriptor, or fails.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::Driver(uvia_driver::Error::last_os("eventfd for a thread that sleeps")));
        }
        // SAFETY: it was just made, and nobody else has it.
        Ok(Self(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Ends the sleep of its thread, or the next one.
    pub fn wake(&self) {
        signal(&self.0);
    }

    /// Forgets that it was woken. What it was woken for is looked at after this.
    pub fn hush(&self) {
        let mut count = 0u64;
        // SAFETY: 8 bytes of ours are written, as many as an event file descriptor gives. It fails where there is nothing.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Asks to be woken, once, by what is `awaited`. False: there is something already, and nothing was asked for. The
    /// NIC's thread is started if there is none, and drives the NIC while the program sleeps.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a work queue that is tied to a completion queue; a fault of the adapter; the system gives
    /// no thread.
    pub fn arm(&self, awaited: Awaited<'_>) -> Result<bool> {
        let armed = self.ask(awaited)?;
        if armed {
            awaited.nic().kick();
        }
        Ok(armed)
    }

    /// As [`Sleeper::arm`], for who drives the NIC itself.
    fn ask(&self, awaited: Awaited<'_>) -> Result<bool> {
        match awaited.ring()? {
            Some(ring) => {
                ring.nic().start_background()?;
                let mut core = ring.nic().core();
                core.progress()?;
                Ok(core.sinks.arm(ring.key(), ring.promises(), &self.0))
            }
            None => {
                if let Awaited::News(nic) = awaited {
                    nic.handle().start_background()?;
                    nic.handle().core().sinks.arm_news(&self.0);
                }
                Ok(true)
            }
        }
    }

    /// Takes back what [`Sleeper::arm`] asked for.
    pub fn disarm(&self, awaited: Awaited<'_>) {
        match (awaited.ring(), awaited) {
            (Ok(Some(ring)), _) => ring.nic().core().sinks.disarm(ring.key(), &self.0),
            (_, Awaited::News(nic)) => nic.handle().core().sinks.disarm_news(&self.0),
            _ => {}
        }
    }

    /// Sleeps until it is woken, `longest` at most.
    ///
    /// # Errors
    /// The system refuses.
    pub fn sleep(&self, longest: Duration) -> Result<()> {
        sleep::on(&[Some(self.0.as_fd())], longest)
    }

    /// As [`Nic::wait_for`], for what is `awaited`, of the NIC that it belongs to: after a moment of polling the thread
    /// sleeps until that comes, [`Sleeper::wake`] is called, or the time is over, and not a moment less. `ready` is called
    /// again then, patient, and where it answers with nothing the thread sleeps on.
    ///
    /// # Errors
    /// What `ready` fails with; else as [`Sleeper::arm`].
    pub fn wait<T>(
        &self,
        awaited: Awaited<'_>,
        timeout: Duration,
        ready: impl FnMut(bool) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        sleep::wait_with(timeout, ready, |ready, left| {
            self.hush();
            let _armed = Armed { sleeper: self, awaited };
            if !self.ask(awaited)? {
                return Ok(None);
            }
            // The adapter's interrupt wakes this thread too, which is sooner than by way of the NIC's.
            let asleep = Asleep::new(awaited.nic())?;
            let answer = ready(true)?;
            if answer.is_none() {
                // Deadlines and all else that comes by itself is the business of the NIC's thread.
                asleep.sleep_with(self.0.as_fd(), left)?;
            }
            Ok(answer)
        })
    }
}

/// Asked for, until this is dropped.
struct Armed<'a> {
    sleeper: &'a Sleeper,
    awaited: Awaited<'a>,
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.sleeper.disarm(self.awaited);
    }
}
