//! The queue against a device that is as simple as the specification allows, and against one that keeps no rules.

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::nic::testing::Space;

/// A chain as the device fetched it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chain {
    id: u16,
    /// Address, length, whether the device writes it.
    parts: Vec<(u64, u32, bool)>,
}

/// The other side: it reads and writes the queue's memory, and knows no more than is there.
struct Device {
    avail: Place,
    used: Place,
}

impl Device {
    fn new() -> Self {
        Self { avail: Place::START, used: Place::START }
    }

    /// The next chain that is available.
    fn fetch(&mut self, queue: &PackedQueue) -> Option<Chain> {
        let mut parts = Vec::new();
        loop {
            let at = usize::from(self.avail.slot) * DESCRIPTOR;
            let flags = (queue.ring.load(at + LENGTH) >> 48) as u16;
            let mine = flags & (DESC_F_AVAIL | DESC_F_USED) == self.avail.available();
            if !mine {
                assert!(parts.is_empty(), "a chain of which a part is not available");
                return None;
            }
            let write = flags & DESC_F_WRITE != 0;
            parts.push((queue.ring.read(at), queue.ring.read(at + LENGTH), write));
            assert!(parts.len() <= usize::from(queue.size), "a chain without end");
            let id = (queue.ring.load(at + LENGTH) >> 32) as u16;
            self.avail.advance(1, queue.size);
            if flags & DESC_F_NEXT == 0 {
                return Some(Chain { id, parts });
            }
        }
    }

    /// Gives a chain back.
    fn finish(&mut self, queue: &PackedQueue, chain: &Chain, written: u32) {
        let at = usize::from(self.used.slot) * DESCRIPTOR;
        let flags = if self.used.lap { DESC_F_AVAIL | DESC_F_USED } else { 0 };
        let word = u64::from(written) | u64::from(chain.id) << 32 | u64::from(flags) << 48;
        queue.ring.write(at + LENGTH, word);
        self.used.advance(chain.parts.len() as u16, queue.size);
    }

    /// Wishes to be notified of the next chain, by its place, or never.
    fn wish(&self, queue: &PackedQueue, on: bool) {
        let lap = if self.avail.lap { LAP } else { 0 };
        let (place, flags) = if on { (self.avail.slot | lap, EVENT_DESC) } else { (0, EVENT_DISABLE) };
        queue.events.write(DEVICE_EVENT, u32::from(place) | u32::from(flags) << 16);
    }
}

fn segment(iova: u64, len: u32) -> DmaSegment {
    // SAFETY: there is no device that would fetch from there.
    unsafe { DmaSegment::unchecked(iova, len) }
}

fn queue(size: u16) -> PackedQueue {
    let domain: Arc<dyn DmaDomain> = Arc::new(Space::default());
    let mut queue = PackedQueue::in_host(&domain, 1, size).unwrap();
    queue.restart(true);
    queue
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Add(u16),
    Show,
    Ask,
    Fetch,
    /// The n-th of what the device has fetched.
    Finish(usize),
    Take,
    /// The n-th of what was taken: freed, or queued again if it has one part.
    Free(usize, bool),
    Wish(bool),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u16..5).prop_map(Step::Add),
        4 => Just(Step::Show),
        3 => Just(Step::Ask),
        6 => Just(Step::Fetch),
        6 => (0usize..16).prop_map(Step::Finish),
        6 => Just(Step::Take),
        6 => ((0usize..16), any::<bool>()).prop_map(|(n, again)| Step::Free(n, again)),
        2 => any::<bool>().prop_map(Step::Wish),
        1 => Just(Step::Restart),
    ]
}

fn sizes() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![4u16, 5, 7, 8, 16, 33])
}

/// What the program expects of it all.
#[derive(Default)]
struct Expected {
    unshown: VecDeque<Chain>,
    shown: VecDeque<Chain>,
    fetched: Vec<Chain>,
    finished: VecDeque<(Chain, u32)>,
    taken: Vec<Chain>,
    /// Descriptors since the beginning: shown, shown when it was last asked, and fetched.
    total_shown: u64,
    total_asked: u64,
    total_fetched: u64,
    /// Behind how many the device wants to be notified of the next one; at first behind none.
    wish: Option<u64>,
}

