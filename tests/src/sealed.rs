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

/// Seconds that sealed code, and what prepares it, may take.
const PATIENCE: u32 = 300;

/// Ends a process that is sealed, and all of its threads: by the one call that is allowed. Sealed code may use it to
/// say by a status what went wrong, which is then [`Sealed::Other`].
pub fn end(status: i32) -> ! {
    loop {
        // SAFETY: the bare call: what glibc would do before it is not allowed. What the process holds goes with it.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Forks, and runs `setup` and then `work` in the child: `work` under a secure-computing filter by which every system
/// call but the exit of the process is death. It is the thread that is sealed: others, which `setup` started, are not.
/// (The kernel's strict mode would not do: it forbids reading the time stamp counter too.)
///
/// # Errors
/// When there is no forking or waiting.
pub fn without_system_calls<T>(setup: impl FnOnce() -> T, work: impl FnOnce(&mut T)) -> io::Result<Sealed> {
    // What a process makes but once is made by now: were another thread making it at the fork, the child would wait for
    // that thread, which it does not have.
    let _ = uvia::Clock::default();
    // SAFETY: the child runs on its own copy of this thread; it takes no lock that another thread of the parent
    // may have held at the fork but the allocator's, which glibc makes good after a fork.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // Another thread of the parent may have held a lock at the fork that a panic's message needs: whatever hangs
        // here ends.
        // SAFETY: sets a timer of this process.
        unsafe { libc::alarm(PATIENCE) };
        // A panic in the child must not run the parent's tests a second time.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut state = setup();
            if !seal() {
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(77) };
            }
            work(&mut state);
            end(0);
        }));
        drop(outcome);
        // SAFETY: ends the child, which failed before it was sealed.
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
        _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS => Sealed::Killed,
        other => Sealed::Other(other),
    })
}

/// Installs the filter; whether that worked.
fn seal() -> bool {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the call is the first word of what a filter is given (struct seccomp_data).
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_exit_group as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the first call takes numbers; the second a filter program, which the kernel copies.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}
