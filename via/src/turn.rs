//! Who may drive: a lock for bounded bursts, which most users only try.
//!
//! Every post and every poll tries it, and goes on without it when somebody else holds it; so what counts is how few
//! instructions an uncontended try takes (and how few of them are locked ones, which emulated processors do slowly):
//! one exchange to take it, one store to give it back. That store cannot know of sleepers, so there are none: those
//! who have to have it, on the control path, spin, yield, and then look again at short intervals, for which it is held
//! long enough only when its holder was preempted. While they wait, tries fail, so that they are not starved; but not for
//! ever, since who waits sleeps now and then, and may be given no processor for as long as others poll on all of them.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Backoff, UnsafeCell, sleep};

/// How long those who wait sleep between two looks, once spinning and yielding were in vain.
const LOOK: Duration = Duration::from_micros(20);

/// How often tries keep off from a turn that nobody has, for who waits and does not look: a few microseconds.
const KEPT_OFF: u32 = 200;

/// In [`Turn::attention`]: word was left. The other bits count those who wait.
const WORD: u32 = 1 << 31;

/// Something that one thread at a time has to itself.
pub(crate) struct Turn<T> {
    /// Not 0: somebody has it. A number, so that it is looked at together with the next one.
    held: AtomicU32,
    /// Whatever keeps a try from simply going on, so that it is one look: threads that have to have the turn, and
    /// [`WORD`] when something was left for who takes it next.
    attention: AtomicU32,
    /// How often tries have kept off since somebody who waits last looked. Relaxed, and counted by loads and stores: one
    /// more or less does no harm.
    kept_off: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time (see `Turn::take`); so it goes
// from thread to thread, which `Send` allows, but is never shared.
unsafe impl<T: Send> Sync for Turn<T> {}

/// A turn that was taken; it ends when this is dropped.
pub(crate) struct Guard<'a, T> {
    turn: &'a Turn<T>,
    /// Given back by the thread that took it.
    _here: PhantomData<*mut T>,
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            held: AtomicU32::new(0),
            attention: AtomicU32::new(0),
            kept_off: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the turn, unless somebody has it or waits for it, or word was left: then see [`Turn::try_take_word`].
    #[inline(always)]
    pub(crate) fn try_take(&self) -> Option<Guard<'_, T>> {
        // Relaxed: a waiter that is seen late waits for one burst more, and so does word. Both in one branch, see `take`.
        if self.attention.load(Ordering::Relaxed) | self.held.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.exchange()
    }

    /// Takes the turn, unless somebody has it or waits for it, and with it the word that was left, if there is any.
    #[cold]
    pub(crate) fn try_take_word(&self) -> Option<(Guard<'_, T>, bool)> {
        if self.attention.load(Ordering::Relaxed) & !WORD != 0 && self.keeps_off() {
            return None;
        }
        let guard = self.take()?;
        let word = self.take_word();
        Some((guard, word))
    }

    /// Whether somebody waits for it.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & !WORD != 0
    }

    /// Whether a try leaves the turn to those who wait for it.
    fn keeps_off(&self) -> bool {
        if self.held.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let tries = self.kept_off.load(Ordering::Relaxed);
        if tries < KEPT_OFF {
            self.kept_off.store(tries + 1, Ordering::Relaxed);
        }
        tries < KEPT_OFF
    }

    /// Lets who takes the turn next know that there is something beside the value, which was put there before.
    pub(crate) fn leave_word(&self) {
        // Release: pairs with the Acquire of `take_word`.
        self.attention.fetch_or(WORD, Ordering::Release);
    }

    /// Whether word was left; it is taken with this. By whoever has the turn.
    pub(crate) fn take_word(&self) -> bool {
        // Acquire: pairs with the Release of `leave_word`; what was put there before is seen.
        self.attention.load(Ordering::Relaxed) & WORD != 0
            && self.attention.fetch_and(!WORD, Ordering::Acquire) & WORD != 0
    }

    #[inline(always)]
    fn take(&self) -> Option<Guard<'_, T>> {
        // The load spares the holder's cache line the exchange.
        if self.held.load(Ordering::Relaxed) != 0 { None } else { self.exchange() }
    }

    #[inline(always)]
    fn exchange(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release of the guard's drop; all that the last holder did is seen.
        if self.held.swap(1, Ordering::Acquire) != 0 {
            return None;
        }
        Some(Guard { turn: self, _here: PhantomData })
    }

    /// Takes the turn, waiting for it.
    pub(crate) fn wait(&self) -> Guard<'_, T> {
        match self.take() {
            Some(guard) => guard,
            None => self.wait_long(),
        }
    }

    /// As [`Turn::wait`], for so long at most.
    #[cold]
    pub(crate) fn wait_up_to(&self, patience: Duration) -> Option<Guard<'_, T>> {
        self.wait_until(Some(Instant::now() + patience))
    }

    #[cold]
    fn wait_long(&self) -> Guard<'_, T> {
        loop {
            // Without an end there is no other way out.
            if let Some(guard) = self.wait_until(None) {
                break guard;
            }
        }
    }

    fn wait_until(&self, end: Option<Instant>) -> Option<Guard<'_, T>> {
        self.attention.fetch_add(1, Ordering::Relaxed);
        let mut backoff = Backoff::new();
        let guard = loop {
            self.kept_off.store(0, Ordering::Relaxed);
            if let Some(guard) = self.take() {
                break Some(guard);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                break None;
            }
            if backoff.is_completed() {
                sleep(LOOK);
                // Several looks after each sleep, for which tries keep off.
                backoff = Backoff::new();
            } else {
                backoff.snooze();
            }
        };
        self.attention.fetch_sub(1, Ordering::Relaxed);
        guard
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and it is borrowed.
        unsafe { &*self.turn.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time, and it is borrowed for this alone.
        unsafe { &mut *self.turn.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next taker.
        self.turn.held.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let turn = Turn::new(1);
        let mut guard = turn.try_take().unwrap();
        assert!(turn.try_take().is_none());
        *guard += 1;
        drop(guard);
        assert_eq!(*turn.wait(), 2);
    }

    #[test]
    fn who_waits_for_some_time_goes_on_without_it() {
        let turn = Turn::new(());
        let held = turn.try_take().unwrap();
        assert!(turn.wait_up_to(Duration::from_millis(1)).is_none());
        drop(held);
        assert!(turn.wait_up_to(Duration::from_secs(10)).is_some());
        assert!(turn.try_take().is_some(), "nobody is taken for one who waits");
    }

    #[test]
    fn word_is_taken_once_and_by_who_asks_for_it() {
        let turn = Turn::new(());
        turn.leave_word();
        turn.leave_word();
        assert!(turn.try_take().is_none(), "there is word");
        assert!(matches!(turn.try_take_word(), Some((_, true))));
        assert!(turn.try_take().is_some());
        assert!(matches!(turn.try_take_word(), Some((_, false))));
    }

    #[test]
    fn those_who_wait_go_first() {
        let turn = Turn::new(0);
        std::thread::scope(|scope| {
            let held = turn.try_take().unwrap();
            let waiter = scope.spawn(|| *turn.wait() += 1);
            while turn.attention.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
            drop(held);
            // The other thread has it, or tries still keep off for its sake, until it is done.
            while turn.try_take().is_none_or(|guard| *guard == 0) {
                std::thread::yield_now();
            }
            waiter.join().unwrap();
        });
    }

    #[test]
    fn who_waits_and_does_not_look_is_passed_over() {
        let turn = Turn::new(());
        // One that waits, and was given no processor since.
        turn.attention.fetch_add(1, Ordering::Relaxed);
        let tries = || (0..2 * KEPT_OFF).filter(|_| turn.try_take_word().is_some()).count();
        assert_eq!(tries(), KEPT_OFF as usize, "the first half of them keeps off");
        assert_eq!(tries(), 2 * KEPT_OFF as usize);
        assert!(turn.wait_up_to(Duration::from_secs(10)).is_some());
        assert_eq!(tries(), KEPT_OFF as usize, "somebody has looked");
        assert!(turn.try_take().is_none());
    }

    #[test]
    fn no_addition_is_lost_between_threads_that_try_and_threads_that_wait() {
        const EACH: u64 = 20_000;
        let turn = Turn::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..EACH).for_each(|_| *turn.wait() += 1));
                scope.spawn(|| {
                    let mut done = 0;
                    while done < EACH {
                        match turn.try_take() {
                            Some(mut guard) => {
                                *guard += 1;
                                done += 1;
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert_eq!(*turn.wait(), 4 * EACH);
    }
}
