//! How to wait: the trade-off between latency and the processor's time.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::Result;
use crate::port::Wake;
use crate::shared::Shared;

/// How a session waits for what has not come yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Polls without end, and makes no system call: for who has a processor for it.
    Latency,
    /// Sleeps at once until the adapter interrupts.
    Cpu,
    /// Polls for as long as waits have lately taken, if that is not long; then offers the processor; then sleeps.
    #[default]
    Adaptive,
}

/// Turns that adaptive waits poll at least, and at most.
const POLLS: std::ops::Range<u32> = 50..4000;
/// Looks of a wait that polls while it has the session, unless another thread wants it.
const LOOKS: u32 = 16;
/// Turns that offer the processor before the wait sleeps.
const YIELDS: u32 = 200;
/// Longest sleep: connection requests are looked after in between.
const NAP: Duration = Duration::from_millis(2);

/// Sleep where nothing would wake.
pub(crate) const BLINK: Duration = Duration::from_micros(50);

/// How a session has passed the time between two looks at its rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitCounts {
    /// It looked again at once.
    pub polls: u64,
    /// It offered the processor to others.
    pub yields: u64,
    /// It slept until it was woken, or for a moment where nothing would wake it.
    pub sleeps: u64,
}

/// What adaptive waits have learned, and what all waits came to.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Turns that are worth polling.
    polls: AtomicU32,
    counts: [AtomicU64; 3],
}

/// Counts so many more. Threads that count at the same time may lose some: it is no more than a figure.
fn count(counter: &AtomicU64, more: u32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(u64::from(more)), Ordering::Relaxed);
}

impl Default for Pace {
    fn default() -> Self {
        Self { polls: AtomicU32::new(500), counts: Default::default() }
    }
}

impl Pace {
    /// What waits came to.
    pub(crate) fn counts(&self) -> WaitCounts {
        let [polls, yields, sleeps] = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        WaitCounts { polls, yields, sleeps }
    }

    /// Looks were taken without a pause between them.
    pub(crate) fn polled(&self, looks: u32) {
        if looks > 0 {
            count(&self.counts[0], looks);
        }
    }

    /// A wait has taken that many turns.
    pub(crate) fn learn(&self, turns: u32) {
        // Relaxed: a hint.
        let polls = self.polls.load(Ordering::Relaxed);
        let next = if turns <= polls {
            // It came while we polled: twice that is enough next time.
            (polls * 7 + turns.saturating_mul(2)) / 8
        } else if turns < POLLS.end {
            polls + (turns - polls) / 4 + 1
        } else {
            // It was polled for in vain.
            polls / 2
        };
        self.polls.store(next.clamp(POLLS.start, POLLS.end), Ordering::Relaxed);
    }
}

impl Policy {
    /// Looks that a wait may take at once after so many turns: as many as it would go on polling anyway.
    pub(crate) fn looks(self, turns: u32, pace: &Pace) -> u32 {
        match self {
            Self::Latency => LOOKS,
            Self::Cpu => 1,
            Self::Adaptive => pace.polls.load(Ordering::Relaxed).saturating_sub(turns).clamp(1, LOOKS),
        }
    }

    /// Passes the time between two looks.
    pub(crate) fn pause(self, turns: u32, pace: &Pace, shared: &Shared) -> Result<()> {
        let polls = match self {
            Self::Latency => u32::MAX,
            Self::Cpu => 1,
            Self::Adaptive => pace.polls.load(Ordering::Relaxed),
        };
        if turns < polls {
            count(&pace.counts[0], 1);
            // A look takes long enough to leave room for others. The hint would take as long again on many processors, and
            // an emulated one stops for it.
            return Ok(());
        }
        if self == Self::Adaptive && turns - polls < YIELDS {
            count(&pace.counts[1], 1);
            std::thread::yield_now();
            return Ok(());
        }
        let mut sleepers = Vec::new();
        let wake = shared.core().arm(&mut sleepers)?;
        if wake != Wake::Now {
            count(&pace.counts[2], 1);
        }
        match wake {
            Wake::Told => sleep(&sleepers),
            Wake::Blind => std::thread::sleep(BLINK),
            Wake::Now => {}
        }
        Ok(())
    }
}

/// Sleeps until one of them is readable, or for [`NAP`].
pub(crate) fn sleep(sleepers: &[RawFd]) {
    let mut polled: Vec<libc::pollfd> =
        sleepers.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: an array of ours, of that length. Whatever it answers, the session is looked at again.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, NAP.as_millis() as libc::c_int) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_take_long_are_not_polled_for() {
        let pace = Pace::default();
        let polls = |pace: &Pace| pace.polls.load(Ordering::Relaxed);
        (0..100).for_each(|_| pace.learn(1_000_000));
        assert_eq!(polls(&pace), POLLS.start);
        (0..100).for_each(|_| pace.learn(1000));
        assert!(polls(&pace) >= 1000, "{pace:?}");
        (0..100).for_each(|_| pace.learn(10));
        assert!(polls(&pace) < 200, "{pace:?}");
    }
}
