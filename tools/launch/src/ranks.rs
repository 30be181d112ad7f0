//! The processes.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use uvia_message::description::variable;
use uvia_tools::{Failure, print_json};

use crate::remote;

/// Between two looks at who has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How long a rank has to end once it was asked to. A watcher on another host gives as much.
const GRACE: Duration = Duration::from_secs(2);
const REMOTE_GRACE: Duration = Duration::from_secs(4);

/// What all ranks have in common.
pub struct Job {
    /// The session's description.
    pub session: String,
    /// Where ranks find each other.
    pub launcher: String,
    /// The program, and its arguments.
    pub command: Vec<String>,
    /// What starts it on other hosts.
    pub remote_shell: String,
}

/// A rank that runs.
struct Rank {
    number: usize,
    host: String,
    child: Child,
    start: Instant,
}

/// How a rank has ended, as `--json` tells it.
#[derive(Debug, Serialize)]
struct End {
    rank: usize,
    host: String,
    /// Its exit status; none when it was killed.
    status: Option<i32>,
    /// The signal that has killed it.
    signal: Option<i32>,
    /// Whether it was ended since another had ended badly.
    ended: bool,
    seconds: f64,
}

/// The processes that were started. Those that still run when this goes are ended.
pub struct Ranks {
    running: Vec<Rank>,
    json: bool,
    /// The signal that asks us to end.
    stop: Arc<AtomicUsize>,
}

impl Ranks {
    /// None yet. From now on signals that ask us to end are heard.
    ///
    /// # Errors
    /// The system takes no handlers.
    pub fn new(json: bool) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, stop.clone(), signal as usize)?;
        }
        Ok(Self { running: Vec::new(), json, stop })
    }

    /// Starts a rank.
    ///
    /// # Errors
    /// There is no such program here, or no remote shell.
    pub fn start(&mut self, number: usize, host: &str, job: &Job) -> Result<(), Failure> {
        let set = [
            (variable::RANK, number.to_string()),
            (variable::SESSION, job.session.clone()),
            (variable::LAUNCHER, job.launcher.clone()),
        ];
        let mut process = if remote::is_here(host) {
            let mut process = remote::tied(&job.command[0])?;
            process.args(&job.command[1..]).envs(set).stdin(Stdio::null());
            process
        } else {
            remote::command(&job.remote_shell, host, &set, &job.command)?
        };
        // A group of its own, so that what it starts is ended with it, and a terminal's interrupt comes to us alone.
        process.process_group(0);
        let start = Instant::now();
        let child =
            process.spawn().map_err(|e| Failure::failed(format!("starting rank {number} on {host}: {e}")))?;
        self.running.push(Rank { number, host: host.to_owned(), child, start });
        Ok(())
    }

    /// Waits for all; when one ends badly the others are ended.
    ///
    /// # Errors
    /// How the first that ended badly did; a signal.
    pub fn wait(mut self) -> Result<(), Failure> {
        while !self.running.is_empty() {
            let signal = self.stop.load(Ordering::Relaxed);
            if signal != 0 {
                return Err(Failure::failed(format!("signal {signal}; the ranks are ended")));
            }
            if let Some((rank, status)) = self.reap(false)? {
                return Err(Failure::failed(format!(
                    "rank {rank} ended with {status}; the others are ended"
                )));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Takes leave of those that have ended; answers which one ended badly first.
    fn reap(&mut self, ended: bool) -> Result<Option<(usize, ExitStatus)>, Failure> {
        let (mut bad, mut ends) = (None, Vec::new());
        self.running.retain_mut(|rank| {
            let Ok(Some(status)) = rank.child.try_wait() else { return true };
            if !status.success() && bad.is_none() {
                bad = Some((rank.number, status));
            }
            ends.push(End {
                rank: rank.number,
                host: rank.host.clone(),
                status: status.code(),
                signal: status.signal(),
                ended,
                seconds: rank.start.elapsed().as_secs_f64(),
            });
            false
        });
        if self.json {
            ends.iter().try_for_each(print_json)?;
        }
        Ok(bad)
    }

    fn signal(&self, signal: Signal) {
        for rank in &self.running {
            if let Some(pid) = Pid::from_raw(rank.child.id() as i32) {
                // A group that has ended already is no matter.
                let _ = kill_process_group(pid, signal);
            }
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        let is_remote = |rank: &Rank| !remote::is_here(&rank.host);
        let grace = if self.running.iter().any(is_remote) { REMOTE_GRACE } else { GRACE };
        for rank in &mut self.running {
            // Whose input ends here ends there.
            drop(rank.child.stdin.take());
        }
        for rank in self.running.iter().filter(|rank| !is_remote(rank)) {
            if let Some(pid) = Pid::from_raw(rank.child.id() as i32) {
                let _ = kill_process_group(pid, Signal::TERM);
            }
        }
        let start = Instant::now();
        while !self.running.is_empty() && start.elapsed() < grace {
            // A pipe that nobody reads any more is no reason to leave ranks behind.
            let _ = self.reap(true);
            std::thread::sleep(LOOK);
        }
        self.signal(Signal::KILL);
        for rank in &mut self.running {
            let _ = rank.child.wait();
        }
        let _ = self.reap(true);
    }
}
