//! The port on virtual interfaces: one for each link, all with one completion queue.
//!
//! Packets lie in registered buffers that are made with the link; long pieces are RDMA writes from and into registered
//! memory of the program's.

mod completions;
mod connecting;
mod exposures;
mod gathered;
mod inline;
mod link;
mod registrations;
mod stack;
mod transfer;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use uvia::{
    CompletionEvent, CompletionQueue, Completions, Descriptor, Listener, MacAddress, NetAddress, Nic,
    ProtectionTag, ViAttributes,
};

use super::{Buffer, Depth, Event, Exposure, Hello, LinkId, Packet, Port, Wake};
use crate::span::Span;
use crate::{Error, Result};
pub(crate) use completions::Driven;
use exposures::Exposures;
use gathered::Gatherer;
use link::{BULK, State};
pub(crate) use link::{Link, Ready};
use registrations::Registrations;
use transfer::Put;

/// How long one connection request may take before it is made anew.
const REQUEST: Duration = Duration::from_secs(5);
/// Pause before a request that was refused is made again, since the other end was not there yet.
const AGAIN: Duration = Duration::from_millis(2);
/// Turns of the port between two looks at who asks for a connection.
const LOOK: u32 = 64;

/// What a completed descriptor was for; in the upper bits of its context.
mod what {
    pub(super) const RECEIVE: u64 = 0;
    pub(super) const SEND: u64 = 1;
    pub(super) const PUT: u64 = 2;
    /// What the index says, in its upper bits.
    pub(super) const OTHER: u64 = 3;
    /// A packet that took bytes from the program's memory.
    pub(super) const GATHERED: u32 = 0;
    /// A packet by an interface of class Pio.
    pub(super) const INLINE: u32 = 1 << 29;
}

impl Depth {
    /// Receives of a link.
    fn receives(&self) -> usize {
        self.packets + BULK - 1
    }
}

/// The bits of a context's upper half that are the index.
const INDEX: u32 = 0x3fff_ffff;

fn context(what: u64, index: u32, link: LinkId) -> u64 {
    what << 62 | u64::from(index) << 32 | u64::from(link)
}

/// The port on virtual interfaces of one NIC.
pub struct ViPort {
    nic: Nic,
    session: String,
    rank: usize,
    size: usize,
    hello: Hello,
    depth: Depth,
    attributes: ViAttributes,
    cq: CompletionQueue,
    completions: Completions,
    event: Option<CompletionEvent>,
    armed: bool,
    listener: Listener,
    links: Vec<Option<Box<Link>>>,
    /// Links that are being connected.
    pending: usize,
    /// Turns until they are looked after.
    until_look: u32,
    epochs: u32,
    /// What has happened to links.
    news: VecDeque<Event>,
    registrations: Registrations,
    exposures: Exposures,
    gatherer: Gatherer,
    /// Up to how many bytes a packet goes inline, where that can be; and how many did.
    inline_most: usize,
    inline_packets: u64,
    puts: Vec<Option<Put>>,
    free_puts: Vec<u32>,
    // They move by the box.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Descriptor>>,
}

impl ViPort {
    /// A port on a NIC, for a rank of a session of `size` ranks; `hello` is what it says of itself, with whatever channel.
    /// With `strict`, a put is over only when it is in the peer's memory, as it has to be beside other rails. Packets of up
    /// to `inline_most` bytes go by an endpoint of class Pio, where one is granted.
    ///
    /// # Errors
    /// The NIC does not offer what is needed.
    pub fn new(
        nic: Nic,
        session: &str,
        (rank, size): (usize, usize),
        hello: Hello,
        depth: Depth,
        strict: bool,
        inline_most: usize,
    ) -> Result<Self> {
        let tag: ProtectionTag = nic.create_tag()?;
        let mut attributes = ViAttributes::new(tag);
        attributes.max_transfer_size = nic.properties().max_transfer_size.min(attributes.max_transfer_size);
        attributes.rdma_read = true;
        attributes.send_depth = depth.packets + depth.puts;
        attributes.receive_depth = depth.receives();
        if strict {
            attributes.reliability = uvia::ReliabilityLevel::ReliableReception;
        }
        let cq = nic.create_cq(attributes.send_depth + attributes.receive_depth)?;
        let listener = nic.listen(&discriminator(session, rank), 64)?;
        let registrations = Registrations::new(&nic, tag)?;
        let gatherer = Gatherer::new(&registrations.state());
        Ok(Self {
            session: session.to_owned(),
            rank,
            size,
            hello,
            depth,
            attributes,
            cq,
            completions: Completions::with_capacity(64),
            event: None,
            armed: false,
            listener,
            links: Vec::new(),
            pending: 0,
            until_look: LOOK,
            epochs: 0,
            news: VecDeque::new(),
            registrations,
            exposures: Exposures::default(),
            gatherer,
            inline_most,
            inline_packets: 0,
            puts: Vec::new(),
            free_puts: Vec::new(),
            spare: Vec::new(),
            nic,
        })
    }

