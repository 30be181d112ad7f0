//! The folder that is received into. Nothing is opened or made outside of it, whatever the path says.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use uvia_tools::Failure;

/// A folder to receive into.
pub struct Room {
    dir: File,
    path: PathBuf,
}

/// A file in the making. It has no name, or one of its own, until it is published.
pub struct Part {
    /// To write to.
    pub file: File,
    parent: OwnedFd,
    name: CString,
    /// The name that it has meanwhile, if it has one.
    hidden: Option<CString>,
    /// Whether it stays when it is not finished.
    keep: bool,
    force: bool,
}

impl Room {
    /// Opens the folder.
    ///
    /// # Errors
    /// It is not there, not a folder, or may not be written.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let dir = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(path)
            .map_err(|e| Failure::failed(format!("receiving into {}: {e}", path.display())))?;
        // SAFETY: a path of one byte and an open folder; the call only asks.
        if unsafe { libc::faccessat(dir.as_raw_fd(), c".".as_ptr(), libc::W_OK, libc::AT_EACCESS) } != 0 {
            return Err(Failure::failed(format!("{}: {}", path.display(), io::Error::last_os_error())));
        }
        Ok(Self { dir, path: path.to_owned() })
    }

    /// Begins a file that is to be at `path`.
    ///
    /// # Errors
    /// A path that is none below the folder, a file that is there already (without `force`), or what the system
    /// says.
    pub fn begin(&self, path: &[u8], force: bool, resume: bool) -> Result<Part, Failure> {
        let shown = Path::new(OsStr::from_bytes(path));
        let fail = |e: io::Error| {
            let why = match e.raw_os_error() {
                Some(libc::EXDEV) => "it leads out of the folder that is received into".to_owned(),
                Some(libc::ENOENT) => "the folder to put it into does not exist there".to_owned(),
                _ => e.to_string(),
            };
            Failure::failed(format!("{}: {why}", shown.display()))
        };
        let (parent, name) = split(path).ok_or_else(|| fail(io::Error::from_raw_os_error(libc::EXDEV)))?;
        let parent = self.open_beneath(&parent).map_err(fail)?;
        match kind_of(&parent, &name) {
            Ok(Kind::File) if force => {}
            Ok(Kind::File) => {
                return Err(Failure::failed(format!(
                    "{} is there already; replace it with --force",
                    shown.display()
                )));
            }
            Ok(Kind::Other) => {
                return Err(Failure::failed(format!("{} is there, and is no file", shown.display())));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(fail(e)),
        }
        let (file, hidden) = if resume {
            open_hidden(&parent, &name, false).map_err(fail)?
        } else {
            match open_nameless(&parent) {
                Ok(file) => (file, None),
                // Not every file system has files without names.
                Err(e)
                    if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) =>
                {
                    open_hidden(&parent, &name, true).map_err(fail)?
                }
                Err(e) => return Err(fail(e)),
            }
        };
        Ok(Part { file, parent, name, hidden, keep: resume, force })
    }

    /// Opens a folder below this one; the kernel refuses every way out of it.
    fn open_beneath(&self, path: &CString) -> io::Result<OwnedFd> {
        // SAFETY: all zero is a valid `open_how`.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_RDONLY) as u64;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
        // SAFETY: an open folder, a terminated path and a structure of the size given.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                self.dir.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        owned(fd)
    }

    /// The folder, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Part {
    /// Gives the file its name. All of it has been written and synchronised.
    ///
    /// # Errors
    /// Somebody else has made a file of that name meanwhile, or what the system says.
    pub fn publish(mut self) -> io::Result<()> {
        if self.hidden.is_none() {
            let own = CString::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
            if !self.force {
                return link(&own, &self.parent, &self.name);
            }
            // A link cannot replace: it gets a name of its own first.
            let hidden = hidden_name(&self.name, true);
            link(&own, &self.parent, &hidden)?;
            self.hidden = Some(hidden);
        }
        let Some(hidden) = &self.hidden else { return Ok(()) };
        let flags = if self.force { 0 } else { libc::RENAME_NOREPLACE };
        let parent = self.parent.as_raw_fd();
        // SAFETY: two terminated names in an open folder.
        let outcome = unsafe { libc::renameat2(parent, hidden.as_ptr(), parent, self.name.as_ptr(), flags) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        self.hidden = None;
        // The name lasts when the folder is on disk too. File systems that cannot do it need not.
        // SAFETY: an open folder.
        let _ = unsafe { libc::fsync(parent) };
        Ok(())
    }

    /// What has arrived is not worth keeping.
    pub fn discard(mut self) {
        self.keep = false;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(hidden) = self.hidden.take().filter(|_| !self.keep) {
            // SAFETY: a terminated name in an open folder. There is nobody to tell when it fails.
            let _ = unsafe { libc::unlinkat(self.parent.as_raw_fd(), hidden.as_ptr(), 0) };
        }
    }
}

/// A path's folder and last name; none for one that is no file's.
fn split(path: &[u8]) -> Option<(CString, CString)> {
    let (parent, name) = match path.iter().rposition(|b| *b == b'/') {
        // Absolute paths are left to the kernel, which refuses them.
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    if matches!(name, b"" | b"." | b"..") {
        return None;
    }
    Some((CString::new(parent).ok()?, CString::new(name).ok()?))
}

enum Kind {
    File,
    Other,
}

fn kind_of(parent: &OwnedFd, name: &CString) -> io::Result<Kind> {
    // SAFETY: all zero is a valid `stat`.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: an open folder, a terminated name, and room for the answer.
    let outcome =
        unsafe { libc::fstatat(parent.as_raw_fd(), name.as_ptr(), &mut about, libc::AT_SYMLINK_NOFOLLOW) };
    match outcome {
        0 if about.st_mode & libc::S_IFMT == libc::S_IFREG => Ok(Kind::File),
        0 => Ok(Kind::Other),
        _ => Err(io::Error::last_os_error()),
    }
}

fn open_nameless(parent: &OwnedFd) -> io::Result<File> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: an open folder and a terminated path.
    owned(unsafe { libc::openat(parent.as_raw_fd(), c".".as_ptr(), flags, 0o600) }.into()).map(File::from)
}

