//! The order in which a device sees our stores, and in which we see its.
//!
//! Device-shared memory is reached by volatile accesses, which the compiler keeps in program order among
//! themselves but the processor may not (arm64, POWER, RISC-V). Each function here names what it pairs with at
//! the device. On x86 the two one-way fences cost no instruction: stores are seen in order, and loads are done
//! in order.

use std::sync::atomic::{Ordering, fence};

/// After filling descriptors or buffers, before the store that shows them to the device (an index in memory).
/// Pairs with the device reading the index before the descriptors.
#[inline]
pub(super) fn before_publish() {
    fence(Ordering::Release);
}

/// After all stores to memory, before the register write that makes the device look at them. Pairs with the
/// device fetching from memory after it took the register write.
///
/// A fence between processors is not enough where device registers belong to an outer domain.
#[inline]
pub(super) fn before_doorbell() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a store barrier over the outer shareable domain; touches no register and no memory.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    fence(if cfg!(target_arch = "x86_64") { Ordering::Release } else { Ordering::SeqCst });
}

/// After reading a word by which the device says that it is done (an index, a status bit), before reading what
/// it wrote earlier, or letting others change what it read. Pairs with the device's ordered writes: content
/// first, word last.
#[inline]
pub(super) fn after_done() {
    fence(Ordering::Acquire);
}

/// Between a store that the device looks for and a load of what it stores before it looks: each side stores,
/// then loads, and at least one of them must see the other's store, or both would sleep. Pairs with the same
/// full barrier at the device. The one fence that costs an instruction on x86 too.
#[inline]
pub(super) fn store_then_load() {
    fence(Ordering::SeqCst);
}
