//! The provider in software: the VI engine on a plain Ethernet adapter.

mod answers;
mod bell;
mod loopback;
mod pio;
mod transmit;
mod udp;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia_driver::dma::DmaDomain;
use uvia_driver::nic::{Nic, RxFrame};
use uvia_driver::pio::AdapterMemory;

use crate::engine::{self, Engine, EngineConfig, Output as _, Time, Tuning};
use crate::memory::RegionLimits;
use crate::posts::Post;
use crate::provider::{Event, ListenerId, Provider, RequestId};
use crate::sinks::Sinks;
use crate::vi::Image;
use crate::wire;
use crate::{
    Clock, Completion, Descriptor, Encapsulation, EndpointClass, MacAddress, MemoryAttributes, MemoryHandle,
    MemoryRegion, NetAddress, NicProperties, Peer, PioProperties, ProtectionTag, Result, Statistics,
    ViAttributes, ViId, ViState,
};
use answers::Answers;
use bell::Bell;
use loopback::Loopback;
#[cfg(test)]
pub(crate) use loopback::ROOM as LOOPED;
use pio::PioPort;
use transmit::Transmitter;
use udp::UdpAdapter;

/// Frames taken from the adapter in one burst: bounds how long the engine is held.
const BURST: usize = 64;
/// Nanoseconds after which a peer on a lossless wire is asked what has become of a frame.
const LOSSLESS_TIMEOUT: u64 = 500_000_000;
/// How long closing waits for peers to have heard of it.
const FAREWELL: Duration = Duration::from_millis(20);
/// How often the adapter is looked after; far below the silence after which a peer is taken for dead.
const LOOK: Duration = Duration::from_millis(500);

/// The engine, the adapter that it speaks through, and the clock.
pub(crate) struct Ethernet {
    engine: Engine,
    // Before the port, so closed before it: adapter memory is unmapped only then.
    adapter: Box<dyn Nic>,
    port: Port,
    domain: Arc<dyn DmaDomain>,
    properties: NicProperties,
    clock: Clock,
    /// Interfaces that were destroyed while the adapter still refers to their memory.
    doomed: Vec<ViId>,
    /// When the adapter is looked after next.
    look_at: Time,
    encapsulation: Encapsulation,
}

impl Ethernet {
    pub(crate) fn new(
        adapter: Box<dyn Nic>,
        domain: Arc<dyn DmaDomain>,
        name: &str,
        clock: Clock,
        integrity: bool,
        encapsulation: Encapsulation,
        adapter_memory: Option<Arc<AdapterMemory>>,
    ) -> Result<Self> {
        let (adapter, transmitter) = wrapped(adapter, &domain, encapsulation, &clock)?;
        let about = adapter.properties().clone();
        let mut engine = Engine::new(EngineConfig {
            mac: about.mac,
            name: name.to_owned(),
            mtu: about.mtu,
            rx_slots: about.rx_slots,
            // One segment of a frame is its header.
            max_segments: about.max_segments - 1,
            seed: random_seed()?,
            lossless: about.lossless,
            tuning: tuning(about.lossless, integrity),
        })?;
        let regions = RegionLimits::of(&*domain);
        engine.regions().limit(regions);
        let adapter_memory = match (adapter_memory, encapsulation) {
            (Some(_), Encapsulation::Udp(_)) => {
                Err("over UDP, headers are written into memory of the host's")
            }
            (Some(memory), Encapsulation::Ethernet) => Ok(memory),
            (None, _) => Err("the NIC was opened without adapter memory (NicOptions::adapter_memory)"),
        };
        let pio = PioPort::new(adapter_memory, engine.native_mtu());
        let properties = NicProperties {
            device: about.device,
            driver: about.driver,
            tx_ring_memory: about.tx_ring_memory,
            mac: about.mac,
            native_mtu: engine.native_mtu(),
            max_transfer_size: engine::MAX_TRANSFER,
            max_vis: engine::MAX_VIS,
            max_segments: engine::MAX_SEGMENTS,
            max_depth: engine::MAX_DEPTH,
            max_cq_entries: 1 << 22,
            max_cqs: crate::cq::MAX_CQS,
            max_tags: crate::tags::MAX_TAGS,
            max_regions: regions.regions,
            max_registered_bytes: regions.bytes,
            max_region_bytes: regions.block,
            max_listeners: engine::MAX_LISTENERS,
            max_discriminator: NetAddress::MAX_DISCRIMINATOR,
            max_private_data: engine::MAX_PRIVATE_DATA,
            encapsulation,
            reliability_levels: Engine::RELIABILITY_LEVELS,
            classes: pio.classes(),
        };
        let port = Port {
            transmitter,
            pio,
            due: Due::empty(),
            answers: Answers::default(),
            asked: HashMap::new(),
            fault: None,
            mac: about.mac,
            loopback: Loopback::default(),
            bell: adapter.interrupt().map(Bell::new).transpose()?,
            armed: false,
        };
        Ok(Self {
            engine,
            adapter,
            port,
            domain,
            properties,
            clock,
            doomed: Vec::new(),
            look_at: Time(0),
            encapsulation,
        })
    }

