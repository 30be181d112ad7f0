//! What goes behind a packet's own bytes, from where it lies.

use crate::span::Span;

/// Pieces, or parts of some, that one packet takes from where they lie.
pub(super) const MOST: usize = 4;

/// What the open packet takes from where it lies.
#[derive(Clone, Copy)]
pub(super) struct Gathering {
    parts: [Span; MOST],
    count: usize,
    bytes: usize,
    /// Bytes of the packet's own, which come before.
    used: usize,
    /// Some packet of the message has taken something.
    was_used: bool,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { parts: [Span::NONE; MOST], count: 0, bytes: 0, used: 0, was_used: false }
    }
}

impl Gathering {
    /// Takes memory behind what there is, if one more part goes; answers how many bytes it has taken. `used`: bytes in the
    /// packet's buffer.
    pub(super) fn add(&mut self, part: Span, used: usize) -> usize {
        let Some(place) = self.parts.get_mut(self.count) else { return 0 };
        if part.is_empty() {
            return 0;
        }
        *place = part;
        self.count += 1;
        self.bytes += part.len;
        (self.used, self.was_used) = (used, true);
        part.len
    }

    /// What there is, which is the packet's now.
    pub(super) fn take(&mut self) -> Self {
        let all = *self;
        *self = Self { was_used: self.was_used, ..Self::default() };
        all
    }

    pub(super) fn parts(&self) -> &[Span] {
        &self.parts[..self.count]
    }

    /// Bytes of the parts.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes in the buffer of the packet that has parts.
    pub(super) fn begins_at(&self) -> Option<usize> {
        (self.count > 0).then_some(self.used)
    }

    /// Whether some packet of the message has, or had, parts.
    pub(super) fn was_used(&self) -> bool {
        self.was_used
    }
}
