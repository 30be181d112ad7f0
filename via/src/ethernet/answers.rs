//! Management frames that come up while frames are being received, when the adapter cannot send.

use crate::engine::Sent;

/// Bytes of all of them: a burst of requests is answered, a flood is not.
const ROOM: usize = 8192;

/// Frames one after another, to be sent at the end of the burst.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Answers {
    /// Keeps a frame, if there is room.
    pub(super) fn keep(&mut self, frame: &[u8]) -> Sent {
        if self.bytes.len() + frame.len() > ROOM {
            return Sent::Full;
        }
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        Sent::Copied
    }

    /// The frames, in the order in which they came.
    pub(super) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    /// Without frames; their room is kept.
    pub(super) fn emptied(mut self) -> Self {
        self.bytes.clear();
        self.ends.clear();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_and_a_flood_is_bounded() {
        let mut answers = Answers::default();
        assert_eq!(answers.keep(b"one"), Sent::Copied);
        assert_eq!(answers.keep(b"three"), Sent::Copied);
        assert_eq!(answers.frames().collect::<Vec<_>>(), [&b"one"[..], b"three"]);
        let mut kept = 0;
        while answers.keep(&[0; 100]) == Sent::Copied {
            kept += 1;
        }
        assert_eq!(kept, (ROOM - 8) / 100);
        assert_eq!(answers.emptied().frames().count(), 0);
    }
}