    /// # Errors
    /// [`crate::Error::Parameter`] for a host that there is no way to.
    fn check_way(&self, host: MacAddress) -> Result<()> {
        match &self.encapsulation {
            Encapsulation::Ethernet => Ok(()),
            Encapsulation::Udp(options) => options.check_way(host),
        }
    }

    #[inline]
    fn now(&self) -> Time {
        Time(self.clock.now())
    }

    /// Calls the engine with a way to send, and tells the adapter of what it sent.
    #[inline(always)]
    fn with<T>(
        &mut self,
        sinks: &mut Sinks,
        call: impl FnOnce(&mut Engine, Time, &mut Out<'_>) -> T,
    ) -> Result<T> {
        let now = self.now();
        let mut out = Out { adapter: &mut *self.adapter, port: &mut self.port, sinks };
        let answer = call(&mut self.engine, now, &mut out);
        self.settle()?;
        Ok(answer)
    }

    /// Tells the adapter of what was put into its ring, and the caller of what it met there.
    #[inline(always)]
    fn settle(&mut self) -> Result<()> {
        if self.port.due.intersects(Due::FLUSH | Due::FAULT) { self.settle_due() } else { Ok(()) }
    }

    #[inline(never)]
    fn settle_due(&mut self) -> Result<()> {
        let due = self.port.due;
        self.port.due = due & !(Due::FLUSH | Due::FAULT);
        if due.contains(Due::FAULT) {
            return self.port.take_fault();
        }
        Ok(self.adapter.flush()?)
    }

    /// What is due at the end of a burst; answers how many frames were received by it.
    #[inline(never)]
    fn catch_up(&mut self, now: Time, sinks: &mut Sinks) -> Result<usize> {
        let mut received = 0;
        if self.port.due.intersects(Due::ANSWERS | Due::BURIALS | Due::LOOPED) {
            received = self.do_chores(sinks)?;
        }
        if self.engine.wants_poll(now) {
            self.look_after(now);
            let mut out = Out { adapter: &mut *self.adapter, port: &mut self.port, sinks };
            self.engine.poll(now, &mut out);
        }
        self.settle()?;
        Ok(received)
    }

    /// Looks now and then whether the adapter is well: one that is not leaves rings as they are, and who polls would
    /// wait for the peer's silence. What it says is told by what comes next.
    #[cold]
    fn look_after(&mut self, now: Time) {
        if now < self.look_at {
            return;
        }
        self.look_at = Time(now.0 + nanos(LOOK));
        let well = self.adapter.look_after().map_err(crate::Error::from);
        if let Err(e) = well.and_then(|()| self.port.pio.look_after()) {
            self.port.fails(e);
        }
    }

    /// What comes up seldom; answers how many frames were received by it.
    #[cold]
    fn do_chores(&mut self, sinks: &mut Sinks) -> Result<usize> {
        let due = self.port.due;
        self.port.due = due & !(Due::ANSWERS | Due::BURIALS | Due::LOOPED);
        let looped = if due.contains(Due::LOOPED) { self.receive_looped(sinks) } else { 0 };
        if due.contains(Due::ANSWERS) {
            self.answer(sinks)?;
        }
        if due.contains(Due::BURIALS) {
            self.bury();
        }
        Ok(looped)
    }

    /// Takes what was sent to our own station before; answers how many frames that were. What comes of them has its turn
    /// the next time.
    fn receive_looped(&mut self, sinks: &mut Sinks) -> usize {
        let now = self.now();
        let count = self.port.loopback.len().min(BURST);
        for _ in 0..count {
            let Some(frame) = self.port.loopback.take() else { break };
            let mut out = Receiving { port: &mut self.port, sinks };
            self.engine.receive(now, &RxFrame::from_slice(&frame), &mut out);
            self.port.loopback.give_back(frame);
        }
        self.port.due.set(Due::LOOPED, self.port.loopback.len() != 0);
        count
    }

    /// Sends the answers that came up while frames were received; what finds no room is asked for again.
    fn answer(&mut self, sinks: &mut Sinks) -> Result<()> {
        let answers = std::mem::take(&mut self.port.answers);
        let outcome = self.with(sinks, |_, _, out| {
            for frame in answers.frames() {
                out.manage(frame);
            }
        });
        self.port.answers = answers.emptied();
        outcome
    }

    /// Takes back the frames that the adapter is done with.
    #[inline(never)]
    fn reclaim(&mut self, sinks: &mut Sinks) -> Result<()> {
        let engine = &mut self.engine;
        let port = &mut self.port;
        self.adapter.reclaim(&mut |slot| {
            if let Some(token) = port.transmitter.reclaimed(slot) {
                transmitted(engine, token, &mut Receiving { port, sinks });
            }
        })?;
        Ok(())
    }

    /// Destroys what the adapter refers to no more.
    fn bury(&mut self) {
        let engine = &mut self.engine;
        let port = &mut self.port;
        self.doomed.retain(|vi| {
            let stays = matches!(engine.destroy_vi(*vi), Err(crate::Error::InUse(_)));
            if !stays {
                port.forget(*vi);
            }
            stays
        });
        self.port.due.set(Due::BURIALS, !self.doomed.is_empty());
    }
}

impl Ethernet {
    /// As [`Provider::post_send`], for a send of one segment, of `len` bytes, without immediate data or fence. False when
    /// the adapter has a fault, which [`Ethernet::take_fault`] tells.
    #[inline(always)]
    pub(crate) fn post_plain_send(
        &mut self,
        vi: ViId,
        descriptor: Box<Descriptor>,
        len: u32,
        sinks: &mut Sinks,
    ) -> bool {
        let now = self.now();
        let frame = match self.engine.begin_plain_send(now, vi, descriptor, len) {
            Ok(frame) => frame,
            Err(descriptor) => return self.post_otherwise(vi, descriptor, sinks),
        };
        if !Transmitter::is_short(frame.segment)
            || self.port.due.intersects(ASIDE) && self.port.takes_aside(frame.token)
        {
            let engine::PlainFrame { header, segment, token } = frame;
            let mut out = Out { adapter: &mut *self.adapter, port: &mut self.port, sinks };
            let sent = out.transmit(&wire::bytes(&header), &[engine::PayloadPart::whole(segment)], token);
            return self.plain_sent(now, vi, sent);
        }
        if !self.port.transmitter.transmit_short(&mut *self.adapter, &frame.header, frame.segment) {
            return self.plain_sent(now, vi, engine::Sent::Full);
        }
        // It is the only frame of this post: the adapter is told at once.
        match self.adapter.flush() {
            Ok(()) => true,
            Err(e) => self.failed(e.into()),
        }
    }

