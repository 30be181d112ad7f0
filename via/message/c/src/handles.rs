//! Handles: names of objects that programs hold, and that are looked up and never followed.
//!
//! A handle is a number that no address can be: what kind of object, its place, and how often the place was used before.
//! So a stale handle, one of another kind, and any pointer are told from one that is good.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// The uppermost byte of every handle: no address of a program's has it.
const MARK: u64 = 0xa6 << 56;
const KIND_BITS: u32 = 4;
const PLACE_BITS: u32 = 16;
const GENERATION_BITS: u32 = 36;
/// Places that are made at once.
const CHUNK: usize = 256;
const CHUNKS: usize = (1 << PLACE_BITS) / CHUNK;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Sessions.
    Session = 1,
    /// Channels.
    Channel = 2,
    /// Messages.
    Message = 3,
}

/// A handle, as C programs hold it: a number in a pointer's clothes.
pub type Handle = *mut std::ffi::c_void;

/// One object's, and after it the next one's.
struct Place<T> {
    generation: u64,
    object: Option<T>,
}

/// Places that were made together.
type Chunk<T> = Box<[Mutex<Place<T>>; CHUNK]>;

/// All objects of a kind in this process. A place is never given back to the system, so that finding one takes no lock
/// but its own; that lock is held while a call works on the object, so that two threads with the same handle take turns.
pub struct Table<T> {
    kind: Kind,
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    free: Mutex<Free>,
}

struct Free {
    places: Vec<u32>,
    /// Places that were ever used.
    used: u32,
}

/// An object that is found, and locked.
pub struct Found<'a, T>(MutexGuard<'a, Place<T>>);

impl<T> Found<'_, T> {
    /// The object.
    pub fn object(&mut self) -> Option<&mut T> {
        self.0.object.as_mut()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the process: nothing unwinds into C.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Table<T> {
    /// An empty one.
    pub const fn new(kind: Kind) -> Self {
        let free = Mutex::new(Free { places: Vec::new(), used: 0 });
        Self { kind, chunks: [const { OnceLock::new() }; CHUNKS], free }
    }

    fn place(&self, number: u32) -> Option<&Mutex<Place<T>>> {
        let number = number as usize;
        self.chunks.get(number / CHUNK)?.get().map(|chunk| &chunk[number % CHUNK])
    }

    /// Takes an object in. `None`: there are too many.
    pub fn insert(&self, object: T) -> Option<Handle> {
        let number = {
            let mut free = lock(&self.free);
            match free.places.pop() {
                Some(number) => number,
                None if (free.used as usize) < CHUNK * CHUNKS => {
                    free.used += 1;
                    free.used - 1
                }
                None => return None,
            }
        };
        let fresh = || Mutex::new(Place { generation: 0, object: None });
        self.chunks[number as usize / CHUNK].get_or_init(|| Box::new(std::array::from_fn(|_| fresh())));
        let mut place = lock(self.place(number)?);
        place.object = Some(object);
        let name = MARK
            | place.generation << (KIND_BITS + PLACE_BITS)
            | u64::from(number) << KIND_BITS
            | self.kind as u64;
        Some(std::ptr::without_provenance_mut(name as usize))
    }

    /// Place and generation that a handle of this kind names.
    fn parse(&self, handle: Handle) -> Option<(u32, u64)> {
        const FIXED: u64 = 0xff << 56 | ((1 << KIND_BITS) - 1);
        let name = handle.addr() as u64;
        let generation = name >> (KIND_BITS + PLACE_BITS) & ((1 << GENERATION_BITS) - 1);
        let place = (name >> KIND_BITS) as u32 & ((1 << PLACE_BITS) - 1);
        (name & FIXED == MARK | self.kind as u64).then_some((place, generation))
    }

    /// The object of a handle, if it is there; waits for another thread's call with the same handle.
    pub fn find(&self, handle: Handle) -> Option<Found<'_, T>> {
        let (number, generation) = self.parse(handle)?;
        let place = lock(self.place(number)?);
        (place.generation == generation && place.object.is_some()).then_some(Found(place))
    }

    /// Takes the object of a handle out, which is stale from now on. The caller lets go of it with no lock held.
    pub fn remove(&self, handle: Handle) -> Option<T> {
        let (number, _) = self.parse(handle)?;
        let mut found = self.find(handle)?;
        self.take(number, &mut found.0)
    }

    fn take(&self, number: u32, place: &mut Place<T>) -> Option<T> {
        let object = place.object.take()?;
        place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
        lock(&self.free).places.push(number);
        Some(object)
    }

    /// Takes out all that are so, but for those with which some call is at work just now.
    pub fn remove_all(&self, is_so: impl Fn(&T) -> bool) -> Vec<T> {
        let used = lock(&self.free).used;
        let mut removed = Vec::new();
        for number in 0..used {
            let Some(place) = self.place(number) else { continue };
            let mut place = match place.try_lock() {
                Ok(place) => place,
                Err(TryLockError::Poisoned(place)) => place.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if place.object.as_ref().is_some_and(&is_so) {
                removed.extend(self.take(number, &mut place));
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_for_its_object_only() {
        let numbers: Table<u32> = Table::new(Kind::Channel);
        let others: Table<u32> = Table::new(Kind::Message);
        let one = numbers.insert(1).unwrap();
        let two = numbers.insert(2).unwrap();
        assert_eq!(numbers.find(one).unwrap().object(), Some(&mut 1));
        assert!(others.insert(3).is_some() && others.find(one).is_none(), "another kind");
        assert_eq!(numbers.remove(one), Some(1));
        assert!(numbers.find(one).is_none() && numbers.remove(one).is_none(), "stale");
        let again = numbers.insert(4).unwrap();
        assert!(again != one && numbers.find(one).is_none(), "the place's next user has another name");
        static FORGED_BY: u8 = 0;
        let forged =
            [0, 1, 8, usize::MAX, again.addr() + 16, again.addr() ^ 1 << 60, (&raw const FORGED_BY).addr()];
        for name in forged {
            if name != two.addr() {
                assert!(numbers.find(std::ptr::without_provenance_mut(name)).is_none(), "{name:#x}");
            }
        }
        let busy = numbers.find(again);
        assert_eq!(numbers.remove_all(|_| true), [2], "what a call is at work with stays");
        drop(busy);
        assert_eq!(numbers.remove_all(|number| *number == 4), [4]);
    }

    #[test]
    fn there_is_an_end_to_places() {
        let table: Table<u8> = Table::new(Kind::Session);
        for _ in 0..CHUNK * CHUNKS {
            assert!(table.insert(0).is_some());
        }
        assert!(table.insert(0).is_none());
        assert_eq!(table.remove_all(|_| true).len(), CHUNK * CHUNKS);
        assert!(table.insert(0).is_some());
    }
}
