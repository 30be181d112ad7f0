//! Running code where any system call kills it.

use std::io;

/// How code ended that ran sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    /// It made no system call.
    Clean,
    /// The kernel killed it at its first one.
    Killed,
    /// It ended otherwise; the wait status.
    Other(i32),
}

/// Forks, and runs `setup` and then `work` in the child: `work` in the kernel's strict secure-computing mode, in
/// which every call but read, write, exit and sigreturn is death.
///
/// # Errors
/// When there is no forking or waiting.
pub fn without_system_calls<T>(setup: impl FnOnce() -> T, work: impl FnOnce(&mut T)) -> io::Result<Sealed> {
    // SAFETY: the child runs on its own copy of this thread; it takes no lock that another thread of the parent
    // may have held at the fork but the allocator's, which glibc makes good after a fork.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // A panic in the child must not run the parent's tests a second time.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut state = setup();
            // SAFETY: plain calls; the second argument is the mode.
            if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) } != 0 {
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(77) };
            }
            work(&mut state);
            // SAFETY: glibc's `_exit` makes a call that strict mode forbids; this one is allowed, and ends the
            // only thread. What `state` holds goes with the process.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }));
        drop(outcome);
        // SAFETY: as above.
        unsafe { libc::_exit(76) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above; `status` is ours.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(match status {
        0 => Sealed::Clean,
        _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL => Sealed::Killed,
        other => Sealed::Other(other),
    })
}
