//! A truth that is looked at together with others.

/// A truth that is kept as a number: what several of them come to, and other numbers, is one branch. Branches are what
/// emulated processors do slowly, and a number takes one instruction less than a `bool` to be joined with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flag(u32);

impl Flag {
    /// 0 if it is not set.
    #[inline(always)]
    pub(crate) fn word(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn is_set(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Flag {
    #[inline(always)]
    fn from(set: bool) -> Self {
        Self(set.into())
    }
}
