//! Makes writers of memory wait, so that it can be replaced under them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// linux/userfaultfd.h.
const API: u64 = 0xaa;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_SHARED_MEMORY: u64 = 1 << 12;
const IOCTL_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const IOCTL_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const IOCTL_WRITE_PROTECT: libc::Ioctl = 0xc018_aa06_u32 as libc::Ioctl;
const MODE_WRITE_PROTECT: u64 = 1 << 1;
const PROTECT: u64 = 1;

/// Pages that nobody can write until this is dropped: whoever tries waits, in system calls too. Reading goes on.
pub struct Frozen {
    /// Closing it lets the writers go on, with whatever is mapped there by then.
    _fault_fd: OwnedFd,
}

impl Frozen {
    /// Freezes whole pages, which must be present, or of a memfd.
    ///
    /// # Errors
    /// This process may not (it takes privileges, or vm.unprivileged_userfaultfd), or the kernel cannot (before 5.19).
    pub fn new(address: *mut u8, len: usize) -> io::Result<Self> {
        // SAFETY: makes a descriptor and touches nothing else.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: it was just made, is open, and is nobody else's.
        let fault_fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (start, len) = (address as u64, len as u64);
        control(&fault_fd, IOCTL_API, &mut [API, FEATURE_WRITE_PROTECT | FEATURE_SHARED_MEMORY, 0])?;
        control(&fault_fd, IOCTL_REGISTER, &mut [start, len, MODE_WRITE_PROTECT, 0])?;
        control(&fault_fd, IOCTL_WRITE_PROTECT, &mut [start, len, PROTECT])?;
        Ok(Self { _fault_fd: fault_fd })
    }
}

fn control<const N: usize>(fd: &OwnedFd, request: libc::Ioctl, words: &mut [u64; N]) -> io::Result<()> {
    // SAFETY: each request's structure is as many words as its number says (the size is part of it) and as are given;
    // the kernel reads and writes no more. Protecting pages changes no byte.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, words.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
