//! A counter in the kernel that an interrupt makes readable.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};

use crate::{Error, Result};

/// An eventfd, non-blocking.
#[derive(Debug)]
pub(super) struct Event {
    file: File,
}

impl Event {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: makes a descriptor and touches nothing else.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last_os("creating an eventfd for interrupts"));
        }
        // SAFETY: the descriptor was just made, is open, and is nobody else's.
        Ok(Self { file: unsafe { File::from_raw_fd(fd) } })
    }

    /// Takes what was signalled, so that it is not readable until the next signal.
    pub(super) fn drain(&self) {
        // An eventfd has one 8-byte counter: one read resets it, and EAGAIN means that it was 0 already.
        let _ = (&self.file).read(&mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
