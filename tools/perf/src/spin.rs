//! Polling where others may need the processor.
//!
//! Who polls on a machine with fewer processors than pollers keeps the very one from running that it waits for, until
//! the kernel takes the processor away: milliseconds. So the processor is offered after a number of polls in vain. How
//! many is learned: a wait in which that happened halves the number, each wait adds a little. With processors enough,
//! waits end long before, and there is no system call.

use std::cell::Cell;

/// Polls before the processor is offered, at most: some tens of microseconds.
const MOST: u32 = 1024;
/// What each wait adds to them.
const STEP: u32 = 2;

/// How long to poll, from one wait to the next.
#[derive(Debug)]
pub struct Spin(Cell<u32>);

impl Default for Spin {
    fn default() -> Self {
        Self(Cell::new(MOST))
    }
}

impl Spin {
    /// After the `n`th poll in vain of a wait, counted from 1.
    #[inline]
    pub fn after(&self, n: u32) {
        // Otherwise it is looked again at once. A poll takes long enough to leave room for others; the hint that somebody spins
        // would take as long again on many processors, and an emulated one stops for it.
        if self.offers(n) {
            std::thread::yield_now();
        }
    }

    #[inline]
    fn offers(&self, n: u32) -> bool {
        let mut polls = self.0.get();
        if n == 1 {
            polls = (polls + STEP).min(MOST);
            self.0.set(polls);
        }
        if n == polls {
            self.0.set(polls / 2);
        }
        n >= polls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls before the processor is offered, in a wait that long; none when it is not.
    fn wait(spin: &Spin, polls: u32) -> Option<u32> {
        let first = (1..=polls).find(|n| spin.offers(*n));
        if let Some(first) = first {
            (first + 1..=polls).for_each(|n| assert!(spin.offers(n), "{n}"));
        }
        first
    }

    #[test]
    fn short_waits_never_offer_and_long_ones_ever_sooner() {
        let spin = Spin::default();
        for _ in 0..1000 {
            assert_eq!(wait(&spin, MOST - 1), None);
        }
        let firsts: Vec<_> = (0..20).map(|_| wait(&spin, 100_000).unwrap()).collect();
        assert_eq!(firsts[0], MOST);
        assert!(firsts.windows(2).all(|pair| pair[1] <= pair[0]), "{firsts:?}");
        assert!(firsts[19] <= 4, "{firsts:?}");
        // And back.
        for _ in 0..MOST / STEP + 10 {
            wait(&spin, 1);
        }
        assert_eq!(wait(&spin, MOST - 1), None);
    }
}
