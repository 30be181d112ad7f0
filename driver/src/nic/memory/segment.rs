//! A segment: how processes find it, who has which port, and what becomes of those who die.
//!
//! The memory is a sealed memfd, which has no name and is gone with the last process that has it. A small file names a
//! descriptor of it in each process that has a port, and is what locks are taken on: a port belongs to whoever has its
//! lock, which the kernel takes back however a process ends. Whoever leaves last removes the file; where that was by
//! force, the next process that makes a segment does.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::layout::{self, CONTROL, LANE, MAGIC, PORTS, SEGMENT, lane_at, port, port_word, word};
use super::mapping::Mapping;
use super::wake::Alarm;
use crate::locks;
use crate::nic::MacAddress;
use crate::{Error, Result};

/// Where files of segments are, by preference.
const FOLDERS: [&str; 2] = ["/dev/shm", "/tmp"];
/// The lock under which ports come and go, as an offset in the file.
const SETUP_LOCK: u64 = 1 << 20;
/// The lock of port 0; those of the others follow.
const PORT_LOCK: u64 = SETUP_LOCK + 1;
/// How long somebody else may take to come or go.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where the file says which port was given last, and where the entries of ports begin: process, descriptor, inode.
const LAST_AT: u64 = 0;
const ENTRIES_AT: u64 = 64;
const ENTRY: usize = 24;
/// What the memory must be sealed against: access to memory that was cut off is death.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Generations have so many bits, and begin at 1.
const GENERATION_MASK: u64 = (1 << 24) - 1;

/// An opened segment, and a port of it.
pub(super) struct Segment {
    path: PathBuf,
    /// The small file; its description owns the locks.
    file: File,
    memory: File,
    control: Mapping,
    port: usize,
    mac: MacAddress,
    /// The process whose it is: a child that was forked has it too, and must not give it back.
    process: u32,
}

/// The lock under which ports come and go.
struct Setup<'a>(&'a File);

impl Drop for Setup<'_> {
    fn drop(&mut self) {
        locks::unlock(self.0, SETUP_LOCK);
    }
}

/// The generation in a station address of a port.
pub(super) fn generation(mac: u64) -> u32 {
    (mac >> 16) as u32 & GENERATION_MASK as u32
}

/// The port that a station address names, if it is one of a port.
#[inline]
pub(super) fn port_of(mac: u64) -> Option<usize> {
    let port = (mac >> 40) as usize;
    (port < PORTS).then_some(port)
}

