//! Which lie is told when.

use std::time::Duration;

use super::plan::When;
use crate::random::Random;

macro_rules! lies {
    ($($(#[$doc:meta])* $lie:ident = $name:literal,)*) => {
        /// Something that a device may say or do against its specification. An event is a chance to tell it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Lie {
            $($(#[$doc])* $lie,)*
        }

        impl Lie {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$lie,)*];

            /// As files of faults name it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$lie => $name,)*
                }
            }
        }
    };
}

lies! {
    /// A completion for another descriptor or chain, existing or not. Event: a completion.
    BadId = "bad-id",
    /// A completion with a random length. Event: a completion.
    BadLength = "bad-length",
    /// A ring index, or a done bit, far from where it should be. Event: a completion.
    BadIndex = "bad-index",
    /// A completion after the one that should follow it. Event: a completion.
    Reorder = "reorder",
    /// A completion twice. Event: a completion.
    Repeat = "repeat",
    /// A completion some milliseconds later. Event: a completion.
    Late = "late",
    /// A completion that never comes. Event: a completion.
    Never = "never",
    /// Random bytes somewhere in the ring, the driver's part included. Event: a completion.
    Garbage = "garbage",
    /// A received frame is stored where an earlier one was. Event: a frame that is stored.
    StaleAddress = "stale-address",
    /// An interrupt that does not come. Event: an interrupt.
    NoInterrupt = "no-interrupt",
    /// An interrupt for nothing. Event: a completion.
    SpuriousInterrupt = "spurious-interrupt",
    /// Registers read all-ones and nothing is done, until the function is reset. Event: a register access.
    Gone = "gone",
    /// As gone, and for good: surprise removal. Event: a register access.
    Removed = "removed",
    /// A reset that does nothing. Event: a reset, of the chip or of the function.
    NoReset = "no-reset",
    /// The device does no more, says so in its status, and tells by the interrupt of its configuration; virtio only.
    /// Event: a turn at its queues.
    NeedsReset = "needs-reset",
}

/// When each lie is told, and how often it could have been.
#[derive(Debug, Clone)]
pub struct Lies {
    rules: Vec<(Lie, When)>,
    /// Bit n: there is a rule for lie n. So that an honest model pays one test.
    active: u32,
    events: [u64; Lie::ALL.len()],
    told: [u64; Lie::ALL.len()],
    random: Random,
    /// Where received frames were stored, for the lie that stores one there again.
    stored: Vec<u64>,
    next_stored: usize,
}

/// How many addresses of stored frames are remembered.
const REMEMBERED: usize = 64;

impl Lies {
    /// A model that tells the truth.
    pub fn none() -> Self {
        Self::new(&[], Random::new(0))
    }

    /// Lies by rules.
    pub fn new(rules: &[(Lie, When)], random: Random) -> Self {
        let active = rules.iter().fold(0, |active, (lie, _)| active | 1 << *lie as u32);
        Self {
            rules: rules.to_vec(),
            active,
            events: [0; Lie::ALL.len()],
            told: [0; Lie::ALL.len()],
            random,
            stored: Vec::new(),
            next_stored: 0,
        }
    }

    /// Whether there is a rule for any of these.
    #[inline]
    pub fn any(&self, lies: &[Lie]) -> bool {
        self.active != 0 && lies.iter().any(|lie| self.active & 1 << *lie as u32 != 0)
    }

    /// An event: whether the lie is told this time.
    #[inline]
    pub fn tells(&mut self, lie: Lie) -> bool {
        self.active & 1 << lie as u32 != 0 && self.decide(lie)
    }

    #[cold]
    fn decide(&mut self, lie: Lie) -> bool {
        let event = &mut self.events[lie as usize];
        *event += 1;
        let event = *event;
        let mut told = false;
        for (of, when) in &self.rules {
            told |= *of == lie && when.happens(event, &mut self.random);
        }
        self.told[lie as usize] += u64::from(told);
        told
    }

    /// How often a lie was told.
    pub fn told(&self, lie: Lie) -> u64 {
        self.told[lie as usize]
    }

    /// The dice, for what the lie is.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// How late a late completion is.
    pub(super) fn lateness(&mut self) -> Duration {
        Duration::from_micros(500 + self.random.below(10_000))
    }

    /// Where to store a frame that belongs at `address`.
    pub fn storage(&mut self, address: u64) -> u64 {
        if self.active & 1 << Lie::StaleAddress as u32 == 0 {
            return address;
        }
        let stale = self.tells(Lie::StaleAddress) && !self.stored.is_empty();
        if stale {
            return self.stored[self.random.below(self.stored.len() as u64) as usize];
        }
        if self.stored.len() < REMEMBERED {
            self.stored.push(address);
        } else {
            self.stored[self.next_stored] = address;
            self.next_stored = (self.next_stored + 1) % REMEMBERED;
        }
        address
    }
}
