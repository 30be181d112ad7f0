//! A work queue as VIPL has it: the program's descriptors in the order in which they were posted.

use std::sync::atomic::{Ordering, fence};

use uvia::{MemoryRegion, ProtectionTag, Status, WorkQueue};

use crate::entries::{Entries, Entry, State};
use crate::types::{self, Descriptor};

/// The descriptors of a work queue, from their posts until the program has them back.
pub(crate) struct Queue {
    which: WorkQueue,
    entries: Entries,
    /// How many from the first on are done.
    settled: usize,
    /// How many are done with, or refused, and not settled yet.
    unsettled: usize,
    /// Whether a descriptor that broke the connection, or will, was posted: what comes after it is flushed.
    poisoned: bool,
    /// The interface's tag, here at hand.
    pub(crate) tag: ProtectionTag,
    /// Most entries.
    pub(crate) depth: usize,
    pool: Vec<Spare>,
}

/// A descriptor of uvia's that is not in use. It keeps hold of the memory that it was used with last, since the next
/// post most often names the same: that is then a comparison, where a look-up would count users up and down. Memory that
/// is deregistered is let go of first ([`Queue::forget_memory`]), so that what is found here is registered.
#[derive(Default)]
pub(crate) struct Spare {
    pub(crate) work: Box<uvia::Descriptor>,
    /// Where the program's descriptor lay.
    pub(crate) memory: Option<MemoryRegion>,
}

/// What the head of a queue is.
pub(crate) enum Head {
    /// There is none.
    Empty,
    /// It is in progress.
    InProgress,
    /// It was taken; without error, or with.
    Taken(*mut Descriptor, bool),
}

/// What settling came to.
#[derive(Default)]
pub(crate) struct Settled {
    /// Descriptors that are done and were not before.
    pub(crate) count: usize,
    /// One of them was refused for an error of its own.
    pub(crate) broke: bool,
}

impl Queue {
    pub(crate) fn new(which: WorkQueue, tag: ProtectionTag, depth: usize) -> Self {
        Self {
            which,
            entries: Entries::new(),
            settled: 0,
            unsettled: 0,
            poisoned: false,
            tag,
            depth,
            pool: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn which(&self) -> WorkQueue {
        self.which
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether all of it is done, or nothing there.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled == self.entries.len()
    }

    /// The spare descriptor that is taken next, if there is one.
    #[inline]
    pub(crate) fn next_spare(&mut self) -> Option<&mut Spare> {
        self.pool.last_mut()
    }

    /// Takes it.
    #[inline]
    pub(crate) fn take_spare(&mut self) -> Spare {
        self.pool.pop().unwrap_or_default()
    }

    /// A descriptor of uvia's to fill, of which nothing is known.
    pub(crate) fn blank(&mut self) -> Box<uvia::Descriptor> {
        let mut work = self.take_spare().work;
        work.segments.clear();
        work
    }

    /// Takes one back that was not posted or is done with, and the memory that the program's lay in.
    #[inline]
    pub(crate) fn recycle(&mut self, work: Box<uvia::Descriptor>, memory: Option<MemoryRegion>) {
        self.pool.push(Spare { work, memory });
    }

    /// Lets go of the memory that spare descriptors know: some may be deregistered, or be another tag's.
    pub(crate) fn forget_memory(&mut self) {
        for spare in &mut self.pool {
            spare.work.segments.clear();
            spare.memory = None;
        }
    }

    /// The number that the next entry gets.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.entries.next()
    }

    /// Puts in a descriptor that uvia is given.
    #[inline]
    pub(crate) fn posted(
        &mut self,
        descriptor: *mut Descriptor,
        memory: Option<MemoryRegion>,
        operation: u32,
    ) {
        self.entries.push(Entry { descriptor, memory, operation, state: State::Posted });
    }

    /// The last one was not taken after all.
    #[cold]
    pub(crate) fn refuse_last(&mut self, status: Status) {
        if let Some(entry) = self.entries.last_mut() {
            entry.state = State::Refused(status);
            self.unsettled += 1;
        }
    }

    /// Puts in a descriptor that completes with `status` when its turn comes.
    #[cold]
    pub(crate) fn refused(
        &mut self,
        descriptor: *mut Descriptor,
        memory: MemoryRegion,
        operation: u32,
        status: Status,
    ) {
        let state = State::Refused(status);
        self.unsettled += 1;
        self.entries.push(Entry { descriptor, memory: Some(memory), operation, state });
    }

    /// What is posted from now on is flushed, until the interface is disconnected.
    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }

