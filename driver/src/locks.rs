//! Locks that the kernel takes back when their owner dies, however it dies.
//!
//! They belong to an open file description (not to a process), so that two adapters of one process exclude each other
//! as those of two processes do.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The request for a range of bytes.
fn request(kind: libc::c_int, range: &Range<u64>) -> libc::flock {
    // SAFETY: all fields are numbers, for which zero is a value; l_pid has to be 0 for these locks.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_type = kind as libc::c_short;
    flock.l_whence = libc::SEEK_SET as libc::c_short;
    flock.l_start = range.start as libc::off_t;
    flock.l_len = (range.end - range.start) as libc::off_t;
    flock
}

/// Takes the lock on a byte, for as long as the file is open; false when somebody else has it.
pub(crate) fn try_lock(file: &File, at: u64) -> io::Result<bool> {
    try_lock_range(file, &(at..at + 1))
}

/// As [`try_lock`], for a range of bytes: false when somebody else has one of them.
pub(crate) fn try_lock_range(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let flock = request(libc::F_WRLCK, range);
    // SAFETY: an open file and a request of ours.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Gives a lock back.
pub(crate) fn unlock(file: &File, at: u64) {
    unlock_range(file, &(at..at + 1));
}

/// Gives the locks on a range of bytes back.
pub(crate) fn unlock_range(file: &File, range: &Range<u64>) {
    let flock = request(libc::F_UNLCK, range);
    // SAFETY: as above. It fails for no lock that was taken; and closing the file gives it back in any case.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock) };
}

/// Whether somebody else has the lock on a byte.
pub(crate) fn is_locked(file: &File, at: u64) -> io::Result<bool> {
    is_range_locked(file, &(at..at + 1))
}

/// Whether somebody else has the lock on one of these bytes.
pub(crate) fn is_range_locked(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let mut flock = request(libc::F_WRLCK, range);
    // SAFETY: an open file and a request of ours, which the answer is written to.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut flock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(flock.l_type != libc::F_UNLCK as libc::c_short)
}
