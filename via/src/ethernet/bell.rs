//! What those who sleep wait on: the adapter's interrupt, and a bell of ours for frames that never reach the adapter.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};

use uvia_driver::Error;

use crate::Result;

/// Readable while the adapter's interrupt or the bell is.
pub(super) struct Bell {
    both: File,
    bell: File,
}

impl Bell {
    /// One for an adapter with this interrupt, which it outlives.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub(super) fn new(interrupt: BorrowedFd<'_>) -> Result<Self> {
        // SAFETY: makes a descriptor and touches nothing else.
        let both = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        let bell = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        for fd in [interrupt.as_raw_fd(), bell.as_raw_fd()] {
            let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: three open descriptors, and an event of ours that is only read.
            if unsafe { libc::epoll_ctl(both.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut wanted) } != 0 {
                return Err(Error::last_os("waiting on an adapter's interrupt").into());
            }
        }
        Ok(Self { both, bell })
    }

    /// Wakes who sleeps.
    pub(super) fn ring(&self) {
        // It fails only where the counter is at its end, and then it is readable.
        let _ = (&self.bell).write(&1u64.to_ne_bytes());
    }

    /// Not readable by it any more, until it rings again.
    pub(super) fn hush(&self) {
        let _ = (&self.bell).read(&mut [0; 8]);
    }

    /// What to sleep on.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}

fn owned(fd: RawFd) -> Result<File> {
    if fd < 0 {
        return Err(Error::last_os("making a descriptor to sleep on").into());
    }
    // SAFETY: the descriptor was just made, is open, and is nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

    use super::Bell;

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, in a local.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn a_sleeper_is_woken_by_the_adapter_and_by_the_bell() {
        let (adapter, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let bell = Bell::new(adapter.as_fd()).unwrap();
        assert!(!is_readable(bell.as_fd()));
        bell.ring();
        bell.ring();
        assert!(is_readable(bell.as_fd()));
        bell.hush();
        assert!(!is_readable(bell.as_fd()));
        std::io::Write::write_all(&mut other, b"x").unwrap();
        assert!(is_readable(bell.as_fd()));
        bell.hush();
        assert!(is_readable(bell.as_fd()), "what the adapter says is the adapter's to take back");
    }
}
