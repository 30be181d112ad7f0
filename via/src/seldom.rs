//! What may go on for long is logged at most now and then.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Says when to log again what happens over and over.
pub(crate) struct Seldom {
    /// Not before, milliseconds.
    next: AtomicU64,
    silent: AtomicU64,
}

impl Seldom {
    pub(crate) const fn new() -> Self {
        Self { next: AtomicU64::new(0), silent: AtomicU64::new(0) }
    }

    /// It has happened; if it is to be logged, how often it has happened since it last was.
    pub(crate) fn due(&self) -> Option<u64> {
        self.due_at(START.elapsed().as_millis() as u64)
    }

    fn due_at(&self, now: u64) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let mine = now >= next
            && self
                .next
                .compare_exchange(
                    next,
                    now + INTERVAL.as_millis() as u64,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if !mine {
            self.silent.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.silent.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_one_in_ten_seconds() {
        let seldom = Seldom::new();
        assert_eq!(seldom.due_at(5), Some(0));
        assert!((6..10_005).step_by(1000).all(|now| seldom.due_at(now).is_none()));
        assert_eq!(seldom.due_at(10_005), Some(10));
        assert_eq!(seldom.due_at(10_006), None);
    }
}
