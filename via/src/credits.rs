//! How many descriptors each work queue has out: what bounds posts, and keeps completion queues from overrun.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::WorkQueue;

/// Descriptors of one interface that were posted and not yet reaped, by work queue.
///
/// The counts order nothing else (descriptors travel through queues that synchronise by themselves), so that
/// relaxed accesses are enough.
#[derive(Default)]
pub(crate) struct Credits([AtomicU32; 2]);

impl Credits {
    #[inline(always)]
    fn of(&self, queue: WorkQueue) -> &AtomicU32 {
        match queue {
            WorkQueue::Send => &self.0[0],
            WorkQueue::Receive => &self.0[1],
        }
    }

    /// Counts one more out; false when there are `depth` already.
    #[inline(always)]
    pub(crate) fn take(&self, queue: WorkQueue, depth: usize) -> bool {
        // Those that are turned away are counted for a moment: so few threads as post to one queue at a time.
        if (self.of(queue).fetch_add(1, Ordering::Relaxed) as usize) < depth {
            return true;
        }
        self.give(queue);
        false
    }

    /// Counts one back.
    #[inline(always)]
    pub(crate) fn give(&self, queue: WorkQueue) {
        self.of(queue).fetch_sub(1, Ordering::Relaxed);
    }

    /// How many are out.
    pub(crate) fn out(&self, queue: WorkQueue) -> usize {
        self.of(queue).load(Ordering::Relaxed) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_bounds_each_queue_by_itself() {
        let credits = Credits::default();
        assert!(credits.take(WorkQueue::Send, 2) && credits.take(WorkQueue::Send, 2));
        assert!(!credits.take(WorkQueue::Send, 2));
        assert!(credits.take(WorkQueue::Receive, 1));
        credits.give(WorkQueue::Send);
        assert_eq!((credits.out(WorkQueue::Send), credits.out(WorkQueue::Receive)), (1, 1));
        assert!(credits.take(WorkQueue::Send, 2) && !credits.take(WorkQueue::Receive, 1));
    }
}
