//! The provider in software: the VI engine on a plain Ethernet adapter.

mod answers;
mod aside;
mod bell;
mod chores;
mod loopback;
mod news;
mod opening;
mod pio;
mod transmit;
mod udp;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia_driver::dma::DmaDomain;
use uvia_driver::nic::{Nic, RxFrame};

use crate::batch::Batch;
use crate::engine::{self, Engine, Finished, Time};
use crate::posts::Post;
use crate::provider::{ListenerId, Provider, RequestId};
use crate::sinks::{Handed, Sinks};
use crate::vi::Image;
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
use news::peer;
use pio::PioPort;
use transmit::Transmitter;

/// Frames taken from the adapter in one burst: bounds how long the engine is held.
const BURST: usize = 64;
/// How long closing waits for peers to have heard of it.
const FAREWELL: Duration = Duration::from_millis(20);

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
        let mut nothing = Batch::nothing();
        let handed = Handed::to_nobody(&mut nothing);
        let mut out = Out { adapter: &mut *self.adapter, port: &mut self.port, sinks, handed };
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
        self.port.due.set(Due::RECLAIM, self.port.transmitter.wants_reclaim());
        if due.contains(Due::FAULT) {
            return self.port.take_fault();
        }
        Ok(self.adapter.flush()?)
    }

    /// What is due at the end of a burst; answers how many frames were received by it.
    #[inline(never)]
    fn catch_up(&mut self, now: Time, sinks: &mut Sinks, mut handed: Handed<'_>) -> Result<usize> {
        let mut received = 0;
        if self.port.due.contains(Due::RECLAIM) {
            self.reclaim(sinks, handed.again())?;
        }
        if self.port.due.intersects(Due::ANSWERS | Due::BURIALS | Due::LOOPED) {
            received = self.do_chores(sinks, handed.again())?;
        }
        if self.engine.wants_poll() {
            self.look_after(now);
            let mut out = Out { adapter: &mut *self.adapter, port: &mut self.port, sinks, handed };
            self.engine.poll(now, &mut out);
        }
        self.settle()?;
        Ok(received)
    }

    /// Takes back the frames that the adapter is done with.
    #[inline(never)]
    fn reclaim(&mut self, sinks: &mut Sinks, handed: Handed<'_>) -> Result<()> {
        let engine = &mut self.engine;
        let out = Receiving { port: &mut self.port, sinks, handed };
        let mut referred = Referred { engine, out, last: engine::FrameToken::NO_MEMORY, count: 0 };
        let outcome = self.adapter.reclaim(&mut |token| {
            if !referred.out.port.transmitter.reclaimed(token) {
                referred.add(token);
            }
        });
        referred.tell();
        self.port.due.set(Due::RECLAIM, self.port.transmitter.wants_reclaim());
        outcome?;
        Ok(())
    }
}

/// Frames that came back and referred to registered memory. Apart, so that frames of copied bytes are taken back in a few
/// instructions.
struct Referred<'a> {
    engine: &'a mut Engine,
    out: Receiving<'a>,
    /// The frames of a long message are told of together: so many of this one were not told of yet.
    last: engine::FrameToken,
    count: u32,
}

impl Referred<'_> {
    #[inline(never)]
    fn add(&mut self, token: u64) {
        let Some(token) = self.out.port.transmitter.unreferenced(token) else { return };
        if token != self.last {
            self.tell();
            self.last = token;
        }
        self.count += 1;
    }

    fn tell(&mut self) {
        if self.count == 0 {
            return;
        }
        if self.out.port.due.contains(Due::PIO) {
            (0..self.count).for_each(|_| self.out.port.pio.landed(self.last));
        }
        self.engine.transmitted(self.last, self.count, &mut self.out);
        self.count = 0;
    }
}

