//! The port on streams of bytes: TCP, and rings of shared memory.
//!
//! Frames go one behind the other: packets, and parts of long pieces, which are read straight into their place.

mod link;
mod ring;
mod shared;
mod tcp;

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::time::Instant;

use zerocopy::IntoBytes;

use super::{Buffer, Depth, Event, Exposure, Hello, LinkId, Packet, Port, Wake};
use crate::span::Span;
use crate::{Error, Result};
use link::{Link, Read, State};
pub(crate) use shared::SharedMemory;
pub(crate) use tcp::Tcp;

/// A stream of bytes in both directions.
pub(crate) trait Pipe: Send {
    /// Writes what has room now; answers how many bytes.
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Reads what is there now, if anything; an error of kind `UnexpectedEof` when no more will come.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Becomes readable when there may be something to do; `None` where nothing tells.
    fn fd(&self) -> Option<RawFd>;

    /// No more is written. What was written is still read by the other end.
    fn close(&mut self);
}

/// Makes pipes.
pub(crate) trait Transport: Send {
    /// Where others reach it.
    fn address(&self) -> String;

    /// The next pipe that another end made, if there is one.
    fn accept(&mut self) -> io::Result<Option<Box<dyn Pipe>>>;

    /// A pipe to the transport at an address.
    fn dial(&mut self, address: &str) -> io::Result<Box<dyn Pipe>>;

    /// Becomes readable when another end makes a pipe.
    fn fd(&self) -> RawFd;
}

/// Turns between two looks at who dials; each is a system call.
const LOOK: u32 = 256;

/// Memory that a peer may put into.
struct Exposed {
    link: LinkId,
    memory: Span,
    /// It is to be read, not to be put into.
    is_offer: bool,
}

/// The port on a transport.
pub(crate) struct StreamPort {
    transport: Box<dyn Transport>,
    session: String,
    rank: usize,
    size: usize,
    hello: Hello,
    depth: Depth,
    links: Vec<Option<Box<Link>>>,
    /// Ends that dialled and have not said yet who they are.
    strangers: Vec<Link>,
    exposures: HashMap<u64, Exposed>,
    next_exposure: u64,
    turns: u32,
    epochs: u32,
    asking: usize,
    /// Links that were left since the other end broke the protocol.
    lost: Vec<LinkId>,
}