/// A station address as a little-endian word.
pub(super) fn mac_word(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl Segment {
    /// Opens the segment of that name, or makes it, and takes a port, which is woken by `alarm`.
    ///
    /// # Errors
    /// All ports are taken; the file belongs to somebody else; the system gives no memory.
    pub(super) fn open(name: &str, alarm: Option<&Alarm>) -> Result<Self> {
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        let prefix = format!("uvia-{user}-");
        let folder = FOLDERS.into_iter().find(|folder| Path::new(folder).is_dir()).unwrap_or(FOLDERS[1]);
        let path = Path::new(folder).join(format!("{prefix}{name}"));
        let file = loop {
            let file = open_file(&path, user)?;
            lock_setup(&file, &path)?;
            if is_same(&file, &path) {
                break file;
            }
            // Its last user has removed it meanwhile.
        };
        let setup = Setup(&file);
        let about = |what: &str, e| Error::io(format!("{}: {what}", path.display()), e);
        let memory = match find_memory(&file, &path)? {
            Some(memory) => memory,
            None => {
                sweep(Path::new(folder), &prefix, &path);
                make_memory(name).map_err(|e| about("making shared memory", e))?
            }
        };
        let control = Mapping::new(&memory, 0, CONTROL).map_err(|e| about("mapping shared memory", e))?;
        if control.word(word::MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(Error::Unsupported {
                device: format!("shm:{name}"),
                what: "shared memory that another version of uvia made".to_owned(),
            });
        }
        let port = take_port(&file).map_err(|e| about("taking a port", e))?.ok_or_else(|| {
            Error::Argument { what: format!("shm:{name}: all of its {PORTS} ports are in use; close one") }
        })?;
        let mac = next_mac(&control, port);
        // The lock is the file's, which moves.
        std::mem::forget(setup);
        let segment = Self { path, file, memory, control, port, mac, process: std::process::id() };
        // Under the same lock: whoever finds a port taken finds the memory by it.
        for port in 0..PORTS {
            let held =
                port == segment.port || !matches!(locks::is_locked(&segment.file, lock_of(port)), Ok(false));
            if !held && segment.port_word(port, super::layout::port::MAC).load(Ordering::Relaxed) != 0 {
                segment.clear(port);
            }
        }
        let announced = segment.announce(alarm);
        drop(Setup(&segment.file));
        announced.map(|()| segment)
    }

    /// The number of our port.
    pub(super) fn port(&self) -> usize {
        self.port
    }

    pub(super) fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The words that every process maps.
    #[inline]
    pub(super) fn control(&self) -> &Mapping {
        &self.control
    }

    /// A word of a port.
    #[inline]
    pub(super) fn port_word(&self, port: usize, word: usize) -> &std::sync::atomic::AtomicU64 {
        self.control.word(port_word(port, word))
    }

    /// Tells the others of our port; nothing of an earlier owner is left of it.
    ///
    /// # Errors
    /// What the system says.
    fn announce(&self, alarm: Option<&Alarm>) -> Result<()> {
        let failed = |e| Error::io(format!("{}: announcing a port", self.path.display()), e);
        self.clear(self.port);
        let (pipe, inode) = match alarm {
            Some(alarm) => alarm.address().map_err(failed)?,
            None => (0, 0),
        };
        let pid = u64::from(std::process::id());
        self.port_word(self.port, port::PID).store(if alarm.is_some() { pid } else { 0 }, Ordering::Relaxed);
        self.port_word(self.port, port::PIPE).store(pipe, Ordering::Relaxed);
        self.port_word(self.port, port::PIPE_INODE).store(inode, Ordering::Relaxed);
        let memory = self.memory.metadata().map_err(failed)?.ino();
        let entry = [pid, self.memory.as_raw_fd() as u64, memory];
        let bytes: Vec<u8> = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, entry_at(self.port)).map_err(failed)?;
        // Release: whoever sees the address (Acquire, when it opens a lane) sees the rest.
        self.port_word(self.port, port::MAC).store(mac_word(self.mac), Ordering::Release);
        Ok(())
    }

    /// Lets go of what a port's owner had: its address, and the memory of the lanes to it.
    fn clear(&self, number: usize) {
        self.port_word(number, port::MAC).store(0, Ordering::Release);
        for word in [port::ARMED, port::OPENED, port::FILTER, port::PID] {
            self.port_word(number, word).store(0, Ordering::Relaxed);
        }
        self.control.word(word::WATCHERS).fetch_and(!(1 << number), Ordering::Relaxed);
        let _ = self.allocate(lane_at(0, number), PORTS * LANE, libc::FALLOC_FL_PUNCH_HOLE);
    }

    /// Whether a port has an owner that is alive, by its lock. A port whose owner died is cleared.
    pub(super) fn is_alive(&self, number: usize) -> bool {
        if number == self.port || locks::is_locked(&self.file, lock_of(number)).unwrap_or(true) {
            return true;
        }
        // Under the lock, so that it is not the next owner's that is cleared.
        if matches!(locks::try_lock(&self.file, SETUP_LOCK), Ok(true)) {
            let _setup = Setup(&self.file);
            if matches!(locks::is_locked(&self.file, lock_of(number)), Ok(false)) {
                self.clear(number);
            }
        }
        false
    }

    /// Maps the lane between two ports, of which one is ours.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn map_lane(&self, from: usize, to: usize) -> Result<Mapping> {
        Mapping::new(&self.memory, lane_at(from, to), LANE)
            .map_err(|e| Error::io(format!("{}: mapping a lane", self.path.display()), e))
    }

    /// Sees that a part of a lane to another port has memory, so that a store does not fail for want of it.
    ///
    /// # Errors
    /// There is not enough.
    pub(super) fn provide(&self, to: usize, at: usize, len: usize) -> Result<()> {
        self.allocate(lane_at(self.port, to) + at, len, 0)
            .map_err(|e| Error::io(format!("{}: memory for a lane", self.path.display()), e))
    }

    /// The beginning once more, for a test that breaks rules.
    #[cfg(test)]
    pub(super) fn map_control(&self) -> io::Result<Mapping> {
        Mapping::new(&self.memory, 0, CONTROL)
    }

    /// Anybody's lane, for a test that breaks rules.
    #[cfg(test)]
    pub(super) fn map_any_lane(&self, from: usize, to: usize) -> io::Result<Mapping> {
        Mapping::new(&self.memory, lane_at(from, to), LANE)
    }

    fn allocate(&self, at: usize, len: usize, mode: libc::c_int) -> io::Result<()> {
        let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: changes which pages a file of ours has; those that are mapped read as zeros afterwards, or as before.
        match unsafe { libc::fallocate(self.memory.as_raw_fd(), mode, at as libc::off_t, len as libc::off_t) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // Nobody else has the port, with or without the lock.
        self.port_word(self.port, port::MAC).store(0, Ordering::Release);
        if lock_setup(&self.file, &self.path).is_err() {
            // Closing the file gives the port back, and whoever finds it so clears it.
            return;
        }
        let _setup = Setup(&self.file);
        self.clear(self.port);
        let others = (0..PORTS).filter(|n| *n != self.port);
        let alone = others
            .map(|n| locks::is_locked(&self.file, lock_of(n)))
            .all(|locked| matches!(locked, Ok(false)));
        if alone && is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn lock_of(port: usize) -> u64 {
    PORT_LOCK + port as u64
}

fn entry_at(port: usize) -> u64 {
    ENTRIES_AT + (port * ENTRY) as u64
}

/// Opens the small file, which must be this user's own.
fn open_file(path: &Path, user: u32) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| Error::io(path.display().to_string(), e))?;
    let about = file.metadata().map_err(|e| Error::io(path.display().to_string(), e))?;
    if about.uid() != user || !about.is_file() || about.mode() & 0o077 != 0 {
        return Err(Error::Permission {
            what: format!("{}: is not a file that you alone can use", path.display()),
            source: io::ErrorKind::PermissionDenied.into(),
        });
    }
    Ok(file)
}

