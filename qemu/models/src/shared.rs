//! Register pages that a client may map into its own process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Pages of 32-bit registers in a file of memory that can neither grow nor shrink, so that a client that has
/// it cannot make an access of ours fail.
///
/// The other side may store at any time: each load is a value of its own, to be checked after it was loaded.
pub struct SharedPages {
    map: MmapRaw,
    file: File,
}

impl SharedPages {
    /// `len` bytes of zeros, whole pages.
    ///
    /// # Errors
    /// No memory, or no file descriptors.
    pub fn new(len: usize) -> io::Result<Self> {
        // SAFETY: makes a descriptor from a constant name and touches nothing else.
        let fd = unsafe {
            libc::memfd_create(c"uvia-registers".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, is open, and is nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: a control call on a descriptor that is open, with an integer argument.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Self { map, file })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// The file, for handing on.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let at = offset / 4 % (self.map.len() / 4);
        // SAFETY: `at` is below the number of words in the mapping, which is page-aligned and lives as long as
        // `self`. Its pages are always there: the file is sealed against shrinking. Others reach them by
        // their own stores, which to us is as if by atomics.
        unsafe { &*self.map.as_ptr().cast::<AtomicU32>().add(at) }
    }

    /// The register at byte `offset`. What the client stored before it is seen after this.
    #[inline]
    pub fn load(&self, offset: usize) -> u32 {
        u32::from_le(self.word(offset).load(Ordering::Acquire))
    }

    /// Stores a register.
    #[inline]
    pub fn store(&self, offset: usize, value: u32) {
        self.word(offset).store(value.to_le(), Ordering::Release);
    }

    /// Stores a register, and answers what it was.
    #[inline]
    pub fn swap(&self, offset: usize, value: u32) -> u32 {
        u32::from_le(self.word(offset).swap(value.to_le(), Ordering::AcqRel))
    }

    /// All registers.
    pub fn fill(&self, value: u32) {
        for offset in (0..self.len()).step_by(4) {
            self.store(offset, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn stores_are_seen_and_the_file_cannot_shrink() {
        let pages = SharedPages::new(8192).unwrap();
        pages.store(4100, 7);
        assert_eq!((pages.load(4100), pages.load(0)), (7, 0));
        assert_eq!(pages.swap(4100, 9), 7);
        pages.fill(3);
        assert_eq!((pages.load(0), pages.load(8188)), (3, 3));
        // SAFETY: a control call on a descriptor that is open.
        assert_eq!(unsafe { libc::ftruncate(pages.file().as_raw_fd(), 4096) }, -1);
    }
}
