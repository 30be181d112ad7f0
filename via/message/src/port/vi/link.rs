//! One link: an interface and its buffers.

use std::time::Instant;

use uvia::{Descriptor, Error as ViError, MemoryRegion, NetAddress, Peer, Status, Vi, ViId};
use zerocopy::IntoBytes;

use super::inline::{self, Inline, InlineSource};
use super::stack::Stack;
use super::{AGAIN, INDEX, REQUEST, context, what};
use crate::modules::Module;
use crate::modules::choice;
use crate::port::{Buffer, Depth, Hello, LinkId, Packet};
use crate::span::Span;
use crate::{Error, Result};

/// How far a link is.
pub(super) enum State {
    /// We ask for it.
    Asking {
        /// Whom.
        remote: NetAddress,
        /// What we say.
        hello: Hello,
        /// When to ask next; `None` while an answer is waited for.
        next: Option<Instant>,
        /// When to give up.
        until: Instant,
    },
    /// It is there.
    Up,
    /// It is gone.
    Down,
}

/// Receives that are posted together: the NIC is taken once for all. A link has so many more of them, less one, than
/// packets may be under way, so that those that wait are not missed.
pub(super) const BULK: usize = 16;

/// A receive that was filled, until its packet is taken ([`Link::received`]) or given back.
pub(crate) struct Receive(pub(super) Box<Descriptor>);

/// The buffer that a descriptor is for.
#[inline(always)]
fn index_of(descriptor: &Descriptor) -> u32 {
    (descriptor.context >> 32) as u32 & INDEX
}

/// A buffer of a link's, and its descriptor while that is neither posted nor, where it is one to be sent, free.
struct Slot {
    descriptor: Option<Box<Descriptor>>,
    /// It is not free before it was released, too.
    kept: bool,
}

/// A buffer that may be sent.
pub(crate) struct Ready<'a> {
    vi: &'a Vi,
    descriptor: Box<Descriptor>,
    /// Where the buffer begins in the link's memory.
    start: usize,
    sending: &'a mut usize,
}

impl Ready<'_> {
    /// Sends `len` bytes of it, from `start` on.
    ///
    /// # Errors
    /// The port is broken.
    #[inline(always)]
    pub(crate) fn send(mut self, start: usize, len: usize) -> std::result::Result<(), Box<Error>> {
        if let [segment] = &mut self.descriptor.segments[..]
            && let Err(e) = segment.aim(self.start + start, len as u32)
        {
            return Err(Box::new(e.into()));
        }
        *self.sending += 1;
        self.vi.post_send(self.descriptor).map_err(|refused| Box::new(Error::Vi(refused.error)))
    }
}