/// A file whose name begins with a dot. What is there under it is used again, unless it is to be `new`.
fn open_hidden(parent: &OwnedFd, name: &CString, new: bool) -> io::Result<(File, Option<CString>)> {
    let hidden = hidden_name(name, new);
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let flags = if new { flags | libc::O_EXCL } else { flags };
    // SAFETY: an open folder and a terminated name.
    let fd = owned(unsafe { libc::openat(parent.as_raw_fd(), hidden.as_ptr(), flags, 0o600) }.into())?;
    let file = File::from(fd);
    // Two copies into one partial file would spoil it.
    file.try_lock().map_err(|e| match e {
        std::fs::TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another copy to it is under way")
        }
        std::fs::TryLockError::Error(e) => e,
    })?;
    Ok((file, Some(hidden)))
}

/// `.NAME.uvia-part`, or one that no other process uses.
fn hidden_name(name: &CString, own: bool) -> CString {
    let mut bytes = b".".to_vec();
    // Names have 255 bytes at most; a shortened one may serve two files, and the lock then keeps them apart.
    bytes.extend(&name.as_bytes()[..name.as_bytes().len().min(220)]);
    bytes.extend(b".uvia-part");
    if own {
        bytes.extend(format!("-{}", std::process::id()).bytes());
    }
    // A name that came out of a C string has no zero byte.
    CString::new(bytes).unwrap_or_else(|_| c".uvia-part".to_owned())
}

fn link(own: &CString, parent: &OwnedFd, name: &CString) -> io::Result<()> {
    // SAFETY: two terminated paths, the second in an open folder.
    let outcome = unsafe {
        libc::linkat(libc::AT_FDCWD, own.as_ptr(), parent.as_raw_fd(), name.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn owned(fd: i64) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn room() -> (tempfile::TempDir, Room) {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("in");
        fs::create_dir_all(inner.join("sub")).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        let room = Room::open(&inner).unwrap();
        (dir, room)
    }

    #[test]
    fn no_path_leads_out() {
        let (dir, room) = room();
        let inner = dir.path().join("in");
        symlink("../out", inner.join("away")).unwrap();
        symlink("/", inner.join("root")).unwrap();
        symlink("sub", inner.join("near")).unwrap();
        for path in
            ["../x", "/tmp/x", "sub/../../x", "away/x", "root/tmp/x", "..", ".", "", "sub/", "sub/..", "a\0b"]
        {
            assert!(room.begin(path.as_bytes(), true, false).is_err(), "{path}");
            assert!(room.begin(path.as_bytes(), true, true).is_err(), "{path}");
        }
        assert!(room.begin(b"nowhere/x", false, false).is_err());
        for path in ["x", "sub/x", "near/y", "sub/../z"] {
            room.begin(path.as_bytes(), false, false).unwrap().publish().unwrap();
        }
        assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 0);
        assert!(inner.join("sub/y").is_file() && inner.join("z").is_file());
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let (dir, room) = room();
        let at = dir.path().join("in/x");
        let count = || fs::read_dir(dir.path().join("in")).unwrap().count();
        let before = count();
        let mut part = room.begin(b"x", false, false).unwrap();
        part.file.write_all(b"half").unwrap();
        drop(part);
        assert_eq!(count(), before);
        for keep in [false, true] {
            let mut part = room.begin(b"x", false, keep).unwrap();
            part.file.write_all(b"whole").unwrap();
            part.publish().unwrap();
            assert_eq!(fs::read(&at).unwrap(), b"whole");
            assert_eq!(count(), before + 1, "nothing else is left");
            assert!(room.begin(b"x", false, keep).is_err(), "it is not replaced without being asked");
            let mut part = room.begin(b"x", true, keep).unwrap();
            part.file.write_all(b"other").unwrap();
            part.publish().unwrap();
            assert_eq!(fs::read(&at).unwrap(), b"other");
            fs::remove_file(&at).unwrap();
        }
        // Somebody is faster.
        let part = room.begin(b"x", false, false).unwrap();
        fs::write(&at, "theirs").unwrap();
        assert!(part.publish().is_err());
        assert_eq!(fs::read(&at).unwrap(), b"theirs");
        // A folder or a link is never replaced.
        assert!(room.begin(b"sub", true, false).is_err());
        symlink("x", dir.path().join("in/link")).unwrap();
        assert!(room.begin(b"link", true, false).is_err());
    }

    #[test]
    fn a_partial_file_is_kept_for_one_copy_at_a_time() {
        let (dir, room) = room();
        let mut part = room.begin(b"x", false, true).unwrap();
        part.file.write_all(b"half").unwrap();
        assert!(room.begin(b"x", false, true).is_err(), "another copy is under way");
        drop(part);
        let part = room.begin(b"x", false, true).unwrap();
        assert_eq!(part.file.metadata().unwrap().len(), 4);
        part.discard();
        assert_eq!(fs::read_dir(dir.path().join("in")).unwrap().count(), 1);
    }
}
