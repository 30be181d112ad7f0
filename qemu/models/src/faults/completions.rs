//! The way of a ring's completions from the model to memory, on which they may be bent.

use std::time::Duration;

use super::{Lie, Lies};

/// That a device is done with a descriptor (by its place in the ring) or a chain (by its id).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub id: u32,
    /// Bytes written, or sent.
    pub length: u32,
    /// Whatever else the kind of ring writes with it.
    pub word: u64,
}

/// Most completions that are held back: what comes beyond is dropped, which is a lie as well.
const MOST_HELD: usize = 1024;

/// One ring's completions on their way.
#[derive(Debug, Default)]
pub struct Completions {
    /// Held back, and until when. The first reordered one waits for the next completion instead, or for then.
    held: Vec<(Duration, Completion)>,
    swapped: Option<(Duration, Completion)>,
}

impl Completions {
    /// Those that are told late or out of order.
    const LIES: &'static [Lie] =
        &[Lie::Never, Lie::Late, Lie::Reorder, Lie::Repeat, Lie::BadId, Lie::BadLength];

    /// Forgets all: the ring was reset.
    pub fn clear(&mut self) {
        self.held.clear();
        self.swapped = None;
    }

    /// One completion goes in; what is to be written now is put into `out`.
    #[inline]
    pub fn pass(
        &mut self,
        lies: &mut Lies,
        now: Duration,
        completion: Completion,
        out: &mut Vec<Completion>,
    ) {
        if lies.any(Self::LIES) {
            self.bend(lies, now, completion, out);
        } else {
            out.push(completion);
        }
    }

    #[cold]
    fn bend(
        &mut self,
        lies: &mut Lies,
        now: Duration,
        mut completion: Completion,
        out: &mut Vec<Completion>,
    ) {
        let before = self.swapped.take();
        if lies.tells(Lie::BadId) {
            // Near by, in the ring but elsewhere, or anything at all.
            completion.id = match lies.random().below(3) {
                0 => completion.id.wrapping_add(1),
                1 => lies.random().below(64) as u32,
                _ => lies.random().next() as u32,
            };
        }
        if lies.tells(Lie::BadLength) {
            completion.length = match lies.random().below(3) {
                0 => 0,
                1 => lies.random().below(4096) as u32,
                _ => lies.random().next() as u32,
            };
        }
        if lies.tells(Lie::Never) {
            // Dropped.
        } else if lies.tells(Lie::Late) {
            let due = now + lies.lateness();
            self.hold(due, completion);
        } else if lies.tells(Lie::Reorder) {
            self.swapped = Some((now + lies.lateness(), completion));
        } else {
            out.push(completion);
            if lies.tells(Lie::Repeat) {
                out.push(completion);
            }
        }
        out.extend(before.map(|(_, completion)| completion));
    }

    fn hold(&mut self, due: Duration, completion: Completion) {
        if self.held.len() < MOST_HELD {
            self.held.push((due, completion));
        }
    }

    /// What was held back until now is put into `out`; answers when the next is due.
    #[inline]
    pub fn release(&mut self, now: Duration, out: &mut Vec<Completion>) -> Option<Duration> {
        if self.held.is_empty() && self.swapped.is_none() {
            return None;
        }
        if let Some((due, completion)) = self.swapped
            && due <= now
        {
            self.swapped = None;
            out.push(completion);
        }
        self.held.retain(|(due, completion)| {
            if *due <= now {
                out.push(*completion);
            }
            *due > now
        });
        let next = self.held.iter().map(|(due, _)| *due).min();
        next.into_iter().chain(self.swapped.map(|(due, _)| due)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::When;
    use crate::random::Random;

    fn completion(id: u32) -> Completion {
        Completion { id, length: 60, word: 0 }
    }

    fn pass_three(lie: Lie) -> (Completions, Vec<u32>) {
        let mut lies = Lies::new(&[(lie, When::At(2))], Random::new(1));
        let mut completions = Completions::default();
        let mut out = Vec::new();
        for id in 100..103 {
            completions.pass(&mut lies, Duration::ZERO, completion(id), &mut out);
        }
        assert_eq!(lies.told(lie), 1);
        (completions, out.into_iter().map(|c| c.id).collect())
    }

    #[test]
    fn the_second_is_bent() {
        assert_eq!(pass_three(Lie::Never).1, [100, 102]);
        assert_eq!(pass_three(Lie::Reorder).1, [100, 102, 101]);
        assert_eq!(pass_three(Lie::Repeat).1, [100, 101, 101, 102]);
        assert_ne!(pass_three(Lie::BadId).1, [100, 101, 102]);
    }

    #[test]
    fn the_late_one_comes() {
        let (mut completions, at_once) = pass_three(Lie::Late);
        assert_eq!(at_once, [100, 102]);
        let mut out = Vec::new();
        let due = completions.release(Duration::ZERO, &mut out).unwrap();
        assert!(out.is_empty());
        assert_eq!(completions.release(due, &mut out), None);
        assert_eq!(out, [completion(101)]);
    }
}
