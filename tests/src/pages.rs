//! Memory that a program maps and unmaps by itself.

use std::ptr;

/// Pages at an address of the kernel's choice or of one's own. They stay when this is dropped.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    /// The first byte.
    pub at: *mut u8,
    /// Bytes, whole pages.
    pub len: usize,
}

impl Pages {
    /// Shared memory, so that there can be a second view of it; zeroed.
    pub fn shared(len: usize) -> Self {
        Self::map(ptr::null_mut(), len, libc::MAP_SHARED)
    }

    /// Private memory, zeroed.
    pub fn private(len: usize) -> Self {
        Self::map(ptr::null_mut(), len, libc::MAP_PRIVATE)
    }

    /// Other shared memory in their place, which unmaps them. In one call: between two, another thread's memory might
    /// come to lie there.
    pub fn replaced(self) -> Self {
        Self::map(self.at, self.len, libc::MAP_SHARED | libc::MAP_FIXED)
    }

    fn map(place: *mut u8, len: usize, flags: i32) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory, at a place of the kernel's choice or in place of pages of the caller's.
        let at = unsafe { libc::mmap(place.cast(), len, rights, flags | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { at: at.cast(), len }
    }

    /// Unmaps them.
    pub fn unmap(self) {
        // SAFETY: pages of the caller's, which has no reference to them.
        assert_eq!(unsafe { libc::munmap(self.at.cast(), self.len) }, 0);
    }

    /// Gives their contents back to the system: they read as zeros, if they are private.
    pub fn empty(&self) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(self.at.cast(), self.len, libc::MADV_DONTNEED) }, 0);
    }

    /// Moves them elsewhere.
    pub fn moved(self) -> Self {
        let to = Self::private(self.len);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: both are the caller's, without references.
        let at = unsafe { libc::mremap(self.at.cast(), self.len, self.len, flags, to.at) };
        assert_eq!(at, to.at.cast());
        to
    }

    /// Writes each byte.
    pub fn fill(&self, value: u8) {
        // SAFETY: within the pages.
        (0..self.len).for_each(|n| unsafe { self.at.add(n).write_volatile(value) });
    }

    /// Whether each of the first `len` bytes is that.
    pub fn are(&self, len: usize, value: u8) -> bool {
        // SAFETY: within the pages.
        (0..len.min(self.len)).all(|n| unsafe { self.at.add(n).read_volatile() } == value)
    }
}
