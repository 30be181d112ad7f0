//! The kernel's userfaultfd, for its events alone.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Loss;

// linux/userfaultfd.h.
const API: u64 = 0xaa;
const USER_MODE_ONLY: i32 = 1;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_EVENT_REMAP: u64 = 1 << 2;
const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
const FEATURE_SHARED_MEMORY: u64 = 1 << 12;
/// With it, memory of any kind can be registered (Linux 6.7).
const FEATURE_ASYNC: u64 = 1 << 15;
const IOCTL_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const IOCTL_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const IOCTL_UNREGISTER: libc::Ioctl = 0x8010_aa01_u32 as libc::Ioctl;
const IOCTL_WRITE_PROTECT: libc::Ioctl = 0xc018_aa06_u32 as libc::Ioctl;
const MODE_WRITE_PROTECT: u64 = 1 << 1;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// Words of an event, and events that are read in one go.
const WORDS: usize = 4;
const BATCH: usize = 16;

/// What the program has done to a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) range: Range<usize>,
    pub(super) loss: Loss,
    /// Where its pages are now; the kernel goes on watching them there.
    pub(super) moved_to: Option<usize>,
}

/// A descriptor of this process's memory.
pub(super) struct Events(OwnedFd);

impl Events {
    /// Of no range yet.
    ///
    /// # Errors
    /// The kernel has none (CONFIG_USERFAULTFD, Linux 5.7), or a sandbox forbids it.
    pub(super) fn new() -> io::Result<Self> {
        let events = FEATURE_WRITE_PROTECT | FEATURE_EVENT_REMAP | FEATURE_EVENT_REMOVE | FEATURE_EVENT_UNMAP;
        let mut outcome = Err(io::ErrorKind::Unsupported.into());
        for more in [FEATURE_SHARED_MEMORY | FEATURE_ASYNC, FEATURE_SHARED_MEMORY, 0] {
            let fd = open()?;
            // Features that the kernel does not know fail the call.
            outcome = control(&fd, IOCTL_API, &mut [API, events | more, 0]).map(|()| Self(fd));
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Watches whole pages.
    ///
    /// # Errors
    /// Nothing is mapped at their beginning, it is memory of a kind that cannot be watched, or somebody else's
    /// userfaultfd has it.
    pub(super) fn register(&self, start: usize, end: usize) -> io::Result<()> {
        control(&self.0, IOCTL_REGISTER, &mut [start as u64, (end - start) as u64, MODE_WRITE_PROTECT, 0])
    }

    /// Watches them no more. What is not mapped any more needs nothing.
    pub(super) fn unregister(&self, start: usize, end: usize) {
        let _ = control(&self.0, IOCTL_UNREGISTER, &mut [start as u64, (end - start) as u64]);
    }

    /// Whether a change of watched memory is under way of which nothing was read yet: it was made, its range may be others'
    /// already, and the event has yet to come.
    pub(super) fn is_changing(&self) -> bool {
        // Protection of nothing is refused for this reason first (EAGAIN, as it is for all that fills or protects
        // memory), and otherwise for what it is.
        let refused = control(&self.0, IOCTL_WRITE_PROTECT, &mut [0, 0, 0]);
        refused.is_err_and(|e| e.raw_os_error() == Some(libc::EAGAIN))
    }

    /// Waits until there is an event. False when there never will be one more.
    pub(super) fn wait(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, in a local.
        let outcome = unsafe { libc::poll(&raw mut poll, 1, -1) };
        let interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if outcome < 0 { interrupted() } else { poll.revents & (libc::POLLERR | libc::POLLNVAL) == 0 }
    }

    /// Reads what there is into `into`, as far as it has room. Whoever has caused an event goes on as soon as it was
    /// read.
    pub(super) fn read(&self, into: &mut Vec<Event>) {
        while into.capacity() - into.len() >= BATCH {
            let mut words = [0u64; WORDS * BATCH];
            // SAFETY: the kernel writes within the array, as many bytes as it has at most.
            let got =
                unsafe { libc::read(self.0.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(&words)) };
            let Ok(got) = usize::try_from(got) else { return };
            let count = got / (WORDS * size_of::<u64>());
            into.extend(words.chunks_exact(WORDS).take(count).filter_map(parse));
            if count < BATCH {
                return;
            }
        }
    }

    /// Ends all watching, so that nobody waits for a reader that is no more.
    pub(super) fn close(&self) {
        // In place of it something harmless, since the number is others' to use else.
        if let Ok(nothing) = std::fs::File::open("/dev/null") {
            // SAFETY: both are open, and the second stays ours.
            unsafe { libc::dup3(nothing.as_raw_fd(), self.0.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }
}

/// A message is a kind in the first byte, and from the second word on what its kind has.
fn parse(words: &[u64]) -> Option<Event> {
    let [kind, first, second, third] = *words else { return None };
    let (first, second, third) = (first as usize, second as usize, third as usize);
    match kind.to_ne_bytes()[0] {
        EVENT_UNMAP => Some(Event { range: first..second, loss: Loss::Unmapped, moved_to: None }),
        EVENT_REMOVE => Some(Event { range: first..second, loss: Loss::Emptied, moved_to: None }),
        EVENT_REMAP => {
            let range = first..first.saturating_add(third);
            Some(Event { range, loss: Loss::Unmapped, moved_to: Some(second) })
        }
        _ => None,
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let mut last = io::ErrorKind::Unsupported.into();
    // Faults of the kernel's own accesses take privileges to be handled; there are none to handle. Linux before 5.11
    // does not know the flag.
    for flags in [flags | USER_MODE_ONLY, flags] {
        // SAFETY: makes a descriptor and touches nothing else.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        match i32::try_from(fd) {
            // SAFETY: it was just made, is open, and is nobody else's.
            Ok(fd) if fd >= 0 => return Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => last = io::Error::last_os_error(),
        }
    }
    Err(last)
}

fn control<const N: usize>(fd: &OwnedFd, request: libc::Ioctl, words: &mut [u64; N]) -> io::Result<()> {
    // SAFETY: each request's structure is as many words as its number says (the size is part of it) and as are given;
    // the kernel reads and writes no more. None of these requests changes a byte of memory.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, words.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
