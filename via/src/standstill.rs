//! Keeps a NIC's engine from following addresses while it is found out what the program has unmapped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use uvia_driver::dma::watch::Keeper;

use crate::nic::Shared;

/// A NIC, as its watched memory knows it.
#[derive(Default)]
pub(crate) struct Standstill {
    /// Locked while the NIC stands still, so that it does not close meanwhile.
    nic: Mutex<Weak<Shared>>,
    /// Some memory is gone, and the engine does not know.
    lost: AtomicBool,
}

impl Standstill {
    /// From now on the NIC stands still when it has to.
    pub(crate) fn enter(&self, nic: &Arc<Shared>) {
        *self.nic.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(nic);
    }

    /// The NIC closes: it follows no address any more. Once this returns it is not held by this.
    pub(crate) fn leave(&self) {
        *self.nic.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
    }

    /// Whether memory is gone of which the engine has not been told; it has to be told then.
    pub(crate) fn take_lost(&self) -> bool {
        // Acquire: pairs with the Release of `lost`, before which the regions were marked.
        self.lost.load(Ordering::Relaxed) && self.lost.swap(false, Ordering::Acquire)
    }
}

impl Keeper for Standstill {
    fn hold(&self, patience: Duration, act: &mut dyn FnMut()) {
        let nic = self.nic.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shared) = nic.upgrade() else { return act() };
        let turn = shared.turn(patience);
        act();
        if self.lost.load(Ordering::Relaxed) {
            shared.leave_word();
        }
        drop(turn);
        // Before the lock is free: who closes the NIC holds it alone then.
        drop(shared);
        drop(nic);
    }

    fn lost(&self) {
        self.lost.store(true, Ordering::Release);
    }
}