    /// As [`AnyProvider::put_template`](crate::provider::AnyProvider::put_template). Frames to our own station are made of
    /// what a descriptor names.
    #[inline(never)]
    pub(crate) fn put_template(&mut self, vi: ViId, image: &mut Image) -> bool {
        if self.port.due.contains(Due::LOOPS) {
            return false;
        }
        match self.engine.next_send(vi, image.len()) {
            Some(work) => self.port.pio.put_template(vi, work, image),
            None => false,
        }
    }

    #[inline(never)]
    fn post_otherwise(&mut self, vi: ViId, descriptor: Box<Descriptor>, sinks: &mut Sinks) -> bool {
        match self.post_send(vi, descriptor, sinks) {
            Ok(()) => true,
            Err(e) => self.failed(e),
        }
    }

    /// What became of a frame that was not simply copied into the adapter's ring.
    #[inline(never)]
    fn plain_sent(&mut self, now: Time, vi: ViId, sent: engine::Sent) -> bool {
        self.engine.plain_sent(now, vi, sent);
        match self.port.transmitter.refusal().map_or_else(|| self.settle(), Err) {
            Ok(()) => true,
            Err(e) => self.failed(e),
        }
    }

    #[cold]
    fn failed(&mut self, error: crate::Error) -> bool {
        self.port.fault = Some(error);
        false
    }

