//! What comes out of the engine, and through which door.

use uvia_driver::nic::MacAddress;

use super::Finished;
use crate::{
    Completion, ConnectionLoss, Descriptor, ErrorCode, MemoryRegion, NetAddress, ReliabilityLevel, Segment,
    ViId, WorkQueue,
};

/// Where the engine puts what it makes. Its methods are called from within the engine's, and do not call back.
pub trait Output {
    /// Offers one frame: `header`, which starts with the Ethernet header and is gone after the call, then the
    /// bytes of the parts.
    fn transmit(&mut self, header: &[u8], payload: &[PayloadPart<'_>], token: FrameToken) -> Sent;

    /// As [`Output::transmit`], for the frames of long messages: the header is the first `len` bytes of `header`,
    /// little-endian, and there is one part.
    fn transmit_long(
        &mut self,
        header: &[u64; 8],
        len: usize,
        part: &PayloadPart<'_>,
        token: FrameToken,
    ) -> Sent {
        transmit_as_bytes(self, header, len, part, token)
    }

    /// Offers a frame that manages connections or names: few, short, and often an answer to one that is being
    /// received. An adapter that cannot send while it receives keeps some of them until it can.
    fn manage(&mut self, frame: &[u8]) -> Sent {
        self.transmit(frame, &[], FrameToken::NO_MEMORY)
    }

    /// Offers a frame that manages, with zeros behind it, so that it has `len` bytes: more than an [`Output::manage`] may
    /// have, and no more than the adapter sends.
    fn probe(&mut self, frame: &[u8], len: usize) -> Sent;

    /// A descriptor is done with; exactly once for each that was posted, in the order of its queue.
    fn complete(&mut self, completion: Completion);

    /// Those that `sends` gives are done with, of an interface's send queue, and then one of its receive queue: what a
    /// message brings that acknowledges others.
    #[inline(always)]
    fn complete_message(&mut self, vi: ViId, sends: Finished<'_>, receive: Box<Descriptor>) {
        for descriptor in sends {
            self.complete(Completion { vi, queue: WorkQueue::Send, descriptor });
        }
        self.complete(Completion { vi, queue: WorkQueue::Receive, descriptor: receive });
    }

    /// Something else happened.
    fn event(&mut self, event: Event);

    /// Something went wrong that no descriptor tells of.
    fn error(&mut self, vi: ViId, code: ErrorCode);

    /// The next descriptor of those that were posted since the engine was taken, where other threads post.
    fn posted_meanwhile(&mut self) -> Option<(ViId, WorkQueue, Box<Descriptor>)> {
        None
    }
}

/// A frame of a long message, offered as any other is.
pub fn transmit_as_bytes<O: Output + ?Sized>(
    out: &mut O,
    header: &[u64; 8],
    len: usize,
    part: &PayloadPart<'_>,
    token: FrameToken,
) -> Sent {
    let mut bytes = [0; 64];
    for (field, word) in bytes.chunks_exact_mut(8).zip(header) {
        field.copy_from_slice(&word.to_le_bytes());
    }
    out.transmit(&bytes[..len], std::slice::from_ref(part), token)
}

/// Bytes of a registered region that are part of a frame.
#[derive(Debug, Clone, Copy)]
pub struct PayloadPart<'a> {
    /// The region.
    pub region: &'a MemoryRegion,
    /// First byte in the region.
    pub offset: usize,
    /// Bytes; never 0.
    pub len: usize,
}

impl<'a> PayloadPart<'a> {
    /// All of a segment.
    #[inline(always)]
    pub fn whole(segment: &'a Segment) -> Self {
        Self { region: segment.region(), offset: segment.offset(), len: segment.len() as usize }
    }
}

/// Names what a frame's payload belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameToken(pub u64);

impl FrameToken {
    /// Of frames that refer to nobody's memory.
    pub const NO_MEMORY: Self = Self(u64::MAX);

    /// The place of the interface that sends, in the table of interfaces; none for what is not of its send queue.
    #[inline]
    pub fn place(self) -> Option<usize> {
        (self.0 & super::ANSWER == 0).then_some((self.0 >> 48) as usize)
    }

    /// The number of the descriptor in its interface's send queue. They follow each other.
    #[inline]
    pub fn work(self) -> u32 {
        self.0 as u32
    }
}

/// Frames that were dropped, since the engine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Of a connection with the end-to-end check, which was wrong or missing.
    pub damaged: u64,
    /// That made no sense; frames that manage with a wrong check among them.
    pub unsound: u64,
}

/// What became of a frame that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// No room now: it is offered again in a later [`poll`](super::Engine::poll).
    Full,
    /// Its bytes were copied: nothing refers to the memory any more.
    Copied,
    /// The adapter fetches the payload later; [`transmitted`](super::Engine::transmitted) follows exactly once.
    Referenced,
    /// Its payload cannot be had: the program has unmapped the memory.
    Gone,
}

/// What the other end of a connection was created with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAttributes {
    /// Its reliability level.
    pub reliability: ReliabilityLevel,
    /// Its longest transfer, bytes.
    pub max_transfer_size: u32,
    /// Its quality of service.
    pub qos: u8,
    /// Whether it lets its peer write.
    pub rdma_write: bool,
    /// Whether it lets its peer read.
    pub rdma_read: bool,
    /// Whether it wants the end-to-end check.
    pub integrity: bool,
}

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectFailure {
    /// No answer in time.
    Timeout,
    /// Refused.
    Rejected {
        /// What was said with it.
        private_data: Vec<u8>,
    },
    /// Nobody waits on that discriminator.
    NoMatch,
    /// The peer asked too, but its interface was created with another level, longest transfer or quality of
    /// service.
    Mismatch {
        /// With these.
        theirs: RemoteAttributes,
    },
}

/// What happened beside completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request waits at this listener.
    Request {
        /// The listener.
        listener: ListenerId,
    },
    /// A request of ours was accepted.
    Connected {
        /// The interface.
        vi: ViId,
        /// What the other end was created with.
        attributes: RemoteAttributes,
        /// What it said with its acceptance.
        private_data: Vec<u8>,
    },
    /// A request of ours came to nothing; the interface is idle again.
    ConnectFailed {
        /// The interface.
        vi: ViId,
        /// Why.
        reason: ConnectFailure,
    },
    /// A connection is no more; the interface is in state Error.
    Broken {
        /// The interface.
        vi: ViId,
        /// Why.
        loss: ConnectionLoss,
    },
    /// A name was found.
    Resolved {
        /// The name.
        name: String,
        /// Whose it is.
        mac: MacAddress,
    },
    /// Nobody answered to a name in time.
    Unresolved {
        /// The name.
        name: String,
    },
}

/// Names a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Names a connection request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub(crate) u64);

/// A connection request from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// To accept or reject it by.
    pub id: RequestId,
    /// Who asks: its host, and the discriminator that it gave as its own.
    pub remote: NetAddress,
    /// What its interface was created with.
    pub attributes: RemoteAttributes,
    /// What it said with the request.
    pub private_data: Vec<u8>,
}
