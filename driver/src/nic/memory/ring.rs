//! The ring of a lane: frames of one sender for one receiver, in order, with no lock and no index that both write.
//!
//! A slot is published by the store of its header, which names the sender's generation, the frame's number and its
//! length; the receiver knows which header comes next, and takes no other. So a sender that is killed at any moment has
//! published a frame or has not, and what another one has left in a slot is no frame. The receiver tells how far it has
//! come by one word of its own.
//!
//! **A new sender** may follow one that died on the same lane while the receiver still reads what that one has left. It
//! takes back the other's announcement, and looks whether the receiver has ever listened there: if not, it begins at once.
//! Otherwise it announces itself, and touches no slot before the receiver's word has its generation. The receiver says
//! [`BUSY`] before it takes an announcement, and listens only if that was still there: so either the sender sees that it
//! is busy, or it sees that the announcement was taken back.

use crate::sync::atomic::Ordering;

/// Slots of a lane; a power of two.
pub(super) const SLOTS: u32 = 256;
/// Numbers have so many bits.
const NUMBER_BITS: u32 = 24;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// Lengths have so many.
const LENGTH_BITS: u32 = 16;

/// What the receiver's word is while it turns to another sender; no generation's.
pub(super) const BUSY: u64 = 1;

/// With what [`Words`] are loaded: what was done before the store with [`TELL`] that is seen is seen too.
pub(super) const SEE: Ordering = Ordering::Acquire;
/// With what they are stored; pairs with [`SEE`].
pub(super) const TELL: Ordering = Ordering::Release;

/// The words of a lane that both ends can reach.
pub(super) trait Words {
    /// A slot's header, with [`SEE`]: what its sender stored before it published the slot is seen.
    fn header(&self, slot: u32) -> u64;
    /// Publishes a slot's header, with [`TELL`].
    fn publish(&self, slot: u32, header: u64);
    /// How far the receiver has come, with [`SEE`]: it reads the slots before that no more.
    fn taken(&self) -> u64;
    /// Tells it, with [`TELL`].
    fn tell_taken(&self, taken: u64);
}

/// The header of a frame; never 0, since no generation is.
fn header(generation: u32, number: u32, len: u16) -> u64 {
    u64::from(generation) << (NUMBER_BITS + LENGTH_BITS)
        | u64::from(number & NUMBER_MASK) << LENGTH_BITS
        | u64::from(len)
}

/// The sending end, of `N` slots, a power of two. Frames are put into slots first, and published together.
#[derive(Clone)]
pub(super) struct Producer<const N: u32 = SLOTS> {
    generation: u32,
    /// Whether the slots are ours.
    begun: bool,
    /// Number of the next frame.
    next: u32,
    /// All frames before it are published.
    published: u32,
    /// All frames before it were taken, as far as was looked.
    taken: u32,
}

impl<const N: u32> Producer<N> {
    /// At the beginning of a lane, after other announcements were taken back, and before its own.
    pub(super) fn new(generation: u32, words: &impl Words) -> Self {
        let mut ring = Self { generation, begun: false, next: 0, published: 0, taken: 0 };
        if words.taken() == 0 {
            ring.begin(words);
        }
        ring
    }

    /// Whatever was in the slots is no frame any more.
    #[cold]
    fn begin(&mut self, words: &impl Words) {
        for slot in 0..N {
            words.publish(slot, 0);
        }
        self.begun = true;
    }

    /// The slot for the next frame, if there is one.
    #[inline]
    pub(super) fn free_slot(&mut self, words: &impl Words) -> Option<u32> {
        if self.next.wrapping_sub(self.taken) >= N || !self.begun {
            self.look(words);
            if !self.begun {
                return None;
            }
            if self.next.wrapping_sub(self.taken) >= N {
                return None;
            }
        }
        Some(self.next % N)
    }

    /// Looks how far the receiver has come. What cannot be right is passed over: the receiver alone suffers.
    #[inline]
    pub(super) fn look(&mut self, words: &impl Words) {
        let told = words.taken();
        if (told >> 32) as u32 != self.generation {
            return;
        }
        if !self.begun {
            self.begin(words);
        }
        let came = (told as u32).wrapping_sub(self.taken);
        if came <= self.published.wrapping_sub(self.taken) {
            self.taken = told as u32;
        }
    }

    /// The free slot was filled.
    #[inline]
    pub(super) fn filled(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes all frames that were put; `len` answers for each slot how long its frame is.
    #[inline]
    pub(super) fn publish(&mut self, words: &impl Words, len: impl Fn(u32) -> u16) {
        while self.published != self.next {
            let slot = self.published % N;
            words.publish(slot, header(self.generation, self.published, len(slot)));
            self.published = self.published.wrapping_add(1);
        }
    }

    /// Takes back what was put and not published.
    pub(super) fn forget(&mut self) {
        self.next = self.published;
    }

    /// All frames before it were taken, as far as was looked.
    #[inline]
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// The number of the next frame.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.next
    }
}

