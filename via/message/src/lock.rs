//! The session's lock: held for bounded steps, and taken twice for each message, so that what counts is how little an
//! uncontended one takes: one exchange to take it, one store to give it back.
//!
//! That store cannot know of sleepers, so there are none: who finds it held spins, yields, and then looks again at short
//! intervals, for which it is held long enough only when its holder was preempted.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Looks that spin, and looks that yield, before one that sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 256;
/// How long a sleep lasts.
const NAP: Duration = Duration::from_micros(20);

/// Something that one thread at a time has to itself. A panic of its holder does not spoil it.
pub(crate) struct Lock<T> {
    held: AtomicBool,
    /// Threads that have found it held, and wait. A hint: relaxed.
    waiting: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time (see `Lock::try_lock`); so it goes
// from thread to thread, which `Send` allows, but is never shared.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock is held until this is dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Given back by the thread that took it.
    _here: PhantomData<*mut T>,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), waiting: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes it, unless somebody has it.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release of the guard's drop; all that the last holder did is seen.
        if self.held.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Guard { lock: self, _here: PhantomData })
    }

    /// Takes it, waiting for it.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Guard<'_, T> {
        let mut looks = 0u32;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        loop {
            // The load spares the holder's cache line the exchange.
            if !self.held.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                return guard;
            }
            looks = looks.saturating_add(1);
            match looks {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }

    /// Whether somebody waits for it: who holds it for more than a step gives it back then.
    #[inline(always)]
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The value, by who has all of it.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and it is borrowed.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time, and it is borrowed for this alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next holder.
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_addition_is_lost_and_nobody_starves() {
        const EACH: u64 = 20_000;
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..EACH).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 4 * EACH);
    }

    #[test]
    fn who_waits_is_seen_by_the_holder() {
        let lock = Lock::new(0u64);
        let guard = lock.lock();
        assert!(!lock.is_wanted());
        std::thread::scope(|scope| {
            scope.spawn(|| *lock.lock() += 1);
            while !lock.is_wanted() {
                std::thread::yield_now();
            }
            drop(guard);
        });
        assert!(!lock.is_wanted() && *lock.lock() == 1);
    }

    #[test]
    fn who_holds_it_holds_it_alone_and_a_panic_gives_it_back() {
        let lock = Lock::new(1);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err() && lock.try_lock().is_some());
    }
}
