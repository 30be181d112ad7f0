//! The entries of a work queue: a ring in which each has the place of its number.
//!
//! An entry is written where it stays and read where it lies: what goes by way of the stack is loaded in other pieces than
//! it was stored in, and the processor then waits for its own stores.

use uvia::{MemoryRegion, Status};

use crate::types::Descriptor;

/// A descriptor of the program's that was posted.
pub(crate) struct Entry {
    pub(crate) descriptor: *mut Descriptor,
    /// Keeps the descriptor's memory registered until it is written back to.
    pub(crate) memory: Option<MemoryRegion>,
    /// The operation's bits in the status.
    pub(crate) operation: u32,
    pub(crate) state: State,
}

// SAFETY: the pointer is an address in registered memory of the program's, which any thread may use.
unsafe impl Send for Entry {}

/// How far an entry has come.
pub(crate) enum State {
    /// uvia has it.
    Posted,
    /// It was not given to uvia, and completes with this when its turn comes.
    Refused(Status),
    /// It is done, with this.
    Done(Status),
}

impl Entry {
    fn nothing() -> Self {
        Self { descriptor: std::ptr::null_mut(), memory: None, operation: 0, state: State::Posted }
    }
}

/// Entries with consecutive numbers, which wrap.
pub(crate) struct Entries {
    /// A power of two of places, or none yet.
    places: Vec<Entry>,
    /// The number of the first.
    first: u32,
    len: usize,
}

impl Entries {
    /// None; the first will be number 0.
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), first: 0, len: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of the first, or of what will be.
    #[inline(always)]
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// The number that the next one gets.
    #[inline(always)]
    pub(crate) fn next(&self) -> u32 {
        self.first.wrapping_add(self.len as u32)
    }

    #[inline(always)]
    fn place(&mut self, number: u32) -> Option<&mut Entry> {
        let mask = self.places.len().wrapping_sub(1);
        self.places.get_mut(number as usize & mask)
    }

    /// The one that is `index` behind the first.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Entry> {
        if index >= self.len {
            return None;
        }
        self.place(self.first.wrapping_add(index as u32))
    }

    /// The last one.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Entry> {
        self.get_mut(self.len.checked_sub(1)?)
    }

    /// Adds one.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.len == self.places.len() {
            self.grow();
        }
        let number = self.next();
        if let Some(place) = self.place(number) {
            *place = entry;
            self.len += 1;
        }
    }

    /// Takes the first away. What it was can be read until the next push.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<&mut Entry> {
        let number = self.first;
        self.len = self.len.checked_sub(1)?;
        self.first = number.wrapping_add(1);
        self.place(number)
    }

    /// Twice as many places.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let before = self.places.len();
        let after = (2 * before).max(16);
        let mut places: Vec<Entry> = std::iter::repeat_with(Entry::nothing).take(after).collect();
        for n in 0..self.len as u32 {
            let number = self.first.wrapping_add(n) as usize;
            std::mem::swap(&mut places[number & (after - 1)], &mut self.places[number & (before - 1)]);
        }
        self.places = places;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: usize) -> Entry {
        Entry { descriptor: std::ptr::without_provenance_mut(n), ..Entry::nothing() }
    }

    #[test]
    fn entries_keep_their_order_and_places_while_the_ring_grows_and_numbers_wrap() {
        let mut entries = Entries::new();
        entries.first = u32::MAX - 20;
        assert!(entries.get_mut(0).is_none() && entries.pop().is_none() && entries.last_mut().is_none());
        let (mut pushed, mut popped) = (0, 0);
        // More come than go, so that it grows at any offset; then all go.
        for round in 0..200 {
            for _ in 0..round % 7 {
                assert_eq!(entries.next(), (u32::MAX - 20).wrapping_add(pushed as u32));
                entries.push(entry(pushed));
                pushed += 1;
            }
            for _ in 0..round % 5 {
                let gone = entries.pop().map(|entry| entry.descriptor.addr());
                assert_eq!(gone, (popped < pushed).then_some(popped));
                popped += usize::from(popped < pushed);
            }
            assert_eq!(entries.len(), pushed - popped);
            for n in 0..entries.len() {
                assert_eq!(entries.get_mut(n).unwrap().descriptor.addr(), popped + n);
            }
            assert!(entries.get_mut(pushed - popped).is_none());
        }
        assert!(pushed > 500 && entries.len() > 64, "it has grown");
        assert_eq!(entries.last_mut().unwrap().descriptor.addr(), pushed - 1);
        while let Some(entry) = entries.pop() {
            assert_eq!(entry.descriptor.addr(), popped);
            popped += 1;
        }
        assert!(popped == pushed && entries.is_empty());
        assert_eq!(entries.first(), entries.next());
    }
}
