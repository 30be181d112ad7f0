//! The word by which a sleeper asks to be woken.
//!
//! Each side stores, then looks at the other's store: who publishes a frame and then looks whether its receiver sleeps,
//! and the receiver that says so and then looks for frames a last time. At least one of them has to see the other's.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// After frames were published, before it is looked who sleeps. Pairs with the fence of [`arm`].
#[inline]
pub(super) fn after_publishing() {
    fence(Ordering::SeqCst);
}

/// Whether the owner of the word sleeps, or is about to; after [`after_publishing`].
#[inline]
pub(super) fn is_armed(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) != 0
}

/// Says that its owner is about to sleep, before its last look; or that it is awake.
pub(super) fn arm(word: &AtomicU64, on: bool) {
    word.store(u64::from(on), Ordering::SeqCst);
    // Pairs with the fence of `after_publishing`.
    fence(Ordering::SeqCst);
}
