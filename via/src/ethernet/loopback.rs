//! Frames to our own station: no switch sends them back, so that they never reach the adapter.

use std::collections::VecDeque;

use crate::engine::{PayloadPart, Sent};

/// Most frames that wait; beyond it there is no room, as in an adapter's ring.
pub(crate) const ROOM: usize = 256;

/// Copies of frames, from when the engine sends them until it receives them.
#[derive(Default)]
pub(super) struct Loopback {
    frames: VecDeque<Vec<u8>>,
    /// Buffers that are used again.
    spare: Vec<Vec<u8>>,
}

impl Loopback {
    /// Keeps a frame.
    pub(super) fn keep(&mut self, header: &[u8], payload: &[PayloadPart<'_>]) -> Sent {
        if self.frames.len() >= ROOM {
            return Sent::Full;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(header);
        for part in payload {
            let at = frame.len();
            frame.resize(at + part.len, 0);
            if part.region.read(part.offset, &mut frame[at..]).is_err() {
                // The engine has checked what it sends: only memory that the program has unmapped cannot be read.
                self.spare.push(frame);
                return Sent::Gone;
            }
        }
        self.frames.push_back(frame);
        Sent::Copied
    }

    /// Frames that wait.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Takes the oldest frame.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.frames.pop_front()
    }

    /// Its buffer is free again.
    pub(super) fn give_back(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }
}
