//! The NIC object: what programs open, and where the locks are.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use uvia_driver::dma::DmaDomain;
use uvia_driver::nic as adapter;
use uvia_driver::pio::AdapterMemory;

use crate::background::Background;
use crate::callbacks::Callbacks;
use crate::connection::Listener;
use crate::cq::{CompletionQueue, Completions, Ring};
use crate::credits::Credits;
use crate::devices::{self, Registered};
use crate::ethernet::Ethernet;
use crate::handle::Handle;
use crate::hosts::Hosts;
use crate::posts::Posts;
use crate::provider::{AnyProvider, Provider};
use crate::seldom::Seldom;
use crate::sinks::Sinks;
use crate::sleep;
use crate::standstill::Standstill;
use crate::tags::Tags;
use crate::turn::{Guard, Turn};
use crate::{
    AsyncError, Clock, Completion, Descriptor, Encapsulation, EndpointClass, Error, ErrorCode, ErrorResource,
    MacAddress, MemoryAttributes, MemoryRegion, PioProperties, ProtectionTag, ReliabilityLevel, Result,
    UdpOptions, Vi, ViAttributes, ViId, WorkQueue,
};

/// How a NIC is opened.
#[derive(Debug, Clone, Default)]
pub struct NicOptions {
    /// This host's name, by which others find it. Default: the system's host name.
    pub name: Option<String>,
    /// A hosts file (lines of `ADDRESS NAME...`, a station's or an IPv4 address; those of the other kind than the
    /// encapsulation's are passed over). Default: /etc/uvia.hosts, where there is one.
    pub hosts: Option<PathBuf>,
    /// How the adapter is set up.
    pub adapter: adapter::NicConfig,
    /// Where it has its time from.
    pub clock: Clock,
    /// Who drives it.
    pub progress: Progress,
    /// End-to-end checksums (CRC32C) on every frame; used when either end asks for them.
    pub integrity: bool,
    /// What frames are wrapped in.
    pub encapsulation: Encapsulation,
    /// Memory of an adapter, for interfaces of class [`EndpointClass::Pio`]. NICs of a process may share it.
    pub adapter_memory: Option<Arc<AdapterMemory>>,
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
    /// Its address as a host: the station address, or over UDP what [`UdpOptions::host`] makes of the IPv4 address.
    pub mac: MacAddress,
    /// Message bytes in one frame.
    pub native_mtu: usize,
    /// What frames are wrapped in.
    pub encapsulation: Encapsulation,
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
    /// Most completion queues, beside those of work queues that have none of their own.
    pub max_cqs: usize,
    /// Most protection tags at a time.
    pub max_tags: usize,
    /// Most registered regions.
    pub max_regions: usize,
    /// Most registered bytes. What a user may have pinned (`ulimit -l`) can be less, and is told when it is reached.
    pub max_registered_bytes: u64,
    /// Most bytes of one region.
    pub max_region_bytes: u64,
    /// Most discriminators that are waited at.
    pub max_listeners: usize,
    /// Longest discriminator, bytes.
    pub max_discriminator: usize,
    /// Longest private data with a connection request or its answer, bytes.
    pub max_private_data: usize,
    /// What connections can promise.
    pub reliability_levels: &'static [ReliabilityLevel],
    /// How sends can reach the adapter.
    pub classes: &'static [EndpointClass],
}

/// What a NIC has counted since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The adapter's counters. Over UDP, datagrams that were dropped as wrong are among its errors.
    pub adapter: adapter::NicStatistics,
    /// Frames that were dropped since their end-to-end check was wrong or missing, on connections that have it.
    pub damaged: u64,
    /// Frames that were dropped since they made no sense; those that manage connections and have a wrong check are
    /// among them.
    pub unsound: u64,
}

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

