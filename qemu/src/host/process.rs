//! A command in a guest, seen from the host.

use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::guest::Link;
use super::sink::{Collect, Stream};
use crate::error::{Error, Result};
use crate::status::Status;
use crate::wire::{Frame, Kind};

/// A command to run in a guest: program, arguments, environment, folder.
#[derive(Debug, Clone)]
pub struct Task {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: OsString,
}

impl Task {
    /// A program with its arguments.
    pub fn new<T: AsRef<OsStr>>(argv: impl IntoIterator<Item = T>) -> Self {
        let argv = argv.into_iter().map(|word| word.as_ref().to_owned()).collect();
        Task { argv, env: Vec::new(), cwd: "/root".into() }
    }

    /// Adds to the guest's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The folder to run in, instead of /root.
    pub fn cwd(mut self, dir: impl Into<OsString>) -> Self {
        self.cwd = dir.into();
        self
    }

    /// The command, for messages.
    pub fn describe(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

impl<T: AsRef<OsStr>> From<&[T]> for Task {
    fn from(argv: &[T]) -> Self {
        Task::new(argv)
    }
}

impl<T: AsRef<OsStr>, const N: usize> From<&[T; N]> for Task {
    fn from(argv: &[T; N]) -> Self {
        Task::new(argv)
    }
}

impl<T: AsRef<OsStr>, const N: usize> From<[T; N]> for Task {
    fn from(argv: [T; N]) -> Self {
        Task::new(argv)
    }
}

/// How a command ended and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// The standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The standard error as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// What is still to come of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended(Status),
    /// Its guest is gone.
    Lost,
}

/// The end of a command, shared with the thread that reads the control port.
#[derive(Debug)]
pub(crate) struct End {
    state: Mutex<State>,
    changed: Condvar,
}

impl End {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(End { state: Mutex::new(State::Running), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn ended(&self, status: Option<Status>) {
        *self.lock() = status.map_or(State::Lost, State::Ended);
        self.changed.notify_all();
    }
}

/// A command that runs in a guest. Dropping it leaves it running.
#[derive(Debug)]
pub struct Process {
    pub(crate) id: u32,
    pub(crate) what: String,
    pub(crate) link: Arc<Link>,
    pub(crate) end: Arc<End>,
    pub(crate) output: Collect,
}

impl Process {
    /// Waits for its end, at most so long; afterwards it still runs, and can be waited for again.
    pub fn wait(&self, limit: Option<Duration>) -> Result<Outcome> {
        match self.wait_state(limit) {
            State::Ended(status) => {
                Ok(Outcome { status, stdout: self.stdout_so_far(), stderr: self.stderr_so_far() })
            }
            State::Lost => Err(self.link.death()),
            State::Running => Err(Error::TimedOut {
                guest: self.link.guest(),
                what: self.what.clone(),
                seconds: limit.unwrap_or_default().as_secs_f64(),
            }),
        }
    }

    fn wait_state(&self, limit: Option<Duration>) -> State {
        let running = |state: &mut State| *state == State::Running;
        let state = self.end.lock();
        let state = match limit {
            Some(limit) => {
                self.end.changed.wait_timeout_while(state, limit, running).map(|(state, _)| state).ok()
            }
            None => self.end.changed.wait_while(state, running).ok(),
        };
        state.map_or(State::Lost, |state| *state)
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        *self.end.lock() == State::Running
    }

    /// Sends a signal to it and to what it started.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.link.send(&Frame::new(Kind::Signal, self.id, [signal as u8]))
    }

    /// Ends it at once, with what it started, and waits for that.
    pub fn kill(&self) -> Result<Outcome> {
        self.signal(libc::SIGKILL)?;
        self.wait(Some(Duration::from_secs(30)))
    }

    /// Its standard output until now.
    pub fn stdout_so_far(&self) -> Vec<u8> {
        self.output.so_far(Stream::Out)
    }

    /// Its standard error until now.
    pub fn stderr_so_far(&self) -> Vec<u8> {
        self.output.so_far(Stream::Err)
    }

    /// Waits until its output or its errors hold `text`; false if it ends or the time is over first.
    pub fn wait_for_output(&self, text: &str, limit: Duration) -> bool {
        let holds = |bytes: Vec<u8>| bytes.windows(text.len().max(1)).any(|part| part == text.as_bytes());
        let deadline = std::time::Instant::now() + limit;
        loop {
            // Asked before the output is looked at: what came just before the end counts.
            let running = self.is_running();
            if holds(self.stdout_so_far()) || holds(self.stderr_so_far()) {
                return true;
            }
            if !running || std::time::Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
