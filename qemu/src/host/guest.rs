//! A booted guest.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::json;

use super::child::Child;
use super::console::Console;
use super::monitor::Monitor;
use super::process::{End, Outcome, Process, Task};
use super::sink::{Collect, Sink, Stream};
use crate::error::{Error, Result};
use crate::status::Status;
use crate::wire::{Frame, Kind, Run, put_list, take_list};

/// Longest time that a request to the agent takes; a device may need seconds to be moved under emulation.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Processor time after which a guest that is not up hangs; one that boots takes 4 to 10 s.
const HANG_PROCESSOR_TIME: Duration = Duration::from_secs(40);
/// Time after which it hangs however little it does.
const HANG_TIME: Duration = Duration::from_secs(80);
/// Bytes of a file sent at once.
const PUT_CHUNK: usize = 1 << 20;

/// The connection to a guest's agent, shared by all that talk to it.
pub(crate) struct Link {
    guest: usize,
    monitor: Monitor,
    /// Several guests are waited for one after another, so each counts from its own start.
    started: Instant,
    to: Mutex<UnixStream>,
    state: Mutex<State>,
    changed: Condvar,
    next: AtomicU32,
    console: Console,
    qemu: Mutex<Option<Child>>,
}

#[derive(Default)]
struct State {
    hello: bool,
    dead: bool,
    commands: HashMap<u32, Command>,
    answers: HashMap<u32, Frame>,
}

struct Command {
    sink: Box<dyn Sink>,
    end: Arc<End>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link(guest {})", self.guest)
    }
}

