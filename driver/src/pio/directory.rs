//! The first pages of adapter memory: how it is cut up, and to whom each window was given last.
//!
//! Locks tell who has a window now. What they cannot tell is whether a window whose owner died may still be fetched from:
//! so the owner's process and NIC stand here until it has given the window back in order.
//!
//! ```text
//! 0   "uviaPIO1"   8 bytes of a window   16 bytes of a slot   24 windows
//! 256 records of 256 bytes: 0 the owner's process, 0 where there is none   8 bytes of the name   16 the NIC's name
//! ```
//!
//! Whoever can map the memory can write here: nothing is believed, and what makes no sense is taken for an owner that
//! nothing is known of.

use super::store::{self, WORD};
use super::{SLOT, WINDOW};

/// What an ordered memory begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"uviaPIO1");
const RECORD: usize = 256;
const NAME_AT: usize = 16;
const PAGE: usize = 4096;
/// Longest name of a NIC that a record holds; of longer ones the beginning.
const NAME: usize = RECORD - NAME_AT;

/// The first pages of a memory that is `len` bytes long and stays mapped.
#[derive(Clone, Copy)]
pub(super) struct Directory {
    at: *mut u8,
    windows: usize,
}

/// To whom a window was given, and not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) process: u32,
    pub(super) nic: String,
}

/// Bytes of a directory for so many windows.
fn bytes(windows: usize) -> usize {
    ((1 + windows) * RECORD).next_multiple_of(PAGE)
}

/// How many windows there are in so many bytes of memory.
pub(super) fn windows_in(len: usize) -> usize {
    let mut windows = len / WINDOW;
    while windows > 0 && bytes(windows) + windows * WINDOW > len {
        windows -= 1;
    }
    windows
}

impl Directory {
    /// # Safety
    /// `[at, at + len)` is mapped, readable and writable, as long as this or a copy of it is used, and `at` is a multiple
    /// of the page size.
    pub(super) unsafe fn new(at: *mut u8, len: usize) -> Self {
        Self { at, windows: windows_in(len) }
    }

    pub(super) fn windows(&self) -> usize {
        self.windows
    }

    /// Where a window begins, bytes.
    pub(super) fn window_at(&self, number: usize) -> usize {
        bytes(self.windows) + number * WINDOW
    }

    fn word(&self, offset: usize) -> u64 {
        debug_assert!(offset.is_multiple_of(WORD) && offset < bytes(self.windows));
        // SAFETY: within the directory, which `new` was promised to be mapped; a multiple of 8.
        u64::from_le(unsafe { self.at.add(offset).cast::<u64>().read_volatile() })
    }

    fn set_word(&self, offset: usize, value: u64) {
        debug_assert!(offset.is_multiple_of(WORD) && offset < bytes(self.windows));
        // SAFETY: as for `word`.
        unsafe { store::words(self.at.add(offset), &[value]) };
    }

    /// Whether the memory answers as one that was put in order: one whose decoding is off does not.
    pub(super) fn is_there(&self) -> bool {
        self.word(0) == MAGIC
    }

    /// Whether it is cut up as this version does it.
    pub(super) fn is_ours(&self) -> bool {
        let layout = [MAGIC, WINDOW as u64, SLOT as u64, self.windows as u64];
        layout.iter().enumerate().all(|(n, word)| self.word(n * WORD) == *word)
    }

    /// Puts a memory in order that nobody uses; `is_there` from now on, if the memory takes stores at all.
    pub(super) fn format(&self) {
        for n in 0..self.windows {
            self.set_word(RECORD * (1 + n), 0);
        }
        for (n, word) in [WINDOW, SLOT, self.windows].into_iter().enumerate() {
            self.set_word((1 + n) * WORD, word as u64);
        }
        store::fence();
        self.set_word(0, MAGIC);
        store::fence();
    }

    /// Who was given a window and has not given it back.
    pub(super) fn owner(&self, number: usize) -> Option<Owner> {
        let at = RECORD * (1 + number);
        let process = self.word(at);
        if process == 0 {
            return None;
        }
        let len = (self.word(at + WORD) as usize).min(NAME);
        let mut name: Vec<u8> =
            (0..len.div_ceil(WORD)).flat_map(|n| self.word(at + NAME_AT + n * WORD).to_le_bytes()).collect();
        name.truncate(len);
        Some(Owner {
            process: u32::try_from(process).unwrap_or(u32::MAX),
            nic: String::from_utf8_lossy(&name).into_owned(),
        })
    }

    /// Notes that a window was given to somebody.
    pub(super) fn set_owner(&self, number: usize, owner: &Owner) {
        let at = RECORD * (1 + number);
        let name = &owner.nic.as_bytes()[..owner.nic.len().min(NAME)];
        self.set_word(at + WORD, name.len() as u64);
        for (n, chunk) in name.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..chunk.len()].copy_from_slice(chunk);
            self.set_word(at + NAME_AT + n * WORD, u64::from_le_bytes(word));
        }
        // Whoever dies before this has not been given the window.
        store::fence();
        self.set_word(at, owner.process.into());
        store::fence();
    }

    /// Notes that a window was given back in order.
    pub(super) fn clear_owner(&self, number: usize) {
        store::fence();
        self.set_word(RECORD * (1 + number), 0);
        store::fence();
    }

    /// Zeros all of a window.
    pub(super) fn clear(&self, number: usize) {
        // SAFETY: windows lie within the memory, as was counted, at multiples of the page size.
        unsafe { store::zeros(self.at.add(self.window_at(number)), WINDOW / WORD) };
        store::fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_memory_is_used_and_no_more() {
        assert_eq!((windows_in(0), windows_in(PAGE), windows_in(PAGE + WINDOW - 1)), (0, 0, 0));
        assert_eq!(windows_in(PAGE + WINDOW), 1);
        assert_eq!(windows_in(1 << 20), 124);
        for len in (0..4 << 20).step_by(PAGE) {
            let windows = windows_in(len);
            assert!(windows == 0 || bytes(windows) + windows * WINDOW <= len);
            assert!(bytes(windows + 1) + (windows + 1) * WINDOW > len, "{len} has room for one more");
        }
    }

    #[test]
    fn owners_are_noted_whatever_their_names() {
        let mut memory = memmap2::MmapMut::map_anon(1 << 20).unwrap();
        // SAFETY: the mapping outlives the directory, and is used by nobody else meanwhile.
        let directory = unsafe { Directory::new(memory.as_mut_ptr(), 1 << 20) };
        assert!(!directory.is_there());
        directory.format();
        assert!(directory.is_there() && directory.is_ours());
        for nic in ["", "0000:01:00.0", "vfio-user:/run/adapters/a", &"x".repeat(NAME), &"é".repeat(NAME)] {
            let owner = Owner { process: 4711, nic: nic.to_owned() };
            directory.set_owner(3, &owner);
            let noted = directory.owner(3).unwrap();
            assert_eq!(noted.process, 4711);
            assert!(nic.len() > NAME || noted.nic == nic, "{nic}");
        }
        assert_eq!((directory.owner(2), directory.owner(4)), (None, None));
        directory.clear_owner(3);
        assert_eq!(directory.owner(3), None);
        // Nothing that stands there is believed.
        for at in 0..RECORD / WORD {
            directory.set_word(RECORD + at * WORD, u64::MAX);
        }
        assert_eq!(directory.owner(0).unwrap().process, u32::MAX);
        directory.set_word(8, 1);
        assert!(directory.is_there() && !directory.is_ours());
    }
}