    #[inline(always)]
    fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id as usize)?.as_deref_mut()
    }

    /// Counts a turn; answers whether it is time to look after connections that are being made.
    #[inline(always)]
    fn is_due(&mut self) -> bool {
        // Never 0 between turns.
        self.until_look = self.until_look.wrapping_sub(1);
        self.until_look == 0
    }

    /// As [`Port::buffer`].
    #[inline(always)]
    pub(crate) fn take_buffer(&mut self, id: LinkId) -> Option<Buffer> {
        self.link(id)?.buffer()
    }

    /// As [`ViPort::take_buffer`], with what sends it.
    #[inline(always)]
    pub(crate) fn take_ready(&mut self, id: LinkId) -> Option<(Buffer, Ready<'_>)> {
        self.link(id)?.take_ready()
    }

    /// Sends `len` bytes of a buffer, from `start` on.
    ///
    /// # Errors
    /// The port is broken.
    #[inline(always)]
    pub(crate) fn send_part(
        &mut self,
        id: LinkId,
        index: u32,
        start: usize,
        len: usize,
    ) -> std::result::Result<(), Box<Error>> {
        match self.link(id) {
            Some(link) => link.send(index, start, len, false),
            None => Ok(()),
        }
    }

    /// As [`Port::give_back`].
    #[inline(always)]
    pub(crate) fn take_back(&mut self, id: LinkId, packet: Packet) {
        if let Some(link) = self.link(id)
            && link.epoch == packet.epoch
        {
            link.give_back(packet.index);
        }
    }
}

fn discriminator(session: &str, rank: usize) -> Vec<u8> {
    let mut name = format!("m/{rank}/{session}").into_bytes();
    name.truncate(NetAddress::MAX_DISCRIMINATOR);
    name
}

