//! How much of something is enough.

/// How much may be asked of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// All that is worth while where nothing is emulated.
    Full,
    /// A part of that.
    Sampled,
    /// A sample, for whoever waits for it.
    Quick,
    /// Under emulation.
    Guest,
}

impl Effort {
    /// Full, or quick where `UVIA_QUICK=1`.
    pub fn native() -> Self {
        if is_set("UVIA_QUICK") { Self::Quick } else { Self::Full }
    }

    /// A part, full where `UVIA_LONG=1`, or quick where `UVIA_QUICK=1`: for a bench that differs from another one in
    /// little.
    pub fn sample() -> Self {
        match (is_set("UVIA_LONG"), is_set("UVIA_QUICK")) {
            (true, _) => Self::Full,
            (_, true) => Self::Quick,
            _ => Self::Sampled,
        }
    }

    /// The count for each; a part is twice what is quick.
    pub fn of(self, full: usize, quick: usize, guest: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Sampled => full.min(2 * quick),
            Self::Quick => quick,
            Self::Guest => guest,
        }
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}
