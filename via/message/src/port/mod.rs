//! What carries packets and long pieces between ranks: the layer's only door to the world.
//!
//! A port is small on purpose: it connects, sends packets, hands out packets, lets a peer put bytes into memory, and
//! ends. Order, credits, long pieces, several rails and messages are the layer's, above it.

pub(crate) mod absent;
mod hello;
pub(crate) mod stream;
pub mod vi;

pub use hello::Hello;

use crate::span::Span;
use crate::{Error, Result};

/// Names a link: all links of a session have the same number at all of a rank's ports.
pub type LinkId = u32;

/// Memory of a port's for one packet to be sent. It belongs to whoever took it until it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// Which of the link's.
    pub index: u32,
    /// Its bytes.
    pub span: Span,
}

/// A packet that came. It belongs to the layer until it is given back.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Which of the link's buffers it lies in.
    pub index: u32,
    /// Tells apart the connections that a link had.
    pub epoch: u32,
    /// Its bytes.
    pub span: Span,
}

/// Memory that a peer may put a long piece into.
#[derive(Debug, Clone, Copy)]
pub struct Exposure {
    /// For [`Port::conceal`].
    pub id: u64,
    /// How the peer's port names it.
    pub token: [u8; 16],
}

/// What has happened at a port.
#[derive(Debug)]
pub enum Event {
    /// A link is there, to an end that says this of itself.
    Up(LinkId, Hello),
    /// A link is gone: nothing more comes from it, and puts that were not told of are void.
    Down(LinkId, String),
    /// A packet has come.
    Packet(LinkId, Packet),
    /// A put is over: the bytes are in the peer's memory, and ours are not read any more. Or a get: they are in ours.
    Put(LinkId, u64),
    /// A put of the peer's of so many bytes is over that came with this word (`ViPort::put_with_word`): its bytes are in
    /// our memory, wherever the peer may write. The packet has no bytes; it is given back as any other.
    Word(LinkId, Packet, usize, u32),
    /// The smallest packets can go by [`Module::Inline`](crate::Module::Inline) now, or come so: [`Port::enable_inline`].
    Inline(LinkId),
}

/// Whether a sleeper is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// When there is something to do.
    Told,
    /// By nothing: it has to look now and then.
    Blind,
    /// There is something to do already.
    Now,
}

/// How much a port is to have ready for each link.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    /// Packets that may be under way in each direction.
    pub packets: usize,
    /// Bytes of a packet, its header included.
    pub packet_bytes: usize,
    /// Puts that may be under way.
    pub puts: usize,
}

/// Carries packets and long pieces to the other ranks that have one of its kind.
pub trait Port: Send {
    /// Where it can be reached, for the ports of other ranks.
    fn address(&self) -> String;

    /// Whether a packet that is sent behind a put comes behind it.
    fn is_ordered(&self) -> bool;

    /// Begins to connect a link to the port at `address`. Ends in [`Event::Up`] or [`Event::Down`]. Other ends connect by
    /// themselves: that is an [`Event::Up`] too.
    ///
    /// # Errors
    /// The address makes no sense, or the port is broken.
    fn connect(&mut self, link: LinkId, address: &str, hello: Hello) -> Result<()>;

    /// A buffer for a packet, if one is free.
    fn buffer(&mut self, link: LinkId) -> Option<Buffer>;

    /// Takes a buffer back that is not sent, or that was kept.
    fn release(&mut self, link: LinkId, index: u32);

    /// Sends the first `len` bytes of a buffer. It is free again by itself, or with `keep` once it was released too.
    ///
    /// # Errors
    /// The port is broken. A link that is gone is no error: [`Event::Down`] tells.
    fn send(&mut self, link: LinkId, buffer: Buffer, len: usize, keep: bool) -> Result<()>;

    /// Lets the peer of a link put bytes into memory.
    ///
    /// # Errors
    /// The memory cannot be registered.
    ///
    /// # Safety
    /// The memory is valid and nobody else touches it until [`Port::conceal`].
    unsafe fn expose(&mut self, link: LinkId, memory: Span) -> Result<Exposure>;

    /// Ends that: once this returns, no peer can reach it by this exposure.
    fn conceal(&mut self, link: LinkId, exposure: u64);

