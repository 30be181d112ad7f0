//! When each interface is to be looked at: a tree of minima, so that neither setting one nor finding those that are due
//! looks at all.

use super::Time;

/// A deadline for each slot. Setting one takes as many steps as its minimum reaches up, at most the tree's height, and
/// allocates nothing.
pub(super) struct Deadlines {
    /// Node n has the lesser of nodes 2n and 2n + 1; the second half are the slots.
    least: Vec<Time>,
}

impl Deadlines {
    pub(super) fn new() -> Self {
        Self { least: vec![Time::NEVER; 2] }
    }

    fn slots(&self) -> usize {
        self.least.len() / 2
    }

    /// Makes room for so many slots.
    pub(super) fn reserve(&mut self, slots: usize) {
        if slots <= self.slots() {
            return;
        }
        let before = std::mem::replace(&mut self.least, vec![Time::NEVER; 2 * slots.next_power_of_two()]);
        for (slot, at) in before[before.len() / 2..].iter().enumerate() {
            self.set(slot, *at);
        }
    }

    /// Sets a slot's.
    pub(super) fn set(&mut self, slot: usize, at: Time) {
        let mut node = self.slots() + slot;
        let Some(leaf) = self.least.get_mut(node) else { return };
        *leaf = at;
        while node > 1 {
            let least = self.least[node].min(self.least[node ^ 1]);
            node /= 2;
            if self.least[node] == least {
                break;
            }
            self.least[node] = least;
        }
    }

    /// The earliest.
    pub(super) fn earliest(&self) -> Time {
        self.least[1]
    }

    /// The slot of the earliest, if that has come.
    pub(super) fn due(&self, now: Time) -> Option<usize> {
        let at = self.least[1];
        if at > now {
            return None;
        }
        let mut node = 1;
        while node < self.slots() {
            node *= 2;
            if self.least[node] != at {
                node += 1;
            }
        }
        Some(node - self.slots())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_found_whatever_was_set() {
        let (mut tree, mut list) = (Deadlines::new(), Vec::new());
        let mut random = 7u64;
        for round in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if list.len() < 300 && round % 30 == 0 {
                list.push(Time::NEVER);
                tree.reserve(list.len());
            }
            let slot = (random >> 33) as usize % list.len();
            let at = if random & 0x700_0000 == 0 { Time::NEVER } else { Time(random >> 40 & 0xfff) };
            list[slot] = at;
            tree.set(slot, at);
            let least = list.iter().copied().min().unwrap();
            assert_eq!(tree.earliest(), least);
            if least == Time::NEVER {
                assert_eq!(tree.due(Time(1 << 50)), None);
            } else {
                assert_eq!(tree.due(least).map(|slot| list[slot]), Some(least));
                assert!(least == Time(0) || tree.due(Time(least.0 - 1)).is_none());
            }
        }
        // Nothing is set beyond the end.
        tree.set(1 << 20, Time(0));
    }
}