/// What those who open a NIC together agree on.
struct Agreed {
    hosts: Option<PathBuf>,
    adapter: adapter::NicConfig,
    integrity: bool,
    adapter_memory: Option<Arc<AdapterMemory>>,
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
        while into.ring.has_room()
            && let Some(completion) = self.reap(ring)
        {
            into.ring.push(completion);
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

    /// Drives the provider for one burst.
    #[inline(always)]
    pub(crate) fn progress(&mut self) -> Result<usize> {
        self.turns = self.turns.wrapping_add(1);
        self.provider.progress(&mut self.sinks)
    }
}

static NEXT_NIC: AtomicU32 = AtomicU32::new(1);

impl Nic {
    /// Opens the device called `device` (a PCI address, `vfio-user:PATH`, or `shm:NAME` for shared memory of this host;
    /// see [`uvia_driver::nic::check_name`]) in a DMA domain of its own. Where this process has it open, this is one more
    /// handle to the same NIC.
    ///
    /// # Errors
    /// What keeps the device from being opened, by name and with the way out; [`Error::Parameter`] when it is open with
    /// other options (a name, a hosts file, an adapter's set-up or a wish for checks that are not the default must be
    /// those of the first; the clock is the first one's).
    pub fn open(device: &str, options: NicOptions) -> Result<Self> {
        let ours = options.clone();
        let (shared, known) = devices::open(device, |registered| {
            let (adapter, domain) = adapter::open_named(device, &ours.adapter)?;
            Shared::open(adapter, domain, ours, Some(registered))
        })?;
        if known {
            shared.agree(&options)?;
        }
        if options.progress == Progress::Thread {
            shared.start_background()?;
        }
        Ok(Self::opened(shared))
    }

    /// One more handle of its own to the same NIC, as by [`Nic::open`].
    pub fn open_again(&self) -> Self {
        Self::opened(self.0.shared.clone())
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0.shared
    }

