//! Commands in the guest: their start, their output, their end.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use super::port::Sender;
use crate::wire::{Frame, Kind, Run};

/// Largest piece of output that is sent at once.
const CHUNK: usize = 64 << 10;

/// The running commands.
#[derive(Clone)]
pub struct Processes {
    to: Sender,
    table: Arc<Mutex<Table>>,
    started: Arc<Condvar>,
}

#[derive(Default)]
struct Table {
    by_pid: HashMap<i32, u32>,
    running: HashMap<u32, Running>,
}

struct Running {
    pid: i32,
    /// One for each of the two outputs.
    pumps: [Arc<Pump>; 2],
    end: Arc<Mutex<End>>,
}

/// Tells a reader of output what happens elsewhere.
struct Pump {
    /// Written to when the command has ended or nobody wants its output any more.
    wake: OwnedFd,
    closed: AtomicBool,
    ended: AtomicBool,
}

/// The command's end is reported when it has ended and both outputs are sent.
struct End {
    waiting_for: u8,
    raw: i32,
}

impl Processes {
    /// Starts to reap: everything that ends in the guest becomes a child of process 1.
    pub fn start(to: Sender) -> io::Result<Self> {
        let processes = Processes { to, table: Arc::default(), started: Arc::default() };
        let reaper = processes.clone();
        thread::Builder::new().name("reaper".into()).spawn(move || reaper.reap())?;
        Ok(processes)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Starts a command; what goes wrong is told as a shell tells it, by status 126 or 127.
    pub fn spawn(&self, id: u32, run: &Run) -> io::Result<()> {
        match self.start_command(id, run) {
            Ok(()) => Ok(()),
            Err(error) => {
                let name = run.argv.first().map(|name| String::from_utf8_lossy(name)).unwrap_or_default();
                let status: i32 = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                self.to.send(&Frame::new(
                    Kind::Stderr,
                    id,
                    format!("uvia-vm: cannot run {name}: {error}\n"),
                ))?;
                self.to.send(&Frame::new(Kind::Exit, id, (status << 8).to_le_bytes()))
            }
        }
    }

    fn start_command(&self, id: u32, run: &Run) -> io::Result<()> {
        let mut words = run.argv.iter().map(|word| OsString::from_vec(word.clone()));
        let program =
            words.next().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        let mut command = Command::new(program);
        command.args(words).current_dir(OsString::from_vec(run.cwd.clone())).env_clear();
        for pair in &run.env {
            if let Some(at) = pair.iter().position(|byte| *byte == b'=') {
                command.env(OsString::from_vec(pair[..at].into()), OsString::from_vec(pair[at + 1..].into()));
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: setsid is safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // A session of its own: signals reach what the command started too, and nothing else.
                libc::setsid();
                Ok(())
            })
        };
        let pumps = [Arc::new(Pump::new()?), Arc::new(Pump::new()?)];
        let end = Arc::new(Mutex::new(End { waiting_for: 3, raw: 0 }));

        // Held over the start: the reaper cannot meet a command that is not in the table yet, nor take the
        // status of one that failed to start from under `spawn`.
        let mut table = self.table();
        let mut child = command.spawn()?;
        let pid = child.id() as i32;
        table.by_pid.insert(pid, id);
        table.running.insert(id, Running { pid, pumps: pumps.clone(), end: end.clone() });
        drop(table);
        self.started.notify_all();

        let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        for ((output, pump), kind) in outputs.into_iter().zip(pumps).zip([Kind::Stdout, Kind::Stderr]) {
            let (processes, end) = (self.clone(), end.clone());
            let Some(output) = output else { continue };
            thread::Builder::new().name("output".into()).spawn(move || {
                processes.pump(id, kind, File::from(output), &pump, &end);
            })?;
        }
        Ok(())
    }

