//! What keeps a NIC open.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::background::Background;
use crate::nic::Shared;

/// Held by every object that a program has of a NIC. With the last one the NIC closes, before that one's drop returns:
/// threads of the NIC's hold what it is made of, but no handle, and are waited for.
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    /// The first one of a NIC, which counts one already.
    pub(crate) fn first(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        shared.standstill.enter(&shared);
        Self(shared)
    }

    /// One more of a NIC, unless the last was let go of and it closes.
    pub(crate) fn of(shared: Arc<Shared>) -> std::result::Result<Self, Arc<Shared>> {
        let more = |count: usize| (count != 0).then(|| count + 1);
        match shared.handles.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self(shared)),
            Err(_) => Err(shared),
        }
    }

    /// Whether both are of the same NIC.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What the NIC is made of, for those that do not keep it open.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Starts the NIC's thread, if it has none.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn start_background(&self) -> Result<()> {
        let mut background = self.background.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if background.is_none() {
            *background = Some(Background::start(&self.0)?);
        }
        Ok(())
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        // Relaxed: there is one, so that it stays open meanwhile (as with `Arc`).
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Deref for Handle {
    type Target = Shared;

    #[inline(always)]
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // AcqRel: who closes sees all that was done by the other handles before they were dropped.
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close();
        }
    }
}
