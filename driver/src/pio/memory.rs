//! Adapter memory as programs see it.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::directory::{self, Directory, Owner};
use super::lease::Lease;
use super::ring::RingMemory;
use super::source::Source;
use super::window::Window;
use crate::dma::{DmaDomain, DmaRegion, Rights};
use crate::pci::has_let_go;
use crate::{Error, Result, locks};

/// Bytes of a slot: a frame with all of its headers.
pub const SLOT: usize = 512;
/// Slots of a window.
pub const SLOTS: usize = 16;
/// Bytes of a window: whole pages, since these are what a NIC is let at.
pub const WINDOW: usize = SLOT * SLOTS;
/// Bytes of a store, and its alignment.
pub const STORE: usize = 8;

/// The byte of the memory whose lock is held while it is put in order.
const SETUP_LOCK: u64 = 0;
/// How long somebody else may take for that, and a dead owner's NIC to stop.
const PATIENCE: Duration = Duration::from_secs(2);

/// How stores reach the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Neighbouring stores are gathered into larger transactions.
    WriteCombining,
    /// Each store is a transaction.
    Uncached,
    /// It is memory of the host: a model's, or a test's.
    Cached,
}

/// How many windows there are, and how many can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUse {
    /// All of them.
    pub windows: usize,
    /// Those that nobody has leased now; others may be faster.
    pub left: usize,
}

/// Where windows are looked for first: endpoints have one each, rings several, and lie at the other end, so that room for
/// them is not scattered.
#[derive(Clone, Copy)]
enum From {
    Beginning,
    End,
}

/// Memory of an adapter, shared by all processes that can map it.
pub struct AdapterMemory {
    source: Source,
    directory: Directory,
}

// SAFETY: the directory's pointer is into the source's mapping, which lives as long and belongs to the process; accesses
// are volatile, and what several threads or processes would write is under locks of the kernel's.
unsafe impl Send for AdapterMemory {}
// SAFETY: as above.
unsafe impl Sync for AdapterMemory {}

impl AdapterMemory {
    /// Opens the adapter memory called `name`: the PCI address of a function that has some (QEMU's ivshmem-plain), on
    /// vfio-pci or on no driver, or `vfio-user:PATH` where one is served. A function is kept awake from then on, and made
    /// to decode. That takes the right to write its files in sysfs: root, unless they were given away.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NotFound`] and [`Error::NotBound`] as for devices; [`Error::AdapterMemory`] where it
    /// has no memory, too little, or other programs have cut it up otherwise; [`Error::Permission`].
    pub fn open(name: &str) -> Result<Arc<Self>> {
        Self::of(Source::open(name)?)
    }

    /// The memory that a memfd is, which must be sealed against shrinking; `name` is for errors.
    ///
    /// # Errors
    /// As [`AdapterMemory::open`].
    pub fn of_file(name: &str, fd: OwnedFd) -> Result<Arc<Self>> {
        Self::of(Source::file(name, fd)?)
    }

