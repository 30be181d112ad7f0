//! A queue whose entries keep their numbers: work queues, and the rings of completion queues.

use std::mem::MaybeUninit;

/// Entries are numbered in the order in which they come, from 0 on, wrapping. It grows only when more are put
/// in than it was made for.
///
/// Every message passes through several of these, so that an entry is nothing but its bytes: which places hold one
/// follows from the two numbers. The invariants, kept by the few functions here that change them: there are `mask` + 1
/// places, a power of two; `tail` - `head` (wrapping) is at most that; the places of the numbers from `head` up to
/// `tail` hold entries, and no others do.
pub(crate) struct Ring<T> {
    places: Box<[MaybeUninit<T>]>,
    mask: u32,
    head: u32,
    tail: u32,
}

impl<T> Ring<T> {
    /// Room for `depth` entries.
    pub(crate) fn new(depth: usize) -> Self {
        let count = depth.max(1).next_power_of_two();
        Self { places: Box::new_uninit_slice(count), mask: count as u32 - 1, head: 0, tail: 0 }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> &MaybeUninit<T> {
        // SAFETY: there are `mask` + 1 places.
        unsafe { self.places.get_unchecked((number & self.mask) as usize) }
    }

    #[inline(always)]
    fn place_mut(&mut self, number: u32) -> &mut MaybeUninit<T> {
        // SAFETY: there are `mask` + 1 places.
        unsafe { self.places.get_unchecked_mut((number & self.mask) as usize) }
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

    /// Whether one more goes in without growth.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.tail.wrapping_sub(self.head) <= self.mask
    }

    /// Puts an entry in; it can be changed there.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: T) -> &mut T {
        if !self.has_room() {
            self.grow();
        }
        let number = self.tail;
        self.tail = number.wrapping_add(1);
        // There was no entry in this place: nothing is lost.
        self.place_mut(number).write(entry)
    }

    /// Puts all of these in, in their order, where they have room without growth; else none of them, and false.
    #[inline(always)]
    pub(crate) fn push_all(&mut self, entries: &mut Vec<T>) -> bool {
        let count = entries.len();
        if count > (self.mask + 1) as usize - self.len() {
            return false;
        }
        let start = (self.tail & self.mask) as usize;
        let at_once = count.min(self.places.len() - start);
        let (from, to) = (entries.as_ptr().cast::<MaybeUninit<T>>(), self.places.as_mut_ptr());
        // SAFETY: the entries leave the vector first, and are the ring's from here on: they go to the places of the numbers
        // from `tail` on, of which so many are free, as was checked; behind the last place comes the first. The vector's
        // memory is no part of the ring's.
        unsafe {
            entries.set_len(0);
            std::ptr::copy_nonoverlapping(from, to.add(start), at_once);
            if at_once < count {
                std::ptr::copy_nonoverlapping(from.add(at_once), to, count - at_once);
            }
        }
        self.tail = self.tail.wrapping_add(count as u32);
        true
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Option<&T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the place of `head` holds an entry, since `tail` is another number.
        Some(unsafe { self.place(self.head).assume_init_ref() })
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
        let number = self.head;
        let entry = std::ptr::from_mut(self.place_mut(number));
        Some(Front { ring: self, number, entry })
    }

    #[inline(always)]
    fn holds(&self, number: u32) -> bool {
        number.wrapping_sub(self.head) < self.tail.wrapping_sub(self.head)
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        if !self.holds(number) {
            return None;
        }
        // SAFETY: its place holds an entry.
        Some(unsafe { self.place(number).assume_init_ref() })
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        if !self.holds(number) {
            return None;
        }
        // SAFETY: its place holds an entry.
        Some(unsafe { self.place_mut(number).assume_init_mut() })
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut larger = Self::new(self.places.len() * 2);
        larger.head = self.head;
        larger.tail = self.head;
        while let Some(entry) = self.pop() {
            larger.push(entry);
        }
        *self = larger;
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// The entry that comes out next, of a ring that has one. Where it lies is kept here: what is done between the look and the
/// taking may be more than the compiler sees through.
pub(crate) struct Front<'a, T> {
    ring: &'a mut Ring<T>,
    number: u32,
    /// The place of `number`, which is the ring's head, as long as the ring is borrowed.
    entry: *mut MaybeUninit<T>,
}

impl<T> Front<'_, T> {
    #[inline(always)]
    pub(crate) fn get(&self) -> &T {
        // SAFETY: the ring was not empty when this was made, and is borrowed since.
        unsafe { (*self.entry).assume_init_ref() }
    }

    #[inline(always)]
    pub(crate) fn take(self) -> T {
        self.ring.head = self.number.wrapping_add(1);
        // SAFETY: as for `get`; its number has just left the ring, so that it is not read again.
        unsafe { (*self.entry).assume_init_read() }
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

    #[test]
    fn several_go_in_together_or_not_at_all() {
        let mut ring = Ring::new(4);
        ring.head = u32::MAX - 1;
        ring.tail = ring.head;
        ring.push(1);
        let mut more = vec![2, 3, 4, 5];
        assert!(!ring.push_all(&mut more) && more == [2, 3, 4, 5] && ring.len() == 1);
        more.pop();
        assert!(ring.push_all(&mut more) && more.is_empty() && !ring.has_room());
        assert_eq!(std::iter::from_fn(|| ring.pop()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn each_entry_is_dropped_once() {
        let entry = std::rc::Rc::new(());
        let mut ring = Ring::new(2);
        for _ in 0..3 {
            ring.push(entry.clone());
        }
        drop(ring.pop());
        let taken = ring.front_slot().unwrap().take();
        assert_eq!(std::rc::Rc::strong_count(&entry), 3);
        for _ in 0..4 {
            ring.push(taken.clone());
        }
        drop((ring, taken));
        assert_eq!(std::rc::Rc::strong_count(&entry), 1);
    }
}