impl Link {
    pub(crate) fn guest(&self) -> usize {
        self.guest
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn qemu(&self) -> MutexGuard<'_, Option<Child>> {
        self.qemu.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn send(&self, frame: &Frame) -> Result<()> {
        let mut to = self.to.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        frame.write(&mut *to).map_err(|_| self.death())
    }

    /// Why the guest is gone, with the last that it said.
    pub(crate) fn death(&self) -> Error {
        self.console.settle();
        let cause = self.console.panic().unwrap_or_else(|| match self.exit() {
            Some(status) => format!("QEMU ended with {status}"),
            None => "it closed its control port".into(),
        });
        let tail = self.console.tail(20);
        let why = if tail.is_empty() { cause } else { format!("{cause}\n{tail}") };
        Error::Died { guest: self.guest, why }
    }

    /// How QEMU ended; it closes its sockets a little earlier.
    fn exit(&self) -> Option<std::process::ExitStatus> {
        for _ in 0..50 {
            if let Some(status) = self.qemu().as_mut()?.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Reads what the agent says until it says no more.
    fn listen(&self, mut from: UnixStream) {
        while let Ok(Some(frame)) = Frame::read(&mut from) {
            self.take(frame);
        }
        self.state().dead = true;
        self.lose_commands();
        self.changed.notify_all();
    }

    /// Commands are no more: their guest is gone, or another.
    fn lose_commands(&self) {
        for (_, command) in self.state().commands.drain() {
            command.end.ended(None);
        }
    }

    fn take(&self, frame: Frame) {
        match frame.kind {
            Kind::Hello => self.state().hello = true,
            Kind::Stdout | Kind::Stderr => self.output(&frame),
            Kind::Exit => {
                let command = self.state().commands.remove(&frame.id);
                if let Some(mut command) = command {
                    let raw = frame.payload.first_chunk::<4>().map_or(0, |bytes| i32::from_le_bytes(*bytes));
                    command.sink.finish();
                    command.end.ended(Some(Status::from_wait(raw)));
                }
            }
            _ => {
                self.state().answers.insert(frame.id, frame);
            }
        }
        self.changed.notify_all();
    }

    fn output(&self, frame: &Frame) {
        let (stream, number) = if frame.kind == Kind::Stdout { (Stream::Out, 1) } else { (Stream::Err, 2) };
        // Taken out while it writes: our own output may be slow, and others need the table meanwhile.
        let Some(mut command) = self.state().commands.remove(&frame.id) else { return };
        let result = command.sink.write(stream, &frame.payload);
        self.state().commands.insert(frame.id, command);
        if result.is_err() {
            // As on the host: who writes to a closed output gets SIGPIPE.
            let _ = self.send(&Frame::new(Kind::CloseOutput, frame.id, [number]));
        }
    }

    fn request(&self, kind: Kind, payload: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&Frame::new(kind, id, payload))?;
        let waiting = |state: &mut State| !state.dead && !state.answers.contains_key(&id);
        let mut state = match self.changed.wait_timeout_while(self.state(), REQUEST_LIMIT, waiting) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
        let answer = state.answers.remove(&id);
        let dead = state.dead;
        drop(state);
        match answer {
            Some(frame) if frame.kind == Kind::Done => take_list(&mut &frame.payload[..])
                .map_err(|error| Error::Guest { guest: self.guest, why: error.to_string() }),
            Some(frame) => Err(Error::Guest {
                guest: self.guest,
                why: String::from_utf8_lossy(&frame.payload).into_owned(),
            }),
            None if dead => Err(self.death()),
            None => Err(Error::TimedOut {
                guest: self.guest,
                what: format!("the request {kind:?}"),
                seconds: REQUEST_LIMIT.as_secs_f64(),
            }),
        }
    }
}

/// How far a guest came.
pub(crate) enum Boot {
    /// User space is up.
    Up,
    /// Its kernel hangs or panicked, which may be chance: it had better be booted again.
    Stuck(Error),
}

/// What is done once a guest is configured.
#[derive(Debug, Default)]
pub(crate) struct SetUp {
    /// Kernel modules to load.
    pub(crate) load: Vec<String>,
    /// Whether its NICs are given to vfio-pci, and not to the kernel's drivers.
    pub(crate) attach: bool,
}

/// A booted guest, which runs commands. Its QEMU is ended when it is dropped.
#[derive(Debug)]
pub struct Guest {
    link: Arc<Link>,
    env: Vec<(String, String)>,
    nics: Vec<String>,
    /// How it was set up, for when it has to be again: the request that configured it, and what followed.
    configuration: Vec<u8>,
    set_up: SetUp,
}

impl Guest {
    /// A guest whose QEMU was just started.
    pub(crate) fn new(
        guest: usize,
        control: UnixStream,
        monitor: Monitor,
        qemu: Child,
        console: Console,
    ) -> Result<Self> {
        let failed = |error| Error::io("use the control port's socket", error);
        let from = control.try_clone().map_err(failed)?;
        let link = Arc::new(Link {
            guest,
            monitor,
            started: Instant::now(),
            to: Mutex::new(control),
            state: Mutex::default(),
            changed: Condvar::new(),
            next: AtomicU32::new(1),
            console,
            qemu: Mutex::new(Some(qemu)),
        });
        let listener = link.clone();
        std::thread::Builder::new()
            .name(format!("guest-{guest}"))
            .spawn(move || listener.listen(from))
            .map_err(|error| Error::io("start a thread", error))?;
        Ok(Guest {
            link,
            env: Vec::new(),
            nics: Vec::new(),
            configuration: Vec::new(),
            set_up: SetUp::default(),
        })
    }

    /// Waits until user space is up, or it is known that it will not be.
    pub(crate) fn wait_up(&self, deadline: Instant, limit: Duration) -> Result<Boot> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let waiting = |state: &mut State| !state.dead && !state.hello;
            let slice = left.min(Duration::from_millis(500));
            let (hello, dead) = match self.link.changed.wait_timeout_while(self.link.state(), slice, waiting)
            {
                Ok((state, _)) => (state.hello, state.dead),
                Err(_) => (false, true),
            };
            if hello {
                return Ok(Boot::Up);
            }
            if dead {
                let death = self.link.death();
                return if self.link.console.panic().is_some() { Ok(Boot::Stuck(death)) } else { Err(death) };
            }
            let late = Error::BootTimeout { guest: self.link.guest, seconds: limit.as_secs() };
            if left.is_zero() {
                return Err(late);
            }
            // By the processor's time first: a busy machine makes a boot long, but not costly.
            let used = self.link.qemu().as_ref().map(Child::processor_time).unwrap_or_default();
            if used > HANG_PROCESSOR_TIME || self.link.started.elapsed() > HANG_TIME {
                return Ok(Boot::Stuck(late));
            }
        }
    }

