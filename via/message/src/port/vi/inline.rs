//! The smallest packets: stored into adapter memory by the processor, on an interface of class Pio beside the link's own.
//!
//! It goes one way, from who was granted such an endpoint; the other end has an interface of the usual class there, which
//! receives alone. Packets by it may overtake those by the link's own, and so all of the link are numbered from then on.

use std::time::{Duration, Instant};

use uvia::{
    Completion, Descriptor, Error as ViError, MacAddress, MemoryAttributes, MemoryRegion, NetAddress, Nic,
    ReliabilityLevel, Request, Vi, ViAttributes, ViId,
};
use zerocopy::IntoBytes;

use super::link::State;
use super::{AGAIN, REQUEST, ViPort, context, discriminator, what};
use crate::Result;
use crate::port::{Depth, Event, Hello, LinkId, Packet};
use crate::span::Span;

/// Packets' numbers in such interfaces' buffers, told from those of the link's own.
pub(super) const FIRST: u32 = 1 << 20;
/// For how long the other end is asked, since it may not have seen yet that the link is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sending end.
pub(super) struct Inline {
    vi: Vi,
    remote: NetAddress,
    hello: Hello,
    /// When to ask next; `None` while an answer is waited for.
    next: Option<Instant>,
    until: Instant,
    /// It is connected.
    is_up: bool,
    /// The layer knows, and numbers its packets.
    pub(super) is_enabled: bool,
    /// Descriptors that are not posted.
    // They move by the box.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Descriptor>>,
    slots: usize,
    /// Longest packet.
    pub(super) most: usize,
}

impl Inline {
    /// Asks for an endpoint of class Pio for packets of up to `most` bytes. `None`: there is none to be had.
    pub(super) fn new(
        nic: &Nic,
        cq: &uvia::CompletionQueue,
        attributes: &ViAttributes,
        most: usize,
        remote: NetAddress,
        mut hello: Hello,
    ) -> Option<Box<Self>> {
        let pio = nic.pio().ok()?;
        let reliability = attributes.reliability;
        let attributes =
            ViAttributes { reliability, receive_depth: 1, ..ViAttributes::pio(attributes.tag, &pio) };
        let vi = match nic.create_vi(&attributes, Some(cq), None) {
            Ok(vi) => vi,
            Err(e) => {
                tracing::debug!("no packets go inline: {e}");
                return None;
            }
        };
        hello.inline = pio.mtu.into();
        let (now, slots) = (Instant::now(), pio.slots);
        let most = most.min(pio.mtu as usize);
        let spare = (0..slots).map(|_| Box::default()).collect();
        let (next, until) = (Some(now), now + PATIENCE);
        Some(Box::new(Self {
            vi,
            remote,
            hello,
            next,
            until,
            is_up: false,
            is_enabled: false,
            spare,
            slots,
            most,
        }))
    }

    /// Goes on with asking. Answers what came of it, once.
    pub(super) fn advance(&mut self) -> Option<std::result::Result<(), ViError>> {
        if self.is_up {
            return None;
        }
        let outcome = match self.next {
            Some(time) if Instant::now() < time => return None,
            Some(_) => match self.vi.connect_start(&self.remote, REQUEST, self.hello.as_bytes()) {
                Ok(()) => {
                    self.next = None;
                    return None;
                }
                Err(e) => Err(e),
            },
            None => match self.vi.connect_done() {
                Ok(None) => return None,
                Ok(Some(_)) => Ok(()),
                // The link is not there yet for the other end.
                Err(ViError::NoMatch { .. } | ViError::Rejected { .. } | ViError::Timeout { .. })
                    if Instant::now() < self.until =>
                {
                    self.next = Some(Instant::now() + AGAIN);
                    return None;
                }
                Err(e) => Err(e),
            },
        };
        self.is_up = outcome.is_ok();
        Some(outcome)
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(super) fn is_of(&self, vi: ViId) -> bool {
        self.vi.id() == vi
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.spare.len() == self.slots
    }

    /// Sends a packet, if one more goes now; it need not be kept after that.
    pub(super) fn send(&mut self, id: LinkId, packet: &[u8]) -> bool {
        let Some(mut descriptor) = self.spare.pop() else { return false };
        descriptor.context = context(what::OTHER, what::INLINE, id);
        match self.vi.inject(descriptor, packet) {
            Ok(()) => true,
            Err(refused) => {
                // By the link's own, then; which also finds out where more is wrong.
                self.spare.push(refused.descriptor);
                false
            }
        }
    }

    /// A packet has gone.
    pub(super) fn sent(&mut self, descriptor: Box<Descriptor>) {
        self.spare.push(descriptor);
    }
}

/// The receiving end.
pub(super) struct InlineSource {
    /// `None` once it is gone. What came by it may still be read.
    vi: Option<Vi>,
    memory: MemoryRegion,
    stride: usize,
    back: Vec<Option<Box<Descriptor>>>,
}

impl InlineSource {
    /// An interface for packets of up to `most` bytes, with its receives.
    pub(super) fn new(
        nic: &Nic,
        cq: &uvia::CompletionQueue,
        attributes: &ViAttributes,
        most: usize,
        id: LinkId,
        depth: Depth,
    ) -> uvia::Result<Self> {
        let receives = depth.receives();
        let reliability: ReliabilityLevel = attributes.reliability;
        let attributes = ViAttributes {
            reliability,
            max_transfer_size: most as u32,
            rdma_write: false,
            send_depth: 1,
            receive_depth: receives,
            ..ViAttributes::new(attributes.tag)
        };
        let vi = nic.create_vi(&attributes, None, Some(cq))?;
        let stride = most.next_multiple_of(64);
        let memory = nic.allocate(receives * stride, MemoryAttributes::local(attributes.tag))?;
        for n in 0..receives {
            let mut descriptor = Descriptor::new(vec![memory.segment(n * stride..(n + 1) * stride)?]);
            descriptor.context = context(what::OTHER, what::INLINE | n as u32, id);
            vi.post_receive(descriptor).map_err(|refused| refused.error)?;
        }
        let back = std::iter::repeat_with(|| None).take(receives).collect();
        Ok(Self { vi: Some(vi), memory, stride, back })
    }