    /// The fault that a post has met.
    #[cold]
    pub(crate) fn take_fault(&mut self) -> Result<()> {
        self.port.take_fault()
    }

    /// As [`Provider::post_receive`], where that is but to keep it; gives it back else.
    #[inline(always)]
    pub(crate) fn keep_receive(
        &mut self,
        vi: ViId,
        descriptor: Box<Descriptor>,
    ) -> std::result::Result<(), Box<Descriptor>> {
        self.engine.keep_receive(vi, descriptor)
    }
}

bitflags::bitflags! {
    /// What is to be done before the engine is let go of: one look for all of it.
    #[derive(Clone, Copy)]
    struct Due: u8 {
        /// The adapter is to be told of frames.
        const FLUSH = 1;
        /// The caller is to be told of a fault.
        const FAULT = 2;
        /// Answers are to be sent.
        const ANSWERS = 4;
        /// Interfaces are to be destroyed.
        const BURIALS = 8;
        /// Some connection is with our own station: frames are looked at where they go. From the first such on.
        const LOOPS = 16;
        /// Frames to our own station wait.
        const LOOPED = 32;
        /// There are interfaces of class Pio: frames are looked at whose they are. While there are.
        const PIO = 64;
    }
}

/// What may keep a frame from going into the adapter's ring by way of the header slots.
const ASIDE: Due = Due::FAULT.union(Due::LOOPS).union(Due::PIO);

/// What lies between engine and adapter.
struct Port {
    transmitter: Transmitter,
    /// Interfaces whose frames lie in adapter memory.
    pio: PioPort,
    due: Due,
    /// Management frames from while frames were received.
    answers: Answers,
    /// Where interfaces with a request under way asked to be connected to, and for how long.
    asked: HashMap<ViId, (NetAddress, Duration)>,
    /// What the adapter said to a frame; nothing more is offered to it until that was told.
    fault: Option<crate::Error>,
    /// Our own station.
    mac: MacAddress,
    /// What was sent to it.
    loopback: Loopback,
    /// What sleepers wait on, where the adapter has interrupts; and whether there are any.
    bell: Option<Bell>,
    armed: bool,
}

impl Port {
    /// Keeps what the adapter said; for now it takes nothing.
    #[cold]
    fn fails(&mut self, error: crate::Error) -> engine::Sent {
        self.fault = Some(error);
        self.due |= Due::FAULT;
        engine::Sent::Full
    }

    /// Whether a frame does not simply go into the adapter's ring, or may not.
    #[cold]
    fn takes_aside(&self, token: engine::FrameToken) -> bool {
        self.due.intersects(Due::FAULT | Due::LOOPS) || self.pio.has(token)
    }

