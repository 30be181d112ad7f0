//! Places for objects that every call of the data path looks up: interfaces and completion queues.
//!
//! A place is made once and stays for as long as the process lives, whatever object sits there. So finding one takes no
//! lock and counts nothing: a handle's slot leads to its place, and whether the handle is still good is seen under the
//! lock that a call takes there anyway. An object that is destroyed is taken out under that lock, and no call can be in
//! the middle of it then.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::handles::{Kind, SLOTS, name, slot_of};
use crate::types::Handle;

/// Places that are made together.
const CHUNK: usize = 64;
const CHUNKS: usize = SLOTS / CHUNK;

/// All places of a kind in this process.
pub(crate) struct Seats<S: 'static> {
    kind: Kind,
    /// Each null, or places that are never freed.
    chunks: [AtomicPtr<[S; CHUNK]>; CHUNKS],
    state: Mutex<State>,
}

struct State {
    /// Slots that are free, with the generation that comes next there.
    free: Vec<(u32, u64)>,
    /// Slots that were ever used: those below this number.
    used: u32,
}

impl<S: Default + Sync + 'static> Seats<S> {
    pub(crate) const fn new(kind: Kind) -> Self {
        let state = State { free: Vec::new(), used: 0 };
        Self {
            kind,
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            state: Mutex::new(state),
        }
    }

    fn at(&self, slot: u32) -> Option<&'static S> {
        // Acquire: pairs with the Release of `make`; the places are seen as they were made.
        let chunk = self.chunks.get(slot as usize / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that `make` has leaked: it is never freed, and only shared from then on.
        let chunk = unsafe { chunk.as_ref() }?;
        chunk.get(slot as usize % CHUNK)
    }

    /// The place that a handle leads to, if it is one of this kind. Whoever sits there may have another name.
    #[inline]
    pub(crate) fn seat(&self, handle: Handle) -> Option<&'static S> {
        self.at(slot_of(self.kind, handle)?)
    }

    /// A free place, and the name of who will sit there. None when there are too many.
    pub(crate) fn reserve(&self) -> Option<(Handle, &'static S)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, generation) = match state.free.pop() {
            Some(free) => free,
            None if (state.used as usize) < SLOTS => {
                let slot = state.used;
                if (slot as usize).is_multiple_of(CHUNK) {
                    self.make(slot as usize / CHUNK);
                }
                state.used += 1;
                (slot, 0)
            }
            None => return None,
        };
        Some((name(self.kind, slot, generation), self.at(slot)?))
    }

    /// Makes a chunk; under the lock.
    fn make(&self, chunk: usize) {
        let places = Box::new(std::array::from_fn(|_| S::default()));
        if let Some(place) = self.chunks.get(chunk) {
            // Release: pairs with the Acquire of `at`.
            place.store(Box::leak(places), Ordering::Release);
        }
    }

    /// The place of that name is empty again. By whoever has taken its object out, once.
    pub(crate) fn free(&self, handle: Handle) {
        if let Some(slot) = slot_of(self.kind, handle) {
            let next = crate::handles::generation(handle) + 1;
            self.state.lock().unwrap_or_else(PoisonError::into_inner).free.push((slot, next));
        }
    }

    /// All places that were ever used.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static S> {
        let used = self.state.lock().unwrap_or_else(PoisonError::into_inner).used;
        (0..used).filter_map(|slot| self.at(slot))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;
    use crate::lock::Lock;

    /// A name, and an object that knows its own.
    type Seat = Lock<(usize, Option<Box<usize>>)>;

    #[test]
    fn a_place_is_used_again_under_another_name() {
        static SEATS: Seats<Seat> = Seats::new(Kind::Vi);
        let (one, place) = SEATS.reserve().unwrap();
        let (other, _) = SEATS.reserve().unwrap();
        assert!(std::ptr::eq(SEATS.seat(one).unwrap(), place) && one != other);
        SEATS.free(one);
        let (again, same) = SEATS.reserve().unwrap();
        assert!(std::ptr::eq(same, place) && again != one);
        assert_eq!(SEATS.all().count(), 2);
        for forged in
            [0, 1, 8, usize::MAX, again.addr() ^ 1 << 60, again.addr() ^ 1, again.addr() + (1 << 23)]
        {
            assert!(SEATS.seat(std::ptr::without_provenance_mut(forged)).is_none(), "{forged:#x}");
        }
    }

    /// One thread destroys and creates while others look up what may be gone: what they find has the name that they
    /// looked for, and is whole.
    #[test]
    fn who_looks_up_what_is_being_destroyed_finds_it_whole_or_not_at_all() {
        const ROUNDS: usize = 20_000;
        static SEATS: Seats<Seat> = Seats::new(Kind::Cq);
        static CURRENT: AtomicUsize = AtomicUsize::new(0);
        static OVER: AtomicBool = AtomicBool::new(false);
        let lookers = [(); 3].map(|()| {
            std::thread::spawn(|| {
                let (mut found, mut gone) = (0u64, 0u64);
                while !OVER.load(Ordering::Relaxed) {
                    let handle = CURRENT.load(Ordering::Relaxed);
                    let Some(seat) = SEATS.seat(std::ptr::without_provenance_mut(handle)) else { continue };
                    let held = seat.take();
                    if held.0 != handle {
                        gone += 1;
                        continue;
                    }
                    assert_eq!(held.1.as_deref(), Some(&handle));
                    found += 1;
                }
                (found, gone)
            })
        });
        let mut rounds = 0;
        // Until all have found something, however the threads are scheduled.
        while rounds < ROUNDS {
            let (handle, seat) = SEATS.reserve().unwrap();
            *seat.take() = (handle.addr(), Some(Box::new(handle.addr())));
            CURRENT.store(handle.addr(), Ordering::Relaxed);
            rounds += 1;
            if rounds % 64 == 0 {
                std::thread::yield_now();
            }
            let mut held = seat.take();
            let object = held.1.take();
            held.0 = 0;
            drop(held);
            SEATS.free(handle);
            assert_eq!(object.as_deref(), Some(&handle.addr()));
        }
        OVER.store(true, Ordering::Relaxed);
        let found = lookers.map(|looker| looker.join().unwrap());
        println!("found, and gone: {found:?}");
        assert_eq!(SEATS.all().count(), 1, "the place is the same each time");
    }
}
