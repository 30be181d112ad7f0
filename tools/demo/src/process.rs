//! Programs that the demonstration starts: each has to end in bounded time, and is ended with whatever owns it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use uvia_tools::{Failure, Tied};

/// Between two looks at a child.
const LOOK: Duration = Duration::from_millis(5);
/// How long a program has to end once it was asked to.
const GRACE: Duration = Duration::from_secs(2);

/// Starts programs, and knows whether a signal asks us to end.
pub struct Programs {
    folder: PathBuf,
    stop: Arc<AtomicBool>,
}

/// A program that runs; ended when dropped.
pub struct Process {
    child: Child,
    what: String,
    output: Collected,
    errors: Collected,
    stop: Arc<AtomicBool>,
}

impl Programs {
    /// Those beside this one. From now on signals that ask us to end are heard by whoever waits.
    ///
    /// # Errors
    /// The system does not tell where we are, or takes no handlers.
    pub fn new() -> Result<Self, Failure> {
        let own = std::env::current_exe()?;
        let folder = own.parent().map(PathBuf::from).unwrap_or_default();
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        Ok(Self { folder, stop })
    }

    /// Starts one of ours.
    ///
    /// # Errors
    /// It is not there.
    pub fn start<A: AsRef<OsStr>>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Process, Failure> {
        let program = self.folder.join(name);
        if !program.exists() {
            return Err(Failure::failed(format!(
                "{} is missing; tools/demo/run builds all that is needed",
                program.display()
            )));
        }
        self.start_any(program.as_os_str(), arguments)
    }

    /// Starts any program, by its path or from PATH.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_any<A: AsRef<OsStr>>(
        &self,
        program: &OsStr,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Process, Failure> {
        let mut command = Tied::command(program)?;
        command.args(arguments);
        // A terminal's interrupt goes to us, and we end it.
        command.process_group(0);
        command.env_remove("UVIA_NIC").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = name_of(program);
        let mut child = command.spawn().map_err(|e| Failure::failed(format!("starting {what}: {e}")))?;
        let output = Collected::from(child.stdout.take());
        let errors = Collected::from(child.stderr.take());
        Ok(Process { child, what, output, errors, stop: self.stop.clone() })
    }
}

fn name_of(program: &OsStr) -> String {
    PathBuf::from(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

impl Process {
    /// Waits until `ready` finds in its standard output, or in its standard error, what it looks for.
    ///
    /// # Errors
    /// It ended before, or it takes longer than `patience`, or we are asked to end.
    pub fn wait_for(
        &mut self,
        patience: Duration,
        ready: impl Fn(&str, &str) -> bool,
    ) -> Result<(), Failure> {
        let end = Instant::now() + patience;
        while !ready(&self.output.text(), &self.errors.text()) {
            self.check_stop()?;
            if let Some(status) = self.child.try_wait()? {
                return Err(self.unexpected(status));
            }
            if Instant::now() > end {
                return Err(self.late(patience));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until it has ended with success; what it said on standard output.
    ///
    /// # Errors
    /// It ended otherwise, or not within `patience`, or we are asked to end.
    pub fn finish(&mut self, patience: Duration) -> Result<String, Failure> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.output.join();
                self.errors.join();
                return match status.success() {
                    true => Ok(self.output.text()),
                    false => Err(self.unexpected(status)),
                };
            }
            self.check_stop()?;
            if Instant::now() > end {
                return Err(self.late(patience));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks it to end, and waits until it has, with success.
    ///
    /// # Errors
    /// It ended otherwise, or does not.
    pub fn end(mut self) -> Result<(), Failure> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // One that is gone already has its status looked at below.
            let _ = kill_process(pid, Signal::TERM);
        }
        self.finish(GRACE).map(drop)
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::failed("ended by a signal; nothing is left behind"));
        }
        Ok(())
    }

    fn unexpected(&mut self, status: ExitStatus) -> Failure {
        self.output.join();
        self.errors.join();
        Failure::failed(format!("{} ended with {status}{}", self.what, self.last_words()))
    }

    fn late(&self, patience: Duration) -> Failure {
        let seconds = patience.as_secs();
        Failure::failed(format!("{} is not done after {seconds} s{}", self.what, self.last_words()))
    }

    /// What it said last, for an error.
    fn last_words(&self) -> String {
        let mut text = String::new();
        for said in [self.errors.text(), self.output.text()] {
            for line in said.lines().rev().take(6).collect::<Vec<_>>().into_iter().rev() {
                let _ = write!(text, "\n    {line}");
            }
        }
        if text.is_empty() { text } else { format!("; it said:{text}") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // By its number, which is its own until it was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a thread reads from a pipe until its end.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Collected {
    fn from(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let into = bytes.clone();
        let thread = pipe.map(|mut pipe| {
            std::thread::spawn(move || {
                let mut part = [0; 4096];
                while let Ok(n @ 1..) = pipe.read(&mut part) {
                    into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..n]);
                }
            })
        });
        Self { bytes, thread }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