impl StreamPort {
    /// A port of a rank of a session.
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        session: &str,
        (rank, size): (usize, usize),
        hello: Hello,
        depth: Depth,
    ) -> Self {
        Self {
            transport,
            session: session.to_owned(),
            rank,
            size,
            hello,
            depth,
            links: Vec::new(),
            strangers: Vec::new(),
            exposures: HashMap::new(),
            next_exposure: 0,
            turns: 0,
            epochs: 0,
            asking: 0,
            lost: Vec::new(),
        }
    }

    fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id as usize)?.as_deref_mut()
    }

    /// A link that is there, where one more put or get may be under way.
    fn link_with_room(&mut self, id: LinkId) -> Option<&mut Link> {
        let puts = self.depth.puts;
        self.link(id).filter(|link| link.puts < puts && matches!(link.state, State::Up))
    }

    fn make(&mut self, pipe: Option<Box<dyn Pipe>>, state: State) -> Link {
        self.epochs += 1;
        Link::new(pipe, state, self.depth, self.epochs)
    }

    fn store(&mut self, id: LinkId, link: Link) {
        let at = id as usize;
        if self.links.len() <= at {
            self.links.resize_with(at + 1, || None);
        }
        self.asking += usize::from(matches!(link.state, State::Asking { .. }));
        if let Some(old) = self.links[at].replace(Box::new(link)) {
            self.asking -= usize::from(matches!(old.state, State::Asking { .. }));
        }
    }

    /// A name for memory that a peer may reach.
    fn name(&mut self, exposed: Exposed) -> Exposure {
        let id = self.next_exposure;
        self.next_exposure += 1;
        self.exposures.insert(id, exposed);
        let mut token = [0; 16];
        token[..8].copy_from_slice(id.as_bytes());
        Exposure { id, token }
    }

    /// Looks after pipes that are being made.
    #[cold]
    fn look(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let failed = |e| Error::io("waiting for others to connect", e);
        while let Some(pipe) = self.transport.accept().map_err(failed)? {
            let stranger = self.make(Some(pipe), State::Asked);
            self.strangers.push(stranger);
        }
        for at in (0..self.strangers.len()).rev() {
            match self.strangers[at].read_hello(&self.session) {
                Ok(None) => {}
                Ok(Some(hello)) => {
                    let link = self.strangers.swap_remove(at);
                    self.greet(link, hello, events);
                }
                Err(_) => drop(self.strangers.swap_remove(at)),
            }
        }
        if self.asking > 0 {
            for id in 0..self.links.len() {
                self.ask(id as LinkId, events);
            }
        }
        Ok(())
    }

    /// Somebody has dialled, and says who it is.
    fn greet(&mut self, mut link: Link, hello: Hello, events: &mut Vec<Event>) {
        let (rank, channel) = (hello.rank.get() as usize, hello.channel.get() as usize);
        if rank >= self.size || rank == self.rank || channel >= crate::MAX_CHANNELS {
            return;
        }
        let id = (channel * self.size + rank) as LinkId;
        let mine = self.rank;
        // Where both dial at once, the pipe of the lower rank is the one that counts.
        let welcome = match self.link(id).map(|link| &link.state) {
            None => true,
            Some(State::Asking { .. }) => rank < mine,
            Some(_) => false,
        };
        if !welcome {
            return;
        }
        let mut answer = self.hello;
        answer.channel = hello.channel;
        link.say(answer);
        link.state = State::Up;
        self.store(id, link);
        events.push(Event::Up(id, hello));
    }

    /// Goes on with a link that we ask for.
    fn ask(&mut self, id: LinkId, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        let State::Asking { address, hello, next, .. } = &mut link.state else { return };
        let hello = *hello;
        let outcome = match next {
            Some(time) if Instant::now() < *time => return,
            Some(_) => match self.transport.dial(address) {
                Ok(pipe) => {
                    *next = None;
                    link.connect(pipe, hello);
                    Ok(None)
                }
                Err(e) => Err(e),
            },
            None => link.read_hello(&self.session),
        };
        let State::Asking { next, until, .. } = &mut link.state else { return };
        match outcome {
            Ok(None) => {}
            Ok(Some(hello)) => {
                link.state = State::Up;
                self.asking -= 1;
                events.push(Event::Up(id, hello));
            }
            // The other end is not there yet, or dials us at the same time.
            Err(_) if Instant::now() < *until => {
                *next = Some(Instant::now() + std::time::Duration::from_millis(2))
            }
            Err(e) => {
                link.leave();
                self.asking -= 1;
                events.push(Event::Down(id, e.to_string()));
            }
        }
    }

    /// Reads what has come on a link, and writes what has to go.
    fn serve(&mut self, id: LinkId, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        if !matches!(link.state, State::Up) {
            return;
        }
        let exposures = &self.exposures;
        let find = |exposure: u64, offset: u64, len: usize, is_offer: bool| {
            let is_meant = |exposed: &&Exposed| exposed.link == id && exposed.is_offer == is_offer;
            let exposed = exposures.get(&exposure).filter(is_meant)?;
            let offset = usize::try_from(offset).ok()?;
            (offset.checked_add(len)? <= exposed.memory.len).then(|| exposed.memory.skip(offset).first(len))
        };
        let place = |exposure, offset, len| find(exposure, offset, len, false);
        // A peer that has left takes nothing more; what it said before is heard all the same.
        let written = link.write();
        let mut hear = || {
            while let Some(read) = link.read(&place)? {
                match read {
                    Read::Packet(packet) => events.push(Event::Packet(id, packet)),
                    Read::Done(put) => events.push(Event::Put(id, put)),
                    Read::Put => {}
                    Read::Get { exposure, offset, len, get } => {
                        let memory =
                            usize::try_from(len).ok().and_then(|len| find(exposure, offset, len, true));
                        let Some(memory) = memory else {
                            return Err(io::Error::other("it asks for memory that it was not offered"));
                        };
                        link.answer(get, memory, exposure);
                    }
                }
            }
            Ok(())
        };
        let outcome = hear().and(written).and_then(|()| link.write());
        if let Err(e) = outcome {
            link.leave();
            events.push(Event::Down(id, e.to_string()));
        }
    }
}

/// The memory's number, as [`StreamPort::name`] wrote it.
fn exposure_of(token: &[u8; 16]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&token[..8]);
    u64::from_ne_bytes(number)
}

