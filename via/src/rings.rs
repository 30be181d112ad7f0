//! The rings of a NIC's completion queues. They are filled and emptied under the NIC's lock, which whoever reaps
//! takes anyway to drive the NIC: so they need no atomic access of their own.

use std::collections::VecDeque;

use crate::Completion;

/// Names a ring: a slot, and how often it was used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingKey {
    slot: u32,
    generation: u32,
}

impl RingKey {
    /// Of no ring.
    pub(crate) const NONE: Self = Self { slot: u32::MAX, generation: 0 };
}

#[derive(Default)]
pub(crate) struct Rings {
    slots: Vec<Slot>,
}

struct Slot {
    generation: u32,
    in_use: bool,
    capacity: usize,
    entries: VecDeque<Completion>,
}

impl Rings {
    /// A new ring, with room for `capacity` completions.
    pub(crate) fn open(&mut self, capacity: usize) -> RingKey {
        let entries = VecDeque::with_capacity(capacity);
        let slot = match self.slots.iter().position(|slot| !slot.in_use) {
            Some(free) => free,
            None => {
                self.slots.push(Slot { generation: 0, in_use: false, capacity: 0, entries: VecDeque::new() });
                self.slots.len() - 1
            }
        };
        let entry = &mut self.slots[slot];
        *entry = Slot { generation: entry.generation.wrapping_add(1), in_use: true, capacity, entries };
        RingKey { slot: slot as u32, generation: entry.generation }
    }

    /// Ends a ring; answers what was in it.
    pub(crate) fn close(&mut self, key: RingKey) -> VecDeque<Completion> {
        match self.slots.get_mut(key.slot as usize).filter(|slot| slot.generation == key.generation) {
            Some(slot) => {
                slot.in_use = false;
                slot.generation = slot.generation.wrapping_add(1);
                std::mem::take(&mut slot.entries)
            }
            None => VecDeque::new(),
        }
    }

    /// Puts a completion in. Its entry was promised when its work queue was created. Those that come after their
    /// ring has gone are dropped: nobody is left to reap them.
    #[inline]
    pub(crate) fn push(&mut self, key: RingKey, completion: Completion) {
        if let Some(slot) = self.slots.get_mut(key.slot as usize)
            && slot.generation == key.generation
        {
            if slot.entries.len() < slot.capacity {
                slot.entries.push_back(completion);
            } else {
                overrun(&completion);
            }
        }
    }

    /// Takes the oldest completion.
    #[inline]
    pub(crate) fn pop(&mut self, key: RingKey) -> Option<Completion> {
        self.slots.get_mut(key.slot as usize)?.entries.pop_front()
    }
}

/// Cannot be, while posts are counted against the depth that was promised; losing it silently would be worse than
/// saying so.
#[cold]
fn overrun(completion: &Completion) {
    tracing::error!(vi = ?completion.vi, queue = ?completion.queue, "a completion found its queue full");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Descriptor, ViId, WorkQueue};

    #[test]
    fn a_late_completion_does_not_get_into_another_ring() {
        let mut rings = Rings::default();
        let completion = || Completion {
            vi: ViId { slot: 0, generation: 0 },
            queue: WorkQueue::Send,
            descriptor: Descriptor::new(vec![]),
        };
        let old = rings.open(2);
        rings.push(old, completion());
        assert_eq!(rings.close(old).len(), 1);
        let new = rings.open(2);
        assert_ne!(old, new);
        rings.push(old, completion());
        assert!(rings.pop(new).is_none());
        rings.push(new, completion());
        assert!(rings.pop(new).is_some() && rings.pop(new).is_none());
    }
}
