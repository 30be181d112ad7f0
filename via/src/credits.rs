//! How many descriptors each work queue has out: what bounds posts, and keeps completion queues from overrun.

use crate::WorkQueue;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Descriptors of one interface that were posted and not yet reaped, by work queue.
///
/// Both numbers only grow (and wrap). Posters count at any time; reapers hold the NIC's turn, so that their number
/// needs no locked instruction. The counts order nothing else (descriptors travel through queues that synchronise by
/// themselves): relaxed accesses are enough, and a reaper that is seen late makes a queue look full for a moment.
#[derive(Default)]
pub(crate) struct Credits([Queue; 2]);

#[derive(Default)]
struct Queue {
    posted: AtomicU32,
    reaped: AtomicU32,
}

impl Credits {
    #[inline(always)]
    fn of(&self, queue: WorkQueue) -> &Queue {
        match queue {
            WorkQueue::Send => &self.0[0],
            WorkQueue::Receive => &self.0[1],
        }
    }

    /// Counts one more out; false when there are `depth` already.
    #[inline(always)]
    pub(crate) fn take(&self, queue: WorkQueue, depth: usize) -> bool {
        let queue = self.of(queue);
        let reaped = queue.reaped.load(Ordering::Relaxed);
        // Those that are turned away are counted for a moment: so few threads as post to one queue at a time.
        if (queue.posted.fetch_add(1, Ordering::Relaxed).wrapping_sub(reaped) as usize) < depth {
            return true;
        }
        queue.posted.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Takes back that one more is out: it was not posted.
    #[cold]
    pub(crate) fn undo(&self, queue: WorkQueue) {
        self.of(queue).posted.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts `number` more out; false, and none counted, when there would be more than `depth`. Not even for a moment are
    /// they counted then, since that would turn others away for whom there is room.
    pub(crate) fn take_many(&self, queue: WorkQueue, depth: usize, number: usize) -> bool {
        let queue = self.of(queue);
        let reaped = queue.reaped.load(Ordering::Relaxed);
        let take = |posted: u32| {
            let out = posted.wrapping_sub(reaped) as usize;
            (number <= depth && out <= depth - number).then(|| posted.wrapping_add(number as u32))
        };
        queue.posted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Counts one back; by whoever has the NIC's turn.
    #[inline(always)]
    pub(crate) fn give(&self, queue: WorkQueue) {
        let queue = self.of(queue);
        queue.reaped.store(queue.reaped.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// How many are out, while others may post and reap: what has been reaped is read first, so that it is seldom seen ahead of
    /// what was posted. Where it is all the same, as relaxed accesses may be, none are out.
    pub(crate) fn out(&self, queue: WorkQueue) -> usize {
        let queue = self.of(queue);
        let reaped = queue.reaped.load(Ordering::Relaxed);
        let out = queue.posted.load(Ordering::Relaxed).wrapping_sub(reaped);
        (out as i32).max(0) as usize
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
        credits.give(WorkQueue::Receive);
        assert!(!credits.take_many(WorkQueue::Receive, 2, 3));
        assert!(credits.take_many(WorkQueue::Receive, 2, 2) && !credits.take_many(WorkQueue::Receive, 2, 1));
        // As many as no number of 32 bits says.
        assert!(!credits.take_many(WorkQueue::Receive, 2, 1 << 32) && credits.out(WorkQueue::Receive) == 2);
    }
}