    fn opened(shared: Handle) -> Self {
        let number = shared.openings.fetch_add(1, Ordering::Relaxed) + 1;
        Self(Arc::new(Opened { shared, number }))
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

    /// Makes a NIC of an adapter that is open already; its memory is mapped into `domain`, which must be the
    /// one that the adapter lives in. Several NICs may share a domain.
    ///
    /// # Errors
    /// No memory for headers, a hosts file that cannot be read, or an IPv4 address that cannot be.
    pub fn with_adapter(
        adapter: Box<dyn adapter::Nic>,
        domain: Arc<dyn DmaDomain>,
        options: NicOptions,
    ) -> Result<Self> {
        let progress = options.progress;
        let shared = Shared::open(adapter, domain, options, None)?;
        if progress == Progress::Thread {
            shared.start_background()?;
        }
        Ok(Self::opened(shared))
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

    /// What it has counted.
    pub fn statistics(&self) -> Statistics {
        self.0.core().provider.statistics()
    }

    /// Waits for `ready` to answer with something, up to `timeout`; `None` when it did not. For those who wait for more
    /// than one queue, or for one that others reap too: `ready` is called again and again and drives the NIC by what it
    /// polls; between the calls the thread sleeps as it does in the waits of queues. In its last look before a sleep it
    /// is told to be patient ([`Vi::done`], [`CompletionQueue::poll_patiently`]).
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

    /// The other stations that are known to be there without being asked: on shared memory, the ports of other processes
    /// of this host; on a network, none.
    pub fn neighbours(&self) -> Vec<MacAddress> {
        self.0.core().provider.neighbours()
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
    /// [`Error::Resource`] when there are as many as there may be.
    pub fn create_tag(&self) -> Result<ProtectionTag> {
        self.0.core().tags.create()
    }

    /// Allocates and registers zeroed memory; at least `len` bytes, whole pages.
    ///
    /// # Errors
    /// No memory, a limit of the DMA domain, or a tag of another NIC.
    pub fn allocate(&self, len: usize, attributes: MemoryAttributes) -> Result<MemoryRegion> {
        let mut core = self.0.core();
        core.tags.check(attributes.tag)?;
        core.provider.allocate(len, attributes)
    }

    /// Registers memory of the caller's, at any address.
    ///
    /// Should the program unmap it nevertheless, by munmap, mremap or otherwise, this is noticed before that call
    /// returns, where the system permits ([`MemoryRegion::is_watched`]): the region is then
    /// [gone](MemoryRegion::is_gone), what uses it fails with a protection error, and whatever is mapped there later
    /// stays untouched. A forked child's copy is nothing to the NIC.
    ///
    /// # Errors
    /// As [`Nic::allocate`].
    ///
    /// # Safety
    /// Until the last clone of the region and the last descriptor with it are gone, the memory is reached by volatile
    /// or atomic access only while a descriptor with it is posted or a peer may write it. It stays mapped as long;
    /// where it is watched, it stays so while a transfer is under way.
    pub unsafe fn register(
        &self,
        address: *mut u8,
        len: usize,
        attributes: MemoryAttributes,
    ) -> Result<MemoryRegion> {
        let region = {
            let mut core = self.0.core();
            core.tags.check(attributes.tag)?;
            // SAFETY: the caller's promise is the same.
            unsafe { core.provider.register(address, len, attributes)? }
        };
        if let Err(e) = region.watch(self.0.standstill.clone()) {
            tracing::debug!("{len} bytes at {address:p}: {e}");
        }
        Ok(region)
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// [`Error::Resource`] for more entries than the NIC allows, or more queues; [`Error::Parameter`] for no entry.
    pub fn create_cq(&self, entries: usize) -> Result<CompletionQueue> {
        self.0.check_entries(entries)?;
        CompletionQueue::new(&self.0, entries)
    }

    /// What virtual interfaces of class [`EndpointClass::Pio`] can do here, and how many more of them there can be now.
    ///
    /// # Errors
    /// [`Error::ClassUnavailable`] with the reason.
    pub fn pio(&self) -> Result<PioProperties> {
        self.0.core().provider.pio()
    }

    /// Creates a virtual interface; work queues without a completion queue are reaped by the interface itself.
    ///
    /// # Errors
    /// [`Error::ClassUnavailable`], [`Error::ReliabilityLevel`], [`Error::TooLong`], [`Error::Resource`] when
    /// a limit or a completion queue's entries do not suffice, [`Error::Parameter`] for a tag or completion
    /// queue of another NIC. For class Pio also [`Error::BeyondClass`] for more than it has ([`Nic::pio`]), and
    /// [`uvia_driver::Error::NoWindow`] when all windows of the adapter memory are leased.
    pub fn create_vi(
        &self,
        attributes: &ViAttributes,
        send: Option<&CompletionQueue>,
        receive: Option<&CompletionQueue>,
    ) -> Result<Vi> {
        if attributes.class == EndpointClass::PioElseDma {
            let of = |class| ViAttributes { class, ..*attributes };
            return match self.create_vi(&of(EndpointClass::Pio), send, receive) {
                Err(e) if e.is_of_class() => self.create_vi(&of(EndpointClass::Dma), send, receive),
                outcome => outcome,
            };
        }
        attributes.check(&self.0.properties)?;
        if [send, receive].iter().flatten().any(|cq| !cq.belongs_to(&self.0)) {
            return Err(Error::Parameter("the completion queue belongs to another NIC".to_owned()));
        }
        let send = promised(&self.0, send, attributes.send_depth)?;
        let receive = promised(&self.0, receive, attributes.receive_depth).inspect_err(|_| send.undo())?;
        let credits = Arc::new(Credits::default());
        let id = {
            let mut core = self.0.core();
            let created = core.tags.check(attributes.tag).and_then(|()| core.provider.create_vi(attributes));
            let id = created.inspect_err(|_| {
                send.undo();
                receive.undo();
            })?;
            core.sinks.open(id, credits.clone(), send.ring.key(), receive.ring.key());
            core.sinks.set_owner(id, self.0.number);
            id
        };
        Ok(Vi::new(self.0.shared.clone(), id, credits, *attributes, send.into_parts(), receive.into_parts()))
    }

    /// Waits for connection requests at a discriminator, keeping up to `backlog` unanswered ones.
    ///
    /// # Errors
    /// When somebody on this NIC waits there already, or the discriminator is too long.
    pub fn listen(&self, discriminator: &[u8], backlog: usize) -> Result<Listener> {
        let id = self.0.core().provider.listen(discriminator, backlog)?;
        Ok(Listener::new(self.0.shared.clone(), id))
    }

    /// Finds a host by its name: in the hosts file, else by asking all of the network for up to `timeout`. Over UDP
    /// that is all of the subnet, and an IPv4 address is a name too.
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
        if let Encapsulation::Udp(_) = self.0.properties.encapsulation
            && let Ok(address) = name.parse()
        {
            return Ok(UdpOptions::host(address));
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

    pub(crate) fn shared(&self) -> &Handle {
        &self.0
    }
}

impl Shared {
    /// A NIC of an adapter, and the first handle to it.
    fn open(
        adapter: Box<dyn adapter::Nic>,
        domain: Arc<dyn DmaDomain>,
        options: NicOptions,
        registered: Option<Registered>,
    ) -> Result<Handle> {
        let name = match options.name {
            Some(name) => name,
            None => system_host_name(),
        };
        let hosts = Hosts::load(options.hosts.as_deref(), options.encapsulation)?;
        let id = NEXT_NIC.fetch_add(1, Ordering::Relaxed);
        let mut provider = Ethernet::new(
            adapter,
            domain,
            &name,
            options.clock,
            options.integrity,
            options.encapsulation,
            options.adapter_memory.clone(),
        )?;
        for (name, mac) in hosts.iter() {
            provider.add_host(name, mac)?;
        }
        let properties = provider.properties().clone();
        let sinks = Sinks::new();
        let callbacks = sinks.callbacks().clone();
        let posts = sinks.posts().clone();
        Ok(Handle::first(Self {
            core: Turn::new(Core {
                tags: Tags::new(id),
                cqs: 0,
                turns: 0,
                sinks,
                provider: AnyProvider::Ethernet(Box::new(provider)),
            }),
            posts,
            properties,
            id,
            name,
            hosts,
            agreed: Agreed {
                hosts: options.hosts,
                adapter: options.adapter,
                integrity: options.integrity,
                adapter_memory: options.adapter_memory,
            },
            sleepers: sleep::Sleepers::default(),
            standstill: Arc::default(),
            background: Mutex::new(None),
            callbacks,
            failed: AtomicBool::new(false),
            faults: Seldom::new(),
            handles: AtomicUsize::new(1),
            openings: AtomicU32::new(0),
            _registered: registered,
        }))
    }

    /// Refuses options that are not those that the NIC is open with.
    fn agree(&self, options: &NicOptions) -> Result<()> {
        let differs = |what: &str| {
            Err(Error::Parameter(format!(
                "{} is open in this process with another {what}: leave the option at its default, or close it first",
                self.properties.device
            )))
        };
        let Agreed { hosts, adapter, integrity, adapter_memory } = &self.agreed;
        if options.name.as_ref().is_some_and(|name| *name != self.name) {
            return differs("host name");
        }
        if options.hosts.is_some() && options.hosts != *hosts {
            return differs("hosts file");
        }
        if options.adapter != adapter::NicConfig::default() && options.adapter != *adapter {
            return differs("set-up of the adapter");
        }
        if options.integrity && !integrity {
            return differs("choice of end-to-end checks");
        }
        let name =
            |memory: &Option<Arc<AdapterMemory>>| memory.as_ref().map(|memory| memory.name().to_owned());
        if options.adapter_memory.is_some() && name(&options.adapter_memory) != name(adapter_memory) {
            return differs("adapter memory");
        }
        let encapsulation = options.encapsulation;
        if encapsulation != Encapsulation::default() && encapsulation != self.properties.encapsulation {
            return differs("encapsulation");
        }
        Ok(())
    }

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

    /// The last handle is gone.
    pub(crate) fn close(&self) {
        // It holds what this is made of, and drives it: it goes first.
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(background);
        self.standstill.leave();
        self.callbacks.end();
        let mut core = self.core();
        let core = &mut *core;
        core.provider.close(&mut core.sinks);
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

/// Entries of a completion queue, promised to a work queue that is being made.
struct Promised {
    ring: Arc<Ring>,
    shared: bool,
    depth: usize,
}

fn promised(nic: &Handle, cq: Option<&CompletionQueue>, depth: usize) -> Result<Promised> {
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

    /// The turn, for who keeps the engine from following addresses; none after so long.
    #[cold]
    pub(crate) fn turn(&self, patience: Duration) -> Option<Guard<'_, Core>> {
        self.core.wait_up_to(patience)
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

    fn post_with(&self, core: &mut Core, vi: ViId, queue: WorkQueue, descriptor: Box<Descriptor>) {
        if let Err(e) = core.post(vi, queue, descriptor) {
            self.fault(&e);
        }
    }

    /// As [`Shared::post`] for a send of one segment, of `len` bytes, and nothing else.
    #[inline(always)]
    pub(crate) fn post_plain_send(&self, vi: ViId, descriptor: Box<Descriptor>, len: u32) {
        let Some(mut core) = self.core.try_take() else {
            return self.post_again(vi, WorkQueue::Send, descriptor);
        };
        let core = &mut *core;
        if !core.provider.post_plain_send(vi, descriptor, len, &mut core.sinks) {
            self.fault_at_post(core);
        }
    }

    /// Posting met a fault of the adapter.
    #[cold]
    #[inline(never)]
    fn fault_at_post(&self, core: &mut Core) {
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
        let before = into.len();
        if core.sinks.rings.is_empty(ring.key()) {
            core.sinks.hand_over(ring.key(), into);
            let outcome = core.progress();
            core.sinks.hand_back(into);
            outcome?;
        } else {
            core.reap_waiting(ring, into);
            if into.len() == before {
                Self::reap_watched(core, ring, into)?;
            }
        }
        Ok(into.len() - before)
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

/// The system's host name, or "localhost" where it has none.
fn system_host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}