fn run(size: u16, steps: &[Step]) {
    let mut queue = queue(size);
    let mut device = Device::new();
    device.wish(&queue, true);
    let mut expected = Expected::default();
    let mut next = 0x1000u64;
    let mut free = size;
    expected.wish = Some(0);
    for step in steps {
        match *step {
            Step::Add(count) => {
                let parts: Vec<_> =
                    (0..count).map(|n| (next + u64::from(n), 7 + u32::from(n), n > 1)).collect();
                next += 0x10;
                let access = |write| if write { Access::DeviceWrites } else { Access::DeviceReads };
                let buffers = parts.iter().map(|(a, l, w)| (segment(*a, *l), access(*w)));
                let head = queue.add(count, buffers);
                assert_eq!(head.is_some(), count <= free);
                if let Some(id) = head {
                    assert!(id < size);
                    free -= count;
                    expected.unshown.push_back(Chain { id, parts });
                }
            }
            Step::Show => {
                expected.total_shown +=
                    expected.unshown.iter().map(|chain| chain.parts.len() as u64).sum::<u64>();
                expected.shown.append(&mut expected.unshown);
                queue.show();
            }
            Step::Ask => {
                let asked = queue.is_asked_for();
                let (old, new) = (
                    std::mem::replace(&mut expected.total_asked, expected.total_shown),
                    expected.total_shown,
                );
                let queued = new + expected.unshown.iter().map(|chain| chain.parts.len() as u64).sum::<u64>();
                match expected.wish {
                    // Of a wish that is a lap old, counted from what was queued last, nothing can be told: a place says
                    // which of two laps it is of. (The driver asks when it has shown all that was queued.)
                    Some(wish) if queued - wish > u64::from(size) => {}
                    Some(wish) => assert_eq!(asked, (old..new).contains(&wish), "{wish} from {old} to {new}"),
                    None => assert!(!asked, "a notification for nothing"),
                }
            }
            Step::Fetch => {
                let fetched = device.fetch(&queue);
                assert_eq!(fetched, expected.shown.pop_front());
                expected.total_fetched += fetched.as_ref().map_or(0, |chain| chain.parts.len() as u64);
                expected.fetched.extend(fetched);
            }
            Step::Finish(n) if !expected.fetched.is_empty() => {
                let chain = expected.fetched.swap_remove(n % expected.fetched.len());
                let written = next as u32;
                device.finish(&queue, &chain, written);
                expected.finished.push_back((chain, written));
            }
            Step::Take => {
                let used = queue.take().unwrap();
                let wanted = expected.finished.pop_front();
                let seen = used.map(|used| (used.head, used.written));
                assert_eq!(seen, wanted.as_ref().map(|(chain, written)| (chain.id, *written)));
                expected.taken.extend(wanted.map(|(chain, _)| chain));
            }
            Step::Free(n, again) if !expected.taken.is_empty() => {
                let chain = expected.taken.swap_remove(n % expected.taken.len());
                if again && chain.parts.len() == 1 {
                    queue.requeue(chain.id);
                    expected.unshown.push_back(chain);
                } else {
                    queue.release(chain.id, chain.parts.len() as u16);
                    free += chain.parts.len() as u16;
                }
            }
            Step::Wish(on) => {
                device.wish(&queue, on);
                expected.wish = on.then_some(expected.total_fetched);
            }
            Step::Restart => {
                let held: HashSet<_> = queue.heads().collect();
                let all = expected.unshown.iter().chain(&expected.shown).chain(&expected.fetched);
                let all = all.chain(expected.finished.iter().map(|(chain, _)| chain));
                assert_eq!(held, all.map(|chain| chain.id).collect());
                queue.restart(true);
                device = Device::new();
                (expected, free) = (Expected { wish: Some(0), ..Expected::default() }, size);
                device.wish(&queue, true);
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn chains_arrive_as_they_were_made_and_come_back_in_any_order(
        size in sizes(),
        steps in prop::collection::vec(step(), 0..400),
    ) {
        run(size, &steps);
    }

    /// Whatever lies in the ring: an error, or a chain that the device was given, once.
    #[test]
    fn garbage_is_an_error_or_a_chain_that_was_given(
        size in sizes(),
        steps in prop::collection::vec((any::<u64>(), any::<u16>(), 0u8..8), 0..200),
    ) {
        let mut queue = queue(size);
        let mut given = HashSet::new();
        for (word, place, what) in steps {
            match what {
                0..3 => {
                    let count = 1 + place % 3;
                    let buffers = (0..count).map(|_| (segment(0x1000, 60), Access::DeviceReads));
                    if let Some(head) = queue.add(count, buffers) {
                        assert!(given.insert((head, count)));
                    }
                    queue.show();
                    queue.notify();
                }
                3..6 => {
                    let at = usize::from(place) % (usize::from(size) * DESCRIPTOR / 8 + 1) * 8;
                    // Mostly what could be one.
                    let flags = if queue.used.lap { DESC_F_AVAIL | DESC_F_USED } else { 0 };
                    let likely = u64::from(flags) << 48 | u64::from(word as u16 % (size + 1)) << 32;
                    queue.ring.write(at, if what == 3 { word } else { likely });
                }
                _ => {
                    if let Ok(Some(used)) = queue.take() {
                        let chain = *given.iter().find(|(head, _)| *head == used.head).expect("it was given");
                        given.remove(&chain);
                        queue.release(used.head, chain.1);
                    }
                }
            }
            let out: u16 = given.iter().map(|(_, parts)| parts).sum();
            assert_eq!(queue.free_count, size - out);
        }
    }
}

#[test]
fn an_interrupt_is_asked_for_at_the_next_chain_done_and_then_no_more() {
    let mut queue = queue(4);
    let said = |queue: &PackedQueue| queue.events.read::<u32>(DRIVER_EVENT);
    assert_eq!(said(&queue), u32::from(EVENT_DISABLE) << 16);
    queue.listen();
    assert_eq!(said(&queue), u32::from(EVENT_DESC) << 16 | u32::from(LAP));
    queue.silence();
    assert_eq!(said(&queue), u32::from(EVENT_DISABLE) << 16);
    queue.restart(false);
    queue.listen();
    assert_eq!(said(&queue), u32::from(EVENT_ENABLE) << 16);
}
