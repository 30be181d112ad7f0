//! The NIC object: what programs open, and where the locks are.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use uvia_driver::dma::DmaDomain;
use uvia_driver::nic as adapter;

use crate::background::Background;
use crate::connection::Listener;
use crate::cq::{CompletionQueue, Completions, Ring};
use crate::credits::Credits;
use crate::ethernet::Ethernet;
use crate::hosts::Hosts;
use crate::provider::{AnyProvider, Provider};
use crate::sinks::Sinks;
use crate::sleep;
use crate::turn::{Guard, Turn};
use crate::{
    Clock, Completion, Descriptor, EndpointClass, Error, MacAddress, MemoryAttributes, MemoryRegion,
    ProtectionTag, ReliabilityLevel, Result, Vi, ViAttributes, ViId, WorkQueue,
};

/// How a NIC is opened.
#[derive(Debug, Clone, Default)]
pub struct NicOptions {
    /// This host's name, by which others find it. Default: the system's host name.
    pub name: Option<String>,
    /// A hosts file (lines of `MAC NAME...`). Default: /etc/uvia.hosts, where there is one.
    pub hosts: Option<PathBuf>,
    /// How the adapter is set up.
    pub adapter: adapter::NicConfig,
    /// Where it has its time from.
    pub clock: Clock,
    /// Who drives it.
    pub progress: Progress,
    /// End-to-end checksums (CRC32C) on every frame; used when either end asks for them.
    pub integrity: bool,
}

/// Who drives a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// The program, by its calls.
    #[default]
    Caller,
    /// The program, and a thread of the NIC's whenever it does not.
    Thread,
}

/// What a NIC is, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicProperties {
    /// The device's name.
    pub device: String,
    /// The adapter's driver.
    pub driver: &'static str,
    /// Its station address.
    pub mac: MacAddress,
    /// Message bytes in one frame.
    pub native_mtu: usize,
    /// Longest message or RDMA transfer, bytes.
    pub max_transfer_size: u32,
    /// Most virtual interfaces.
    pub max_vis: usize,
    /// Most segments of a descriptor.
    pub max_segments: usize,
    /// Most descriptors of a work queue.
    pub max_depth: usize,
    /// Most entries of a completion queue.
    pub max_cq_entries: usize,
    /// Most registered regions.
    pub max_regions: usize,
    /// Longest private data with a connection request or its answer, bytes.
    pub max_private_data: usize,
    /// What connections can promise.
    pub reliability_levels: &'static [ReliabilityLevel],
    /// How sends can reach the adapter.
    pub classes: &'static [EndpointClass],
}

/// A NIC, opened for virtual interfaces.
///
/// It works when it is driven: by every poll of and wait on one of its queues, listeners or interfaces, and by
/// [`Nic::poll`]. A program that does something else for long keeps its peers waiting for acknowledgements, and after
/// some 5 s they take it for dead; with [`Progress::Thread`] a thread stands in for it.
///
/// Clones are handles to the same one; it closes with the last handle and
/// the last object made from it.
#[derive(Clone)]
pub struct Nic(Arc<Shared>);

/// What all objects of a NIC share.
pub(crate) struct Shared {
    /// The provider, and who gets its completions. Held for one bounded burst at a time; whoever does not get it
    /// on the data path leaves its work in `posts` and goes on.
    core: Turn<Core>,
    /// Descriptors posted while somebody else held `core`.
    /// After a push word is left with `core`, before a drain it is taken; a push that the drain misses leaves it again.
    posts: ArrayQueue<(ViId, WorkQueue, Box<Descriptor>)>,
    properties: NicProperties,
    id: u32,
    name: String,
    hosts: Hosts,
    next_tag: AtomicU32,
    pub(crate) sleepers: sleep::Sleepers,
    /// Who drives it when the program does not.
    background: OnceLock<Background>,
}

pub(crate) struct Core {
    /// How often the program drove it.
    turns: u32,
    pub(crate) provider: AnyProvider,
    pub(crate) sinks: Sinks,
}

impl Core {
    /// Takes the oldest completion of a ring.
    #[inline(always)]
    fn reap(&mut self, ring: &Ring) -> Option<Completion> {
        let completion = self.sinks.rings.pop(ring.key())?;
        if !self.sinks.reaped(&completion) {
            // Its interface is gone: the entry that was kept for this completion is free now.
            ring.release(1);
        }
        Some(completion)
    }

    /// Takes what waits in a ring, as far as `into` has room.
    #[inline(never)]
    fn reap_waiting(&mut self, ring: &Ring, into: &mut Completions) {
        while into.ring.has_room()
            && let Some(completion) = self.reap(ring)
        {
            into.ring.push(completion);
        }
    }