    /// Takes a frame that does not go by way of the header slots: none goes while an adapter's fault is to be told, those
    /// to our own station are kept, and those of class Pio lie in adapter memory. None for all others.
    #[cold]
    fn aside(
        &mut self,
        adapter: &mut dyn Nic,
        header: &[u8],
        payload: &[engine::PayloadPart<'_>],
        token: engine::FrameToken,
    ) -> Option<engine::Sent> {
        if self.due.contains(Due::FAULT) {
            return Some(engine::Sent::Full);
        }
        if self.due.contains(Due::LOOPS)
            && let Some(sent) = self.loops(header, payload)
        {
            return Some(sent);
        }
        if !self.due.contains(Due::PIO) {
            return None;
        }
        Some(match self.pio.transmit(adapter, &mut self.transmitter, header, payload, token)? {
            Ok(sent) => {
                self.due |= Due::FLUSH;
                sent
            }
            Err(e) => self.fails(e),
        })
    }

    /// An interface is no more.
    #[cold]
    fn forget(&mut self, vi: ViId) {
        self.pio.release(vi);
        self.due.set(Due::PIO, self.pio.is_in_use());
    }

    /// Keeps a frame to our own station; none for frames to others.
    fn loops(&mut self, header: &[u8], payload: &[engine::PayloadPart<'_>]) -> Option<engine::Sent> {
        if header.get(..6) != Some(&self.mac.0[..]) {
            return None;
        }
        let sent = self.loopback.keep(header, payload);
        self.due |= Due::LOOPED;
        if let Some(bell) = self.bell.as_ref().filter(|_| self.armed) {
            bell.ring();
        }
        Some(sent)
    }

    #[cold]
    fn take_fault(&mut self) -> Result<()> {
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Passes news on.
    fn tell(&mut self, event: engine::Event, sinks: &mut Sinks) {
        let event = match event {
            // Listeners ask for the next request themselves; who sleeps meanwhile is woken.
            engine::Event::Request { .. } => return sinks.tell_news(),
            engine::Event::Connected { vi, attributes, private_data } => {
                let Some((address, _)) = self.asked.remove(&vi) else { return };
                Event::Connected(vi, peer(address, attributes, private_data))
            }
            engine::Event::ConnectFailed { vi, reason } => {
                let Some((address, timeout)) = self.asked.remove(&vi) else { return };
                Event::ConnectFailed(vi, failure(reason, &address, timeout))
            }
            engine::Event::Broken { vi, loss } => Event::Broken(vi, loss),
            engine::Event::Resolved { name, mac } => Event::Resolved(name, mac),
            engine::Event::Unresolved { name } => Event::Unresolved(name),
        };
        sinks.event(event);
    }
}

/// The engine's way out.
struct Out<'a> {
    adapter: &'a mut dyn Nic,
    port: &'a mut Port,
    sinks: &'a mut Sinks,
}

/// Its way out while the adapter is busy with frames that are received: the engine is told that there is no room, and
/// sends when it is polled at the end of the burst.
struct Receiving<'a> {
    port: &'a mut Port,
    sinks: &'a mut Sinks,
}

impl engine::Output for Receiving<'_> {
    #[inline]
    fn transmit(&mut self, _: &[u8], _: &[engine::PayloadPart<'_>], _: engine::FrameToken) -> engine::Sent {
        engine::Sent::Full
    }

    fn manage(&mut self, frame: &[u8]) -> engine::Sent {
        self.port.due |= Due::ANSWERS;
        self.port.answers.keep(frame)
    }

    fn posted_meanwhile(&mut self) -> Option<Post> {
        self.sinks.posts().pop()
    }

    #[inline(always)]
    fn complete(&mut self, completion: Completion) {
        self.sinks.complete(completion);
    }

    fn event(&mut self, event: engine::Event) {
        self.port.tell(event, self.sinks);
    }

    fn error(&mut self, vi: ViId, code: crate::ErrorCode) {
        self.sinks.error(vi, code);
    }
}

impl engine::Output for Out<'_> {
    #[inline]
    fn transmit(
        &mut self,
        header: &[u8],
        payload: &[engine::PayloadPart<'_>],
        token: engine::FrameToken,
    ) -> engine::Sent {
        if self.port.due.intersects(ASIDE)
            && let Some(sent) = self.port.aside(self.adapter, header, payload, token)
        {
            return sent;
        }
        match self.port.transmitter.transmit(self.adapter, header, payload, token) {
            Ok(sent) => {
                self.port.due |= Due::FLUSH;
                sent
            }
            Err(e) => self.port.fails(e),
        }
    }

    #[inline(always)]
    fn complete(&mut self, completion: Completion) {
        self.sinks.complete(completion);
    }

    fn error(&mut self, vi: ViId, code: crate::ErrorCode) {
        self.sinks.error(vi, code);
    }

    fn event(&mut self, event: engine::Event) {
        self.port.tell(event, self.sinks);
    }
}

/// Apart, so that frames of copied bytes are taken back in a few instructions.
#[inline(never)]
fn transmitted(engine: &mut Engine, token: engine::FrameToken, out: &mut Receiving<'_>) {
    if out.port.due.contains(Due::PIO) {
        out.port.pio.landed(token);
    }
    engine.transmitted(token, out);
}

fn peer(address: NetAddress, attributes: engine::RemoteAttributes, private_data: Vec<u8>) -> Peer {
    Peer {
        address,
        reliability: attributes.reliability,
        max_transfer_size: attributes.max_transfer_size,
        rdma_write: attributes.rdma_write,
        rdma_read: attributes.rdma_read,
        integrity: attributes.integrity,
        private_data,
    }
}

fn failure(reason: engine::ConnectFailure, address: &NetAddress, timeout: Duration) -> crate::Error {
    match reason {
        engine::ConnectFailure::Timeout => crate::Error::Timeout {
            what: format!("connecting to {address:?}"),
            millis: timeout.as_millis() as u64,
        },
        engine::ConnectFailure::Rejected { private_data } => crate::Error::Rejected { private_data },
        engine::ConnectFailure::NoMatch => crate::Error::NoMatch(format!("{address:?}")),
        engine::ConnectFailure::Mismatch { theirs } => crate::Error::Mismatch {
            reliability: theirs.reliability,
            max_transfer_size: theirs.max_transfer_size,
        },
    }
}

impl Provider for Ethernet {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    #[inline(always)]
    fn progress(&mut self, sinks: &mut Sinks) -> Result<usize> {
        let now = self.now();
        let engine = &mut self.engine;
        let mut out = Receiving { port: &mut self.port, sinks };
        let mut received = self.adapter.receive(BURST, &mut |frame| engine.receive(now, &frame, &mut out))?;
        if self.port.transmitter.wants_reclaim() {
            self.reclaim(sinks)?;
        }
        if self.port.due.intersects(Due::all().difference(Due::LOOPS.union(Due::PIO)))
            || self.engine.wants_poll(now)
        {
            received += self.catch_up(now, sinks)?;
        }
        Ok(received)
    }

