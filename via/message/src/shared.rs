//! What a session's objects hold in common, and waiting.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::lock::{Guard, Lock};
use crate::policy::{Pace, Policy};
use crate::tasks::Tasks;
use crate::{Error, Result};

/// A session's core, and how it is waited for.
pub(crate) struct Shared {
    core: Lock<Core>,
    pub(crate) policy: Policy,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    patience: Option<std::time::Duration>,
    pub(crate) pace: Pace,
    pub(crate) tasks: Tasks,
    /// Itself, for the thread that wakes tasks.
    pub(crate) own: Weak<Self>,
}

impl Shared {
    pub(crate) fn new(core: Core, policy: Policy) -> Arc<Self> {
        let (patience, rank, size) = (core.options.patience, core.options.rank, core.options.size);
        Arc::new_cyclic(|own| Self {
            core: Lock::new(core),
            policy,
            rank,
            size,
            patience,
            pace: Pace::default(),
            tasks: Tasks::default(),
            own: own.clone(),
        })
    }

    /// The core, alone.
    #[inline]
    pub(crate) fn core(&self) -> Guard<'_, Core> {
        // A panic with the lock held leaves counters that the other end finds wrong, and no memory in danger.
        self.core.lock()
    }

    /// Drives the session until `ready` answers.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        what: &'static str,
        mut ready: impl FnMut(&mut Core) -> Result<Option<T>>,
    ) -> Result<T> {
        {
            let mut core = self.core();
            if let Some(answer) = ready(&mut core)? {
                return Ok(answer);
            }
            core.progress()?;
            if let Some(answer) = ready(&mut core)? {
                return Ok(answer);
            }
        }
        self.wait_on(what, |core| {
            core.progress()?;
            ready(core)
        })
    }

    /// Takes steps until one answers; each drives the session.
    #[inline(never)]
    pub(crate) fn wait_on<T>(
        &self,
        what: &'static str,
        mut step: impl FnMut(&mut Core) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut turns = 0u32;
        let mut since = None;
        loop {
            self.policy.pause(turns, &self.pace, self)?;
            turns = turns.saturating_add(1);
            if let Some(answer) = step(&mut self.core())? {
                self.pace.learn(turns);
                return Ok(answer);
            }
            if turns.is_multiple_of(256) || turns > 20_000 {
                let since = *since.get_or_insert_with(Instant::now);
                if let Some(patience) = self.patience
                    && since.elapsed() > patience
                {
                    return Err(Error::Timeout { what, seconds: patience.as_secs() });
                }
            }
        }
    }
}

/// How long a session that ends waits for what it has sent to arrive.
const FAREWELL: Duration = Duration::from_secs(5);

impl Drop for Shared {
    fn drop(&mut self) {
        self.tasks.end();
        let core = self.core.get_mut();
        if let Err(e) = core.tell_all() {
            tracing::debug!("ending a session: {e}");
        }
        let start = Instant::now();
        while !core.is_flushed() && start.elapsed() < FAREWELL {
            if let Err(e) = core.progress() {
                tracing::debug!("ending a session: {e}");
                return;
            }
            std::thread::yield_now();
        }
    }
}
