//! Locks that the kernel takes back when their owner dies, however it dies.
//!
//! They belong to an open file description (not to a process), so that two adapters of one process exclude each other
//! as those of two processes do.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The request for the byte at `at`.
fn request(kind: libc::c_int, at: u64) -> libc::flock {
    // SAFETY: all fields are numbers, for which zero is a value; l_pid has to be 0 for these locks.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_type = kind as libc::c_short;
    flock.l_whence = libc::SEEK_SET as libc::c_short;
    flock.l_start = at as libc::off_t;
    flock.l_len = 1;
    flock
}

/// Takes the lock on a byte, for as long as the file is open; false when somebody else has it.
pub(super) fn try_lock(file: &File, at: u64) -> io::Result<bool> {
    let flock = request(libc::F_WRLCK, at);
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
pub(super) fn unlock(file: &File, at: u64) {
    let flock = request(libc::F_UNLCK, at);
    // SAFETY: as above. It fails for no lock that was taken; and closing the file gives it back in any case.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock) };
}

/// Whether somebody else has the lock on a byte.
pub(super) fn is_locked(file: &File, at: u64) -> io::Result<bool> {
    let mut flock = request(libc::F_WRLCK, at);
    // SAFETY: an open file and a request of ours, which the answer is written to.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut flock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(flock.l_type != libc::F_UNLCK as libc::c_short)
}