    /// A fault of the adapter is not the descriptor's: it was taken, and the fault shows when the NIC is next polled.
    #[inline(never)]
    fn post(&mut self, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) {
        match queue {
            WorkQueue::Send => {
                if let Err(e) = self.provider.post_send(vi, descriptor, &mut self.sinks) {
                    fault_at_post(&e);
                }
            }
            WorkQueue::Receive => self.provider.post_receive(vi, descriptor, &mut self.sinks),
        }
    }

    #[cold]
    fn fault_at_post(&mut self) {
        if let Err(e) = self.provider.take_fault() {
            fault_at_post(&e);
        }
    }

    /// Drives the provider for one burst.
    #[inline(always)]
    fn progress(&mut self) -> Result<usize> {
        self.turns = self.turns.wrapping_add(1);
        self.provider.progress(&mut self.sinks)
    }
}

/// Descriptors that can wait while another thread holds the engine; beyond it a poster waits for its turn.
const POSTS: usize = 4096;

static NEXT_NIC: AtomicU32 = AtomicU32::new(1);

impl Nic {
    /// Opens the device called `device` (a PCI address, `vfio-user:PATH`, or `shm:NAME` for shared memory of this host;
    /// see [`uvia_driver::nic::check_name`]) in a DMA domain of its own.
    ///
    /// # Errors
    /// What keeps the device from being opened, by name and with the way out.
    pub fn open(device: &str, options: NicOptions) -> Result<Self> {
        let (adapter, domain) = adapter::open_named(device, &options.adapter)?;
        Self::with_adapter(adapter, domain, options)
    }

    /// Makes a NIC of an adapter that is open already; its memory is mapped into `domain`, which must be the
    /// one that the adapter lives in. Several NICs may share a domain.
    ///
    /// # Errors
    /// No memory for headers, or a hosts file that cannot be read.
    pub fn with_adapter(
        adapter: Box<dyn adapter::Nic>,
        domain: Arc<dyn DmaDomain>,
        options: NicOptions,
    ) -> Result<Self> {
        let name = match options.name {
            Some(name) => name,
            None => system_host_name(),
        };
        let hosts = Hosts::load(options.hosts.as_deref())?;
        let id = NEXT_NIC.fetch_add(1, Ordering::Relaxed);
        let mut provider = Ethernet::new(adapter, domain, &name, options.clock, options.integrity)?;
        for (name, mac) in hosts.iter() {
            provider.add_host(name, mac)?;
        }
        let properties = provider.properties().clone();
        let progress = options.progress;
        let shared = Arc::new(Shared {
            core: Turn::new(Core {
                turns: 0,
                sinks: Sinks::new(),
                provider: AnyProvider::Ethernet(Box::new(provider)),
            }),
            posts: ArrayQueue::new(POSTS),
            properties,
            id,
            name,
            hosts,
            next_tag: AtomicU32::new(1),
            sleepers: sleep::Sleepers::default(),
            background: OnceLock::new(),
        });
        if progress == Progress::Thread {
            let _ = shared.background.set(Background::start(&shared)?);
        }
        Ok(Self(shared))
    }

    /// What it is, and its limits.
    pub fn properties(&self) -> &NicProperties {
        &self.0.properties
    }

    /// This host's name, by which others find it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Drives the NIC for one bounded burst; answers how much there was to do. Polling any queue does it too.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn poll(&self) -> Result<usize> {
        self.0.progress()
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