    pub(crate) fn cure(&mut self) {
        self.poisoned = false;
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Takes what uvia gives back of entry `number`, and tells the program's descriptor.
    #[inline]
    pub(crate) fn finish(&mut self, number: u32, done: Box<uvia::Descriptor>) {
        let index = number.wrapping_sub(self.entries.first()) as usize;
        let which = self.which;
        let mut memory = None;
        if let Some(entry) = self.entries.get_mut(index).filter(|e| matches!(e.state, State::Posted)) {
            let immediate = match which {
                WorkQueue::Receive => Some(done.immediate),
                WorkQueue::Send => None,
            };
            memory = entry.finish(done.status(), done.length(), immediate);
            self.unsettled += 1;
        }
        self.recycle(done, memory);
    }

    /// As [`Queue::finish`] for the entry that comes first, and gives it to the program: `Ok` with whether it is without
    /// error. `Err` where that takes more: the entry is not the first, or what comes behind it may be done by it.
    #[inline]
    pub(crate) fn finish_first(
        &mut self,
        number: u32,
        done: Box<uvia::Descriptor>,
    ) -> Result<(*mut Descriptor, bool), Box<uvia::Descriptor>> {
        if number != self.entries.first() || self.unsettled != 0 {
            return Err(done);
        }
        let Some(entry) = self.entries.get_mut(0).filter(|entry| matches!(entry.state, State::Posted)) else {
            return Err(done);
        };
        let immediate = match self.which {
            WorkQueue::Receive => Some(done.immediate),
            WorkQueue::Send => None,
        };
        let status = done.status();
        let memory = entry.finish(status, done.length(), immediate);
        let descriptor = entry.descriptor;
        self.entries.pop();
        self.recycle(done, memory);
        Ok((descriptor, status.is_success()))
    }

    /// Goes on over what is done.
    #[inline]
    pub(crate) fn settle(&mut self) -> Settled {
        let mut settled = Settled::default();
        while let Some(entry) = self.entries.get_mut(self.settled) {
            match entry.state {
                State::Posted => break,
                State::Refused(status) => {
                    let immediate = (self.which == WorkQueue::Receive).then_some(None);
                    drop(entry.finish(status | Status::DONE, 0, immediate));
                    settled.broke |= status.intersects(Status::ERRORS.difference(Status::FLUSHED));
                }
                State::Done(_) => {}
            }
            self.settled += 1;
            self.unsettled -= 1;
            settled.count += 1;
        }
        settled
    }

    /// Gives the head to the program, if it is done.
    #[inline]
    pub(crate) fn take(&mut self) -> Head {
        if self.settled == 0 {
            return if self.entries.is_empty() { Head::Empty } else { Head::InProgress };
        }
        let Some(&mut Entry { descriptor, state: State::Done(status), .. }) = self.entries.pop() else {
            return Head::Empty;
        };
        self.settled -= 1;
        Head::Taken(descriptor, status.is_success())
    }
}

impl Entry {
    /// Writes back what became of it; gives the memory that it lay in. `immediate` is for receives.
    #[inline]
    fn finish(
        &mut self,
        status: Status,
        length: u32,
        immediate: Option<Option<u32>>,
    ) -> Option<MemoryRegion> {
        let mut bits = status.bits() | self.operation;
        let control = self.descriptor.cast::<types::ControlSegment>();
        if self.memory.as_ref().is_some_and(uvia::MemoryRegion::is_gone) {
            // The program has unmapped it: there is nowhere to write to.
            self.state = State::Done(status);
            self.memory = None;
            return None;
        }
        // SAFETY: the post found a whole, aligned descriptor there in registered memory, which `memory` has kept
        // registered since, and VIPL's contract is that registered memory stays mapped and that the descriptor is the
        // library's from its post on. The pointer is the program's own. Volatile, since it may look at it at any time.
        unsafe {
            if let Some(immediate) = immediate {
                if immediate.is_some() {
                    bits |= types::STATUS_IMMEDIATE;
                }
                (&raw mut (*control).immediate_data).write_volatile(immediate.unwrap_or(0));
            }
            (&raw mut (*control).length).write_volatile(length);
            // A program that spins on the status sees the rest with it.
            fence(Ordering::Release);
            (&raw mut (*control).status).write_volatile(bits);
        }
        self.state = State::Done(status);
        self.memory.take()
    }
}
