//! A queue whose entries keep their numbers: a work queue.

/// Entries are numbered in the order in which they come, from 0 on, wrapping. It grows only when more are put
/// in than it was made for.
pub(super) struct Ring<T> {
    slots: Box<[Option<T>]>,
    mask: u32,
    head: u32,
    tail: u32,
}

impl<T> Ring<T> {
    /// Room for `depth` entries.
    pub(super) fn new(depth: usize) -> Self {
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
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// The number that the next entry will get.
    #[inline(always)]
    pub(super) fn tail(&self) -> u32 {
        self.tail
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline(always)]
    pub(super) fn push(&mut self, entry: T) {
        if self.tail.wrapping_sub(self.head) > self.mask {
            self.grow();
        }
        let index = self.index(self.tail);
        // The place is free: `None` there needs no drop.
        let before = self.slots[index].replace(entry);
        debug_assert!(before.is_none());
        std::mem::forget(before);
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline(always)]
    pub(super) fn front(&self) -> Option<&T> {
        self.slots[self.index(self.head)].as_ref()
    }

    #[inline(always)]
    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        let index = self.index(self.head);
        self.slots[index].as_mut()
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        let index = self.index(self.head);
        let entry = self.slots[index].take()?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    #[inline(always)]
    fn holds(&self, number: u32) -> bool {
        number.wrapping_sub(self.head) < self.tail.wrapping_sub(self.head)
    }

    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        if self.holds(number) { self.slots[self.index(number)].as_ref() } else { None }
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
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
