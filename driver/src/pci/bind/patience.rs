//! Writes to files of the kernel that may keep the writer waiting without a limit.

use std::ffi::CString;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Writes `text` to `path`, and waits no longer than `limit` for the kernel to be done with it; then the answer
/// is [`io::ErrorKind::TimedOut`], and the kernel goes on by itself.
///
/// A child process writes: whoever waits in the kernel cannot be ended, and neither can a process of which one
/// thread waits there.
pub fn write_within(path: &Path, text: &str, limit: Duration) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (mut reader, writer) = io::pipe()?;
    // SAFETY: the child calls nothing but `child`, which calls nothing but async-signal-safe functions and
    // does not return, so that locks that other threads held during the fork do not matter.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => child(&path, text.as_bytes(), writer.as_raw_fd()),
        pid => pid,
    };
    drop(writer);
    let errno = answer(&mut reader, limit)?;
    // It has nothing left to do but end. Without it (a program that has its children reaped for it) all is well.
    // SAFETY: `pid` is our child, and no status is asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    match errno {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn answer(reader: &mut PipeReader, limit: Duration) -> io::Result<i32> {
    let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one `pollfd`, which is ours.
    match unsafe { libc::poll(&mut poll, 1, millis) } {
        -1 => return Err(io::Error::last_os_error()),
        0 => return Err(io::ErrorKind::TimedOut.into()),
        _ => {}
    }
    let mut errno = [0; 4];
    reader.read_exact(&mut errno)?;
    Ok(i32::from_ne_bytes(errno))
}

/// Writes, tells the errno (0 for none), ends. It may live on for long, so it keeps no file open that somebody
/// waits for the end of.
fn child(path: &CString, text: &[u8], tell: RawFd) -> ! {
    const TELL: RawFd = 3;
    // SAFETY: system calls on values that outlive them, in a process of one thread whose open files are used
    // by nobody else.
    unsafe {
        // `tell` is none of the first three, which every Rust program has open.
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..TELL {
            libc::dup2(null, standard);
        }
        libc::dup2(tell, TELL);
        libc::syscall(libc::SYS_close_range, TELL + 1, u32::MAX, 0);
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        let done = file >= 0 && libc::write(file, text.as_ptr().cast(), text.len()) == text.len() as isize;
        let errno = if done { 0 } else { *libc::__errno_location() };
        libc::write(TELL, (&raw const errno).cast(), size_of_val(&errno));
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn what_the_kernel_answers_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert_eq!(write_within(&file, "x", LIMIT).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&file, "").unwrap();
        write_within(&file, "text", LIMIT).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert!(
            write_within(Path::new("/dev/full"), "x", LIMIT).unwrap_err().raw_os_error()
                == Some(libc::ENOSPC)
        );
    }

    #[test]
    fn nobody_waits_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a string that ends with zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let start = Instant::now();
        // Opening it waits for a reader.
        let refused = write_within(&fifo, "x", Duration::from_millis(50)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() < LIMIT);
        // The writer goes on when it can.
        assert_eq!(fs::read_to_string(&fifo).unwrap(), "x");
    }
}
