//! Time as the engine knows it: a number that its caller passes in.

/// Nanoseconds since an arbitrary origin; never runs backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// This much later.
    #[inline]
    pub fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// As [`Time::after`], for spans of the engine's own: a clock that had come so near to its end would be wrong.
    #[inline(always)]
    pub fn soon_after(self, nanos: u64) -> Self {
        Self(self.0.wrapping_add(nanos))
    }

    /// Nanoseconds since `earlier`, 0 if that is later.
    #[inline]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
