//! The NIC object: what programs open, and where the locks are.

mod hosts;
mod objects;
mod opening;
mod options;
mod properties;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::background::Background;
use crate::batch::Batch;
use crate::callbacks::Callbacks;
use crate::cq::{Completions, Ring};
use crate::devices::Registered;
use crate::handle::Handle;
use crate::hosts::Hosts;
use crate::posts::Posts;
use crate::provider::AnyProvider;
use crate::seldom::Seldom;
use crate::sinks::{Handed, Sinks};
use crate::sleep;
use crate::standstill::Standstill;
use crate::tags::Tags;
use crate::turn::{Guard, Turn};
use crate::{AsyncError, Completion, Descriptor, Error, ErrorCode, ErrorResource, Result, ViId, WorkQueue};
use options::Agreed;
pub use options::{NicOptions, Progress};
pub use properties::{NicProperties, Statistics};

/// A NIC, opened for virtual interfaces.
///
/// It works when it is driven: by every poll of and wait on one of its queues, listeners or interfaces, and by
/// [`Nic::poll`]. A program that does something else for long keeps its peers waiting for acknowledgements, and after
/// some 5 s they take it for dead; with [`Progress::Thread`] a thread stands in for it.
///
/// A device may be opened many times in one process: each [`Nic::open`] gives a handle of its own to the same NIC, with
/// an error handler of its own. Clones are the same handle. The NIC closes with the last handle and the last object made
/// from it, before that one's drop returns.
#[derive(Clone)]
pub struct Nic(Arc<Opened>);

/// One opening of a NIC.
struct Opened {
    shared: Handle,
    number: u32,
}

impl Drop for Opened {
    fn drop(&mut self) {
        drop(self.shared.callbacks.set_error_handler(self.number, None));
    }
}

impl std::ops::Deref for Opened {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.shared
    }
}

/// What all objects of a NIC share.
pub(crate) struct Shared {
    /// The provider, and who gets its completions. Held for one bounded burst at a time; whoever does not get it
    /// on the data path leaves its work in `posts` and goes on.
    core: Turn<Core>,
    /// Descriptors posted while somebody else held `core`. After a push word is left with `core`, before a drain it is taken; a push that the drain misses leaves it again.
    posts: Arc<Posts>,
    properties: NicProperties,
    id: u32,
    name: String,
    hosts: Hosts,
    /// What it was opened with, as far as a second opening has to agree.
    agreed: Agreed,
    pub(crate) sleepers: sleep::Sleepers,
    /// What watched memory knows it by.
    pub(crate) standstill: Arc<Standstill>,
    /// Who drives it when the program does not.
    pub(crate) background: Mutex<Option<Background>>,
    /// Its thread sleeps, until the adapter interrupts and no timer of the engine's in sight. Set under `core`.
    dozing: AtomicBool,
    callbacks: Arc<Callbacks>,
    /// The adapter has failed, and those who opened the NIC were told.
    failed: AtomicBool,
    faults: Seldom,
    /// Handles and objects of the program's.
    pub(crate) handles: AtomicUsize,
    /// How often it was opened.
    openings: AtomicU32,
    /// The last to go: then the device may be opened anew.
    _registered: Option<Registered>,
}

pub(crate) struct Core {
    pub(crate) tags: Tags,
    /// Completion queues in being.
    pub(crate) cqs: usize,
    /// How often the program drove it.
    turns: u32,
    pub(crate) provider: AnyProvider,
    pub(crate) sinks: Sinks,
}

impl Core {
    /// Takes the oldest completion of a ring.
    #[inline(always)]
    fn reap(&mut self, ring: &Ring) -> Option<Completion> {
        let completion = self.sinks.pop(ring.key())?;
        if !self.sinks.reaped(&completion) {
            // Its interface is gone: the entry that was kept for this completion is free now.
            ring.release(1);
        }
        Some(completion)
    }

