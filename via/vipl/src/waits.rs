//! Threads of the program's that wait: each sleeps until what it waits for is there, and is not woken in between.
//!
//! uvia wakes who waits for a completion or for news of connections, also where another thread takes it up: who waits
//! looks here after it has asked to be woken, and what comes later wakes it. What only this library knows of (a descriptor
//! that was refused, an object that was destroyed) wakes all who wait on the NIC: it is seldom.

use std::cell::OnceCell;
use std::ffi::c_ulong;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uvia::{Awaited, Sleeper};

use crate::device::lock;
use crate::nic::Nic;
use crate::types::Return;

/// Who sleeps on a NIC.
#[derive(Default)]
pub(crate) struct Sleepers {
    /// As many as there are in the list. Relaxed: who begins to wait counts itself before it looks, under the lock of
    /// what it waits for; who changes that looks here after it has had that lock. So one of them sees the other.
    count: AtomicUsize,
    list: Mutex<Vec<Arc<Sleeper>>>,
}

impl Sleepers {
    /// Something has happened that uvia does not know of.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.count.load(Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        lock(&self.list).iter().for_each(|sleeper| sleeper.wake());
    }

    /// One more, unless it is there already.
    pub(crate) fn join(&self, sleeper: &Arc<Sleeper>) {
        let mut list = lock(&self.list);
        if !list.iter().any(|known| Arc::ptr_eq(known, sleeper)) {
            list.push(sleeper.clone());
            self.count.store(list.len(), Ordering::Relaxed);
        }
    }

    fn leave(&self, sleeper: &Arc<Sleeper>) {
        let mut list = lock(&self.list);
        list.retain(|known| !Arc::ptr_eq(known, sleeper));
        self.count.store(list.len(), Ordering::Relaxed);
    }
}

/// Counted among the sleepers of a NIC.
struct Joined<'a>(&'a Nic, &'a Arc<Sleeper>);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.sleepers.leave(self.1);
    }
}

/// What this thread sleeps by.
fn own() -> uvia::Result<Arc<Sleeper>> {
    thread_local! {
        static OWN: OnceCell<Arc<Sleeper>> = const { OnceCell::new() };
    }
    OWN.with(|own| match own.get() {
        Some(sleeper) => Ok(sleeper.clone()),
        None => {
            let sleeper = Arc::new(Sleeper::new()?);
            Ok(own.get_or_init(|| sleeper).clone())
        }
    })
}

/// Waits for an answer; none when the time is over.
pub(crate) fn wait<T>(
    nic: &Nic,
    awaited: Awaited<'_>,
    timeout: Duration,
    mut ready: impl FnMut(bool) -> uvia::Result<Option<Result<T, Return>>>,
) -> Result<Option<T>, Return> {
    let outcome = match ready(false) {
        Ok(None) if !timeout.is_zero() => own().and_then(|sleeper| {
            nic.sleepers.join(&sleeper);
            let _joined = Joined(nic, &sleeper);
            sleeper.wait(awaited, timeout, ready)
        }),
        outcome => outcome,
    };
    let answer = outcome.map_err(|e| {
        tracing::warn!("waiting: {e}");
        Return::ErrorResource
    })?;
    answer.transpose()
}

/// A time-out in milliseconds; what is longer than a century does not end.
pub(crate) fn timeout(millis: c_ulong) -> Duration {
    const CENTURY: u64 = 100 * 365 * 86_400 * 1000;
    Duration::from_millis(millis.min(CENTURY))
}
