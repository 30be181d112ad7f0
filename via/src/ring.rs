//! A queue whose entries keep their numbers: work queues, and the rings of completion queues.

/// Entries are numbered in the order in which they come, from 0 on, wrapping. It grows only when more are put
/// in than it was made for.
pub(crate) struct Ring<T> {
    slots: Box<[Option<T>]>,
    mask: u32,
    head: u32,
    tail: u32,
}

impl<T> Ring<T> {
    /// Room for `depth` entries.
    pub(crate) fn new(depth: usize) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(depth.max(1).next_power_of_two(), || None);
        let mask = slots.len() as u32 - 1;
        Self { slots: slots.into_boxed_slice(), mask, head: 0, tail: 0 }
    }

    #[inline(always)]
    fn index(&self, number: u32) -> usize {
        (number & self.mask) as usize
    }

    /// The number of the entry that comes out next.
    #[inline(always)]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// The number that the next entry will get.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Entries in it.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Puts an entry in; it can be changed there.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: T) -> &mut T {
        if self.tail.wrapping_sub(self.head) > self.mask {
            self.grow();
        }
        let index = self.index(self.tail);
        self.tail = self.tail.wrapping_add(1);
        let slot = &mut self.slots[index];
        // The place is free: `None` there needs no drop.
        let before = slot.replace(entry);
        debug_assert!(before.is_none());
        std::mem::forget(before);
        slot.as_mut().expect("was just put there")
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Option<&T> {
        self.slots[self.index(self.head)].as_ref()
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        Some(self.front_slot()?.take())
    }

    /// The entry that comes out next, to look at and then perhaps to take.
    #[inline(always)]
    pub(crate) fn front_slot(&mut self) -> Option<Front<'_, T>> {
        if self.is_empty() {
            return None;
        }
        let index = self.index(self.head);
        let slot = &mut self.slots[index];
        if slot.is_none() {
            return None;
        }
        Some(Front { head: &mut self.head, slot })
    }

    #[inline(always)]
    fn holds(&self, number: u32) -> bool {
        number.wrapping_sub(self.head) < self.tail.wrapping_sub(self.head)
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        if self.holds(number) { self.slots[self.index(number)].as_ref() } else { None }
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        if !self.holds(number) {
            return None;
        }
        let index = self.index(number);
        self.slots[index].as_mut()
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::new(self.slots.len() * 2);
        larger.head = self.head;
        larger.tail = self.head;
        while let Some(entry) = self.pop() {
            larger.push(entry);
        }
        *self = larger;
    }
}

/// The entry that comes out next.
pub(crate) struct Front<'a, T> {
    head: &'a mut u32,
    /// Never `None`.
    slot: &'a mut Option<T>,
}

impl<T> Front<'_, T> {
    #[inline(always)]
    pub(crate) fn get(&self) -> &T {
        self.slot.as_ref().expect("was seen to be there")
    }

    #[inline(always)]
    pub(crate) fn take(self) -> T {
        *self.head = self.head.wrapping_add(1);
        self.slot.take().expect("was seen to be there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_growth_and_the_wrap() {
        let mut ring = Ring::new(2);
        ring.head = u32::MAX - 2;
        ring.tail = ring.head;
        for n in 0..9u32 {
            assert_eq!(ring.tail(), (u32::MAX - 2).wrapping_add(n));
            ring.push(n);
        }
        assert_eq!(ring.get(1), Some(&4));
        assert_eq!(ring.get(u32::MAX - 3), None);
        assert_eq!(ring.get(6), None);
        for n in 0..9 {
            assert_eq!(ring.front(), Some(&n));
            assert_eq!(ring.pop(), Some(n));
        }
        assert!(ring.is_empty() && ring.pop().is_none() && ring.front().is_none());
    }
}
