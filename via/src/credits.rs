//! How many descriptors each work queue has out: what bounds posts, and keeps completion queues from overrun.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{ViId, WorkQueue};

/// One word a work queue: the interface's generation in the high half, descriptors out in the low half, so that
/// a late completion of an interface that is gone is told apart from those of its successor in one access.
///
/// The counts order nothing else (descriptors travel through queues that synchronise by themselves), so that
/// relaxed accesses are enough.
pub(crate) struct Credits {
    words: Box<[[AtomicU64; 2]]>,
}

const COUNT: u64 = u32::MAX as u64;

#[inline(always)]
fn index(queue: WorkQueue) -> usize {
    match queue {
        WorkQueue::Send => 0,
        WorkQueue::Receive => 1,
    }
}

impl Credits {
    pub(crate) fn new(slots: usize) -> Self {
        Self { words: (0..slots).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect() }
    }

    #[inline(always)]
    fn word(&self, vi: ViId, queue: WorkQueue) -> Option<&AtomicU64> {
        self.words.get(vi.slot as usize).map(|pair| &pair[index(queue)])
    }

    /// Starts counting for a new interface.
    pub(crate) fn open(&self, vi: ViId) {
        for queue in [WorkQueue::Send, WorkQueue::Receive] {
            if let Some(word) = self.word(vi, queue) {
                word.store(u64::from(vi.generation) << 32, Ordering::Relaxed);
            }
        }
    }

    /// Counts one more out; false when there are `depth` already, or the interface is gone.
    #[inline(always)]
    pub(crate) fn take(&self, vi: ViId, queue: WorkQueue, depth: usize) -> bool {
        let Some(word) = self.word(vi, queue) else { return false };
        // Of the same generation the difference is the count; of another it is beyond every depth.
        if word.fetch_add(1, Ordering::Relaxed) ^ Self::generation(vi) < depth as u64 {
            return true;
        }
        word.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Counts one back; false when the interface is gone. Under the NIC's lock, as is [`Credits::close`]: what was
    /// looked at is still so when it is changed.
    #[inline(always)]
    pub(crate) fn give(&self, vi: ViId, queue: WorkQueue) -> bool {
        let Some(word) = self.word(vi, queue) else { return false };
        let out = word.load(Ordering::Relaxed) ^ Self::generation(vi);
        if out == 0 || out > COUNT {
            return false;
        }
        word.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Its generation, where a word has it.
    #[inline(always)]
    fn generation(vi: ViId) -> u64 {
        u64::from(vi.generation) << 32
    }

    /// Ends counting for an interface, under the NIC's lock; answers how many were still out.
    pub(crate) fn close(&self, vi: ViId, queue: WorkQueue) -> usize {
        let next = u64::from(vi.generation.wrapping_add(1)) << 32;
        self.word(vi, queue).map_or(0, |word| (word.swap(next, Ordering::Relaxed) & COUNT) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_completion_is_not_counted_for_the_successor() {
        let credits = Credits::new(1);
        let old = ViId { slot: 0, generation: 7 };
        credits.open(old);
        assert!(credits.take(old, WorkQueue::Send, 2) && credits.take(old, WorkQueue::Send, 2));
        assert!(!credits.take(old, WorkQueue::Send, 2), "the depth bounds it");
        assert!(credits.give(old, WorkQueue::Send));
        assert_eq!(credits.close(old, WorkQueue::Send), 1);
        assert!(!credits.take(old, WorkQueue::Send, 2) && !credits.give(old, WorkQueue::Send));
        let new = ViId { slot: 0, generation: 8 };
        credits.open(new);
        assert!(credits.take(new, WorkQueue::Send, 1));
        assert!(!credits.give(old, WorkQueue::Send));
        assert!(credits.give(new, WorkQueue::Send));
        assert!(!credits.take(ViId { slot: 9, generation: 0 }, WorkQueue::Send, 1));
    }
}
