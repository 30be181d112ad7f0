//! Frames that are prebuilt in a slot, and sent again and again with a few bytes changed.

use super::memory::SLOT;
use super::store::WORD;
use super::window::Window;
use crate::dma::DmaSegment;
use crate::{Error, Result};

/// Words of a slot.
const WORDS: usize = SLOT / WORD;

/// A frame in a slot of a window. A patch changes a copy in the host's memory, at any time and any alignment; what of it
/// was changed is stored, by whole words, when it is sent next.
pub struct Template {
    slot: usize,
    len: usize,
    /// What the slot holds, or will hold.
    shadow: Box<[u64; WORDS]>,
    /// A bit a word: the slot does not have it yet.
    dirty: u64,
}

const _: () = assert!(WORDS == u64::BITS as usize);

impl Template {
    /// A frame for slot `slot` of the window that it is sent from; it is stored there when it is sent first.
    ///
    /// # Errors
    /// [`Error::Argument`] for one of no bytes, or longer than [`SLOT`].
    pub fn new(slot: usize, frame: &[u8]) -> Result<Self> {
        if frame.is_empty() || frame.len() > SLOT {
            return Err(Error::Argument {
                what: format!("a template of {} bytes: 1 to {SLOT} are possible", frame.len()),
            });
        }
        let mut template = Self { slot, len: frame.len(), shadow: Box::new([0; WORDS]), dirty: 0 };
        template.patch(0, frame)?;
        Ok(template)
    }

    /// Changes some bytes.
    ///
    /// # Errors
    /// [`Error::Argument`] when they lie beyond the frame's end.
    pub fn patch(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        if at > self.len || bytes.len() > self.len - at {
            return Err(Error::Argument {
                what: format!("a patch of {} bytes at {at} of a template of {}", bytes.len(), self.len),
            });
        }
        for (n, byte) in bytes.iter().enumerate() {
            let (word, shift) = ((at + n) / WORD, (at + n) % WORD * 8);
            self.shadow[word] = self.shadow[word] & !(0xff << shift) | u64::from(*byte) << shift;
            self.dirty |= 1 << word;
        }
        Ok(())
    }

    /// The frame for a NIC's descriptor, as it is now; `None` while the last one is in flight, and where the window has no
    /// such slot. The window is the one that it was sent from before.
    #[inline]
    pub fn send(&mut self, window: &mut Window) -> Option<DmaSegment> {
        let mut slot = window.slot(self.slot)?;
        let mut dirty = self.dirty;
        while dirty != 0 {
            let word = dirty.trailing_zeros() as usize;
            slot.put_words(word * WORD, &[self.shadow[word]]);
            dirty &= dirty - 1;
        }
        self.dirty = 0;
        Some(slot.send(0..self.len))
    }

    /// Words that are stored when it is sent next.
    pub fn changed_words(&self) -> u32 {
        self.dirty.count_ones()
    }
}