/// Whether the file still has its name.
fn is_same(file: &File, path: &Path) -> bool {
    let numbers = |about: &fs::Metadata| (about.dev(), about.ino());
    matches!((file.metadata(), fs::symlink_metadata(path)), (Ok(a), Ok(b)) if numbers(&a) == numbers(&b))
}

fn lock_setup(file: &File, path: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match locks::try_lock(file, SETUP_LOCK) {
            Ok(true) => return Ok(()),
            Ok(false) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_micros(200)),
            Ok(false) => {
                return Err(Error::Timeout {
                    device: path.display().to_string(),
                    what: "a process that is opening or closing it (is one of them stopped?)".to_owned(),
                    millis: PATIENCE.as_millis() as u64,
                });
            }
            Err(e) => return Err(Error::io(format!("{}: locking", path.display()), e)),
        }
    }
}

/// The memory, by way of a process that has a port; none when there is no such process.
fn find_memory(file: &File, path: &Path) -> Result<Option<File>> {
    let failed = |e| Error::io(format!("{}: looking for its users", path.display()), e);
    let mut refused = None;
    for port in 0..PORTS {
        if !locks::is_locked(file, lock_of(port)).map_err(failed)? {
            continue;
        }
        let mut entry = [0; ENTRY];
        if file.read_exact_at(&mut entry, entry_at(port)).is_err() {
            // Opened, and not announced yet.
            continue;
        }
        let mut words =
            entry.chunks_exact(8).map(|word| word.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)));
        let (Some(pid), Some(fd), Some(inode)) = (words.next(), words.next(), words.next()) else { continue };
        match open_memory(pid, fd, inode) {
            Ok(memory) => return Ok(Some(memory)),
            Err(e) => refused = Some((pid, e)),
        }
    }
    match refused {
        None => Ok(None),
        Some((pid, e)) => Err(Error::io(
            format!("{}: shared memory of process {pid}, which has it open", path.display()),
            e,
        )),
    }
}