/// The receiving end, of `N` slots.
#[derive(Clone)]
pub(super) struct Consumer<const N: u32 = SLOTS> {
    generation: u32,
    next: u32,
    told: u32,
}

impl<const N: u32> Consumer<N> {
    /// At the beginning of a lane whose sender, of this generation, has announced itself: lets it know.
    pub(super) fn new(generation: u32, words: &impl Words) -> Self {
        words.tell_taken(u64::from(generation) << 32);
        Self { generation, next: 0, told: 0 }
    }

    /// The next frame's slot and length, if it is there. The length is as the sender says.
    #[inline]
    pub(super) fn look(&self, words: &impl Words) -> Option<(u32, u16)> {
        let slot = self.next % N;
        let found = words.header(slot);
        let expected = header(self.generation, self.next, 0);
        (found >> LENGTH_BITS == expected >> LENGTH_BITS).then_some((slot, found as u16))
    }

    /// It was taken: its slot is read no more.
    #[inline]
    pub(super) fn took(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the sender know.
    #[inline]
    pub(super) fn tell(&mut self, words: &impl Words) {
        if self.told != self.next {
            self.told = self.next;
            words.tell_taken(u64::from(self.generation) << 32 | u64::from(self.next));
        }
    }
}

#[cfg(test)]
mod tests {
    //! All interleavings of a sender, which may be killed anywhere, its successor and the receiver; every access to
    //! shared words is a step of its own.

    use std::cell::Cell;
    use std::collections::HashSet;

    use super::*;

    const N: u32 = 2;
    /// Frames that each sender sends.
    const FRAMES: u32 = 4;

    #[derive(Clone, Default)]
    struct Memory {
        headers: [Cell<u64>; N as usize],
        contents: [Cell<u64>; N as usize],
        taken: Cell<u64>,
        /// The generation of who has announced itself.
        announced: Cell<u32>,
    }

    impl Words for Memory {
        fn header(&self, slot: u32) -> u64 {
            self.headers[slot as usize].get()
        }
        fn publish(&self, slot: u32, header: u64) {
            self.headers[slot as usize].set(header);
        }
        fn taken(&self) -> u64 {
            self.taken.get()
        }
        fn tell_taken(&self, taken: u64) {
            self.taken.set(taken);
        }
    }

    /// What a sender does next.
    #[derive(Clone, Copy, PartialEq)]
    enum Sending {
        TakeBack,
        See,
        /// Makes so many more headers 0, then announces itself.
        Clear(u32),
        Announce,
        LookForRoom,
        Write(u32),
        Publish,
    }

    #[derive(Clone)]
    struct Sender {
        ring: Producer<N>,
        step: Sending,
        sent: u32,
    }

    fn content(generation: u32, number: u32) -> u64 {
        u64::from(generation) << 32 | u64::from(number)
    }

    impl Sender {
        fn new(generation: u32) -> Self {
            let ring = Producer { generation, begun: false, next: 0, published: 0, taken: 0 };
            Self { ring, step: Sending::TakeBack, sent: 0 }
        }

        fn go(&mut self, memory: &Memory) {
            let ring = &mut self.ring;
            self.step = match self.step {
                Sending::TakeBack => {
                    memory.announced.set(0);
                    Sending::See
                }
                // The accesses of `Producer::new`, one by one.
                Sending::See => match memory.taken() {
                    0 => Sending::Clear(N),
                    _ => Sending::Announce,
                },
                Sending::Clear(0) => {
                    ring.begun = true;
                    Sending::Announce
                }
                Sending::Clear(n) => {
                    memory.publish(n - 1, 0);
                    Sending::Clear(n - 1)
                }
                Sending::Announce => {
                    memory.announced.set(ring.generation);
                    Sending::LookForRoom
                }
                Sending::LookForRoom => match ring.free_slot(memory) {
                    Some(slot) => Sending::Write(slot),
                    None => Sending::LookForRoom,
                },
                Sending::Write(slot) => {
                    memory.contents[slot as usize].set(content(ring.generation, self.sent));
                    Sending::Publish
                }
                Sending::Publish => {
                    ring.filled();
                    ring.publish(memory, |_| 1);
                    self.sent += 1;
                    Sending::LookForRoom
                }
            };
        }
    }

    /// What the receiver does next.
    #[derive(Clone, Copy, PartialEq)]
    enum Receiving {
        Look,
        SayBusy,
        TakeAnnouncement,
        Listen(u32),
        Read(u32),
        Tell,
    }

    #[derive(Clone)]
    struct State {
        memory: Memory,
        sender: Sender,
        receiver: Option<Consumer<N>>,
        step: Receiving,
        got: Vec<u64>,
    }

