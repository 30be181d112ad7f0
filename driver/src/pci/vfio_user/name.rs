//! Names of devices that are served over vfio-user.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::{Error, Result};

/// What such names begin with.
pub const PREFIX: &str = "vfio-user:";

/// Where a device is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// At a socket in the file system.
    Path(PathBuf),
    /// At the other end of a socket that this process has inherited.
    Inherited(RawFd),
}

impl Place {
    /// Reads `vfio-user:PATH` or `vfio-user:fd:NUMBER`.
    pub fn parse(name: &str) -> Result<Self> {
        let bad = || Error::BadName { name: name.to_owned() };
        let place = name.strip_prefix(PREFIX).filter(|place| !place.is_empty()).ok_or_else(bad)?;
        match place.strip_prefix("fd:") {
            Some(number) => number.parse().ok().filter(|fd| *fd >= 0).map(Self::Inherited).ok_or_else(bad),
            None => Ok(Self::Path(place.into())),
        }
    }
}

/// A copy of a descriptor that was inherited; the original stays open, and harmless: a connection is shut down at its
/// end for all copies.
pub fn inherited(fd: RawFd) -> Result<UnixStream> {
    // SAFETY: asks for flags, and touches nothing else; an fd that is not open is an error.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Error::last_os(format!("{PREFIX}fd:{fd}: taking over the socket")));
    }
    // SAFETY: it was open just now, and is borrowed for the next call only. Were it closed meanwhile by other code of
    // this process, that call would fail or copy what took its number, which the protocol then finds out.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let copy: OwnedFd = borrowed
        .try_clone_to_owned()
        .map_err(|e| Error::io(format!("{PREFIX}fd:{fd}: taking over the socket"), e))?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_numbers() {
        assert_eq!(Place::parse("vfio-user:/run/nic").unwrap(), Place::Path("/run/nic".into()));
        assert_eq!(Place::parse("vfio-user:nic").unwrap(), Place::Path("nic".into()));
        assert_eq!(Place::parse("vfio-user:fd:7").unwrap(), Place::Inherited(7));
        for name in
            ["vfio-user:", "vfio-user:fd:", "vfio-user:fd:x", "vfio-user:fd:-1", "/run/nic", "0000:01:00.0"]
        {
            assert!(matches!(Place::parse(name), Err(Error::BadName { .. })), "{name}");
        }
        assert!(inherited(RawFd::MAX).is_err());
    }
}
