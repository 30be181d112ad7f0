//! One link: an interface and its buffers.

use std::time::Instant;

use uvia::{Descriptor, Error as ViError, MemoryRegion, NetAddress, Peer, Status, Vi};
use zerocopy::IntoBytes;

use super::{AGAIN, REQUEST, context, what};
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

/// A buffer of a link's, and its descriptor while that is not posted.
struct Slot {
    descriptor: Option<Box<Descriptor>>,
    /// It is not free before it was released, too.
    kept: bool,
}

/// One link.
pub(super) struct Link {
    pub(super) state: State,
    pub(super) epoch: u32,
    /// `None` once it is gone.
    pub(super) vi: Option<Vi>,
    /// Stays when the interface has gone: buffers may still be read.
    memory: MemoryRegion,
    stride: usize,
    sends: Vec<Slot>,
    receives: Vec<Slot>,
    free: Vec<u32>,
    /// Packets and puts that are posted.
    pub(super) sending: usize,
    pub(super) puts: usize,
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
        let slots = |what, from: usize| -> Result<Vec<Slot>> {
            (0..depth.packets)
                .map(|index| {
                    let start = (from + index) * stride;
                    let mut descriptor = Descriptor::new(vec![memory.segment(start..start + stride)?]);
                    descriptor.context = context(what, index as u32, id);
                    Ok(Slot { descriptor: Some(descriptor), kept: false })
                })
                .collect()
        };
        let sends = slots(what::SEND, 0)?;
        let receives = slots(what::RECEIVE, depth.packets)?;
        let free = (0..depth.packets as u32).rev().collect();
        let mut link =
            Self { state, epoch, vi: Some(vi), stride, sends, receives, free, sending: 0, puts: 0, memory };
        for index in 0..depth.packets as u32 {
            link.post(index);
        }
        Ok(link)
    }

    /// Posts a receive.
    #[inline]
    pub(super) fn post(&mut self, index: u32) {
        let Some(slot) = self.receives.get_mut(index as usize) else { return };
        let (Some(vi), Some(descriptor)) = (&self.vi, slot.descriptor.take()) else { return };
        if let Err(refused) = vi.post_receive(descriptor) {
            // There are as many as the queue is deep.
            tracing::error!("posting a receive: {}", refused.error);
        }
    }

    /// The memory of a buffer.
    #[inline]
    fn span(&self, index: usize, len: usize) -> Span {
        Span::new(self.memory.as_ptr().wrapping_add(index * self.stride), len)
    }

    /// A receive has been filled.
    #[inline]
    pub(super) fn received(&mut self, index: u32, descriptor: Box<Descriptor>) -> Packet {
        let len = (descriptor.length() as usize).min(self.stride);
        if let Some(slot) = self.receives.get_mut(index as usize) {
            slot.descriptor = Some(descriptor);
        }
        Packet { index, epoch: self.epoch, span: self.span(self.receives.len() + index as usize, len) }
    }

    /// A packet has gone.
    #[inline]
    pub(super) fn sent(&mut self, index: u32, descriptor: Box<Descriptor>) {
        self.sending -= 1;
        let Some(slot) = self.sends.get_mut(index as usize) else { return };
        slot.descriptor = Some(descriptor);
        if !slot.kept {
            self.free.push(index);
        }
    }

    #[inline]
    pub(super) fn buffer(&mut self) -> Option<Buffer> {
        if !matches!(self.state, State::Up) {
            return None;
        }
        let index = self.free.pop()?;
        Some(Buffer { index, span: self.span(index as usize, self.stride) })
    }

    pub(super) fn release(&mut self, index: u32) {
        let Some(slot) = self.sends.get_mut(index as usize) else { return };
        slot.kept = false;
        if slot.descriptor.is_some() {
            self.free.push(index);
        }
    }

    #[inline]
    pub(super) fn send(&mut self, buffer: Buffer, len: usize, keep: bool) -> Result<()> {
        let (Some(vi), Some(slot)) = (&self.vi, self.sends.get_mut(buffer.index as usize)) else {
            return Ok(());
        };
        let Some(mut descriptor) = slot.descriptor.take() else { return Ok(()) };
        if let Some(segment) = descriptor.segments.first_mut() {
            segment.set_len(len as u32)?;
        }
        slot.kept = keep;
        self.sending += 1;
        vi.post_send(descriptor).map_err(|refused| Error::Vi(refused.error))
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
    }
}