impl Ethernet {
    /// As [`AnyProvider::post_short`](crate::provider::AnyProvider::post_short).
    #[inline(always)]
    pub(crate) fn post_short(
        &mut self,
        vi: ViId,
        tag: ProtectionTag,
        descriptor: Box<Descriptor>,
    ) -> std::result::Result<bool, Box<Descriptor>> {
        let [segment] = &descriptor.segments[..] else { return Err(descriptor) };
        let payload = segment.bytes();
        let len = payload.len();
        let aside = u32::from((self.port.due & ASIDE).bits());
        // What is told by numbers in one branch.
        let unusual = u64::from(aside | descriptor.beside_segments()) | segment.region().tag().differs(tag);
        if unusual != 0 || !Transmitter::is_short(len) {
            return Err(descriptor);
        }
        let Some(send) = self.engine.plain_send(vi) else { return Err(descriptor) };
        let Some(number) = self.port.slot() else { return Err(descriptor) };
        match self.port.transmitter.transmit_short(&mut self.adapter, number, &send, payload) {
            Ok(true) => {}
            Ok(false) => return Err(descriptor),
            Err(e) => {
                self.port.keep_fault(e);
                return Err(descriptor);
            }
        }
        // It is the only frame of this post: the adapter is told at once, and the rest is done meanwhile.
        let told = self.adapter.flush();
        send.sent(|| Time(self.clock.now()), descriptor, len as u32);
        match told {
            Ok(()) => Ok(true),
            Err(e) => Ok(self.failed(e.into())),
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

    /// As [`Ethernet::keep_receive`], for several; false where they are all still to be posted.
    #[inline(always)]
    #[expect(clippy::vec_box, reason = "they move by the box")]
    pub(crate) fn keep_receives(&mut self, vi: ViId, descriptors: &mut Vec<Box<Descriptor>>) -> bool {
        self.engine.keep_receives(vi, descriptors)
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
        /// The adapter is to be asked for the frames that it is done with.
        const RECLAIM = 128;
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
    /// A header slot that is free.
    #[inline(always)]
    fn slot(&mut self) -> Option<u32> {
        self.transmitter.one_of_many().or_else(|| {
            self.due |= Due::RECLAIM;
            self.transmitter.one_of_few()
        })
    }

    /// Keeps what the adapter said; for now it takes nothing.
    #[cold]
    fn fails(&mut self, error: crate::Error) -> engine::Sent {
        self.keep_fault(error);
        engine::Sent::Full
    }

    /// Keeps what the adapter said until the caller is told.
    #[cold]
    fn keep_fault(&mut self, error: crate::Error) {
        self.fault = Some(error);
        self.due |= Due::FAULT;
    }

    #[cold]
    fn take_fault(&mut self) -> Result<()> {
        self.fault.take().map_or(Ok(()), Err)
    }
}

/// The engine's way out.
struct Out<'a> {
    adapter: &'a mut dyn Nic,
    port: &'a mut Port,
    sinks: &'a mut Sinks,
    handed: Handed<'a>,
}

/// Its way out while the adapter is busy with frames that are received: the engine is told that there is no room, and
/// sends when it is polled at the end of the burst.
struct Receiving<'a> {
    port: &'a mut Port,
    sinks: &'a mut Sinks,
    handed: Handed<'a>,
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

    fn probe(&mut self, _: &[u8], _: usize) -> engine::Sent {
        engine::Sent::Full
    }

    fn posted_meanwhile(&mut self) -> Option<Post> {
        self.sinks.posts().pop()
    }

    #[inline(always)]
    fn complete(&mut self, completion: Completion) {
        self.sinks.complete(&mut self.handed, completion);
    }

    #[inline(always)]
    fn complete_message(&mut self, vi: ViId, sends: Finished<'_>, receive: Box<Descriptor>) {
        self.sinks.complete_message(&mut self.handed, vi, sends, receive);
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

    #[inline]
    fn transmit_long(
        &mut self,
        header: &[u64; 8],
        len: usize,
        part: &engine::PayloadPart<'_>,
        token: engine::FrameToken,
    ) -> engine::Sent {
        if self.port.due.intersects(ASIDE) {
            return engine::transmit_as_bytes(self, header, len, part, token);
        }
        match self.port.transmitter.transmit_long(self.adapter, header, len, part, token) {
            Ok(sent) => {
                self.port.due |= Due::FLUSH;
                sent
            }
            Err(e) => self.port.fails(e),
        }
    }

    fn probe(&mut self, frame: &[u8], len: usize) -> engine::Sent {
        // It goes to another host, and is of no interface of class Pio.
        if self.port.due.contains(Due::FAULT) {
            return engine::Sent::Full;
        }
        match self.port.transmitter.transmit_padded(self.adapter, frame, len) {
            Ok(sent) => {
                self.port.due |= Due::FLUSH;
                sent
            }
            Err(e) => self.port.fails(e),
        }
    }

    #[inline(always)]
    fn complete(&mut self, completion: Completion) {
        self.sinks.complete(&mut self.handed, completion);
    }

    fn error(&mut self, vi: ViId, code: crate::ErrorCode) {
        self.sinks.error(vi, code);
    }

    fn event(&mut self, event: engine::Event) {
        self.port.tell(event, self.sinks);
    }
}

impl Provider for Ethernet {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    #[inline(always)]
    fn progress(&mut self, sinks: &mut Sinks, mut handed: Handed<'_>) -> Result<usize> {
        let now = self.now();
        let engine = &mut self.engine;
        engine.begin_burst(now);
        let mut out = Receiving { port: &mut self.port, sinks: &mut *sinks, handed: handed.again() };
        // All that it needs is its own: one step to each.
        let mut take = move |frame: RxFrame<'_>| engine.receive(frame, &mut out);
        let mut received = self.adapter.receive(BURST, &mut take)?;
        let due = self.port.due & Due::all().difference(Due::LOOPS.union(Due::PIO));
        if due.bits() | u8::from(self.engine.wants_poll()) != 0 {
            received += self.catch_up(now, sinks, handed)?;
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

    fn statistics(&mut self, sinks: &mut Sinks) -> Statistics {
        // Adapters count frames when they are taken back. A fault comes up again where it is told.
        if let Err(e) = self.reclaim(sinks, Handed::to_nobody(&mut Batch::nothing())) {
            tracing::debug!("{}: {e}", self.properties.device);
        }
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

    fn path_mtu(&self, vi: ViId) -> Option<usize> {
        self.engine.path_mtu(vi)
    }

    fn post_send(&mut self, vi: ViId, descriptor: Box<Descriptor>, sinks: &mut Sinks) -> Result<()> {
        self.with(sinks, |engine, now, out| engine.post_send(now, vi, descriptor, out))
    }

    fn post_receive(&mut self, vi: ViId, descriptor: Box<Descriptor>, sinks: &mut Sinks) {
        let mut nothing = Batch::nothing();
        let handed = Handed::to_nobody(&mut nothing);
        let mut out = Receiving { port: &mut self.port, sinks, handed };
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
                self.progress(sinks, Handed::to_nobody(&mut Batch::nothing()))?;
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

/// Nanoseconds, far enough from the end of what a `Time` holds.
fn nanos(time: Duration) -> u64 {
    time.as_nanos().min(u128::from(u64::MAX / 4)) as u64
}