    /// A new protection tag.
    ///
    /// # Errors
    /// [`Error::Resource`] when 2^32 have been made.
    pub fn create_tag(&self) -> Result<ProtectionTag> {
        let id = self
            .0
            .next_tag
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1))
            .map_err(|_| Error::Resource { what: "protection tags", limit: u32::MAX as usize })?;
        Ok(ProtectionTag::new(self.0.id, id))
    }

    /// Allocates and registers zeroed memory; at least `len` bytes, whole pages.
    ///
    /// # Errors
    /// No memory, a limit of the DMA domain, or a tag of another NIC.
    pub fn allocate(&self, len: usize, attributes: MemoryAttributes) -> Result<MemoryRegion> {
        self.check_tag(attributes.tag)?;
        self.0.core().provider.allocate(len, attributes)
    }

    /// Registers memory of the caller's, at any address.
    ///
    /// # Errors
    /// As [`Nic::allocate`].
    ///
    /// # Safety
    /// Until the last clone of the region and the last descriptor with it are gone, the memory stays mapped,
    /// and is reached by volatile or atomic access only while a descriptor with it is posted or a peer may
    /// write it.
    pub unsafe fn register(
        &self,
        address: *mut u8,
        len: usize,
        attributes: MemoryAttributes,
    ) -> Result<MemoryRegion> {
        self.check_tag(attributes.tag)?;
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.core().provider.register(address, len, attributes) }
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// [`Error::Resource`] for more entries than the NIC allows, [`Error::Parameter`] for none.
    pub fn create_cq(&self, entries: usize) -> Result<CompletionQueue> {
        let limit = self.0.properties.max_cq_entries;
        match entries {
            0 => Err(Error::Parameter("a completion queue needs at least one entry".to_owned())),
            _ if entries > limit => Err(Error::Resource { what: "completion queue entries", limit }),
            _ => Ok(CompletionQueue::new(&self.0, entries)),
        }
    }

    /// Creates a virtual interface; work queues without a completion queue are reaped by the interface itself.
    ///
    /// # Errors
    /// [`Error::ClassUnavailable`], [`Error::ReliabilityLevel`], [`Error::TooLong`], [`Error::Resource`] when
    /// a limit or a completion queue's entries do not suffice, [`Error::Parameter`] for a tag or completion
    /// queue of another NIC.
    pub fn create_vi(
        &self,
        attributes: &ViAttributes,
        send: Option<&CompletionQueue>,
        receive: Option<&CompletionQueue>,
    ) -> Result<Vi> {
        let limits = &self.0.properties;
        self.check_tag(attributes.tag)?;
        if !limits.classes.contains(&attributes.class) {
            return Err(Error::ClassUnavailable {
                class: attributes.class,
                why: format!("{} ({}) has none", limits.device, limits.driver),
            });
        }
        if !limits.reliability_levels.contains(&attributes.reliability) {
            return Err(Error::ReliabilityLevel(attributes.reliability));
        }
        if attributes.max_transfer_size > limits.max_transfer_size {
            return Err(Error::TooLong {
                length: attributes.max_transfer_size.into(),
                limit: limits.max_transfer_size.into(),
            });
        }
        for depth in [attributes.send_depth, attributes.receive_depth] {
            if depth == 0 || depth > limits.max_depth {
                return Err(Error::Parameter(format!(
                    "a work queue's depth is 1 to {}, not {depth}",
                    limits.max_depth
                )));
            }
        }
        if [send, receive].iter().flatten().any(|cq| !cq.belongs_to(&self.0)) {
            return Err(Error::Parameter("the completion queue belongs to another NIC".to_owned()));
        }
        let send = promised(&self.0, send, attributes.send_depth)?;
        let receive = promised(&self.0, receive, attributes.receive_depth).inspect_err(|_| send.undo())?;
        let credits = Arc::new(Credits::default());
        let id = {
            let mut core = self.0.core();
            let id = core.provider.create_vi(attributes).inspect_err(|_| {
                send.undo();
                receive.undo();
            })?;
            core.sinks.open(id, credits.clone(), send.ring.key(), receive.ring.key());
            id
        };
        Ok(Vi::new(self.0.clone(), id, credits, attributes.clone(), send.into_parts(), receive.into_parts()))
    }

    /// Waits for connection requests at a discriminator, keeping up to `backlog` unanswered ones.
    ///
    /// # Errors
    /// When somebody on this NIC waits there already, or the discriminator is too long.
    pub fn listen(&self, discriminator: &[u8], backlog: usize) -> Result<Listener> {
        let id = self.0.core().provider.listen(discriminator, backlog)?;
        Ok(Listener::new(self.0.clone(), id))
    }

    /// Finds a host by its name: in the hosts file, else by asking all of the network for up to `timeout`.
    ///
    /// # Errors
    /// [`Error::UnknownHost`].
    pub fn resolve(&self, name: &str, timeout: Duration) -> Result<MacAddress> {
        if name == self.0.name {
            return Ok(self.0.properties.mac);
        }
        if let Some(mac) = self.0.hosts.get(name) {
            return Ok(mac);
        }
        {
            let mut core = self.0.core();
            let core = &mut *core;
            core.sinks.forget_name(name);
            core.provider.resolve(name, timeout, &mut core.sinks)?;
        }
        let found = self.0.wait(timeout + Duration::from_secs(1), |_| {
            self.0.progress()?;
            Ok(self.0.core().sinks.take_name(name))
        })?;
        found
            .flatten()
            .ok_or_else(|| Error::UnknownHost { name: name.to_owned(), millis: timeout.as_millis() as u64 })
    }

    fn check_tag(&self, tag: ProtectionTag) -> Result<()> {
        if tag.nic() != self.0.id {
            return Err(Error::Parameter("the protection tag was made by another NIC".to_owned()));
        }
        Ok(())
    }
}