    impl State {
        fn receive(&mut self) {
            let memory = &self.memory;
            self.step = match (self.step, &mut self.receiver) {
                (Receiving::Look, _) if memory.announced.get() != 0 => Receiving::SayBusy,
                (Receiving::Look, Some(ring)) => match ring.look(memory) {
                    Some((slot, _)) => Receiving::Read(slot),
                    None => Receiving::Look,
                },
                (Receiving::SayBusy, _) => {
                    memory.tell_taken(BUSY);
                    Receiving::TakeAnnouncement
                }
                (Receiving::TakeAnnouncement, receiver) => {
                    *receiver = None;
                    match memory.announced.take() {
                        0 => Receiving::Look,
                        generation => Receiving::Listen(generation),
                    }
                }
                (Receiving::Listen(generation), receiver) => {
                    *receiver = Some(Consumer::new(generation, memory));
                    Receiving::Look
                }
                (Receiving::Read(slot), Some(ring)) => {
                    self.got.push(memory.contents[slot as usize].get());
                    ring.took();
                    Receiving::Tell
                }
                (Receiving::Tell, Some(ring)) => {
                    ring.tell(memory);
                    Receiving::Look
                }
                _ => Receiving::Look,
            };
        }

        /// What came of each sender is what it sent from the first on, in order, none twice.
        fn check(&self) {
            for generation in [1, 2] {
                let came: Vec<_> = self.got.iter().filter(|c| **c >> 32 == u64::from(generation)).collect();
                for (n, got) in came.iter().enumerate() {
                    assert_eq!(**got, content(generation, n as u32), "{:x?}", self.got);
                }
            }
        }

        /// All that makes it different from others.
        fn key(&self) -> Vec<u64> {
            let sending = match self.sender.step {
                Sending::TakeBack => 0,
                Sending::See => 1,
                Sending::Announce => 2,
                Sending::LookForRoom => 3,
                Sending::Publish => 4,
                Sending::Clear(n) => 10 + n,
                Sending::Write(n) => 20 + n,
            };
            let receiving = match self.step {
                Receiving::Look => 0,
                Receiving::SayBusy => 1,
                Receiving::TakeAnnouncement => 2,
                Receiving::Tell => 3,
                Receiving::Listen(n) => 10 + n,
                Receiving::Read(n) => 20 + n,
            };
            let ring = &self.sender.ring;
            let [generation, next, told] =
                self.receiver.as_ref().map_or([0; 3], |ring| [ring.generation, ring.next, ring.told]);
            let mut key: Vec<u64> =
                self.memory.headers.iter().chain(&self.memory.contents).map(Cell::get).collect();
            key.push(self.memory.taken.get());
            let numbers = [self.memory.announced.get(), sending, receiving, generation, next, told];
            key.extend(numbers.map(u64::from));
            let numbers = [ring.generation, ring.begun.into(), ring.next, ring.published, ring.taken];
            key.extend(numbers.map(u64::from));
            key.push(self.sender.sent.into());
            key.extend(&self.got);
            key
        }
    }

    #[test]
    fn all_interleavings_bring_frames_whole_in_order_and_once() {
        let first = State {
            memory: Memory::default(),
            sender: Sender::new(1),
            receiver: None,
            step: Receiving::Look,
            got: Vec::new(),
        };
        let (mut seen, mut stack, mut complete) = (HashSet::new(), vec![first], 0);
        while let Some(state) = stack.pop() {
            if !seen.insert(state.key()) {
                continue;
            }
            state.check();
            complete += u32::from(state.got.len() == 2 * FRAMES as usize);
            let mut next = state.clone();
            next.receive();
            stack.push(next);
            if state.sender.sent < FRAMES {
                let mut next = state.clone();
                next.sender.go(&next.memory);
                stack.push(next);
            }
            if state.sender.ring.generation == 1 {
                // Killed here, and followed by another.
                let mut next = state;
                next.sender = Sender::new(2);
                stack.push(next);
            }
        }
        println!("{} states, {complete} of them with all frames of both senders", seen.len());
        assert!(complete > 0 && seen.len() > 500);
    }

    #[test]
    fn numbers_wrap_and_what_a_receiver_tells_is_believed_only_where_it_can_be() {
        let memory = Memory::default();
        let (mut sender, mut receiver) = (Producer::<N>::new(5, &memory), Consumer::<N>::new(5, &memory));
        // Around the end of what 24 bits count.
        let start = (1 << 24) - 3;
        (sender.next, sender.published, sender.taken) = (start, start, start);
        (receiver.next, receiver.told) = (start, start);
        for n in 0..8u32 {
            assert_eq!(sender.free_slot(&memory), Some((start + n) % N));
            sender.filled();
            assert!(receiver.look(&memory).is_none(), "a frame that was not published");
            sender.publish(&memory, |_| 7);
            assert_eq!(receiver.look(&memory), Some(((start + n) % N, 7)));
            receiver.took();
            assert!(receiver.look(&memory).is_none(), "an old frame");
            receiver.tell(&memory);
        }
        sender.look(&memory);
        let taken = sender.taken();
        for lie in [0, u64::MAX, 5 << 32, 5 << 32 | u64::from(taken + 1), 6 << 32 | u64::from(taken)] {
            memory.tell_taken(lie);
            sender.look(&memory);
            assert_eq!(sender.taken(), taken, "{lie:x}");
        }
        sender.filled();
        sender.filled();
        assert_eq!(sender.free_slot(&memory), None);
        sender.forget();
        assert!(sender.free_slot(&memory).is_some());
    }
}
