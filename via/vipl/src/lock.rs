//! The lock of a queue's place. Every call of the data path takes one, nearly always with nobody in its way.
//!
//! So what counts is that taking it is one exchange and giving it back one store, where a lock that can wake sleepers
//! needs an exchange for that too. It is held for a few hundred instructions and never while something is waited for;
//! who finds it taken spins, yields, and then looks again at short intervals.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks before the processor is offered to others.
const SPINS: u32 = 100;
/// And offers before the thread sleeps between two looks: the holder is not running.
const YIELDS: u32 = 50;
/// How long it sleeps between two looks.
const LOOK: Duration = Duration::from_micros(20);

/// Something that one thread at a time has to itself, for a moment. On a cache line of its own: the two queues of an
/// interface are often used by two threads.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time (see `Lock::try_take`); so it goes
// from thread to thread, which `Send` allows, but is never shared.
unsafe impl<T: Send> Sync for Lock<T> {}

/// A lock that was taken; it is free again when this is dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Given back by the thread that took it.
    _here: PhantomData<*mut T>,
}

impl<T> Lock<T> {
    #[cfg(test)]
    pub(crate) fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline(always)]
    fn try_take(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release of the guard's drop; all that the last holder did is seen.
        if self.held.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Guard { lock: self, _here: PhantomData })
    }

    /// Takes it, waiting for it where it is taken. By nobody who has it already.
    #[inline(always)]
    pub(crate) fn take(&self) -> Guard<'_, T> {
        match self.try_take() {
            Some(guard) => guard,
            None => self.take_later(),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_later(&self) -> Guard<'_, T> {
        let mut looks = 0;
        loop {
            // A look spares the holder's cache line the exchange. Relaxed: the exchange orders.
            if !self.held.load(Ordering::Relaxed)
                && let Some(guard) = self.try_take()
            {
                return guard;
            }
            looks += 1;
            match looks {
                ..SPINS => spin_loop(),
                n if n < SPINS + YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(LOOK),
            }
        }
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
        // Release: pairs with the Acquire of the next taker.
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        const EACH: u64 = 20_000;
        let lock = Lock::new(0u64);
        let held = lock.take();
        assert!(lock.try_take().is_none());
        drop(held);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mut number = lock.take();
                        // Read and written apart, so that two at a time would lose one.
                        let before = *number;
                        spin_loop();
                        *number = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.take(), 4 * EACH);
    }
}
