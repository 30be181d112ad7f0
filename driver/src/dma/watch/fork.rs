//! Whether this process is a fork of the one that it was.

use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// A word that the kernel sets to 0 in a forked child.
pub struct Mark(MmapRaw);

impl Mark {
    /// Of this process.
    ///
    /// # Errors
    /// No memory, or no such advice (before Linux 4.14).
    pub fn new() -> std::io::Result<Self> {
        let map: MmapRaw = MmapOptions::new().len(super::PAGE).map_anon()?.into();
        // SAFETY: a page of ours, of which no byte changes in this process.
        if unsafe { libc::madvise(map.as_mut_ptr().cast(), super::PAGE, libc::MADV_WIPEONFORK) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mark = Self(map);
        mark.word().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is ours, lives as long as `self`, is aligned, and is reached as this word only.
        unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().cast()) }
    }

    /// Whether this is a child of the process that made it.
    #[inline]
    pub fn is_forked(&self) -> bool {
        // Relaxed: a child has one thread, which sees what the kernel made for it.
        self.word().load(Ordering::Relaxed) == 0
    }
}
