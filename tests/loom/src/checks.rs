//! What is checked.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::WorkQueue;
use crate::armed;
use crate::credits::Credits;
use crate::ring::{Consumer, Producer, SEE, TELL, Words};
use crate::turn::Turn;

/// Runs a check in every interleaving with at most so many preemptions, of which few find nearly all.
fn every(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(check);
}

/// A number that loom watches.
#[derive(Default)]
struct Counter(UnsafeCell<u32>);

impl Counter {
    fn add(&mut self) {
        // SAFETY: loom makes an error of it if anybody else may be here.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn value(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

/// A turn is one thread's at a time, and who has it next sees all that was done.
pub fn a_turn_excludes() {
    every(2, || {
        let turn = Arc::new(Turn::new(Counter::default()));
        let tries = {
            let turn = turn.clone();
            thread::spawn(move || turn.try_take().map(|mut guard| guard.add()).is_some())
        };
        turn.wait().add();
        let took = u32::from(tries.join().unwrap());
        assert_eq!(turn.wait().value(), 1 + took);
        assert!(turn.try_take().is_some(), "nobody waits any more");
    });
}

/// Those who wait all have their turn.
pub fn all_who_wait_have_their_turn() {
    every(2, || {
        let turn = Arc::new(Turn::new(Counter::default()));
        let waits = {
            let turn = turn.clone();
            thread::spawn(move || turn.wait().add())
        };
        turn.wait().add();
        waits.join().unwrap();
        assert_eq!(turn.wait().value(), 2);
        assert!(turn.try_take().is_some(), "nobody waits any more");
    });
}

/// Word that is left is taken exactly once, with what was put there before; or it is still there.
pub fn word_is_not_lost() {
    every(3, || {
        let turn = Arc::new(Turn::new(()));
        let left = Arc::new(UnsafeCell::new(0));
        let leaves = {
            let (turn, left) = (turn.clone(), left.clone());
            thread::spawn(move || {
                // SAFETY: nobody looks before there is word.
                left.with_mut(|value| unsafe { *value = 7 });
                turn.leave_word();
            })
        };
        let take = |turn: &Turn<()>| match turn.try_take_word() {
            Some((_guard, true)) => {
                // SAFETY: it was put there before the word was left; loom sees to it.
                assert_eq!(left.with(|value| unsafe { *value }), 7);
                true
            }
            _ => false,
        };
        let other = {
            let turn = turn.clone();
            thread::spawn(move || drop(turn.try_take()))
        };
        let early = take(&turn);
        leaves.join().unwrap();
        other.join().unwrap();
        assert!(early != take(&turn), "exactly once");
    });
}

/// A work queue never has more out than its depth, and none is lost from the count.
pub fn credits_bound() {
    every(3, || {
        const DEPTH: usize = 2;
        let credits = Arc::new(Credits::default());
        assert!(credits.take(WorkQueue::Send, DEPTH));
        let posts: Vec<_> = (0..2)
            .map(|_| {
                let credits = credits.clone();
                thread::spawn(move || u32::from(credits.take(WorkQueue::Send, DEPTH)))
            })
            .collect();
        // This thread has the NIC's turn, and reaps one.
        credits.give(WorkQueue::Send);
        let taken: u32 = posts.into_iter().map(|post| post.join().unwrap()).sum();
        assert_eq!(credits.out(WorkQueue::Send), taken as usize);
        assert_eq!(credits.out(WorkQueue::Receive), 0);
    });
}

const SLOTS: u32 = 2;

/// A lane's words, and what lies in its slots.
struct Lane {
    headers: [AtomicU64; SLOTS as usize],
    taken: AtomicU64,
    contents: [UnsafeCell<u32>; SLOTS as usize],
}

impl Lane {
    fn new() -> Self {
        Self {
            headers: [AtomicU64::new(0), AtomicU64::new(0)],
            taken: AtomicU64::new(0),
            contents: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }
}

impl Words for Lane {
    fn header(&self, slot: u32) -> u64 {
        self.headers[slot as usize].load(SEE)
    }
    fn publish(&self, slot: u32, header: u64) {
        self.headers[slot as usize].store(header, TELL);
    }
    fn taken(&self) -> u64 {
        self.taken.load(SEE)
    }
    fn tell_taken(&self, taken: u64) {
        self.taken.store(taken, TELL);
    }
}

/// Who is turned away with many is in nobody's way for whom there is room; and what is out never looks like less than none.
pub fn many_that_are_turned_away_count_for_nobody() {
    const DEPTH: usize = 3;
    every(3, || {
        let credits = Arc::new(Credits::default());
        assert!(credits.take(WorkQueue::Receive, DEPTH));
        let many = {
            let credits = credits.clone();
            thread::spawn(move || credits.take_many(WorkQueue::Receive, DEPTH, 3))
        };
        let looks = {
            let credits = credits.clone();
            thread::spawn(move || credits.out(WorkQueue::Receive))
        };
        assert!(credits.take(WorkQueue::Receive, DEPTH), "there is room");
        credits.give(WorkQueue::Receive);
        credits.give(WorkQueue::Receive);
        // As many as were ever posted, where what was given back is seen late.
        assert!(looks.join().unwrap() <= 5);
        // Those are let in only where both were given back before.
        let out = if many.join().unwrap() { 3 } else { 0 };
        assert_eq!(credits.out(WorkQueue::Receive), out);
    });
}

/// Frames come once, whole and in order, and no slot is written while it is read.
pub fn frames_pass_a_ring() {
    const FRAMES: u32 = 3;
    every(3, || {
        let lane = Arc::new(Lane::new());
        let mut sender = Producer::<SLOTS>::new(5, &*lane);
        let mut receiver = Consumer::<SLOTS>::new(5, &*lane);
        let sends = {
            let lane = lane.clone();
            thread::spawn(move || {
                for n in 0..FRAMES {
                    let slot = loop {
                        match sender.free_slot(&*lane) {
                            Some(slot) => break slot,
                            None => thread::yield_now(),
                        }
                    };
                    // SAFETY: the slot is free; loom sees to it.
                    lane.contents[slot as usize].with_mut(|content| unsafe { *content = 10 + n });
                    sender.filled();
                    sender.publish(&*lane, |_| 1);
                }
            })
        };
        for n in 0..FRAMES {
            let slot = loop {
                match receiver.look(&*lane) {
                    Some((slot, _)) => break slot,
                    None => thread::yield_now(),
                }
            };
            // SAFETY: the slot was published; loom sees to it.
            assert_eq!(lane.contents[slot as usize].with(|content| unsafe { *content }), 10 + n);
            receiver.took();
            receiver.tell(&*lane);
        }
        sends.join().unwrap();
    });
}

/// Who is about to sleep sees in its last look what was published, or who published sees that it sleeps.
pub fn a_sleeper_is_woken() {
    every(4, || {
        let published = Arc::new(AtomicU64::new(0));
        let armed_word = Arc::new(AtomicU64::new(0));
        let publishes = {
            let (published, armed_word) = (published.clone(), armed_word.clone());
            thread::spawn(move || {
                published.store(1, Ordering::Release);
                armed::after_publishing();
                armed::is_armed(&armed_word)
            })
        };
        armed::arm(&armed_word, true);
        let seen = published.load(Ordering::Acquire) == 1;
        assert!(publishes.join().unwrap() || seen, "it sleeps, and nobody wakes it");
    });
}
