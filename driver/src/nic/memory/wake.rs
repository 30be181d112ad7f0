//! Waking who sleeps: a pipe that its reader waits on, and that others open by way of its process.
//!
//! A pipe has no name that could be left behind, is gone with its last user, and can be reached by processes of the same
//! user alone.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use crate::{Error, Result};

/// The pipe of one port.
pub(super) struct Alarm {
    reader: File,
    /// Kept open: a pipe without a writer would be readable for ever.
    _writer: File,
}

impl Alarm {
    pub(super) fn new() -> Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: makes two descriptors and writes their numbers to `ends`.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(Error::last_os("creating a pipe to be woken by"));
        }
        // SAFETY: the descriptors were just made, are open, and are nobody else's.
        let [reader, writer] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
        Ok(Self { reader, _writer: writer })
    }

    /// Takes all that was written.
    pub(super) fn drain(&self) {
        // Not blocking; and who floods it is not read for ever.
        let mut bytes = [0; 256];
        for _ in 0..256 {
            if !matches!((&self.reader).read(&mut bytes), Ok(n) if n == bytes.len()) {
                return;
            }
        }
    }

    /// How others find it: the descriptor's number here, and the inode that they will see.
    pub(super) fn address(&self) -> io::Result<(u64, u64)> {
        Ok((self.reader.as_raw_fd() as u64, self.reader.metadata()?.ino()))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Another's pipe.
pub(super) struct Waker(File);

impl Waker {
    /// Opens the pipe that is descriptor `fd` of process `pid`, and has that inode.
    pub(super) fn open(pid: u64, fd: u64, inode: u64) -> io::Result<Self> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let is_it = |about: &Metadata| about.file_type().is_fifo() && about.ino() == inode;
        // Looked at before it is opened too: opening other kinds of files may have effects.
        if is_it(&fs::metadata(&path)?) {
            // For reading too: writing to a pipe whose reader is gone would raise a signal.
            let file =
                OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
            if is_it(&file.metadata()?) {
                return Ok(Self(file));
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "its process has no such pipe any more"))
    }

    /// Makes it readable. A pipe that is full is so already.
    pub(super) fn wake(&self) {
        let _ = (&self.0).write(&[1]);
    }
}