impl Port for ViPort {
    fn address(&self) -> String {
        format!("{}/{}", self.nic.properties().mac, self.rank)
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn connect(&mut self, id: LinkId, address: &str, mut hello: Hello) -> Result<()> {
        if self.link(id).is_some() {
            return Ok(());
        }
        let malformed = || Error::Config(format!("{address:?} is no address of a VI port"));
        let (host, rank) = address.split_once('/').ok_or_else(malformed)?;
        let rank: usize = rank.parse().map_err(|_| malformed())?;
        let host = match host.parse::<MacAddress>() {
            Ok(mac) => mac,
            // Ranks that find each other by name are not started together.
            Err(_) => self.nic.resolve(host, crate::CONNECT)?,
        };
        let remote = NetAddress::new(host, discriminator(&self.session, rank))?;
        hello.rank = self.hello.rank;
        let asking = State::Asking {
            remote,
            hello,
            next: Some(Instant::now()),
            until: Instant::now() + crate::CONNECT,
        };
        let link = self.make(id, asking)?;
        self.store(id, link);
        Ok(())
    }

    fn buffer(&mut self, id: LinkId) -> Option<Buffer> {
        self.take_buffer(id)
    }

    fn release(&mut self, id: LinkId, index: u32) {
        if let Some(link) = self.link(id) {
            link.release(index);
        }
    }

    fn send(&mut self, id: LinkId, buffer: Buffer, len: usize, keep: bool) -> Result<()> {
        let Some(link) = self.link(id) else { return Ok(()) };
        if link.inline.is_some() && link.send_inline(id, buffer, len, keep) {
            self.inline_packets += 1;
            return Ok(());
        }
        link.send(buffer.index, 0, len, keep).map_err(|e| *e)
    }

    fn gathers(&self) -> bool {
        self.gatherer.is_possible()
    }

    unsafe fn send_gathered(
        &mut self,
        id: LinkId,
        buffer: Buffer,
        len: usize,
        parts: &[Span],
    ) -> Result<bool> {
        // SAFETY: the caller's promise.
        if unsafe { self.gather(id, buffer, len, parts)? } {
            return Ok(true);
        }
        // SAFETY: the caller's promise; the buffer is ours until it is sent.
        let copied = parts.iter().fold(len, |at, part| at + unsafe { buffer.span.skip(at).fill(*part) });
        self.send(id, buffer, copied, false)?;
        Ok(false)
    }

    fn is_gathering(&self, id: LinkId) -> bool {
        let link = self.links.get(id as usize).and_then(Option::as_deref);
        link.is_some_and(|link| link.gathering > 0)
    }

    fn reads(&self) -> bool {
        true
    }

    unsafe fn offer(&mut self, id: LinkId, memory: Span) -> Result<Exposure> {
        // SAFETY: the caller's promise. What the cache registers may be read and written.
        unsafe { self.expose(id, memory) }
    }

    unsafe fn get(
        &mut self,
        id: LinkId,
        get: u64,
        memory: Span,
        token: &[u8; 16],
        offset: u64,
    ) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(id, get, memory, (token, offset), uvia::Operation::RdmaRead, None) }
    }

    fn enable_inline(&mut self, id: LinkId) -> bool {
        let Some(link) = self.link(id) else { return false };
        if let Some(inline) = link.inline.as_mut().filter(|inline| inline.is_up()) {
            inline.is_enabled = true;
            return true;
        }
        link.inline_in.is_some()
    }

    fn overtakes(&self, id: LinkId) -> bool {
        let link = self.links.get(id as usize).and_then(Option::as_deref);
        link.is_some_and(|link| link.inline_in.is_some())
    }

    fn inline_packets(&self) -> u64 {
        self.inline_packets
    }

    unsafe fn expose(&mut self, _link: LinkId, memory: Span) -> Result<Exposure> {
        // SAFETY: the caller's promise.
        let lease = unsafe { self.registrations.place(memory)? };
        let token = transfer::token_of(lease.remote(0)?);
        Ok(Exposure { id: self.exposures.keep(lease), token })
    }

    fn conceal(&mut self, _link: LinkId, exposure: u64) {
        if let Some(lease) = self.exposures.end(exposure) {
            self.registrations.concealed(lease);
        }
    }

    unsafe fn put(
        &mut self,
        id: LinkId,
        put: u64,
        memory: Span,
        token: &[u8; 16],
        offset: u64,
    ) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(id, put, memory, (token, offset), uvia::Operation::RdmaWrite, None) }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<()> {
        self.drive()?;
        events.extend(std::iter::from_fn(|| self.next()));
        Ok(())
    }

    fn give_back(&mut self, id: LinkId, packet: Packet) {
        self.take_back(id, packet);
    }

    fn is_flushed(&self, id: LinkId) -> bool {
        match self.links.get(id as usize).and_then(Option::as_deref) {
            Some(link) => {
                link.vi.is_none() || (link.sending == 0 && link.puts == 0 && link.is_inline_flushed())
            }
            None => true,
        }
    }

    fn leave(&mut self, id: LinkId) {
        if let Some(link) = self.link(id) {
            let asking = matches!(link.state, State::Asking { .. });
            let asking_inline = link.inline.as_ref().is_some_and(|inline| !inline.is_up());
            link.leave();
            self.pending -= usize::from(asking) + usize::from(asking_inline);
        }
    }

    fn arm(&mut self, sleepers: &mut Vec<RawFd>) -> Result<Wake> {
        if self.event.is_none() {
            self.event = Some(self.cq.event()?);
        }
        let Some(event) = &self.event else { return Ok(Wake::Blind) };
        if self.armed {
            event.consume()?;
        }
        self.armed = event.arm()?;
        if self.armed {
            sleepers.push(event.as_raw_fd());
            // Connections that are being made do not signal it.
            return Ok(if self.pending > 0 { Wake::Blind } else { Wake::Told });
        }
        Ok(Wake::Now)
    }
}