/// Opens descriptor `fd` of a process, if it is the memory that it should be.
fn open_memory(pid: u64, fd: u64, inode: u64) -> io::Result<File> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let about = fs::metadata(&path)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "its descriptor is not the segment's memory");
    if !about.is_file() || about.ino() != inode || about.len() != SEGMENT as u64 {
        return Err(wrong());
    }
    let memory = OpenOptions::new().read(true).write(true).open(&path)?;
    // SAFETY: asks for a number.
    let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS || memory.metadata()?.len() != SEGMENT as u64 {
        return Err(wrong());
    }
    Ok(memory)
}

/// Makes the memory of a new segment.
fn make_memory(name: &str) -> io::Result<File> {
    let name = std::ffi::CString::new(format!("uvia-shm-{name}")).unwrap_or_default();
    // SAFETY: makes a descriptor; the name ends in zero.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, is open, and is nobody else's.
    let memory = unsafe { File::from_raw_fd(fd) };
    memory.set_len(SEGMENT as u64)?;
    // SAFETY: changes nothing but the file's seals.
    if unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let control = Mapping::new(&memory, 0, CONTROL)?;
    let mut salt = [0u8; 2];
    // SAFETY: so many bytes of ours. Where there is no randomness the salt is 0, which does no harm.
    unsafe { libc::getrandom(salt.as_mut_ptr().cast(), salt.len(), 0) };
    control.word(word::SALT).store(u16::from_le_bytes(salt).into(), Ordering::Relaxed);
    control.word(word::MAGIC).store(layout::MAGIC, Ordering::Release);
    Ok(memory)
}

/// Takes the first port that is free, beginning behind the one that was given last: what is still under way to or from
/// an old owner is then seldom met.
fn take_port(file: &File) -> io::Result<Option<usize>> {
    let mut last = [0; 1];
    let first = match file.read_exact_at(&mut last, LAST_AT) {
        Ok(()) => usize::from(last[0]) + 1,
        Err(_) => 0,
    };
    for n in 0..PORTS {
        let port = (first + n) % PORTS;
        if locks::try_lock(file, lock_of(port))? {
            file.write_all_at(&[port as u8], LAST_AT)?;
            // What an old owner has said of itself is no entry of ours.
            file.write_all_at(&[0; ENTRY], entry_at(port))?;
            return Ok(Some(port));
        }
    }
    Ok(None)
}

/// A station address that no owner of a port had before: of its own kind (locally administered), with a generation.
fn next_mac(control: &Mapping, port: usize) -> MacAddress {
    let generations = control.word(word::GENERATION);
    let generation = (generations.load(Ordering::Relaxed) + 1) & GENERATION_MASK;
    let generation = generation.max(1);
    generations.store(generation, Ordering::Relaxed);
    let salt = control.word(word::SALT).load(Ordering::Relaxed) as u8;
    let [a, b, c, ..] = generation.to_le_bytes();
    MacAddress([0x02, salt, a, b, c, port as u8])
}

/// Removes files of this user's segments that have no user any more.
fn sweep(folder: &Path, prefix: &str, own: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if !is_ours || path == own {
            continue;
        }
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path);
        let Ok(file) = options else { continue };
        if !matches!(locks::try_lock(&file, SETUP_LOCK), Ok(true)) {
            continue;
        }
        let unused = (0..PORTS).all(|n| matches!(locks::is_locked(&file, lock_of(n)), Ok(false)));
        if unused && is_same(&file, &path) {
            let _ = fs::remove_file(&path);
        }
    }
}
