//! How much of something is enough.

/// How much may be asked of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// All that is worth while where nothing is emulated.
    Full,
    /// A sample, for whoever waits for it.
    Quick,
    /// Under emulation.
    Guest,
}

impl Effort {
    /// Full, or quick where `UVIA_QUICK=1`.
    pub fn native() -> Self {
        if std::env::var_os("UVIA_QUICK").is_some_and(|value| value == "1") {
            Self::Quick
        } else {
            Self::Full
        }
    }

    /// Quick, or full where `UVIA_LONG=1`: for a bench that differs from another one in little.
    pub fn sample() -> Self {
        if std::env::var_os("UVIA_LONG").is_some_and(|value| value == "1") { Self::Full } else { Self::Quick }
    }

    /// The count for each.
    pub fn of(self, full: usize, quick: usize, guest: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Guest => guest,
        }
    }
}
