//! The port on virtual interfaces: one for each link, all with one completion queue.
//!
//! Packets lie in registered buffers that are made with the link; long pieces are RDMA writes from and into registered
//! memory of the program's.

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
    Completion, CompletionEvent, CompletionQueue, Completions, Descriptor, Listener, MacAddress,
    MemoryAttributes, NetAddress, Nic, ProtectionTag, Request, Status, ViAttributes, ViId,
};
use zerocopy::IntoBytes;

use super::{Buffer, Depth, Event, Exposure, Hello, LinkId, Packet, Port, Wake};
use crate::span::Span;
use crate::{Error, Result};
use exposures::Exposures;
use gathered::Gatherer;
use link::{BULK, State};
pub(crate) use link::{Link, Ready, Receive};
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

/// What [`ViPort::drive_for`] came to.
pub(crate) enum Driven<'a> {
    /// Nothing has happened that concerns who waits, in so many looks.
    Nothing(u32),
    /// A packet of the link has come: it is the link's to take it, or to take it back.
    Receive(&'a mut Link, Receive),
    /// Something else has happened, and perhaps more: [`ViPort::next`] tells.
    Otherwise,
    /// The port is broken.
    Failed(Box<Error>),
}

impl Driven<'_> {
    #[cold]
    #[inline(never)]
    fn failed(e: Error) -> Self {
        Self::Failed(Box::new(e))
    }
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

    /// Makes an interface with its buffers, and posts the receives.
    fn make(&mut self, id: LinkId, state: State) -> Result<Box<Link>> {
        let entries = self.attributes.send_depth + self.attributes.receive_depth;
        self.make_room(entries)?;
        let vi = self.nic.create_vi(&self.attributes, Some(&self.cq), Some(&self.cq))?;
        let stride = self.depth.packet_bytes.next_multiple_of(64);
        let memory = self.nic.allocate(
            (self.depth.packets + self.depth.receives()) * stride,
            MemoryAttributes::local(self.attributes.tag),
        )?;
        self.epochs += 1;
        Link::new(id, self.epochs, vi, memory, stride, self.depth, state).map(Box::new)
    }

    /// Room for so many more completions.
    fn make_room(&mut self, entries: usize) -> Result<()> {
        let needed = self.cq.promised() + entries;
        if needed > self.cq.capacity() {
            self.cq.resize(
                needed.max(2 * self.cq.capacity()).min(self.nic.properties().max_cq_entries).max(needed),
            )?;
        }
        Ok(())
    }

    fn store(&mut self, id: LinkId, link: Box<Link>) {
        let at = id as usize;
        if self.links.len() <= at {
            self.links.resize_with(at + 1, || None);
        }
        if matches!(link.state, State::Asking { .. }) {
            self.pending += 1;
            self.until_look = 1;
        }
        if let Some(old) = self.links[at].replace(link)
            && matches!(old.state, State::Asking { .. })
        {
            self.pending -= 1;
        }
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

    /// Looks after connections that are being made.
    #[cold]
    fn look(&mut self) -> Result<()> {
        let outcome = self.look_now();
        self.until_look = if self.pending > 0 { 1 } else { LOOK };
        outcome
    }

    fn look_now(&mut self) -> Result<()> {
        while let Some(request) = self.listener.poll()? {
            self.asked(request)?;
        }
        if self.pending == 0 {
            return Ok(());
        }
        for id in 0..self.links.len() {
            let id = id as LinkId;
            let Some(link) = self.link(id) else { continue };
            if link.inline.is_some() {
                self.advance_inline(id);
            }
            let Some(link) = self.link(id) else { continue };
            let Some(outcome) = link.advance() else { continue };
            self.pending -= 1;
            let session = self.session.clone();
            let event = match outcome {
                Ok(peer) => match Hello::read(&peer.private_data, &session) {
                    Some(hello) => {
                        self.ask_inline(id, peer.address.host);
                        Event::Up(id, hello)
                    }
                    None => self.lose(id, "its answer is not of this session".to_owned()),
                },
                Err(e) => self.lose(id, e.to_string()),
            };
            self.news.push_back(event);
        }
        Ok(())
    }

    /// Somebody asks for a connection.
    fn asked(&mut self, request: Request) -> Result<()> {
        let Some(hello) = Hello::read(&request.peer().private_data, &self.session) else {
            request.reject(b"another session")?;
            return Ok(());
        };
        let (rank, channel) = (hello.rank.get() as usize, hello.channel.get() as usize);
        if rank >= self.size || rank == self.rank || channel >= crate::MAX_CHANNELS {
            request.reject(b"no such rank or channel")?;
            return Ok(());
        }
        let id = (channel * self.size + rank) as LinkId;
        if hello.inline.get() != 0 {
            return self.asked_inline(request, id, hello.inline.get() as usize);
        }
        let mine = self.rank;
        // Where both ask at once, the request of the lower rank is the one that counts.
        let welcome = match self.link(id).map(|link| &link.state) {
            None => true,
            Some(State::Asking { .. }) => rank < mine,
            Some(State::Up | State::Down) => false,
        };
        if !welcome {
            request.reject(b"connected already")?;
            return Ok(());
        }
        let link = self.make(id, State::Up)?;
        let Some(vi) = &link.vi else { return Ok(()) };
        let mut answer = self.hello;
        answer.channel = hello.channel;
        let remote = request.peer().address.host;
        match request.accept(vi, answer.as_bytes()) {
            Ok(_) => {
                self.store(id, link);
                self.news.push_back(Event::Up(id, hello));
                self.ask_inline(id, remote);
            }
            // It asks again, or gives up.
            Err((request, e)) => {
                tracing::warn!("accepting a connection of rank {rank}: {e}");
                request.reject(b"cannot accept")?;
            }
        }
        Ok(())
    }

    /// A link is gone.
    fn lose(&mut self, id: LinkId, why: String) -> Event {
        if let Some(link) = self.link(id) {
            let asking_inline = link.inline.as_ref().is_some_and(|inline| !inline.is_up());
            link.leave();
            self.pending -= usize::from(asking_inline);
        }
        Event::Down(id, why)
    }

    /// Drives the NIC; answers whether anything has happened: see [`ViPort::next`].
    #[inline]
    pub(crate) fn drive(&mut self) -> Result<bool> {
        self.cq.poll_into(&mut self.completions)?;
        if self.is_due() {
            // Packets may have come right behind the answer: first the link, then these.
            self.look()?;
        }
        Ok(!self.completions.is_empty() || !self.news.is_empty())
    }

    /// Drives the NIC, if nothing that it has finished with is at hand, for who waits for a packet of that link: until it
    /// has finished with something, up to `most` times, and not on once the session is `wanted`.
    #[inline(always)]
    pub(crate) fn drive_for(&mut self, id: LinkId, most: u32, wanted: impl Fn() -> bool) -> Driven<'_> {
        let mut looks = 0;
        loop {
            if self.completions.is_empty()
                && let Err(e) = self.cq.poll_into(&mut self.completions)
            {
                return Driven::failed(e.into());
            }
            looks += 1;
            if self.is_due() {
                match self.look() {
                    Ok(()) => break,
                    Err(e) => return Driven::failed(e),
                }
            }
            if looks >= most || !self.completions.is_empty() || wanted() {
                break;
            }
        }
        if !self.news.is_empty() {
            return Driven::Otherwise;
        }
        let receive = 'receive: loop {
            let Some(Some(link)) = self.links.get_mut(id as usize) else { return Driven::Otherwise };
            let other = loop {
                let Some(completion) = self.completions.pop() else { return Driven::Nothing(looks) };
                // Not those with immediate data either, which have filled nothing.
                if !link.is_of(completion.vi) || completion.descriptor.status() != Status::DONE {
                    break completion;
                }
                let context = completion.descriptor.context;
                let index = (context >> 32) as u32;
                if index >> 30 == what::RECEIVE as u32 {
                    break 'receive completion.descriptor;
                }
                if index >> 30 != what::SEND as u32 {
                    break completion;
                }
                link.sent(index & INDEX, completion.descriptor);
            };
            if let Some(event) = self.completed(other) {
                // It comes before what is left of the completions, as it has to.
                self.news.push_back(event);
                return Driven::Otherwise;
            }
        };
        match self.links.get_mut(id as usize) {
            Some(Some(link)) => Driven::Receive(link, Receive(receive)),
            _ => Driven::Otherwise,
        }
    }

    /// The next of what has happened.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Event> {
        if !self.news.is_empty() {
            return self.news.pop_front();
        }
        while let Some(completion) = self.completions.pop() {
            let event = self.completed(completion);
            if event.is_some() {
                return event;
            }
        }
        None
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

    /// What the NIC has finished with.
    #[inline(always)]
    fn completed(&mut self, completion: Completion) -> Option<Event> {
        let Completion { vi, descriptor, queue } = completion;
        let context = descriptor.context;
        let id = context as LinkId;
        let index = (context >> 32) as u32 & INDEX;
        if let Some(Some(link)) = self.links.get_mut(id as usize)
            && link.is_of(vi)
            && descriptor.status() == Status::DONE
        {
            match context >> 62 {
                what::RECEIVE => return Some(Event::Packet(id, link.received(Receive(descriptor)))),
                what::SEND => {
                    link.sent(index, descriptor);
                    return None;
                }
                _ => {}
            }
        }
        self.completed_otherwise(Completion { vi, queue, descriptor })
    }

    /// A put, word of one, something that failed, or something of a connection that was left.
    #[inline(never)]
    fn completed_otherwise(&mut self, completion: Completion) -> Option<Event> {
        let context = completion.descriptor.context;
        let (id, index) = (context as LinkId, (context >> 32) as u32 & INDEX);
        if context >> 62 == what::OTHER && index & what::INLINE != 0 {
            return self.completed_inline(index & !what::INLINE, completion);
        }
        let Completion { vi, mut descriptor, .. } = completion;
        if context >> 62 == what::OTHER {
            descriptor.segments.clear();
            let status = descriptor.status();
            self.keep_spare(descriptor);
            let id = self.gathered(index, status.is_success())?;
            let link = self.link(id).filter(|link| link.is_of(vi) && !status.is_success())?;
            let why = link.loss(status);
            return Some(self.lose(id, why));
        }
        if descriptor.context >> 62 == what::PUT {
            return self.put_is_over(index, descriptor, vi);
        }
        if descriptor.context >> 62 == what::RECEIVE && descriptor.status().is_success() {
            return self.came_with_more(id, vi, descriptor);
        }
        let link = self.link(id)?;
        if !link.is_of(vi) {
            return None;
        }
        let why = link.loss(descriptor.status());
        Some(self.lose(id, why))
    }

    /// A receive that tells of something else than a packet: a put of the peer's that came with a word.
    fn came_with_more(&mut self, id: LinkId, vi: ViId, descriptor: Box<Descriptor>) -> Option<Event> {
        let is_write = descriptor.status().contains(Status::REMOTE_RDMA_WRITE);
        let word = descriptor.immediate.filter(|_| is_write);
        let link = self.link(id).filter(|link| link.is_of(vi))?;
        let Some(word) = word else {
            return Some(self.lose(id, "it sent a packet with immediate data".to_owned()));
        };
        // The length is that of the put: nothing of the buffer was written.
        let len = descriptor.length() as usize;
        let packet = link.received(Receive(descriptor));
        Some(Event::Word(id, Packet { span: packet.span.first(0), ..packet }, len, word))
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
