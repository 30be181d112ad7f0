//! Waiting in tasks of whatever runtime.
//!
//! What may have to wait is written once, as asynchronous functions. Whoever calls them from a thread of its own waits
//! within ([`Waits::Here`]), so that they never stop half way; tasks stop, and are woken by a thread of the session's that
//! sleeps on the file descriptors of its rails while any task waits.

use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use crate::core::Core;
use crate::policy;
use crate::port::Wake;
use crate::shared::Shared;
use crate::{Error, Result};

/// Where a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// In the thread that calls.
    Here,
    /// In a task.
    Task,
}

/// What comes of a future that waits where it is called.
pub(crate) fn now<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        // Nothing that waits here is ever pending.
        Poll::Pending => Err(Error::Failed),
    }
}

/// Tasks that wait, and the thread that wakes them.
#[derive(Default)]
pub(crate) struct Tasks(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// There is a thread.
    is_served: bool,
    /// The session is over.
    over: bool,
}

impl Tasks {
    /// Has a task woken when something has happened.
    pub(crate) fn wait(&self, waker: &Waker, shared: &Weak<Shared>) -> Result<()> {
        let (waiting, news) = &*self.0;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.is_served {
            let (tasks, shared) = (self.0.clone(), shared.clone());
            std::thread::Builder::new()
                .name("uvia-tasks".to_owned())
                .spawn(move || serve(&tasks, &shared))
                .map_err(|e| Error::io("starting the thread that wakes tasks", e))?;
            waiting.is_served = true;
        }
        if !waiting.wakers.iter().any(|known| known.will_wake(waker)) {
            waiting.wakers.push(waker.clone());
        }
        news.notify_one();
        Ok(())
    }

    /// Wakes all tasks but the one that asks for it.
    pub(crate) fn wake_others(&self, own: &Waker) {
        let mut waiting = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().filter(|waker| !waker.will_wake(own)).for_each(Waker::wake);
    }

    /// The session is over: its thread ends.
    pub(crate) fn end(&self) {
        let (waiting, news) = &*self.0;
        waiting.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        news.notify_one();
    }
}

/// Wakes tasks, until the session is over.
fn serve((waiting, news): &(Mutex<Waiting>, Condvar), shared: &Weak<Shared>) {
    loop {
        {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting.wakers.is_empty() && !waiting.over {
                waiting = news.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            if waiting.over {
                return;
            }
        }
        // Armed after they had looked: so what has come since is seen now.
        let mut sleepers: Vec<RawFd> = Vec::new();
        let Some(session) = shared.upgrade() else { return };
        let wake = session.core().arm(&mut sleepers);
        // Not this thread keeps the session while it sleeps.
        drop(session);
        match wake {
            Ok(Wake::Told) => policy::sleep(&sleepers),
            Ok(Wake::Blind) => std::thread::sleep(policy::BLINK),
            // They find out themselves what is wrong.
            Ok(Wake::Now) | Err(_) => {}
        }
        let wakers = std::mem::take(&mut waiting.lock().unwrap_or_else(PoisonError::into_inner).wakers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Shared {
    /// Drives the session until `ready` answers: within this call, or as a future of a task.
    pub(crate) async fn until<T>(
        &self,
        waits: Waits,
        what: &'static str,
        mut ready: impl FnMut(&mut Core) -> Result<Option<T>>,
    ) -> Result<T> {
        if waits == Waits::Here {
            return self.wait(what, ready);
        }
        std::future::poll_fn(|context| {
            let (outcome, stirred) = self.look(&mut ready);
            if stirred {
                // What came may be another task's.
                self.tasks.wake_others(context.waker());
            }
            match outcome {
                Ok(Some(answer)) => Poll::Ready(Ok(answer)),
                Ok(None) => match self.tasks.wait(context.waker(), &self.own) {
                    Ok(()) => Poll::Pending,
                    Err(e) => Poll::Ready(Err(e)),
                },
                Err(e) => Poll::Ready(Err(e)),
            }
        })
        .await
    }

    /// Drives it once; answers what `ready` does, and whether anything has happened.
    fn look<T>(&self, ready: &mut impl FnMut(&mut Core) -> Result<Option<T>>) -> (Result<Option<T>>, bool) {
        let mut core = self.core();
        let before = core.happenings;
        let outcome = match ready(&mut core) {
            Ok(None) => core.progress().and_then(|()| ready(&mut core)),
            outcome => outcome,
        };
        let stirred = core.happenings != before;
        (outcome, stirred)
    }
}
