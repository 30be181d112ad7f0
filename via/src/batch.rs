//! Completions in a row: what a NIC fills, and a program empties.

use std::mem::{ManuallyDrop, MaybeUninit};

use crate::Completion;

/// Filled from the front on, as far as there is room, and emptied in the same order.
///
/// Every message ends up in one, so that it is nothing but places and two numbers. The invariants, kept by the few
/// functions here: `first` <= `end` <= number of places; the places from `first` up to `end` hold completions, and no
/// others do.
pub(crate) struct Batch<T = Completion> {
    places: Box<[MaybeUninit<T>]>,
    first: u32,
    end: u32,
}

/// Far more than there are entries in any completion queue.
const MOST: usize = u32::MAX as usize;

impl<T> Batch<T> {
    /// Without room. It has nothing to be dropped, and is not.
    #[inline(always)]
    pub(crate) fn nothing() -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { places: Box::new([]), first: 0, end: 0 })
    }

    /// Room for so many.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { places: Box::new_uninit_slice(capacity.min(MOST)), first: 0, end: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        (self.end - self.first) as usize
    }

    /// The place of the next one that comes; none when there is no room.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> Option<Place<'_, T>> {
        let number = self.end;
        if (number as usize) < self.places.len() { Some(Place { batch: self, number }) } else { None }
    }

    /// The places of the next two that come; none when there is no room for both.
    #[inline(always)]
    pub(crate) fn two_places(&mut self) -> Option<TwoPlaces<'_, T>> {
        let number = self.end;
        if (number as usize + 1) < self.places.len() {
            Some(TwoPlaces(Place { batch: self, number }))
        } else {
            None
        }
    }

    /// 0 if nothing was ever put into it, or all was taken out of it by [`Batch::pop`].
    #[inline(always)]
    pub(crate) fn unlike_new(&self) -> u32 {
        self.end
    }

    /// If there is nothing in it, all of its places are room from now on; false else.
    #[inline(always)]
    pub(crate) fn is_fresh(&mut self) -> bool {
        // Usually it is new, or `pop` has said that there is nothing left.
        self.end == 0 || self.starts_anew()
    }

    fn starts_anew(&mut self) -> bool {
        let empty = self.first == self.end;
        if empty {
            (self.first, self.end) = (0, 0);
        }
        empty
    }

    /// Moves what is in it to the front, so that all the room there is comes behind it; answers how much that is.
    pub(crate) fn gather(&mut self) -> usize {
        if self.first != 0 {
            let len = self.end - self.first;
            for n in 0..len {
                self.places.swap(n as usize, (self.first + n) as usize);
            }
            (self.first, self.end) = (0, len);
        }
        self.end as usize
    }

    /// How many came since [`Batch::gather`] gave this answer, or it was fresh (0); none was taken out since.
    #[inline(always)]
    pub(crate) fn since(&self, gathered: usize) -> usize {
        self.end as usize - gathered
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.first == self.end {
            // Here, since whoever takes all there is comes by.
            (self.first, self.end) = (0, 0);
            return None;
        }
        let number = self.first;
        self.first += 1;
        // SAFETY: the places from `first` up to `end` hold completions; this one has just left them, and is not read
        // again.
        Some(unsafe { self.places.get_unchecked(number as usize).assume_init_read() })
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// Two places that are free, in a batch that has two: the first of them.
pub(crate) struct TwoPlaces<'a, T>(Place<'a, T>);

impl<'a, T> TwoPlaces<'a, T> {
    /// The first one alone.
    #[inline(always)]
    pub(crate) fn first(self) -> Place<'a, T> {
        self.0
    }

    /// Fills the first one; the second one.
    #[inline(always)]
    pub(crate) fn fill_first(self, completion: T) -> Place<'a, T> {
        let Place { batch, number } = self.0;
        Place { batch: &mut *batch, number }.fill(completion);
        Place { batch, number: number + 1 }
    }
}

/// A place that is free, in a batch that has one.
pub(crate) struct Place<'a, T> {
    batch: &'a mut Batch<T>,
    /// The batch's end, as long as it is borrowed.
    number: u32,
}

impl<T> Place<'_, T> {
    #[inline(always)]
    pub(crate) fn fill(self, completion: T) {
        // SAFETY: there was a place at `end` when this was made, and the batch is borrowed since. It held nothing.
        unsafe { self.batch.places.get_unchecked_mut(self.number as usize) }.write(completion);
        self.batch.end = self.number + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn put<T>(batch: &mut Batch<T>, entry: T) -> bool {
        batch.place().map(|place| place.fill(entry)).is_some()
    }

    #[test]
    fn they_come_out_as_they_went_in_and_never_more_than_there_is_room_for() {
        let mut batch = Batch::new(3);
        assert!([0, 1, 2].iter().all(|n| put(&mut batch, *n)) && !put(&mut batch, 3));
        assert_eq!(batch.pop(), Some(0));
        assert!(!put(&mut batch, 3), "there is room in front of them alone");
        batch.gather();
        assert!(put(&mut batch, 3) && batch.len() == 3);
        assert_eq!([batch.pop(), batch.pop(), batch.pop()], [1, 2, 3].map(Some));
        assert!(batch.len() == 0 && !put(&mut batch, 4));
        assert!(batch.pop().is_none() && put(&mut batch, 4) && !batch.is_fresh());
        assert_eq!(batch.pop(), Some(4));
        assert!(batch.is_fresh());
        assert!(batch.len() == 0 && [5, 6, 7].iter().all(|n| put(&mut batch, *n)));
        assert!(!put(&mut Batch::nothing(), 0));
    }

    #[test]
    fn there_are_two_places_where_there_is_room_for_both() {
        let mut batch = Batch::new(3);
        let second = batch.two_places().map(|places| places.fill_first(0));
        second.into_iter().for_each(|place| place.fill(1));
        assert!(batch.len() == 2 && batch.two_places().is_none() && put(&mut batch, 2));
        assert_eq!([batch.pop(), batch.pop(), batch.pop(), batch.pop()], [Some(0), Some(1), Some(2), None]);
        batch.two_places().into_iter().for_each(|places| places.first().fill(3));
        assert_eq!([batch.pop(), batch.pop()], [Some(3), None]);
    }

    #[test]
    fn each_is_dropped_once() {
        let entry = Rc::new(());
        let mut batch = Batch::new(4);
        let fill = |batch: &mut Batch<_>| while put(batch, entry.clone()) {};
        fill(&mut batch);
        drop((batch.pop(), batch.pop()));
        batch.gather();
        assert_eq!(Rc::strong_count(&entry), 3);
        fill(&mut batch);
        assert_eq!(Rc::strong_count(&entry), 5);
        drop(batch);
        assert_eq!(Rc::strong_count(&entry), 1);
    }
}
