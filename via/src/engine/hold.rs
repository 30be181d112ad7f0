//! What a descriptor of the send queue still waits for.

/// How far a descriptor of the send queue has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// All of it was sent at least once.
    Sent,
    /// Frames of it were not sent yet.
    Waiting,
    /// Its status says what became of it; the adapter may still refer to its memory.
    Ended,
}

/// A descriptor's stage, the frames in the adapter that refer to its memory, and whether an answer to it is to come: in
/// one word, since each completion looks at all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold(u32);

/// The stage has the lowest bits.
const STAGES: u32 = 3;
/// One frame that refers to its memory.
const REFERENCE: u32 = 4;
/// An RDMA read whose answer has not all come. Fewer frames are in an adapter than would reach this.
const UNANSWERED: u32 = 1 << 31;

impl Hold {
    /// All was sent, and nothing refers to its memory: the word is 0, which is what is looked for most.
    pub(super) const SENT: Self = Self(0);
    /// All was sent, and one frame refers to its memory.
    pub(super) const REFERRED_TO: Self = Self(REFERENCE);
    /// Nothing was sent.
    pub(super) const WAITING: Self = Self(1);
    /// Its status says what became of it, and nothing refers to its memory.
    pub(super) const ENDED: Self = Self(2);

    /// 0 if it is [`Hold::SENT`].
    #[inline(always)]
    pub(super) fn unlike_sent(self) -> u32 {
        self.0 ^ Self::SENT.0
    }

    #[inline(always)]
    pub(super) fn stage(self) -> Stage {
        match self.0 & STAGES {
            0 => Stage::Sent,
            1 => Stage::Waiting,
            _ => Stage::Ended,
        }
    }

    pub(super) fn set_stage(&mut self, stage: Stage) {
        let stage = match stage {
            Stage::Sent => Self::SENT,
            Stage::Waiting => Self::WAITING,
            Stage::Ended => Self::ENDED,
        };
        self.0 = self.0 & !STAGES | stage.0;
    }

    /// One more frame refers to its memory.
    #[inline]
    pub(super) fn refer(&mut self) {
        self.0 += REFERENCE;
    }

    /// So many more do.
    pub(super) fn refer_more(&mut self, frames: u32) {
        self.0 += frames * REFERENCE;
    }

    /// So many frames less do.
    #[inline]
    pub(super) fn let_go(&mut self, frames: u32) {
        let references = self.0 & !(STAGES | UNANSWERED);
        self.0 -= references.min(frames * REFERENCE);
    }

    /// Whether frames refer to its memory.
    #[cfg(test)]
    pub(super) fn is_referred_to(self) -> bool {
        self.0 & !(STAGES | UNANSWERED) != 0
    }

    /// Whether nothing but its stage keeps it.
    #[inline]
    pub(super) fn is_free(self) -> bool {
        self.0 & !STAGES == 0
    }

    /// An answer is to come.
    pub(super) fn ask(&mut self) {
        self.0 |= UNANSWERED;
    }

    /// It has come, or will not.
    pub(super) fn answered(&mut self) {
        self.0 &= !UNANSWERED;
    }

    /// Whether an answer is to come.
    pub(super) fn is_unanswered(self) -> bool {
        self.0 & UNANSWERED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_references_and_answer_do_not_touch_each_other() {
        let mut hold = Hold::WAITING;
        hold.refer();
        hold.refer();
        hold.ask();
        hold.set_stage(Stage::Sent);
        assert!(hold.stage() == Stage::Sent && hold.is_referred_to() && hold.is_unanswered());
        hold.let_go(1);
        hold.let_go(1);
        // One that was never there changes nothing.
        hold.let_go(1);
        assert!(!hold.is_referred_to() && !hold.is_free() && hold != Hold::SENT);
        hold.answered();
        assert!(hold.is_free() && hold == Hold::SENT);
        hold.refer();
        hold.set_stage(Stage::Ended);
        assert_ne!(hold, Hold::ENDED);
        hold.let_go(1);
        assert_eq!(hold, Hold::ENDED);
        assert_eq!(Hold::WAITING.stage(), Stage::Waiting);
        let mut hold = Hold::REFERRED_TO;
        hold.refer_more(4);
        hold.ask();
        hold.let_go(3);
        assert!(hold.is_referred_to());
        // More than there are.
        hold.let_go(3);
        hold.answered();
        assert_eq!(hold, Hold::SENT);
    }
}
