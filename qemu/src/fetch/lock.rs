//! A lock between launchers that run at the same time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::error::{Error, Result};

/// Holds the lock until dropped; the system also drops it when the process dies.
pub struct Lock {
    _file: File,
}

/// Takes the lock `path`, waiting for it; says so if it has to.
pub fn take(path: &Path, verbose: bool) -> Result<Lock> {
    let failed = |error| Error::path("lock", path, error);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
    if flock(&file, libc::LOCK_EX | libc::LOCK_NB).is_err() {
        if verbose {
            eprintln!("uvia-vm: waiting for another run that is fetching packages");
        }
        flock(&file, libc::LOCK_EX).map_err(failed)?;
    }
    Ok(Lock { _file: file })
}

fn flock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the call takes an open descriptor and plain numbers.
    if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
