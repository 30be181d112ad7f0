//! Tells when memory of a caller's goes away: unmapped, moved or emptied by the program, while it is registered.
//!
//! The kernel's userfaultfd tells of it: for ranges that are registered there, whoever unmaps them waits until a reader
//! has read the event. Ranges are registered for write protection, and never protected, so that no access ever faults;
//! that is allowed to unprivileged processes. One thread of the process reads. Before it does, it has all [`Keeper`]s
//! stand still: so when the program's call returns, its memory is known to be gone to all who would have followed its
//! addresses, and whatever the program then maps there is not taken for the old.
//!
//! What this leaves open: an access that is under way in the very moment of the unmapping.
//!
//! A forked child has its parent's memory but not its events: what the parent watches is not watched there. What the
//! child registers by itself is, by a reader of its own.

mod cover;
mod events;
mod fork;
mod keepers;
mod reader;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

pub use fork::Mark;

use super::DmaDomain;
use crate::{Error, Result};
use reader::Reader;

/// Somebody who follows addresses of watched memory, under a lock of its own.
pub trait Keeper: Send + Sync {
    /// Calls `act` while nobody on this keeper's side follows such an address. Who would have to wait for longer than
    /// `patience` calls it all the same: whoever keeps the lock may itself be the one who waits for the event.
    fn hold(&self, patience: Duration, act: &mut dyn FnMut());

    /// Some memory of this keeper's is gone. Called from within `hold`; takes no lock, and neither allocates nor frees.
    fn lost(&self);
}

/// How memory went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The address is nobody's any more, or somebody else's.
    Unmapped,
    /// The address is as it was, the pages are not (MADV_DONTNEED and the like).
    Emptied,
}

/// What has become of watched memory.
#[derive(Debug, Default)]
pub struct Fate(AtomicBool);

impl Fate {
    /// Whether it went, or a part of it: its addresses are not to be followed any more.
    pub fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release of `end`, for what the reader did before.
        self.0.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Memory that is watched, until this is dropped.
pub(super) struct Watched {
    key: table::Key,
    fate: Arc<Fate>,
    reader: &'static Reader,
}

impl Watched {
    /// Whether it went, or a part of it.
    pub(super) fn is_gone(&self) -> bool {
        self.fate.is_gone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.reader.forget(&self.key);
    }
}

/// Watches the pages of `[address, address + len)`, which are mapped at `iova` of `domain`.
pub(super) fn watch(
    address: usize,
    len: usize,
    keeper: Arc<dyn Keeper>,
    domain: &dyn DmaDomain,
    iova: u64,
) -> Result<Watched> {
    let reader = reader()?;
    let start = address & !(PAGE - 1);
    let end = address
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(PAGE))
        .ok_or_else(|| Error::Argument { what: format!("{len} bytes at {address:#x} are no range") })?;
    let fate = Arc::new(Fate::default());
    // Known to it before anything can happen.
    domain.bind(iova, &fate);
    let entry = table::Entry { end, fate: fate.clone(), keeper, keeps_pages: domain.keeps_pages() };
    let key = reader.add(start, entry).map_err(|source| Error::Unwatchable { source })?;
    Ok(Watched { key, fate, reader })
}

/// The granularity of mappings here.
pub(super) const PAGE: usize = 4096;

/// Whether memory can be watched in this process.
///
/// # Errors
/// [`Error::Unwatchable`], with the system's reason.
pub fn availability() -> Result<()> {
    reader().map(|_| ())
}

/// Waits until all that the program has unmapped before this call is known to be gone. A load, in the usual case.
#[inline]
pub fn settle() {
    if let Some(reader) = known() {
        reader.settle();
    }
}

/// How many watched ranges went so far.
#[inline]
pub fn losses() -> u64 {
    known().map_or(0, Reader::losses)
}

/// Whether any byte of a range is watched: its pages must then not be replaced by others.
pub(crate) fn covers(start: usize, len: usize) -> bool {
    known().is_some_and(|reader| reader.covers(start, start.saturating_add(len)))
}

/// The name of the thread that reads, which touches no memory of the program's.
pub(crate) const THREAD: &str = "uvia-watch";

/// The reader of this process; in a forked child, until it has one of its own, its parent's.
static READER: AtomicPtr<Reader> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> Option<&'static Reader> {
    // SAFETY: what is put there was leaked. Acquire: pairs with the Release that put it there.
    unsafe { READER.load(Ordering::Acquire).as_ref() }
}

fn reader() -> Result<&'static Reader> {
    let before = READER.load(Ordering::Acquire);
    let reader = match known() {
        Some(reader) if !reader.is_forked() => reader,
        _ => {
            // Leaked, as whatever is watched refers to it: one a process. A thread that is no lock's owner in a child
            // waits for none here.
            let new = Box::into_raw(Box::new(Reader::new().map_err(|source| Error::Unwatchable { source })?));
            match READER.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: as in `known`.
                Ok(_) => unsafe { &*new },
                Err(_) => {
                    // SAFETY: just made, and given to nobody.
                    drop(unsafe { Box::from_raw(new) });
                    return reader();
                }
            }
        }
    };
    reader.start().map_err(|source| Error::Unwatchable { source })?;
    Ok(reader)
}

#[cfg(test)]
mod tests;