    /// Accepts a request with it.
    pub(super) fn accept(&self, request: Request) -> uvia::Result<bool> {
        let Some(vi) = &self.vi else { return Ok(false) };
        match request.accept(vi, &[]) {
            Ok(_) => Ok(true),
            Err((request, e)) => {
                tracing::debug!("no packets come inline: {e}");
                request.reject(b"cannot accept").map(|()| false)
            }
        }
    }

    pub(super) fn is_of(&self, vi: ViId) -> bool {
        self.vi.as_ref().is_some_and(|mine| mine.id() == vi)
    }

    /// Leaves the connection. The buffers stay.
    pub(super) fn leave(&mut self) {
        self.vi = None;
    }

    /// A packet has come.
    pub(super) fn received(&mut self, index: u32, epoch: u32, completion: Completion) -> Option<Packet> {
        let place = self.back.get_mut(index as usize)?;
        let len = (completion.descriptor.length() as usize).min(self.stride);
        *place = Some(completion.descriptor);
        let start = self.memory.as_ptr().wrapping_add(index as usize * self.stride);
        Some(Packet { index: FIRST + index, epoch, span: Span::new(start, len) })
    }

    /// Takes a packet's buffer back.
    pub(super) fn give_back(&mut self, index: u32) {
        let Some(descriptor) = self.back.get_mut(index as usize).and_then(Option::take) else { return };
        if let Some(vi) = &self.vi
            && let Err(refused) = vi.post_receive(descriptor)
        {
            // There are as many as the queue is deep; a connection that is gone is told of.
            tracing::debug!("posting a receive of packets that come inline: {}", refused.error);
        }
    }
}

impl ViPort {
    /// Where an endpoint of class Pio is to be had, the other end is asked for its other end.
    pub(super) fn ask_inline(&mut self, id: LinkId, host: MacAddress) {
        if self.inline_most == 0 || self.nic.pio().is_err() {
            return;
        }
        let entries = self.attributes.send_depth;
        if self.make_room(entries).is_err() {
            return;
        }
        let (channel, rank) = (id as usize / self.size, id as usize % self.size);
        let Ok(remote) = NetAddress::new(host, discriminator(&self.session, rank)) else { return };
        let mut hello = self.hello;
        hello.channel = (channel as u32).into();
        let inline = Inline::new(&self.nic, &self.cq, &self.attributes, self.inline_most, remote, hello);
        let is_asking = inline.is_some();
        if let Some(link) = self.link(id) {
            link.inline = inline;
            self.pending += usize::from(is_asking);
            self.until_look = 1;
        }
    }

    /// Goes on with that.
    #[cold]
    pub(super) fn advance_inline(&mut self, id: LinkId) {
        let Some(link) = self.link(id) else { return };
        let Some(outcome) = link.inline.as_mut().and_then(|inline| inline.advance()) else { return };
        match outcome {
            Ok(()) => self.news.push_back(Event::Inline(id)),
            Err(e) => {
                tracing::debug!("no packets go inline: {e}");
                link.inline = None;
            }
        }
        self.pending -= 1;
    }

    /// Somebody asks for the other end of a way for the smallest packets.
    pub(super) fn asked_inline(&mut self, request: Request, id: LinkId, most: usize) -> Result<()> {
        let is_there =
            self.link(id).is_some_and(|link| matches!(link.state, State::Up) && link.inline_in.is_none());
        if !is_there || most > self.depth.packet_bytes.max(4096) {
            request.reject(b"no such link")?;
            return Ok(());
        }
        self.make_room(self.depth.receives())?;
        let source = InlineSource::new(&self.nic, &self.cq, &self.attributes, most, id, self.depth)?;
        if source.accept(request)?
            && let Some(link) = self.link(id)
        {
            link.inline_in = Some(Box::new(source));
            self.news.push_back(Event::Inline(id));
        }
        Ok(())
    }

    /// What the NIC has finished with of an interface of class Pio, or of the other end of one.
    pub(super) fn completed_inline(&mut self, index: u32, completion: Completion) -> Option<Event> {
        let id = completion.descriptor.context as LinkId;
        let vi = completion.vi;
        let link = self.link(id)?;
        let status = completion.descriptor.status();
        if !status.is_success() {
            let is_ours = link.inline.as_ref().is_some_and(|inline| inline.is_of(vi))
                || link.inline_in.as_ref().is_some_and(|source| source.is_of(vi));
            // Packets may be lost with it, and so the link is.
            let why = format!("packets that go inline are lost: {status:?}");
            return is_ours.then(|| self.lose(id, why));
        }
        if let Some(inline) = link.inline.as_mut().filter(|inline| inline.is_of(vi)) {
            inline.sent(completion.descriptor);
            return None;
        }
        let epoch = link.epoch;
        let source = link.inline_in.as_mut().filter(|source| source.is_of(vi))?;
        Some(Event::Packet(id, source.received(index, epoch, completion)?))
    }
}