    /// Takes what waits in a ring, as far as `into` has room.
    #[inline(never)]
    fn reap_waiting(&mut self, ring: &Ring, into: &mut Completions) {
        while let Some(place) = into.0.place()
            && let Some(completion) = self.reap(ring)
        {
            place.fill(completion);
        }
    }

    /// Posts a descriptor that was checked and counted. A fault of the adapter is not the descriptor's: it was taken.
    #[inline(never)]
    fn post(&mut self, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) -> Result<()> {
        match queue {
            WorkQueue::Send => self.provider.post_send(vi, descriptor, &mut self.sinks),
            WorkQueue::Receive => {
                self.provider.post_receive(vi, descriptor, &mut self.sinks);
                Ok(())
            }
        }
    }

    /// How often the program drove it.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    /// Drives it for the program: this is not counted as the program's doing.
    pub(crate) fn drive(&mut self) -> Result<usize> {
        let turns = self.turns;
        let outcome = self.progress();
        self.turns = turns;
        outcome
    }

    /// Drives the provider for one burst.
    #[inline(always)]
    pub(crate) fn progress(&mut self) -> Result<usize> {
        self.progress_for(Handed::to_nobody(&mut Batch::nothing()))
    }

    /// As [`Core::progress`], for who waits at a ring.
    #[inline(always)]
    fn progress_for(&mut self, handed: Handed<'_>) -> Result<usize> {
        self.turns = self.turns.wrapping_add(1);
        self.provider.progress(&mut self.sinks, handed)
    }
}

impl Nic {
    pub(crate) fn handle(&self) -> &Handle {
        &self.0.shared
    }

