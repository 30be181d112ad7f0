//! Sockets as files: what may be removed, and by whom.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Removes the socket that a process which is no more has left at a path. To connect to it has been refused, as it is at
/// any other file too: those are somebody's, and stay.
///
/// # Errors
/// It is no socket; it cannot be removed.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file already that is no socket; remove it, or choose another path",
        ));
    }
    std::fs::remove_file(path)
}

/// The file of a socket of ours. It is removed when this is dropped, and what others have put there meanwhile is not.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    /// Listens at a path, and keeps its file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        let listener = UnixListener::bind(path)?;
        let id = id(path)?;
        Ok((listener, Self { path: path.to_owned(), id }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id(&self.path).is_ok_and(|id| id == self.id) {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Which file lies at a path.
fn id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "precious").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(remove_stale(&at(name)).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
        drop(UnixListener::bind(at("stale")).unwrap());
        remove_stale(&at("stale")).unwrap();
        assert!(!at("stale").exists());
    }

    #[test]
    fn what_is_not_ours_any_more_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = SocketFile::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = SocketFile::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