    /// Sets the guest up: its name, its NICs (behind these root ports, with these kernel modules), its adapter memory
    /// (behind this one), and what follows.
    pub(crate) fn configure(
        &mut self,
        path: &str,
        hugepages: u32,
        nics: &[(String, &str)],
        memory: Option<&str>,
        served: bool,
        then: SetUp,
    ) -> Result<()> {
        let guest = self.link.guest;
        let mut items = vec![format!("hostname=guest{guest}"), format!("hugepages={hugepages}")];
        items.extend(nics.iter().map(|(port, module)| format!("nic={port},{module}")));
        items.extend(memory.map(|port| format!("memory={port}")));
        let mut payload = Vec::new();
        put_list(&mut payload, &items);
        (self.configuration, self.set_up) = (payload, then);
        self.nics = self.set_up()?;
        // The memory's comes last.
        let memory = memory.and_then(|_| self.nics.pop());
        let fixed =
            [("PATH", path), ("HOME", "/root"), ("USER", "root"), ("TERM", "dumb"), ("LANG", "C.UTF-8")];
        self.env = fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        self.env.push(("UVIA_GUEST".into(), guest.to_string()));
        if served {
            // The guest's IOMMU checks nothing of what these do: their process does.
            self.env.push(("UVIA_NICS_SERVED".into(), "1".into()));
        }
        self.env.extend(memory.map(|address| ("UVIA_ADAPTER_MEMORY".into(), address)));
        for (letter, address) in ["A", "B"].iter().zip(&self.nics) {
            self.env.push((format!("UVIA_NIC_{letter}"), address.clone()));
        }
        Ok(())
    }

    /// Does what a guest needs once it is up; the addresses of its NICs, and of its adapter memory.
    fn set_up(&self) -> Result<Vec<String>> {
        let addresses = self.link.request(Kind::Configure, self.configuration.clone())?;
        for module in &self.set_up.load {
            self.load(module)?;
        }
        match self.set_up.attach {
            true => self.attach()?,
            false => self.detach().map(drop)?,
        }
        Ok(addresses.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect())
    }

    /// Takes the cable of a NIC (0 is A) out, or puts it in again. For NICs that QEMU emulates.
    ///
    /// # Errors
    /// QEMU refuses: there is no such NIC, or it is a model, whose cables `uvia-device` has.
    pub fn set_link(&self, nic: usize, up: bool) -> Result<()> {
        let arguments = json!({ "name": format!("nic{nic}"), "up": up });
        self.link.monitor.execute("set_link", arguments).map(drop)
    }

    /// Presses the reset button, and waits until the guest is up and set up again, its NICs where they were. Commands
    /// that ran are lost, as [`Process::wait`] of each then says. They had better be silent at that moment: half of what
    /// they were saying would stand before the first word of the guest that boots.
    ///
    /// # Errors
    /// It does not come up again within `limit`.
    pub fn reset(&self, limit: Duration) -> Result<()> {
        self.press_reset()?;
        let start = Instant::now();
        let outcome = loop {
            if self.wait_hello(limit.saturating_sub(start.elapsed()))? {
                break self.set_up().map(drop);
            }
            if start.elapsed() >= limit {
                let seconds = limit.as_secs();
                break Err(Error::BootTimeout { guest: self.link.guest, seconds });
            }
            // Under emulation a boot may stop for good; then it is done again.
            self.press_reset()?;
        };
        self.on_reboot("shutdown")?;
        outcome
    }

    fn press_reset(&self) -> Result<()> {
        // At other times a guest that reboots is one that panicked, and ends.
        self.on_reboot("reset")?;
        self.link.state().hello = false;
        self.link.monitor.execute("system_reset", json!({}))?;
        self.link.lose_commands();
        Ok(())
    }

    fn on_reboot(&self, action: &str) -> Result<()> {
        self.link.monitor.execute("set-action", json!({ "reboot": action })).map(drop)
    }

    /// Waits until the guest is up; false: it hangs, or it was not in time.
    fn wait_hello(&self, limit: Duration) -> Result<bool> {
        let used = || self.link.qemu().as_ref().map(Child::processor_time).unwrap_or_default();
        let (start, before) = (Instant::now(), used());
        loop {
            let waiting = |state: &mut State| !state.dead && !state.hello;
            let outcome =
                self.link.changed.wait_timeout_while(self.link.state(), Duration::from_millis(500), waiting);
            let (hello, dead) = outcome.map_or((false, true), |(state, _)| (state.hello, state.dead));
            if dead {
                return Err(self.link.death());
            }
            if hello {
                return Ok(true);
            }
            if start.elapsed() > limit || used().saturating_sub(before) > HANG_PROCESSOR_TIME {
                return Ok(false);
            }
        }
    }

    /// Its number: 0, 1, ...
    pub fn index(&self) -> usize {
        self.link.guest
    }

    /// The PCI addresses of its NICs, A first.
    pub fn nics(&self) -> &[String] {
        &self.nics
    }

    /// Gives the NICs to vfio-pci.
    pub fn attach(&self) -> Result<()> {
        self.link.request(Kind::Attach, Vec::new()).map(drop)
    }