    /// Calls `handler` with errors that no descriptor can carry: those of the NIC, and those of interfaces that were
    /// created by this handle or a clone of it. It runs on a thread of the NIC's that is for handlers, one call at a time,
    /// and holds no lock: it may call anything, and block. An error that happens again before it was told is told once.
    /// Without a handler errors are logged by `tracing`, at most now and then.
    ///
    /// The handler is kept until it is replaced, or the last clone of this handle goes; so it must not own one. Whoever
    /// lets go of the NIC last waits for a handler that runs just then.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn set_error_handler(&self, handler: impl Fn(&AsyncError) + Send + Sync + 'static) -> Result<()> {
        self.0.start_handlers()?;
        drop(self.0.callbacks.set_error_handler(self.0.number, Some(Arc::new(handler))));
        Ok(())
    }

    /// Tells the handler of an error, as the NIC itself does: for layers that stand on this one, and find what they are
    /// given in error when the call that could have said so is over.
    pub fn raise(&self, error: AsyncError) {
        self.0.callbacks.error(self.0.number, error);
    }

    /// Restores the default: errors are logged.
    pub fn clear_error_handler(&self) {
        drop(self.0.callbacks.set_error_handler(self.0.number, None));
    }

    /// What it is, and its limits.
    pub fn properties(&self) -> &NicProperties {
        &self.0.properties
    }

    /// Drives the NIC for one bounded burst; answers how much there was to do. Polling any queue does it too.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn poll(&self) -> Result<usize> {
        self.0.progress()
    }

    /// What it has counted.
    pub fn statistics(&self) -> Statistics {
        let mut core = self.0.core();
        let core = &mut *core;
        core.provider.statistics(&mut core.sinks)
    }

    /// Waits for `ready` to answer with something, up to `timeout`; `None` when it did not. For those who wait for more
    /// than one queue, or for one that others reap too: `ready` is called again and again and drives the NIC by what it
    /// polls; between the calls the thread sleeps as it does in the waits of queues. In its last look before a sleep it
    /// is told to be patient ([`Vi::done`](crate::Vi::done), [`CompletionQueue::poll_patiently`](crate::CompletionQueue::poll_patiently)).
    ///
    /// # Errors
    /// What `ready` fails with, or a fault of the adapter.
    pub fn wait_for<T>(
        &self,
        timeout: Duration,
        ready: impl FnMut(bool) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.0.wait(timeout, ready)
    }

    /// Whether frames can pass: the link is up and the receiver awake.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn ready(&self) -> Result<bool> {
        self.0.progress()?;
        self.0.core().provider.ready()
    }

    /// Waits until frames can pass.
    ///
    /// # Errors
    /// [`Error::Timeout`], or a fault of the adapter.
    pub fn wait_ready(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        while !self.ready()? {
            if start.elapsed() >= timeout {
                return Err(Error::Timeout {
                    what: format!("the link of {}", self.0.properties.device),
                    millis: timeout.as_millis() as u64,
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Handle {
        &self.0
    }
}

impl Shared {
    /// Refuses a number of entries that a completion queue cannot have.
    pub(crate) fn check_entries(&self, entries: usize) -> Result<()> {
        let limit = self.properties.max_cq_entries;
        match entries {
            0 => Err(Error::Parameter("a completion queue needs at least one entry".to_owned())),
            _ if entries > limit => Err(Error::Resource { what: "completion queue entries", limit }),
            _ => Ok(()),
        }
    }

    /// The program is about to do something else: the NIC's thread takes over at once.
    pub(crate) fn kick(&self) {
        if let Some(background) = &*self.background.lock().unwrap_or_else(PoisonError::into_inner) {
            background.kick();
        }
    }

    /// The adapter failed where nobody hears of it by a call's outcome.
    #[cold]
    pub(crate) fn fault(&self, e: &Error) {
        if let Some(more) = self.faults.due() {
            tracing::warn!(more, "{}: {e}", self.properties.device);
        }
        if !self.failed.swap(true, Ordering::Relaxed) {
            let error = AsyncError { code: ErrorCode::Catastrophic, resource: ErrorResource::Nic };
            self.callbacks.error_of_nic(error);
        }
    }

    /// It works (again).
    pub(crate) fn works(&self) {
        if self.failed.load(Ordering::Relaxed) {
            self.failed.store(false, Ordering::Relaxed);
        }
    }
}

impl Handle {
    /// Starts what handlers need: a thread that calls them, and one that drives the NIC.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start_handlers(&self) -> Result<()> {
        self.start_background()?;
        self.callbacks.start()
    }
}

impl Shared {
    /// The provider, waiting for whoever holds it. Control path only.
    pub(crate) fn core(&self) -> Guard<'_, Core> {
        let core = self.core.wait();
        if self.dozing.load(Ordering::Relaxed) {
            self.end_doze();
        }
        core
    }

    /// How long the NIC's thread, which has the turn, may sleep with the adapter's interrupt armed. For ever where the
    /// engine has no timer: then there is no connection, nor one to come, and only the control path can change that, by
    /// way of [`Shared::core`]. Else no longer than [`sleep::LONGEST`], since the data path sets timers and wakes nobody.
    pub(crate) fn doze(&self, core: &Core) -> Option<Duration> {
        let idle = core.provider.idle_for();
        // Relaxed: those who look at it have the turn, as this has.
        self.dozing.store(idle.is_none(), Ordering::Relaxed);
        idle.map(|time| time.min(sleep::LONGEST))
    }

    /// The NIC's thread is awake.
    pub(crate) fn rouse(&self) {
        // Relaxed: at worst it is woken once more.
        self.dozing.store(false, Ordering::Relaxed);
    }

    /// Wakes the NIC's thread if it sleeps without end. By who has the turn: the thread asks for the engine's next timer
    /// only after that.
    #[cold]
    fn end_doze(&self) {
        self.dozing.store(false, Ordering::Relaxed);
        self.kick();
    }

    /// The provider, if nobody has it or waits for it; with what was posted meanwhile posted.
    #[inline(always)]
    pub(crate) fn try_core(&self) -> Option<Guard<'_, Core>> {
        match self.core.try_take() {
            Some(core) => Some(core),
            None => self.try_core_again(),
        }
    }

    /// The turn, for who keeps the engine from following addresses; none after so long.
    #[cold]
    pub(crate) fn turn(&self, patience: Duration) -> Option<Guard<'_, Core>> {
        self.core.wait_up_to(patience)
    }

    /// Whether somebody waits for the turn.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.core.is_awaited()
    }

    /// Lets who drives it next look for what came up.
    #[cold]
    pub(crate) fn leave_word(&self) {
        self.core.leave_word();
    }

    #[cold]
    #[inline(never)]
    fn try_core_again(&self) -> Option<Guard<'_, Core>> {
        let (mut core, word) = self.core.try_take_word()?;
        if word {
            self.drain_posts(&mut core);
        }
        Some(core)
    }

    /// As [`Shared::try_core`], waiting for it.
    pub(crate) fn ready_core(&self) -> Guard<'_, Core> {
        let mut core = self.core();
        if self.core.take_word() {
            self.drain_posts(&mut core);
        }
        core
    }

    pub(crate) fn properties(&self) -> &NicProperties {
        &self.properties
    }

    /// Its number in this process, which is in its tags.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Drives the provider for one burst, unless somebody else is doing so.
    pub(crate) fn progress(&self) -> Result<usize> {
        match self.try_core() {
            Some(mut core) => core.progress(),
            None => Ok(0),
        }
    }

    /// Gives the provider what was posted while somebody else held it, in order.
    #[cold]
    pub(crate) fn drain_posts(&self, core: &mut Core) {
        // First: what was posted may name it.
        if self.standstill.take_lost() {
            core.provider.lose_regions();
        }
        while let Some((vi, queue, descriptor)) = self.posts.pop() {
            self.post_with(core, vi, queue, descriptor);
        }
    }

    /// Posts a descriptor that was checked and counted.
    pub(crate) fn post(&self, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) {
        match self.try_core() {
            Some(mut core) => self.post_with(&mut core, vi, queue, descriptor),
            None => self.post_later(vi, queue, descriptor),
        }
    }

    pub(crate) fn post_with(&self, core: &mut Core, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) {
        if let Err(e) = core.post(vi, queue, descriptor) {
            self.fault(&e);
        }
    }

    /// The provider, if nobody has it or waits for it, and nothing was posted meanwhile.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Guard<'_, Core>> {
        self.core.try_take()
    }

    /// Posting met a fault of the adapter.
    #[cold]
    #[inline(never)]
    pub(crate) fn fault_at_post(&self, core: &mut Core) {
        if let Err(e) = core.provider.take_fault() {
            self.fault(&e);
        }
    }

    /// As [`Shared::post`] for a receive. Nothing is called on the usual way, so that nothing has to be saved for it.
    #[inline(always)]
    pub(crate) fn post_receive(&self, vi: ViId, descriptor: Box<Descriptor>) {
        let Some(mut core) = self.core.try_take() else {
            return self.post_again(vi, WorkQueue::Receive, descriptor);
        };
        if let Err(descriptor) = core.provider.keep_receive(vi, descriptor) {
            self.post_unusual(core, vi, descriptor);
        }
    }

    /// Posts receives that were checked and counted, all in one turn.
    #[expect(clippy::vec_box, reason = "they move by the box")]
    pub(crate) fn post_receives(&self, vi: ViId, descriptors: &mut Vec<Box<Descriptor>>) {
        let Some(mut core) = self.core.try_take() else {
            return descriptors
                .drain(..)
                .for_each(|descriptor| self.post(vi, WorkQueue::Receive, descriptor));
        };
        if !core.provider.keep_receives(vi, descriptors) {
            self.post_receives_with(core, vi, descriptors);
        }
    }

    /// Receives that are not all simply kept.
    #[cold]
    #[inline(never)]
    #[expect(clippy::vec_box, reason = "they move by the box")]
    fn post_receives_with(
        &self,
        mut core: Guard<'_, Core>,
        vi: ViId,
        descriptors: &mut Vec<Box<Descriptor>>,
    ) {
        for descriptor in descriptors.drain(..) {
            if let Err(descriptor) = core.provider.keep_receive(vi, descriptor) {
                self.post_with(&mut core, vi, WorkQueue::Receive, descriptor);
            }
        }
    }

    /// A receive that is not simply kept.
    #[cold]
    #[inline(never)]
    fn post_unusual(&self, mut core: Guard<'_, Core>, vi: ViId, descriptor: Box<Descriptor>) {
        self.post_with(&mut core, vi, WorkQueue::Receive, descriptor);
    }

    /// As [`Shared::post`], for those who have tried already.
    #[cold]
    #[inline(never)]
    fn post_again(&self, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) {
        self.post(vi, queue, descriptor);
    }

    /// Leaves a descriptor for whoever holds the engine.
    #[cold]
    #[inline(never)]
    fn post_later(&self, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) {
        match self.posts.push((vi, queue, descriptor)) {
            Ok(()) => self.core.leave_word(),
            // Thousands of posts wait: now waiting for the engine is all that is left.
            Err((_, _, descriptor)) => self.post_with(&mut self.ready_core(), vi, queue, descriptor),
        }
    }

    /// The next completion of a ring; drives the provider when there is none. While somebody else holds it there is
    /// none, unless the caller is `patient`.
    pub(crate) fn reap(&self, ring: &Ring, patient: bool) -> Result<Option<Completion>> {
        let mut core = match self.try_core() {
            Some(core) => core,
            None if patient => self.ready_core(),
            None => return Ok(None),
        };
        let core = &mut *core;
        if let Some(completion) = core.reap(ring) {
            return Ok(Some(completion));
        }
        core.progress()?;
        Ok(core.reap(ring))
    }

    /// As [`Shared::reap`] for as many as there are, up to the room that `into` has; answers how many.
    pub(crate) fn reap_into(&self, ring: &Ring, into: &mut Completions) -> Result<usize> {
        let Some(mut core) = self.try_core() else { return Ok(0) };
        let core = &mut *core;
        // Usual is what one branch tells.
        if core.sinks.rings.unlike_quiet(ring.key()) | into.0.unlike_new() == 0
            || core.sinks.rings.is_empty(ring.key()) && into.0.is_fresh()
        {
            core.progress_for(Handed { ring: ring.key(), batch: &mut into.0 })?;
            return Ok(into.0.since(0));
        }
        Self::reap_into_more(core, ring, into)
    }

    /// As [`Shared::reap_into`], where there is something in the ring or in the batch.
    #[inline(never)]
    fn reap_into_more(core: &mut Core, ring: &Ring, into: &mut Completions) -> Result<usize> {
        let before = into.0.gather();
        if core.sinks.rings.is_empty(ring.key()) {
            core.progress_for(Handed { ring: ring.key(), batch: &mut into.0 })?;
        } else {
            core.reap_waiting(ring, into);
            if into.0.since(before) == 0 {
                Self::reap_watched(core, ring, into)?;
            }
        }
        Ok(into.0.since(before))
    }

    /// As [`Shared::reap_into`] for a ring that somebody watches, and that has nothing: it is not filled directly.
    #[cold]
    fn reap_watched(core: &mut Core, ring: &Ring, into: &mut Completions) -> Result<()> {
        core.progress()?;
        core.reap_waiting(ring, into);
        Ok(())
    }

    /// Destroys an interface. What is reaped of it from now on is not counted back.
    pub(crate) fn destroy_vi(&self, vi: ViId) {
        let mut core = self.ready_core();
        let core = &mut *core;
        let outcome = core
            .provider
            .disconnect(vi, &mut core.sinks)
            .and_then(|()| core.provider.destroy_vi(vi, &mut core.sinks));
        if let Err(e) = outcome {
            tracing::warn!(?vi, "destroying a virtual interface: {e}");
        }
        core.sinks.close(vi);
    }

    /// Waits for `ready` to answer, up to `timeout`.
    pub(crate) fn wait<T>(
        &self,
        timeout: Duration,
        ready: impl FnMut(bool) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        sleep::wait(self, timeout, ready)
    }
}