    fn idle_for(&self) -> Option<Duration> {
        if self.port.due.contains(Due::LOOPED) {
            return Some(Duration::ZERO);
        }
        let now = self.now().0;
        self.engine.deadline().map(|at| Duration::from_nanos(at.0.saturating_sub(now)))
    }

    fn statistics(&mut self) -> Statistics {
        let engine::Counters { damaged, unsound } = self.engine.counters();
        Statistics { adapter: self.adapter.statistics(), damaged, unsound }
    }

    fn ready(&mut self) -> Result<bool> {
        Ok(self.adapter.ready()?)
    }

    fn neighbours(&self) -> Vec<MacAddress> {
        self.adapter.neighbours()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.port.bell.as_ref().map(Bell::as_fd)
    }

    fn arm(&mut self, on: bool) -> Result<()> {
        if let Some(bell) = &self.port.bell {
            bell.hush();
        }
        self.port.armed = on;
        Ok(self.adapter.arm(on)?)
    }

    fn allocate(&mut self, len: usize, attributes: MemoryAttributes) -> Result<MemoryRegion> {
        self.engine.regions().allocate(self.domain.clone(), len, attributes)
    }

    unsafe fn register(
        &mut self,
        address: *mut u8,
        len: usize,
        attributes: MemoryAttributes,
    ) -> Result<MemoryRegion> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.engine.regions().register(self.domain.clone(), address, len, attributes) }
    }

    fn lose_regions(&mut self) {
        self.engine.lose_regions();
    }

    fn region(&mut self, handle: MemoryHandle) -> Option<MemoryRegion> {
        self.engine.regions().get(handle)
    }

    fn uses_tag(&mut self, tag: ProtectionTag) -> bool {
        self.engine.uses_tag(tag)
    }

