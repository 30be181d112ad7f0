//! Those who have to stand still while events are read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Keeper;

/// The keepers of all entries. Nothing is allocated or freed under the lock: a thread that keeps it never waits for an
/// event, so that the reader may wait for it.
#[derive(Default)]
pub(super) struct Keepers(Mutex<List>);

#[derive(Default)]
pub(super) struct List {
    /// With how many entries each has.
    list: Vec<(Arc<dyn Keeper>, usize)>,
    /// Changes when another keeper comes.
    pub(super) generation: u64,
}

impl List {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Keeper>> {
        self.list.iter().map(|(keeper, _)| keeper)
    }
}

impl Keepers {
    pub(super) fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry of this keeper's came.
    pub(super) fn enter(&self, keeper: &Arc<dyn Keeper>) {
        let mut one_more = Some(keeper.clone());
        loop {
            let room = 2 * self.lock().list.len() + 4;
            let mut spare = Vec::with_capacity(room);
            let mut list = self.lock();
            if let Some((_, count)) = list.list.iter_mut().find(|(known, _)| is_same(known, keeper)) {
                *count += 1;
                drop(list);
                return;
            }
            if list.list.len() == list.list.capacity() {
                if list.list.len() >= room {
                    continue;
                }
                spare.append(&mut list.list);
                std::mem::swap(&mut list.list, &mut spare);
            }
            if let Some(keeper) = one_more.take() {
                list.list.push((keeper, 1));
                list.generation += 1;
            }
            drop(list);
            return;
        }
    }

    /// One went.
    pub(super) fn leave(&self, keeper: &Arc<dyn Keeper>) {
        let mut list = self.lock();
        let Some(at) = list.list.iter().position(|(known, _)| is_same(known, keeper)) else { return };
        list.list[at].1 -= 1;
        let gone = (list.list[at].1 == 0).then(|| list.list.swap_remove(at));
        drop(list);
        drop(gone);
    }
}

fn is_same(a: &Arc<dyn Keeper>, b: &Arc<dyn Keeper>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}