    /// Puts bytes into a peer's memory, `offset` bytes from its beginning. False: not now. [`Event::Put`] tells when it
    /// is over.
    ///
    /// # Errors
    /// The memory cannot be registered.
    ///
    /// # Safety
    /// The memory is valid and nobody writes it until the put is over or the link is gone.
    unsafe fn put(
        &mut self,
        link: LinkId,
        id: u64,
        memory: Span,
        token: &[u8; 16],
        offset: u64,
    ) -> Result<bool>;

    /// Whether packets can take bytes from the program's memory ([`Port::send_gathered`]).
    fn gathers(&self) -> bool {
        false
    }

    /// As [`Port::send`] without `keep`, with what `parts` name behind the first `len` bytes of the buffer; which has room
    /// for them, so that they may be copied there too. False: they were copied. Else they are read until
    /// [`Port::is_gathering`] denies it.
    ///
    /// # Errors
    /// The port is broken, or cannot do that.
    ///
    /// # Safety
    /// The parts are valid memory that nobody writes before that.
    unsafe fn send_gathered(
        &mut self,
        link: LinkId,
        buffer: Buffer,
        len: usize,
        parts: &[Span],
    ) -> Result<bool> {
        let mut to = buffer.span.skip(len);
        let mut all = len;
        for part in parts {
            // SAFETY: the caller's promise; the buffer is the caller's until it is sent.
            let copied = unsafe { to.fill(*part) };
            to = to.skip(copied);
            all += copied;
        }
        self.send(link, buffer, all, false)?;
        Ok(false)
    }

    /// Whether packets that take bytes from the program's memory are still reading them, or did not go before the link was
    /// lost.
    fn is_gathering(&self, _link: LinkId) -> bool {
        false
    }

    /// Whether it can read peers' memory, and let them read ours ([`Port::get`], [`Port::offer`]).
    fn reads(&self) -> bool {
        false
    }

    /// Lets the peer of a link read memory, until [`Port::conceal`].
    ///
    /// # Errors
    /// The memory cannot be registered; the port cannot do that.
    ///
    /// # Safety
    /// The memory is valid and nobody writes it until [`Port::conceal`].
    unsafe fn offer(&mut self, _link: LinkId, _memory: Span) -> Result<Exposure> {
        Err(Error::Config("this port does not let peers read".to_owned()))
    }

    /// Fetches bytes of a peer's memory that it has offered, from `offset` on. False: not now. [`Event::Put`] tells when
    /// it is over.
    ///
    /// # Errors
    /// The memory cannot be registered; the port cannot do that.
    ///
    /// # Safety
    /// The memory is valid and nobody else touches it until the get is over or the link is gone.
    unsafe fn get(
        &mut self,
        _link: LinkId,
        _id: u64,
        _memory: Span,
        _token: &[u8; 16],
        _offset: u64,
    ) -> Result<bool> {
        Err(Error::Config("this port does not read".to_owned()))
    }

    /// The link's packets are numbered from now on, so that those that go inline may overtake others. Answers whether any
    /// do, or may come so.
    fn enable_inline(&mut self, _link: LinkId) -> bool {
        false
    }

    /// Whether packets of the peer may come before others that it sent earlier, since some are sent inline.
    fn overtakes(&self, _link: LinkId) -> bool {
        false
    }

    /// Packets that have gone inline.
    fn inline_packets(&self) -> u64 {
        0
    }

    /// Drives the port, and tells what has happened.
    ///
    /// # Errors
    /// The port is broken.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<()>;

    /// Takes a packet's buffer back.
    fn give_back(&mut self, link: LinkId, packet: Packet);

    /// Whether all that was sent on a link has arrived, or is lost.
    fn is_flushed(&self, link: LinkId) -> bool;

    /// Leaves a link: nothing comes from it, or goes to it, any more. No event tells of it.
    fn leave(&mut self, link: LinkId);

    /// Has file descriptors become readable when there may be something to do, and adds them.
    ///
    /// # Errors
    /// The port is broken.
    fn arm(&mut self, sleepers: &mut Vec<std::os::fd::RawFd>) -> Result<Wake>;
}