    fn pio(&self) -> Result<PioProperties> {
        self.port.pio.properties()
    }

    fn buffer(&mut self, len: usize) -> Result<MemoryRegion> {
        self.engine.regions().buffer(len)
    }

    fn create_vi(&mut self, attributes: &ViAttributes) -> Result<ViId> {
        if attributes.class != EndpointClass::Pio {
            return self.engine.create_vi(attributes);
        }
        self.port.pio.check(attributes)?;
        let window = self.port.pio.lease(&self.domain, &self.properties.device)?;
        let vi = self.engine.create_vi(attributes)?;
        self.port.pio.install(vi, window);
        self.port.due |= Due::PIO;
        Ok(vi)
    }

    fn set_vi_attributes(&mut self, vi: ViId, attributes: &ViAttributes) -> Result<()> {
        if attributes.class == EndpointClass::Pio {
            self.port.pio.check(attributes)?;
        }
        self.engine.set_vi_attributes(vi, attributes)
    }

    fn destroy_vi(&mut self, vi: ViId, _sinks: &mut Sinks) -> Result<()> {
        match self.engine.destroy_vi(vi) {
            // The adapter still fetches from its memory; it goes as soon as that is over.
            Err(crate::Error::InUse(_)) => {
                self.doomed.push(vi);
                self.port.due |= Due::BURIALS;
                Ok(())
            }
            Ok(()) => {
                self.port.forget(vi);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn state(&self, vi: ViId) -> Option<ViState> {
        self.engine.state(vi)
    }

    fn post_send(&mut self, vi: ViId, descriptor: Box<Descriptor>, sinks: &mut Sinks) -> Result<()> {
        self.with(sinks, |engine, now, out| engine.post_send(now, vi, descriptor, out))
    }

    fn post_receive(&mut self, vi: ViId, descriptor: Box<Descriptor>, sinks: &mut Sinks) {
        let mut out = Receiving { port: &mut self.port, sinks };
        self.engine.post_receive(vi, descriptor, &mut out);
    }

    fn listen(&mut self, discriminator: &[u8], backlog: usize) -> Result<ListenerId> {
        self.engine.listen(discriminator, backlog)
    }

    fn unlisten(&mut self, listener: ListenerId, sinks: &mut Sinks) {
        if let Err(e) = self.with(sinks, |engine, now, out| engine.unlisten(now, listener, out)) {
            tracing::warn!("ending a listener: {e}");
        }
    }

    fn overhear(&mut self, listener: ListenerId) {
        self.engine.overhear(listener);
    }

    fn next_request(&mut self, listener: ListenerId) -> Option<(RequestId, Peer)> {
        // Without a connection there may be no timer by which this would be done.
        self.look_after(self.now());
        let request = self.engine.next_request(listener)?;
        Some((request.id, peer(request.remote, request.attributes, request.private_data)))
    }

    fn accept(&mut self, request: RequestId, vi: ViId, private_data: &[u8], sinks: &mut Sinks) -> Result<()> {
        self.with(sinks, |engine, now, out| engine.accept(now, request, vi, private_data, out))?
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8], sinks: &mut Sinks) -> Result<()> {
        self.with(sinks, |engine, now, out| engine.reject(now, request, private_data, out))?
    }

    fn connect(
        &mut self,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout: Duration,
        private_data: &[u8],
        sinks: &mut Sinks,
    ) -> Result<()> {
        self.check_way(remote.host)?;
        self.port.due.set(Due::LOOPS, self.port.due.contains(Due::LOOPS) || remote.host == self.port.mac);
        self.port.asked.insert(vi, (remote.clone(), timeout));
        self.with(sinks, |engine, now, out| {
            engine.connect(now, vi, local_discriminator, remote, nanos(timeout), private_data, out)
        })?
        .inspect_err(|_| {
            self.port.asked.remove(&vi);
        })
    }

    fn connect_peer(
        &mut self,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout: Duration,
        sinks: &mut Sinks,
    ) -> Result<()> {
        self.check_way(remote.host)?;
        self.port.due.set(Due::LOOPS, self.port.due.contains(Due::LOOPS) || remote.host == self.port.mac);
        self.port.asked.insert(vi, (remote.clone(), timeout));
        self.with(sinks, |engine, now, out| {
            engine.connect_peer(now, vi, local_discriminator, remote, nanos(timeout), out)
        })?
        .inspect_err(|_| {
            self.port.asked.remove(&vi);
        })
    }

    fn disconnect(&mut self, vi: ViId, sinks: &mut Sinks) -> Result<()> {
        self.with(sinks, |engine, now, out| engine.disconnect(now, vi, out))?
    }

    fn close(&mut self, sinks: &mut Sinks) {
        let outcome = self.with(sinks, |engine, now, out| engine.disconnect_all(now, out)).and_then(|()| {
            // The peers' answers are waited for a little: they then need not time out. Nothing hangs on it.
            let end = Instant::now() + FAREWELL;
            while !self.engine.is_quiet() && Instant::now() < end {
                self.progress(sinks)?;
            }
            Ok(())
        });
        if let Err(e) = outcome {
            tracing::warn!("closing {}: {e}", self.properties.device);
        }
    }

    fn add_host(&mut self, name: &str, mac: MacAddress) -> Result<()> {
        self.engine.add_host(name, mac)
    }

    fn resolve(&mut self, name: &str, timeout: Duration, sinks: &mut Sinks) -> Result<()> {
        self.with(sinks, |engine, now, out| engine.resolve(now, name, nanos(timeout), out))?
    }
}

/// Where no frame gets lost, one that is not acknowledged is at a peer that does not run: sending it again would only be
/// more for it to do.
fn tuning(lossless: bool, integrity: bool) -> Tuning {
    let tuning = Tuning { integrity, ..Tuning::default() };
    if !lossless {
        return tuning;
    }
    Tuning {
        rto_min: LOSSLESS_TIMEOUT,
        rto_initial: LOSSLESS_TIMEOUT,
        rto_max: 2 * LOSSLESS_TIMEOUT,
        ..tuning
    }
}

/// The adapter as the engine sees it, and what puts frames into it.
fn wrapped(
    adapter: Box<dyn Nic>,
    domain: &Arc<dyn DmaDomain>,
    encapsulation: Encapsulation,
    clock: &Clock,
) -> Result<(Box<dyn Nic>, Transmitter)> {
    match encapsulation {
        Encapsulation::Ethernet => {
            let transmitter = Transmitter::new(domain, adapter.properties())?;
            Ok((adapter, transmitter))
        }
        Encapsulation::Udp(options) => {
            let mut adapter = Box::new(UdpAdapter::new(adapter, domain, options, clock.clone())?);
            let transmitter = Transmitter::new(domain, adapter.properties())?;
            adapter.share(transmitter.slots());
            Ok((adapter, transmitter))
        }
    }
}

/// Nanoseconds, far enough from the end of what a `Time` holds.
fn nanos(time: Duration) -> u64 {
    time.as_nanos().min(u128::from(u64::MAX / 4)) as u64
}

/// A seed for connection identities that nobody off the path can guess.
fn random_seed() -> Result<u64> {
    let mut seed = [0u8; 8];
    // SAFETY: 8 bytes of ours; the call writes at most as many.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    if got != seed.len() as isize {
        return Err(uvia_driver::Error::last_os("getrandom for connection identities").into());
    }
    Ok(u64::from_ne_bytes(seed))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

    use super::bell::Bell;

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, in a local.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn a_sleeper_is_woken_by_the_adapter_and_by_the_bell() {
        let (adapter, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let bell = Bell::new(adapter.as_fd()).unwrap();
        assert!(!is_readable(bell.as_fd()));
        bell.ring();
        bell.ring();
        assert!(is_readable(bell.as_fd()));
        bell.hush();
        assert!(!is_readable(bell.as_fd()));
        std::io::Write::write_all(&mut other, b"x").unwrap();
        assert!(is_readable(bell.as_fd()));
        bell.hush();
        assert!(is_readable(bell.as_fd()), "what the adapter says is the adapter's to take back");
    }
}