    fn of(source: Source) -> Result<Arc<Self>> {
        let bad = |why: String| Error::AdapterMemory { memory: source.name.clone(), why };
        if directory::windows_in(source.len()) == 0 {
            return Err(bad(format!(
                "{} bytes are too few: a page of 4096 and a window of {WINDOW} are the least",
                source.len()
            )));
        }
        // SAFETY: the directory goes with the source, in one struct, and lies within it, page by page.
        let directory = unsafe { Directory::new(source.as_ptr(), source.len()) };
        let file = source.lock_file()?;
        let start = Instant::now();
        while !locks::try_lock(&file, SETUP_LOCK)
            .map_err(|e| Error::io(bad("locking it".into()).to_string(), e))?
        {
            if start.elapsed() > PATIENCE {
                return Err(bad("another process has been putting it in order for too long".to_owned()));
            }
            sleep(Duration::from_millis(1));
        }
        // Until here nobody may have put it in order; once somebody has, it stays so. The lock goes with the file.
        if !directory.is_there() {
            directory.format();
        }
        if !directory.is_there() {
            return Err(bad("it does not keep what is stored there: its memory decoding is off".to_owned()));
        }
        if !directory.is_ours() {
            return Err(bad(
                "a program of another version has cut it up otherwise; end it and reset the device"
                    .to_owned(),
            ));
        }
        Ok(Arc::new(Self { source, directory }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// How stores reach it.
    pub fn caching(&self) -> Caching {
        self.source.caching
    }

    /// How many windows there are and how many can be had now.
    pub fn windows(&self) -> WindowUse {
        let windows = self.directory.windows();
        let left = self.source.lock_file().map_or(0, |file| {
            (0..windows)
                .filter(|n| matches!(locks::is_range_locked(&file, &self.range(*n..*n + 1)), Ok(false)))
                .count()
        });
        WindowUse { windows, left }
    }

    /// Whether it answers: a function whose memory decoding was switched off does not, and a NIC that fetches from there
    /// gets zeros and says nothing. One load.
    ///
    /// # Errors
    /// [`Error::AdapterMemory`].
    pub fn check(&self) -> Result<()> {
        match self.directory.is_there() {
            true => Ok(()),
            false => Err(Error::AdapterMemory {
                memory: self.source.name.clone(),
                why: "it does not answer: its memory decoding was switched off; what is sent from there is lost"
                    .to_owned(),
            }),
        }
    }

    /// Where a window begins, bytes.
    pub(super) fn window_at(&self, number: usize) -> usize {
        self.directory.window_at(number)
    }

    /// The bytes of windows in the memory's file: they are what their lock is taken on.
    fn range(&self, windows: Range<usize>) -> Range<u64> {
        self.window_at(windows.start) as u64..self.window_at(windows.end) as u64
    }

    /// Leases a window for a NIC called `nic` (as [`crate::nic::NicProperties::device`] has it), which lives in `domain`.
    ///
    /// A window whose owner died is given out again only once that owner's NIC cannot fetch from it any more; if there is
    /// no other, this waits for that up to 2 s.
    ///
    /// # Errors
    /// [`Error::NoWindow`] when all are leased; [`Error::AdapterMemory`] when the memory does not answer; and what keeps
    /// the window from being mapped for the NIC.
    pub fn lease(self: &Arc<Self>, domain: Arc<dyn DmaDomain>, nic: &str) -> Result<Window> {
        let lease = self.lease_windows(nic, 1, From::Beginning)?;
        let region = self.map(domain, &lease, Rights::READ)?;
        // Nothing was mapped if that failed: the lease is given back in order.
        Ok(Window::new(region, lease))
    }

    /// Leases neighbouring windows for a ring of `len` bytes, which a NIC called `nic` then finds in `domain` with these
    /// rights; as [`AdapterMemory::lease`].
    ///
    /// # Errors
    /// As [`AdapterMemory::lease`]; [`Error::NoWindow`] also when no so many neighbours are left.
    pub fn lease_ring(
        self: &Arc<Self>,
        domain: Arc<dyn DmaDomain>,
        nic: &str,
        len: usize,
        rights: Rights,
    ) -> Result<RingMemory> {
        let lease = self.lease_windows(nic, len.max(1).div_ceil(WINDOW), From::End)?;
        let region = self.map(domain, &lease, rights)?;
        Ok(RingMemory::new(region, lease))
    }

    /// Leases `count` neighbouring windows.
    fn lease_windows(self: &Arc<Self>, nic: &str, count: usize, from: From) -> Result<Lease> {
        self.check().or_else(|_| {
            self.source.decode_again()?;
            self.check()
        })?;
        let start = Instant::now();
        loop {
            let (lease, unsettled) = self.take(nic, count, from)?;
            if let Some(lease) = lease {
                return Ok(lease);
            }
            if unsettled == 0 || start.elapsed() > PATIENCE {
                return Err(Error::NoWindow {
                    memory: self.source.name.clone(),
                    windows: self.directory.windows(),
                    wanted: count,
                    unsettled,
                });
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// Maps what was leased into a NIC's address space.
    fn map(&self, domain: Arc<dyn DmaDomain>, lease: &Lease, rights: Rights) -> Result<DmaRegion> {
        let range = self.range(lease.windows());
        let at = range.start as usize;
        // SAFETY: the windows lie within the mapping, which the lease keeps; they are ours alone until the region was
        // dropped, before the lease, and they are reached by volatile accesses only.
        unsafe {
            DmaRegion::register_file(
                domain,
                self.source.as_ptr().wrapping_add(at),
                (range.end - range.start) as usize,
                rights,
                self.source.fd(),
                range.start,
            )
        }
    }

    /// Takes the first `count` neighbouring windows that nobody has, if there are such. Answers also how many windows only
    /// wait for a NIC to stop.
    fn take(self: &Arc<Self>, nic: &str, count: usize, from: From) -> Result<(Option<Lease>, usize)> {
        let windows = self.directory.windows();
        let mut unsettled = vec![false; windows];
        // What was found out about NICs of the dead: one that has not stopped may have had many windows.
        let mut busy: Vec<Owner> = Vec::new();
        let mut file = self.source.lock_file()?;
        let places = (windows + 1).saturating_sub(count);
        for n in 0..places {
            let first = match from {
                From::Beginning => n,
                From::End => places - 1 - n,
            };
            let taken = first..first + count;
            let range = self.range(taken.clone());
            let locked = locks::try_lock_range(&file, &range).map_err(|e| {
                Error::io(format!("adapter memory {}: locking a window", self.source.name), e)
            })?;
            if !locked {
                continue;
            }
            let mut waits = false;
            for number in taken.clone() {
                // A NIC that we have open ourselves was taken from whoever had it before.
                if let Some(dead) = self.directory.owner(number).filter(|dead| dead.nic != nic) {
                    if !busy.contains(&dead) && !has_let_go(&dead.nic, dead.process) {
                        busy.push(dead.clone());
                    }
                    unsettled[number] = busy.contains(&dead);
                    waits |= unsettled[number];
                }
            }
            if waits {
                locks::unlock_range(&file, &range);
                continue;
            }
            for number in taken.clone() {
                self.directory.clear(number);
                self.directory.set_owner(number, &Owner { process: std::process::id(), nic: nic.to_owned() });
            }
            let lease =
                Lease::new(self.clone(), taken, std::mem::replace(&mut file, self.source.lock_file()?));
            return Ok((Some(lease), 0));
        }
        Ok((None, unsettled.into_iter().filter(|waits| *waits).count()))
    }

    /// Where the first window lies, for tests.
    #[cfg(test)]
    pub(crate) fn first_window(&self) -> *const u8 {
        self.source.as_ptr().wrapping_add(self.window_at(0))
    }

    /// Where the last window lies, for tests.
    #[cfg(test)]
    pub(crate) fn last_window(&self) -> *const u8 {
        self.source.as_ptr().wrapping_add(self.window_at(self.directory.windows() - 1))
    }

    /// Gives back the locks on windows.
    pub(super) fn unlock(&self, file: &File, windows: Range<usize>) {
        locks::unlock_range(file, &self.range(windows));
    }

    /// Notes that windows were given back; their locks are still held.
    pub(super) fn give_back(&self, windows: Range<usize>) {
        for number in windows {
            self.directory.clear_owner(number);
        }
    }
}

impl fmt::Debug for AdapterMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdapterMemory")
            .field("name", &self.source.name)
            .field("bytes", &self.source.len())
            .field("caching", &self.source.caching)
            .finish_non_exhaustive()
    }
}
