//! The thread that reads what the kernel tells, and what it shares with the others.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::events::{Event, Events};
use super::fork::Mark;
use super::keepers::Keepers;
use super::table::{Entry, Key, Table};
use super::{Keeper, PAGE, THREAD};

/// How long a keeper is waited for. Its lock is held for microseconds, or by a thread that was preempted; or, when the
/// allocator gives memory back from within, by one that waits for the event to be read.
const PATIENCE: Duration = Duration::from_millis(200);
/// Keepers for which there is room without allocating.
const KEEPERS: usize = 256;

/// Events that are kept until the table can be had.
const PENDING: usize = 4096;

/// What is watched in this process.
pub(super) struct Reader {
    events: Events,
    mark: Mark,
    table: Mutex<Table>,
    keepers: Keepers,
    /// 1 from before events are read until what they say was done.
    stirring: AtomicU32,
    losses: AtomicU64,
    started: Mutex<bool>,
    /// The thread is no more: who unmaps waits for nobody, and nothing is noticed.
    ended: AtomicBool,
}

impl Reader {
    pub(super) fn new() -> io::Result<Self> {
        let (events, mark) = (Events::new()?, Mark::new()?);
        Ok(Self {
            events,
            mark,
            table: Mutex::default(),
            keepers: Keepers::default(),
            stirring: AtomicU32::new(0),
            losses: AtomicU64::new(0),
            started: Mutex::new(false),
            ended: AtomicBool::new(false),
        })
    }

    /// Starts the thread, if it does not run.
    pub(super) fn start(&'static self) -> io::Result<()> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if !*started {
            let before = block_signals()?;
            let outcome = std::thread::Builder::new().name(THREAD.to_owned()).spawn(|| self.run());
            restore_signals(&before);
            outcome?;
            *started = true;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a range. It is in the table before the kernel tells of it.
    pub(super) fn add(&self, start: usize, entry: Entry) -> io::Result<Key> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.catch_up();
        let end = entry.end;
        self.keepers.enter(&entry.keeper);
        let key = self.table().insert(start, entry);
        let outcome = self.events.register(start, end).and_then(|()| all_mapped(start, end));
        match outcome {
            Ok(()) => Ok(key),
            Err(e) => {
                self.remove(&key);
                Err(e)
            }
        }
    }

    /// Watches it no more.
    pub(super) fn forget(&self, key: &Key) {
        // A child has the table as it was, perhaps locked by nobody who lives there, and the kernel tells it nothing.
        if !self.is_forked() {
            self.remove(key);
        }
    }

    fn remove(&self, key: &Key) {
        let mut table = self.table();
        let Some((entry, free)) = table.remove(key) else { return };
        // Under the lock: who adds some of it now registers it after this.
        for range in free {
            self.events.unregister(range.start, range.end);
        }
        drop(table);
        self.keepers.leave(&entry.keeper);
    }

    pub(super) fn covers(&self, start: usize, end: usize) -> bool {
        !self.is_forked() && self.table().cover.touches(start, end)
    }

    #[inline]
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Waits until what was read was done.
    #[inline]
    pub(super) fn settle(&self) {
        // Acquire: pairs with the Release when it ends, for all that was done. Who has unmapped something was let go on
        // by the read, before which this was set: the kernel's wait queue orders the two.
        if self.stirring.load(Ordering::Acquire) != 0 {
            self.settle_long();
        }
    }

    #[cold]
    fn settle_long(&self) {
        let mut looks = 0;
        while self.stirring.load(Ordering::Acquire) != 0 && !self.is_forked() {
            pause(&mut looks);
        }
    }

    /// Waits until all that went before this call is known to have, whoever unmapped it: the kernel gives addresses to the
    /// next before it tells of the last, and what it tells then would be taken for the end of what is watched there by
    /// then. Who holds a keeper's lock is waited for by the reader, and so waits no longer than that.
    fn catch_up(&self) {
        let (mut looks, start) = (0, Instant::now());
        while self.events.is_changing() && !self.is_forked() && start.elapsed() < PATIENCE {
            pause(&mut looks);
        }
        // What was read is done.
        self.settle();
    }

    /// Neither allocates nor frees once it runs: an allocator that gives memory back would wait for this very thread.
    fn run(&self) {
        let _end = Ended(self);
        let mut keepers = Vec::with_capacity(KEEPERS);
        let mut pending = Vec::with_capacity(PENDING);
        while self.events.wait() {
            // SeqCst: before the read, in whatever order the processor likes to do them.
            self.stirring.store(1, Ordering::SeqCst);
            self.read(&mut keepers, &mut pending);
            self.stirring.store(0, Ordering::Release);
        }
    }

    fn read(&self, keepers: &mut Vec<Arc<dyn Keeper>>, pending: &mut Vec<Event>) {
        let mut done = false;
        while !done {
            let generation = {
                let list = self.keepers.lock();
                keepers.extend(list.iter().cloned());
                list.generation
            };
            hold(keepers, &mut || {
                let list = self.keepers.lock();
                // One that has come meanwhile does not stand still.
                if list.generation == generation {
                    self.events.read(pending);
                    drop(list);
                    self.end_what_went(pending);
                    done = true;
                }
            });
            keepers.clear();
        }
    }

    fn end_what_went(&self, pending: &mut Vec<Event>) {
        let table = loop {
            match self.table.try_lock() {
                Ok(table) => break table,
                Err(TryLockError::Poisoned(table)) => break table.into_inner(),
                // Who has it may wait for an event of its own, freeing memory.
                Err(TryLockError::WouldBlock) => {
                    self.events.read(pending);
                    std::thread::yield_now();
                }
            }
        };
        for event in pending.drain(..) {
            if let Some(to) = event.moved_to {
                self.events.unregister(to, to.saturating_add(event.range.len()));
            }
            // Relaxed: ordered by what `settle` waits for.
            self.losses.fetch_add(table.lose(&event.range, event.loss), Ordering::Relaxed);
        }
    }
}

/// Between two looks at what another thread does.
fn pause(looks: &mut u32) {
    *looks += 1;
    if *looks < 100 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(20)) }
}

/// Has all of them stand still.
fn hold(keepers: &[Arc<dyn Keeper>], act: &mut dyn FnMut()) {
    match keepers.split_first() {
        None => act(),
        Some((first, others)) => first.hold(PATIENCE, &mut || hold(others, act)),
    }
}

/// Notes that the thread has ended, however it did.
struct Ended<'a>(&'a Reader);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
        self.0.events.close();
        self.0.stirring.store(0, Ordering::Release);
    }
}

/// The kernel watches ranges with holes too; what is not there would never be told of.
fn all_mapped(start: usize, end: usize) -> io::Result<()> {
    const MANY: usize = 1 << 12;
    let mut present = [0u8; MANY];
    let mut at = start;
    while at < end {
        let len = (end - at).min(MANY * PAGE);
        // SAFETY: mincore looks at the page tables alone, and writes a byte a page into our array, which has as many.
        let outcome =
            unsafe { libc::mincore(std::ptr::without_provenance_mut(at), len, present.as_mut_ptr()) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        at += len;
    }
    Ok(())
}

/// A handler of the program's, run by the thread that reads, might wait for it.
fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: the first call fills the set, the second reads it and writes the old one, both in locals.
    let outcome = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr())
    };
    if outcome != 0 {
        return Err(io::Error::from_raw_os_error(outcome));
    }
    // SAFETY: the call has succeeded, and written it.
    Ok(unsafe { before.assume_init() })
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that this thread had before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