impl Port for StreamPort {
    fn address(&self) -> String {
        self.transport.address()
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn connect(&mut self, id: LinkId, address: &str, hello: Hello) -> Result<()> {
        if self.link(id).is_none() {
            let state = State::Asking {
                address: address.to_owned(),
                hello,
                next: Some(Instant::now()),
                until: Instant::now() + crate::CONNECT,
            };
            let link = self.make(None, state);
            self.store(id, link);
        }
        Ok(())
    }

    fn buffer(&mut self, id: LinkId) -> Option<Buffer> {
        self.link(id)?.buffer()
    }

    fn release(&mut self, id: LinkId, index: u32) {
        if let Some(link) = self.link(id) {
            link.release(index);
        }
    }

    fn send(&mut self, id: LinkId, buffer: Buffer, len: usize, keep: bool) -> Result<()> {
        if let Some(link) = self.link(id) {
            link.send(buffer, len, keep);
            // A pipe that broke is found by the next poll.
            let _ = link.write();
        }
        Ok(())
    }

    fn gathers(&self) -> bool {
        true
    }

    unsafe fn send_gathered(
        &mut self,
        id: LinkId,
        buffer: Buffer,
        len: usize,
        parts: &[Span],
    ) -> Result<bool> {
        if let Some(link) = self.link(id) {
            link.send_gathered(buffer, len, parts);
            let _ = link.write();
        }
        Ok(true)
    }

    fn is_gathering(&self, id: LinkId) -> bool {
        let link = self.links.get(id as usize).and_then(Option::as_deref);
        link.is_some_and(|link| link.gathering > 0)
    }

    fn reads(&self) -> bool {
        true
    }

    unsafe fn offer(&mut self, link: LinkId, memory: Span) -> Result<Exposure> {
        Ok(self.name(Exposed { link, memory, is_offer: true }))
    }

    unsafe fn get(
        &mut self,
        id: LinkId,
        get: u64,
        memory: Span,
        token: &[u8; 16],
        offset: u64,
    ) -> Result<bool> {
        let Some(link) = self.link_with_room(id) else { return Ok(false) };
        link.get(get, memory, exposure_of(token), offset);
        let _ = link.write();
        Ok(true)
    }

    unsafe fn expose(&mut self, link: LinkId, memory: Span) -> Result<Exposure> {
        Ok(self.name(Exposed { link, memory, is_offer: false }))
    }

    fn conceal(&mut self, id: LinkId, exposure: u64) {
        self.exposures.remove(&exposure);
        if let Some(link) = self.link(id) {
            link.forget(exposure);
            if link.is_answering(exposure) {
                // The other end has said that it has what it asked for before it can have: the memory is the program's now.
                link.leave();
                self.lost.push(id);
            }
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
        let Some(link) = self.link_with_room(id) else { return Ok(false) };
        link.put(put, memory, exposure_of(token), offset);
        let _ = link.write();
        Ok(true)
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.asking > 0 || !self.strangers.is_empty() || self.turns.is_multiple_of(LOOK) {
            self.look(events)?;
        }
        for id in self.lost.drain(..) {
            events.push(Event::Down(
                id,
                "it broke the protocol: it says that it has read what it has not".to_owned(),
            ));
        }
        for id in 0..self.links.len() {
            self.serve(id as LinkId, events);
        }
        Ok(())
    }

    fn give_back(&mut self, id: LinkId, packet: Packet) {
        if let Some(link) = self.link(id)
            && link.epoch == packet.epoch
        {
            link.give_back(packet.index);
        }
    }

    fn is_flushed(&self, id: LinkId) -> bool {
        self.links.get(id as usize).and_then(Option::as_deref).is_none_or(Link::is_flushed)
    }

    fn leave(&mut self, id: LinkId) {
        if let Some(link) = self.link(id) {
            let asking = matches!(link.state, State::Asking { .. });
            link.leave();
            self.asking -= usize::from(asking);
        }
    }

    fn arm(&mut self, sleepers: &mut Vec<RawFd>) -> Result<Wake> {
        // The next turn looks at who dials.
        self.turns = LOOK - 1;
        sleepers.push(self.transport.fd());
        for link in self.links.iter().flatten().filter(|link| matches!(link.state, State::Up)) {
            match link.fd() {
                Some(fd) if link.is_written() => sleepers.push(fd),
                _ => return Ok(Wake::Blind),
            }
        }
        let quiet = self.asking == 0 && self.strangers.is_empty();
        Ok(if quiet { Wake::Told } else { Wake::Blind })
    }
}
