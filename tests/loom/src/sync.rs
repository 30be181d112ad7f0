//! What stands in the sources' `crate::sync` here.

use std::time::Duration;

pub(crate) mod atomic {
    //! Loom's, with numbers whose exchange is a comparison first. Loom orders an exchange behind what it has read, but
    //! not before what comes right after that: it would let one that found 1, and stored it again, undo the store of 0
    //! that followed. No processor does, as an exchange is one step.

    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    #[derive(Default)]
    pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn new(value: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(value))
        }

        /// Of numbers that are 0 or 1.
        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            assert!(value < 2, "not for other numbers");
            match self.0.compare_exchange(1 - value, value, order, Ordering::Relaxed) {
                Ok(before) | Err(before) => before,
            }
        }
    }

    impl std::ops::Deref for AtomicU32 {
        type Target = loom::sync::atomic::AtomicU32;

        fn deref(&self) -> &Self::Target {
            &self.0
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
