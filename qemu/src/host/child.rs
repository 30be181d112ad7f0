//! QEMU, and what it needs, as child processes that never outlive us.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};

/// A running child; ended when dropped.
#[derive(Debug)]
pub struct Child {
    child: process::Child,
}

/// The children, for the signal handler.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

type Job = (Command, mpsc::Sender<io::Result<process::Child>>);

impl Child {
    /// Starts a command, with these descriptors of ours open in it under the same numbers. It reads nothing, and
    /// its standard error comes to us; what it prints does if the command says so.
    pub fn start(mut command: Command, fds: Vec<RawFd>) -> Result<Self> {
        let parent = process::id();
        let program = command.get_program().to_owned();
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        // A terminal's interrupt goes to us, and we end it.
        command.process_group(0);
        // SAFETY: only calls that are safe between fork and exec, with plain numbers.
        unsafe {
            command.pre_exec(move || {
                // Even if we are killed, it shall not stay.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                if libc::getppid() as u32 != parent {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                // Only here, in the child: in us they stay closed to other children.
                for fd in &fds {
                    if libc::fcntl(*fd, libc::F_SETFD, 0) != 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            })
        };
        let child = spawn(command).map_err(|error| Error::path("start", Path::new(&program), error))?;
        RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(child.id());
        Ok(Child { child })
    }

    /// Its standard output, if that was to come to us; once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Its standard error; once.
    pub fn stderr(&mut self) -> Option<impl io::Read + Send + use<>> {
        self.child.stderr.take()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The processor time that it has used.
    pub fn processor_time(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // SAFETY: the call takes a plain number.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        Duration::from_millis(ticks(&text) * 1000 / ticks_a_second)
    }

    /// Ends it.
    pub fn kill(&mut self) {
        let pid = self.child.id();
        // Forgotten before it is reaped: the number may then be someone else's.
        RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).retain(|known| *known != pid);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// User and system time in a line of /proc/PID/stat, whose second field is a name with any characters.
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Ends every child that runs; for when we end by a signal ourselves.
pub fn kill_all() {
    for pid in RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).drain(..) {
        // SAFETY: the call takes plain numbers; the child is not reaped yet, so the number is still its own.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
}

/// Starts a child from a thread that never ends: PR_SET_PDEATHSIG means the death of the *thread* that
/// started the child, and a test's thread dies before its guest should.
fn spawn(command: Command) -> io::Result<process::Child> {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, todo) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in todo {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let (answer, result) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts children is gone");
    starter
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .send((command, answer))
        .map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_past_odd_names() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20";
        assert_eq!(ticks(line), 42);
        assert_eq!(ticks("nonsense"), 0);
    }

    #[test]
    fn a_child_is_ended_with_its_owner() {
        let mut command = Command::new("/bin/sleep");
        command.arg("600");
        let mut child = Child::start(command, vec![]).unwrap();
        assert!(child.ended().is_none());
        let pid = child.child.id();
        drop(child);
        assert!(!RUNNING.lock().unwrap().contains(&pid));
    }
}
