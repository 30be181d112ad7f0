//! Handles: names of objects that programs hold, and that are looked up and never followed.
//!
//! A handle is a number that is no address (its upper bits make it one that no pointer can be): what kind of object,
//! its slot, and how often the slot was used before. So a stale handle, one of another kind, and any pointer are told
//! from one that is good.

use std::ffi::c_void;
use std::sync::{Arc, RwLock};

use crate::types::Handle;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    Nic = 1,
    Ptag = 2,
    Vi = 3,
    Cq = 4,
    Connection = 5,
    Template = 6,
}

/// The uppermost bits of every handle: no address of a program's has them.
const MARK: u64 = 0xa5 << 56;
const KIND_BITS: u32 = 4;
const SLOT_BITS: u32 = 20;
const GENERATION_BITS: u32 = 28;
/// Most objects of a kind in a process.
pub(crate) const SLOTS: usize = 1 << SLOT_BITS;

/// The name of the `generation`-th object of a slot.
pub(crate) fn name(kind: Kind, slot: u32, generation: u64) -> Handle {
    let generation = generation & ((1 << GENERATION_BITS) - 1);
    let value = MARK | generation << (KIND_BITS + SLOT_BITS) | u64::from(slot) << KIND_BITS | kind as u64;
    // A number in a pointer's clothes: it is never followed.
    std::ptr::without_provenance_mut::<c_void>(value as usize)
}

/// The slot that a handle of this kind leads to; none for what is no such handle.
#[inline(always)]
pub(crate) fn slot_of(kind: Kind, handle: Handle) -> Option<u32> {
    // All but slot and generation in one look.
    const FIXED: u64 = 0xfff << 52 | ((1 << KIND_BITS) - 1);
    let value = handle.addr() as u64;
    (value & FIXED == MARK | kind as u64).then_some((value >> KIND_BITS) as u32 & (SLOTS as u32 - 1))
}

/// How often its slot was used before.
pub(crate) fn generation(handle: Handle) -> u64 {
    handle.addr() as u64 >> (KIND_BITS + SLOT_BITS) & ((1 << GENERATION_BITS) - 1)
}

/// All objects of a kind in this process.
pub(crate) struct Table<T> {
    kind: Kind,
    inner: RwLock<Inner<T>>,
}

struct Inner<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u64,
    object: Option<Arc<T>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, inner: RwLock::new(Inner { slots: Vec::new(), free: Vec::new() }) }
    }

    /// Slot and generation, of a handle of this kind.
    fn parse(&self, handle: Handle) -> Option<(usize, u64)> {
        Some((slot_of(self.kind, handle)? as usize, generation(handle)))
    }

    /// Takes an object in; it is made by `make`, which is told its handle. None when there are too many, or `make`
    /// makes none.
    pub(crate) fn insert(&self, make: impl FnOnce(Handle) -> T) -> Option<(Handle, Arc<T>)> {
        let mut inner = self.inner.write().unwrap_or_else(|e| e.into_inner());
        let slot = match inner.free.pop() {
            Some(slot) => slot,
            None if inner.slots.len() < SLOTS => {
                inner.slots.push(Slot { generation: 0, object: None });
                inner.slots.len() as u32 - 1
            }
            None => return None,
        };
        let entry = &mut inner.slots[slot as usize];
        let handle = name(self.kind, slot, entry.generation);
        let object = Arc::new(make(handle));
        entry.object = Some(object.clone());
        Some((handle, object))
    }

    /// The object of that handle, if it is there.
    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<Arc<T>> {
        let (slot, generation) = self.parse(handle)?;
        let inner = self.inner.read().unwrap_or_else(|e| e.into_inner());
        let entry = inner.slots.get(slot)?;
        entry.object.as_ref().filter(|_| entry.generation == generation).cloned()
    }

    /// Takes the object out; its handle is stale from now on. The caller lets go of it with no lock held.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let (slot, generation) = self.parse(handle)?;
        let mut inner = self.inner.write().unwrap_or_else(|e| e.into_inner());
        let entry = inner.slots.get_mut(slot).filter(|entry| entry.generation == generation)?;
        let object = entry.object.take()?;
        entry.generation = (entry.generation + 1) & ((1 << GENERATION_BITS) - 1);
        inner.free.push(slot as u32);
        Some(object)
    }

    /// Handles of all objects that are so.
    pub(crate) fn find(&self, is_so: impl Fn(&T) -> bool) -> Vec<Handle> {
        let inner = self.inner.read().unwrap_or_else(|e| e.into_inner());
        let mut found = Vec::new();
        for (slot, entry) in inner.slots.iter().enumerate() {
            if entry.object.as_ref().is_some_and(|object| is_so(object)) {
                found.push(name(self.kind, slot as u32, entry.generation));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_for_its_object_only() {
        let numbers: Table<u32> = Table::new(Kind::Vi);
        let others: Table<u32> = Table::new(Kind::Cq);
        let (one, _) = numbers.insert(|_| 1).unwrap();
        let (two, _) = numbers.insert(|_| 2).unwrap();
        assert_eq!(numbers.get(one).as_deref(), Some(&1));
        assert_eq!(numbers.find(|n| *n == 2), [two]);
        assert!(others.insert(|_| 3).is_some() && others.get(one).is_none(), "another kind");
        assert_eq!(numbers.remove(one).as_deref(), Some(&1));
        assert!(numbers.get(one).is_none() && numbers.remove(one).is_none(), "stale");
        let (again, _) = numbers.insert(|_| 4).unwrap();
        assert!(again != one && numbers.get(one).is_none(), "the slot's next user has another name");
        for forged in
            [0, 1, 8, usize::MAX, again.addr() + 16, again.addr() ^ 1 << 60, (&raw const FORGED_BY).addr()]
        {
            assert!(numbers.get(std::ptr::without_provenance_mut(forged)).is_none(), "{forged:#x}");
        }
    }

    static FORGED_BY: u8 = 0;
}