/// One link.
pub(crate) struct Link {
    pub(super) state: State,
    pub(super) epoch: u32,
    /// `None` once it is gone.
    pub(super) vi: Option<Vi>,
    /// Stays when the interface has gone: buffers may still be read.
    _memory: MemoryRegion,
    /// Its buffers: first those to be sent, then those of receives.
    buffers: Span,
    /// The first of receives.
    first_in: Span,
    stride: usize,
    sends: Vec<Slot>,
    receives: Vec<Slot>,
    /// Receives that were given back, until there are [`BULK`].
    back: Stack<Box<Descriptor>>,
    /// Descriptors of buffers that are free.
    free: Stack<Box<Descriptor>>,
    /// Some buffer was kept.
    keeps: bool,
    /// Packets and puts that are posted.
    pub(super) sending: usize,
    pub(super) puts: usize,
    /// Packets that read the program's memory.
    pub(super) gathering: usize,
    /// The way of the smallest packets, where an endpoint of class Pio was granted; and the end of the peer's.
    pub(super) inline: Option<Box<Inline>>,
    pub(super) inline_in: Option<Box<InlineSource>>,
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        epoch: u32,
        vi: Vi,
        memory: MemoryRegion,
        stride: usize,
        depth: Depth,
        state: State,
    ) -> Result<Self> {
        let slots = |what, from: usize, count: usize| -> Result<Vec<Slot>> {
            (0..count)
                .map(|index| {
                    let start = (from + index) * stride;
                    let mut descriptor = Descriptor::new(vec![memory.segment(start..start + stride)?]);
                    descriptor.context = context(what, index as u32, id);
                    Ok(Slot { descriptor: Some(descriptor), kept: false })
                })
                .collect()
        };
        let mut sends = slots(what::SEND, 0, depth.packets)?;
        let receives = slots(what::RECEIVE, depth.packets, depth.receives())?;
        let mut free = Stack::new(depth.packets);
        for slot in sends.iter_mut().rev() {
            if let Some(descriptor) = slot.descriptor.take() {
                free.push(descriptor);
            }
        }
        let mut link = Self {
            state,
            epoch,
            vi: Some(vi),
            stride,
            sends,
            receives,
            back: Stack::new(depth.receives()),
            free,
            keeps: false,
            sending: 0,
            puts: 0,
            gathering: 0,
            inline: None,
            inline_in: None,
            buffers: Span::new(memory.as_ptr(), memory.len()),
            first_in: Span::new(memory.as_ptr(), memory.len()).skip(depth.packets * stride),
            _memory: memory,
        };
        for slot in &mut link.receives {
            if let Some(descriptor) = slot.descriptor.take() {
                link.back.push(descriptor);
            }
        }
        link.post_back();
        Ok(link)
    }

    /// Whether it is by that interface, and not gone.
    #[inline(always)]
    pub(super) fn is_of(&self, vi: ViId) -> bool {
        self.vi.as_ref().is_some_and(|mine| mine.id() == vi)
    }

    /// Takes a receive's buffer back.
    #[inline(always)]
    pub(super) fn give_back(&mut self, index: u32) {
        let Some(slot) = self.receives.get_mut(index as usize) else { return self.give_back_inline(index) };
        if let Some(descriptor) = slot.descriptor.take() {
            self.give_receive(Receive(descriptor));
        }
    }

    /// Takes a receive back whose buffer nobody has.
    #[inline(always)]
    pub(crate) fn give_receive(&mut self, receive: Receive) {
        self.back.push(receive.0);
        if self.back.count() >= BULK {
            self.post_back();
        }
    }

    /// The packet that a receive was filled with.
    #[inline(always)]
    pub(crate) fn packet(&self, receive: &Receive) -> Span {
        let len = (receive.0.length() as usize).min(self.stride);
        Span::new(self.first_in.as_ptr().wrapping_add(index_of(&receive.0) as usize * self.stride), len)
    }

    #[cold]
    #[inline(never)]
    fn give_back_inline(&mut self, index: u32) {
        if let Some(source) = &mut self.inline_in {
            source.give_back(index.wrapping_sub(inline::FIRST));
        }
    }

    /// Sends a packet inline, if it is one for that, and can.
    #[inline(never)]
    pub(super) fn send_inline(&mut self, id: LinkId, buffer: Buffer, len: usize, keep: bool) -> bool {
        let (state, puts) = (&self.state, self.puts);
        let Some(inline) = self.inline.as_mut().filter(|inline| inline.is_enabled) else { return false };
        let module = choice::of_packet(len, inline.most, puts > 0);
        // SAFETY: the buffer is the layer's, and not posted.
        let packet = unsafe { buffer.span.first(len).bytes() };
        if !matches!(state, State::Up) || module != Module::Inline || !inline.send(id, packet) {
            return false;
        }
        if let Some(slot) = self.sends.get_mut(buffer.index as usize) {
            slot.kept = keep;
            self.keeps |= keep;
        }
        if !keep {
            self.release(buffer.index);
        }
        true
    }

    pub(super) fn is_inline_flushed(&self) -> bool {
        self.inline.as_ref().is_none_or(|inline| inline.is_flushed())
    }

    /// Bytes from a buffer to the next.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The descriptor of a buffer, for a while.
    pub(super) fn take_descriptor(&mut self, index: u32) -> Option<Box<Descriptor>> {
        let slot = self.sends.get_mut(index as usize)?;
        slot.kept = false;
        slot.descriptor.take()
    }

    /// Gives it back, without having sent it.
    pub(super) fn give_descriptor(&mut self, index: u32, descriptor: Box<Descriptor>) {
        if let Some(slot) = self.sends.get_mut(index as usize) {
            slot.descriptor = Some(descriptor);
        }
    }

    /// Posts a packet that takes bytes from the program's memory.
    pub(super) fn post_gathered(&mut self, descriptor: Box<Descriptor>) -> uvia::Result<()> {
        if let Some(vi) = &self.vi {
            vi.post_send(descriptor).map_err(|refused| refused.error)?;
        }
        self.sending += 1;
        self.gathering += 1;
        Ok(())
    }

    /// Posts the receives that were given back.
    #[cold]
    #[inline(never)]
    fn post_back(&mut self) {
        let Some(vi) = &self.vi else { return };
        if let Err(error) = vi.post_receives(self.back.as_vec()) {
            // There are as many as the queue is deep.
            tracing::error!("posting receives: {error}");
        }
    }

    /// The memory of a buffer.
    #[inline(always)]
    fn span(&self, index: usize, len: usize) -> Span {
        Span::new(self.buffers.as_ptr().wrapping_add(index * self.stride), len)
    }

    /// A packet has come.
    #[inline(always)]
    pub(crate) fn received(&mut self, receive: Receive) -> Packet {
        let (span, index) = (self.packet(&receive), index_of(&receive.0));
        if let Some(slot) = self.receives.get_mut(index as usize) {
            // There was none, and so there is nothing to drop: it was posted.
            std::mem::forget(slot.descriptor.replace(receive.0));
        }
        Packet { index, epoch: self.epoch, span }
    }

    /// A packet has gone.
    #[inline(always)]
    pub(super) fn sent(&mut self, index: u32, descriptor: Box<Descriptor>) {
        self.sending -= 1;
        if self.keeps
            && let Some(slot) = self.sends.get_mut(index as usize)
            && slot.kept
        {
            slot.descriptor = Some(descriptor);
            return;
        }
        self.free.push(descriptor);
    }

    #[inline(always)]
    pub(super) fn buffer(&mut self) -> Option<Buffer> {
        if !matches!(self.state, State::Up) {
            return None;
        }
        let descriptor = self.free.pop()?;
        let index = index_of(&descriptor);
        self.sends.get_mut(index as usize)?.descriptor = Some(descriptor);
        Some(Buffer { index, span: self.span(index as usize, self.stride) })
    }

    pub(super) fn release(&mut self, index: u32) {
        let Some(slot) = self.sends.get_mut(index as usize) else { return };
        slot.kept = false;
        if let Some(descriptor) = slot.descriptor.take() {
            self.free.push(descriptor);
        }
    }

    /// A free buffer of a link that is there, and what sends it.
    #[inline(always)]
    pub(super) fn take_ready(&mut self) -> Option<(Buffer, Ready<'_>)> {
        let vi = self.vi.as_ref()?;
        let descriptor = self.free.pop()?;
        debug_assert!(matches!(self.state, State::Up));
        let index = index_of(&descriptor);
        let start = index as usize * self.stride;
        let buffer =
            Buffer { index, span: Span::new(self.buffers.as_ptr().wrapping_add(start), self.stride) };
        Some((buffer, Ready { vi, descriptor, start, sending: &mut self.sending }))
    }

    /// Sends `len` bytes of a buffer, from `start` on.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        index: u32,
        start: usize,
        len: usize,
        keep: bool,
    ) -> std::result::Result<(), Box<Error>> {
        let (Some(vi), Some(slot)) = (&self.vi, self.sends.get_mut(index as usize)) else {
            return Ok(());
        };
        let Some(descriptor) = slot.descriptor.take() else { return Ok(()) };
        slot.kept = keep;
        self.keeps |= keep;
        let ready = Ready { vi, descriptor, start: index as usize * self.stride, sending: &mut self.sending };
        ready.send(start, len)
    }

    /// Goes on with asking. Answers what came of it, once.
    pub(super) fn advance(&mut self) -> Option<std::result::Result<Peer, ViError>> {
        let State::Asking { remote, hello, next, until } = &mut self.state else { return None };
        let vi = self.vi.as_ref()?;
        let outcome = match next {
            Some(time) if Instant::now() < *time => return None,
            Some(_) => match vi.connect_start(remote, REQUEST, hello.as_bytes()) {
                Ok(()) => {
                    *next = None;
                    return None;
                }
                Err(e) => Err(e),
            },
            None => match vi.connect_done() {
                Ok(None) => return None,
                Ok(Some(peer)) => Ok(peer),
                // The other end is not there yet, or asks us at the same time.
                Err(ViError::NoMatch { .. } | ViError::Rejected { .. } | ViError::Timeout { .. })
                    if Instant::now() < *until =>
                {
                    *next = Some(Instant::now() + AGAIN);
                    return None;
                }
                Err(e) => Err(e),
            },
        };
        self.state = if outcome.is_ok() { State::Up } else { State::Down };
        Some(outcome)
    }

    /// Why it broke.
    pub(super) fn loss(&self, status: Status) -> String {
        match self.vi.as_ref().and_then(Vi::loss) {
            Some(loss) => loss.to_string(),
            None => format!("a descriptor completed with {status:?}"),
        }
    }

    /// Leaves the connection. The buffers stay.
    pub(super) fn leave(&mut self) {
        self.state = State::Down;
        self.vi = None;
        self.inline = None;
        if let Some(source) = &mut self.inline_in {
            source.leave();
        }
    }
}
