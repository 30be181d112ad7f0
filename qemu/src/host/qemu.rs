//! QEMU as a child process that never outlives us.

use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::paths;

/// A running QEMU; ended when dropped.
#[derive(Debug)]
pub struct Qemu {
    child: Child,
}

/// The children, for the signal handler.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Finds QEMU.
pub fn find(name: &Path) -> Result<PathBuf> {
    paths::program(name).ok_or_else(|| Error::NoProgram {
        program: name.display().to_string(),
        source: io::ErrorKind::NotFound.into(),
        remedy: "install QEMU (Debian: apt-get install --no-install-recommends qemu-system-x86) or give --qemu PATH"
            .into(),
    })
}

impl Qemu {
    /// Starts QEMU with these arguments, and with these descriptors of ours open in it under the same numbers.
    pub fn start(program: &Path, args: &[OsString], fds: Vec<RawFd>) -> Result<Self> {
        let parent = std::process::id();
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
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
        let child = spawn(command).map_err(|error| Error::path("start", program, error))?;
        RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(child.id());
        Ok(Qemu { child })
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

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

/// User and system time in a line of /proc/PID/stat, whose second field is a name with any characters.
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Ends every QEMU that runs; for when we end by a signal ourselves.
pub fn kill_all() {
    for pid in RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).drain(..) {
        // SAFETY: the call takes plain numbers; the child is not reaped yet, so the number is still its own.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
}

/// Starts a child from a thread that never ends: PR_SET_PDEATHSIG means the death of the *thread* that
/// started the child, and a test's thread dies before its guest should.
fn spawn(command: Command) -> io::Result<Child> {
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
    fn a_missing_qemu_is_an_error_that_says_how_to_get_it() {
        let error = find(Path::new("no-such-qemu")).unwrap_err();
        assert!(error.to_string().contains("apt-get install"), "{error}");
        assert_eq!(error.status(), 125);
    }

    #[test]
    fn processor_time_is_read_past_odd_names() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20";
        assert_eq!(ticks(line), 42);
        assert_eq!(ticks("nonsense"), 0);
    }

    #[test]
    fn a_child_is_ended_with_its_owner() {
        let mut qemu = Qemu::start(Path::new("/bin/sleep"), &["600".into()], vec![]).unwrap();
        assert!(qemu.ended().is_none());
        let pid = qemu.child.id();
        drop(qemu);
        assert!(!RUNNING.lock().unwrap().contains(&pid));
    }
}
