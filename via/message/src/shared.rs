//! What a session's objects hold in common, and waiting.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::core::{Core, Whole};
use crate::lock::{Guard, Lock};
use crate::policy::{Pace, Policy};
use crate::span::Span;
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
        self.wait_looking(what, |core, most| {
            let looks = core.progress_for(most, || self.core.is_wanted())?;
            Ok((looks, ready(core)?))
        })
    }

    /// Waits for a message of a rank that is one piece, and takes it.
    ///
    /// # Safety
    /// The piece may be written, and nobody else touches it meanwhile.
    #[inline(never)]
    pub(crate) unsafe fn take_whole(&self, channel: usize, peer: u32, piece: Span) -> Whole {
        // SAFETY: the caller's promise.
        match unsafe { self.core().take_whole(channel, peer, piece, &mut 1, || true) } {
            // SAFETY: the caller's promise.
            Whole::Nothing => unsafe { self.wait_whole(channel, peer, piece) },
            outcome => outcome,
        }
    }

    /// Sends a message that is one short piece, all in one step.
    ///
    /// # Safety
    /// The piece can be read, and nobody writes it meanwhile.
    #[inline(never)]
    pub(crate) unsafe fn send_whole(&self, channel: usize, peer: u32, piece: Span) -> Whole {
        // SAFETY: the caller's promise.
        unsafe { self.core().send_whole(channel, peer, piece) }
    }

    /// # Safety
    /// As for [`Shared::take_whole`].
    #[inline(never)]
    unsafe fn wait_whole(&self, channel: usize, peer: u32, piece: Span) -> Whole {
        let outcome = self.wait_looking("a message", |core, mut looks| {
            // SAFETY: the caller's promise.
            match unsafe { core.take_whole(channel, peer, piece, &mut looks, || self.core.is_wanted()) } {
                Whole::Nothing => {
                    core.check_incoming(channel, Some(peer as usize))?;
                    Ok((looks, None))
                }
                outcome => Ok((1, Some(outcome))),
            }
        });
        match outcome {
            Ok(outcome) => outcome,
            Err(e) => Whole::Failed(Box::new(e)),
        }
    }

    /// Takes steps until one answers; each drives the session.
    #[inline(never)]
    pub(crate) fn wait_on<T>(
        &self,
        what: &'static str,
        mut step: impl FnMut(&mut Core) -> Result<Option<T>>,
    ) -> Result<T> {
        self.wait_looking(what, |core, _| Ok((1, step(core)?)))
    }

    /// As [`Shared::wait_on`]; a step is told how often it may look while it has the session, and answers how often it has.
    #[inline(always)]
    fn wait_looking<T>(
        &self,
        what: &'static str,
        mut step: impl FnMut(&mut Core, u32) -> Result<(u32, Option<T>)>,
    ) -> Result<T> {
        let mut turns = 0u32;
        let mut due = PATIENCE;
        let mut since = None;
        loop {
            self.policy.pause(turns, &self.pace, self)?;
            let most = self.policy.looks(turns, &self.pace);
            let (looks, answer) = step(&mut self.core(), most)?;
            turns = turns.saturating_add(looks);
            if let Some(answer) = answer {
                if self.policy == Policy::Adaptive {
                    self.pace.learn(turns);
                }
                return Ok(answer);
            }
            self.pace.polled(looks.saturating_sub(1));
            if turns >= due || turns > 20_000 {
                due = turns.saturating_add(PATIENCE);
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

/// Turns of a wait between two looks at the time, at first.
const PATIENCE: u32 = 256;

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