    /// Sends what the command writes, until it has ended and nothing is left, or nobody wants it.
    fn pump(&self, id: u32, kind: Kind, mut output: File, pump: &Pump, end: &Mutex<End>) {
        set_nonblocking(&output);
        let mut buffer = vec![0; CHUNK];
        loop {
            // Looked at before reading: what was written before the end is then still read.
            let ended = pump.ended.load(Ordering::Acquire);
            if pump.closed.load(Ordering::Acquire) {
                break;
            }
            match output.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    if self.to.send(&Frame::new(kind, id, &buffer[..n])).is_err() {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if ended {
                        break;
                    }
                    wait_readable(&output, &pump.wake);
                }
                Err(_) => break,
            }
        }
        self.part_done(id, end);
        // Something that the command left running may still write: it shall not die of it.
        if !pump.closed.load(Ordering::Acquire) {
            set_blocking(&output);
            while matches!(output.read(&mut buffer), Ok(n) if n > 0) {}
        }
    }

    /// One of the three parts of a command's end: its death, and the end of each output.
    fn part_done(&self, id: u32, end: &Mutex<End>) {
        let raw = {
            let mut end = end.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            end.waiting_for -= 1;
            if end.waiting_for > 0 {
                return;
            }
            end.raw
        };
        self.table().running.remove(&id);
        // A broken port ends the agent's main loop; there is nobody to tell here.
        let _ = self.to.send(&Frame::new(Kind::Exit, id, raw.to_le_bytes()));
    }

    /// Sends a signal to everything that the command started and that has not left its group.
    pub fn signal(&self, id: u32, signal: u8) {
        if let Some(running) = self.table().running.get(&id) {
            // SAFETY: the call takes plain numbers.
            unsafe { libc::kill(-running.pid, i32::from(signal)) };
        }
    }

    /// Stops reading an output, so that the command gets SIGPIPE as it would on the host.
    pub fn close_output(&self, id: u32, stream: u8) {
        if let Some(running) = self.table().running.get(&id) {
            let pump = &running.pumps[usize::from(stream == 2)];
            pump.closed.store(true, Ordering::Release);
            pump.wake();
        }
    }

    fn reap(&self) {
        loop {
            // SAFETY: an all-zero siginfo_t is valid; the call fills it.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: the pointer is to a valid structure. WNOWAIT leaves the process to be reaped below.
            let found = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOWAIT) };
            if found != 0 {
                // No children at all. There are orphans only while there are children, so the next to come
                // is started by us.
                let table = self.table();
                drop(self.started.wait_while(table, |table| table.by_pid.is_empty()));
                continue;
            }
            // SAFETY: waitid succeeded, so this is the information on a child.
            let pid = unsafe { info.si_pid() };
            let mut table = self.table();
            let mut raw = 0;
            // SAFETY: the pointer is to a valid integer. Under the table's lock: see `start_command`.
            if unsafe { libc::waitpid(pid, &mut raw, libc::WNOHANG) } != pid {
                continue;
            }
            let Some(id) = table.by_pid.remove(&pid) else { continue };
            let Some(running) = table.running.get(&id) else { continue };
            let (end, pumps) = (running.end.clone(), running.pumps.clone());
            drop(table);
            end.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).raw = raw;
            for pump in &pumps {
                pump.ended.store(true, Ordering::Release);
                pump.wake();
            }
            self.part_done(id, &end);
        }
    }
}

impl Pump {
    fn new() -> io::Result<Self> {
        // SAFETY: the call takes plain numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and is nobody else's.
        let wake = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
        Ok(Pump { wake, closed: AtomicBool::new(false), ended: AtomicBool::new(false) })
    }

    fn wake(&self) {
        // SAFETY: eight bytes are written from a valid place to an open eventfd.
        unsafe { libc::write(self.wake.as_raw_fd(), (&1u64 as *const u64).cast(), 8) };
    }
}

fn set_nonblocking(file: &File) {
    // SAFETY: the call takes an open descriptor and plain numbers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
}

fn set_blocking(file: &File) {
    // SAFETY: the call takes an open descriptor and plain numbers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) };
}

/// Waits until there is something to read, or the wake is written to (and then it stays so).
fn wait_readable(file: &File, wake: &OwnedFd) {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [entry(file.as_raw_fd()), entry(wake.as_raw_fd())];
    // SAFETY: the pointer and the count describe the array.
    unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
}
