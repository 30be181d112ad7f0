//! What stands in the sources' `crate::sync` here.

use std::time::Duration;

pub(crate) mod atomic {
    //! Loom's, with a boolean whose exchange is a comparison first. Loom orders an exchange behind what it has read, but
    //! not before what comes right after that: it would let one that found `true`, and stored it again, undo the store
    //! of `false` that followed. No processor does, as an exchange is one step.

    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.0.store(value, order);
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            match self.0.compare_exchange(!value, value, order, Ordering::Relaxed) {
                Ok(before) | Err(before) => before,
            }
        }
    }
}

/// As the standard library's: what lies in it tells loom by itself who touches it.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// Lets another thread go on.
pub(crate) fn sleep(_: Duration) {
    loom::thread::yield_now();
}

/// As crossbeam's, without time.
pub(crate) struct Backoff;

impl Backoff {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn is_completed(&self) -> bool {
        true
    }

    pub(crate) fn snooze(&self) {
        loom::thread::yield_now();
    }
}