/// Entries of a completion queue, promised to a work queue that is being made.
struct Promised {
    ring: Arc<Ring>,
    shared: bool,
    depth: usize,
}

fn promised(nic: &Arc<Shared>, cq: Option<&CompletionQueue>, depth: usize) -> Result<Promised> {
    let (ring, shared) = match cq {
        Some(cq) => (cq.ring().clone(), true),
        None => (Ring::new(nic, depth), false),
    };
    ring.promise(depth)?;
    Ok(Promised { ring, shared, depth })
}

impl Promised {
    fn undo(&self) {
        self.ring.release(self.depth);
    }

    fn into_parts(self) -> (Arc<Ring>, bool) {
        (self.ring, self.shared)
    }
}

impl Shared {
    /// The provider, waiting for whoever holds it. Control path only.
    pub(crate) fn core(&self) -> Guard<'_, Core> {
        self.core.wait()
    }

    /// The provider, if nobody has it or waits for it; with what was posted meanwhile posted.
    #[inline(always)]
    fn try_core(&self) -> Option<Guard<'_, Core>> {
        match self.core.try_take() {
            Some(core) => Some(core),
            None => self.try_core_again(),
        }
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
    fn ready_core(&self) -> Guard<'_, Core> {
        let mut core = self.core();
        if self.core.take_word() {
            self.drain_posts(&mut core);
        }
        core
    }

    pub(crate) fn properties(&self) -> &NicProperties {
        &self.properties
    }

    /// Drives the provider for one burst, unless somebody else is doing so.
    pub(crate) fn progress(&self) -> Result<usize> {
        match self.try_core() {
            Some(mut core) => core.progress(),
            None => Ok(0),
        }
    }

    /// How often the program has driven it.
    pub(crate) fn turns(&self) -> u32 {
        self.core().turns
    }

    /// Drives it for the program: this is not counted as the program's doing.
    pub(crate) fn drive(&self) -> Result<usize> {
        let mut core = self.ready_core();
        let turns = core.turns;
        let outcome = core.progress();
        core.turns = turns;
        outcome
    }

    /// Gives the provider what was posted while somebody else held it, in order.
    #[cold]
    fn drain_posts(&self, core: &mut Core) {
        while let Some((vi, queue, descriptor)) = self.posts.pop() {
            core.post(vi, queue, descriptor);
        }
    }

    /// Posts a descriptor that was checked and counted.
    pub(crate) fn post(&self, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) {
        match self.try_core() {
            Some(mut core) => core.post(vi, queue, descriptor),
            None => self.post_later(vi, queue, descriptor),
        }
    }

    /// As [`Shared::post`] for a send of one segment and nothing else.
    #[inline(always)]
    pub(crate) fn post_plain_send(&self, vi: ViId, descriptor: Box<Descriptor>) {
        let Some(mut core) = self.core.try_take() else {
            return self.post_again(vi, WorkQueue::Send, descriptor);
        };
        let core = &mut *core;
        if !core.provider.post_plain_send(vi, descriptor, &mut core.sinks) {
            core.fault_at_post();
        }
    }

    /// As [`Shared::post`] for a receive. Nothing is called on the usual way, so that nothing has to be saved for it.
    #[inline(always)]
    pub(crate) fn post_receive(&self, vi: ViId, descriptor: Box<Descriptor>) {
        let Some(mut core) = self.core.try_take() else {
            return self.post_again(vi, WorkQueue::Receive, descriptor);
        };
        if let Err(descriptor) = core.provider.keep_receive(vi, descriptor) {
            post_unusual(core, vi, descriptor);
        }
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
            Err((_, _, descriptor)) => self.ready_core().post(vi, queue, descriptor),
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
        let before = into.len();
        if core.sinks.rings.is_empty(ring.key()) {
            core.sinks.hand_over(ring.key(), into);
            let outcome = core.progress();
            core.sinks.hand_back(into);
            outcome?;
        } else {
            core.reap_waiting(ring, into);
        }
        Ok(into.len() - before)
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

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.background.take());
        let core = self.core.get_mut();
        core.provider.close(&mut core.sinks);
    }
}

/// The system's host name, or "localhost" where it has none.
fn system_host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// A receive that is not simply kept.
#[cold]
#[inline(never)]
fn post_unusual(mut core: Guard<'_, Core>, vi: ViId, descriptor: Box<Descriptor>) {
    core.post(vi, WorkQueue::Receive, descriptor);
}

#[cold]
fn fault_at_post(e: &Error) {
    tracing::warn!("posting: {e}");
}