    /// Gives the NICs to the kernel's drivers; the names of the network interfaces, A's first.
    pub fn detach(&self) -> Result<Vec<String>> {
        let names = self.link.request(Kind::Detach, Vec::new())?;
        Ok(names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Loads a kernel module that the image carries.
    pub fn load(&self, module: &str) -> Result<()> {
        let mut payload = Vec::new();
        put_list(&mut payload, &[module]);
        self.link.request(Kind::Load, payload).map(drop)
    }

    /// Writes a file in the guest, and the folders above it.
    pub fn put(&self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> Result<()> {
        self.put_from(path, &mut &bytes[..], mode)
    }

    /// Writes a file in the guest with all that can be read from `from`.
    pub fn put_from(&self, path: impl AsRef<Path>, from: &mut impl Read, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let mode = format!("{mode:o}");
        let mut how: &[u8] = b"new";
        loop {
            let mut chunk = Vec::with_capacity(PUT_CHUNK);
            from.by_ref()
                .take(PUT_CHUNK as u64)
                .read_to_end(&mut chunk)
                .map_err(|error| Error::path("read what is to become the guest's", path, error))?;
            if chunk.is_empty() && how == b"more" {
                return Ok(());
            }
            let mut payload = Vec::with_capacity(chunk.len() + 256);
            put_list(&mut payload, &[path.as_os_str().as_bytes(), mode.as_bytes(), how, &chunk]);
            self.link.request(Kind::Put, payload)?;
            how = b"more";
        }
    }

    /// Reads a file in the guest.
    pub fn get(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let argv = ["cat".as_ref(), "--".as_ref(), path.as_ref().as_os_str()];
        let outcome = self.run(argv, Duration::from_secs(120))?;
        if !outcome.status.success() {
            return Err(Error::Guest { guest: self.link.guest, why: outcome.errors().trim().to_owned() });
        }
        Ok(outcome.stdout)
    }

    /// Runs a command to its end. One that takes longer than `limit` is killed, and that is an error. If it cannot be
    /// killed, because it hangs in the kernel, the guest is ended: whatever it holds nobody could have again.
    pub fn run(&self, task: impl Into<Task>, limit: Duration) -> Result<Outcome> {
        let process = self.spawn(task)?;
        let result = process.wait(Some(limit));
        if let Err(Error::TimedOut { .. }) = result {
            match process.kill() {
                Err(Error::TimedOut { .. }) => self.kill(),
                other => drop(other?),
            }
        }
        result
    }

    /// Starts a command; its output is kept in memory.
    pub fn spawn(&self, task: impl Into<Task>) -> Result<Process> {
        let output = Collect::default();
        self.start(&task.into(), Box::new(output.clone()), output)
    }

    /// Starts a command whose output goes to `sink`; the process itself then keeps none.
    pub fn spawn_to(&self, task: impl Into<Task>, sink: Box<dyn Sink>) -> Result<Process> {
        self.start(&task.into(), sink, Collect::default())
    }

    fn start(&self, task: &Task, sink: Box<dyn Sink>, output: Collect) -> Result<Process> {
        let id = self.link.next.fetch_add(1, Ordering::Relaxed);
        let end = End::new();
        {
            let mut state = self.link.state();
            if state.dead {
                drop(state);
                return Err(self.link.death());
            }
            state.commands.insert(id, Command { sink, end: end.clone() });
        }
        let mut env: Vec<Vec<u8>> =
            self.env.iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect();
        env.extend(task.env.iter().map(|(name, value)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            pair.into_vec()
        }));
        let argv = task.argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        let run = Run { argv, env, cwd: task.cwd.as_bytes().to_vec() };
        self.link.send(&Frame::new(Kind::Run, id, run.encode()))?;
        Ok(Process { id, what: task.describe(), link: self.link.clone(), end, output })
    }

    /// The panic of its kernel, if that was because a timer came no more: the emulator's fault, and nothing's in it.
    pub fn lost_timer(&self) -> Option<String> {
        self.link.console.lost_timer()
    }

    /// The last lines of the console.
    pub fn console_tail(&self, lines: usize) -> String {
        self.link.console.tail(lines)
    }

    /// Ends the guest at once, as if its power were cut.
    pub fn kill(&self) {
        // Taken out first: `death` may want the lock while QEMU is waited for.
        let qemu = self.link.qemu().take();
        drop(qemu);
        let to = self.link.to.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = (&*to).flush();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}
