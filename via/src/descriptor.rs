//! Descriptors: what a virtual interface is told to do, and what became of it.

use std::marker::PhantomData;

use uvia_driver::dma::DmaSlot;
use uvia_driver::nic::RxFrame;

use crate::MemoryRegion;

/// A part of a registered region. It keeps the region registered.
#[derive(Debug, Clone)]
pub struct Segment {
    region: MemoryRegion,
    offset: usize,
    /// Below 2^32.
    len: usize,
}

impl Segment {
    /// The range was checked by the region.
    pub(crate) fn new(region: MemoryRegion, offset: usize, len: u32) -> Self {
        Self { region, offset, len: len as usize }
    }

    /// The region.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Makes it another part of the same region.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) when that lies beyond the region; nothing is changed then.
    #[inline(always)]
    pub fn aim(&mut self, offset: usize, len: u32) -> crate::Result<()> {
        let size = self.region.len();
        if offset > size || len as usize > size - offset {
            return self.beyond(offset, len);
        }
        (self.offset, self.len) = (offset, len as usize);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn beyond(&self, offset: usize, len: u32) -> crate::Result<()> {
        self.region.segment(offset..offset.saturating_add(len as usize)).map(drop)
    }

    /// What it is a part of, taken out of it.
    pub(crate) fn into_region(self) -> MemoryRegion {
        self.region
    }

    /// Puts `len` bytes of a frame there, those from `from` on; false, and nothing written, when there are none, more than
    /// `most`, or more than it or the frame has. That is one look, at the least of the three.
    #[inline(always)]
    #[must_use]
    pub(crate) fn place(&self, frame: &RxFrame<'_>, from: usize, len: usize, most: usize) -> bool {
        let room = frame.len().saturating_sub(from).min(self.len).min(most);
        if len.wrapping_sub(1) >= room {
            return false;
        }
        // SAFETY: that the segment lies within the region was checked where it was made or aimed, and it keeps the
        // region alive; frames lie in receive buffers, which are never registered. So many bytes the frame has.
        unsafe { frame.copy_to_unchecked(from, self.region.as_ptr().add(self.offset), len) };
        true
    }

    /// Its bytes, found once.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> SegmentBytes<'_> {
        let at = self.region.as_ptr().wrapping_add(self.offset).cast_const();
        SegmentBytes { at, len: self.len, _segment: PhantomData }
    }

    /// Where it starts in the region, bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes.
    pub fn len(&self) -> u32 {
        self.len as u32
    }

    /// Whether it names no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes it end elsewhere, for a descriptor that is used again and again with messages of different lengths.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) when it would end beyond the region; it stays as it was.
    #[inline]
    pub fn set_len(&mut self, len: u32) -> crate::Result<()> {
        self.aim(self.offset, len)
    }
}

/// Where a segment's bytes lie, while it is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct SegmentBytes<'a> {
    /// `len` bytes of a region that the segment keeps alive.
    at: *const u8,
    len: usize,
    _segment: PhantomData<&'a Segment>,
}

impl SegmentBytes<'_> {
    /// How many.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Copies all of them into a slot of ours.
    ///
    /// # Panics
    /// When they do not fit.
    #[inline(always)]
    pub(crate) fn copy_to<const SIZE: usize>(self, to: &DmaSlot<'_, SIZE>, at: usize) {
        // SAFETY: that the segment lies within the region was checked where it was made or aimed, and it keeps the region
        // alive; registered memory and memory of ours do not overlap.
        unsafe { to.copy_from(at, self.at, self.len) }
    }
}

/// Memory at the other end, as its owner named it ([`MemoryRegion::remote`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Virtual address in the owner's process.
    pub address: u64,
    /// The region's handle there.
    pub handle: crate::MemoryHandle,
}

/// What a descriptor of a send queue does. Those of a receive queue receive, whatever this says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operation {
    /// A message into the peer's next posted receive.
    #[default]
    Send,
    /// Bytes into the peer's memory. The peer's receive queue is not touched unless there is immediate data.
    RdmaWrite(RemoteMemory),
    /// Bytes from the peer's memory into the descriptor's segments. The peer's program takes no part in it.
    RdmaRead(RemoteMemory),
}

bitflags::bitflags! {
    /// What became of a descriptor; the bits are those of VIPL's status word.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Status: u32 {
        /// Completed, well or not.
        const DONE = 0x1;
        /// The descriptor itself cannot be right.
        const FORMAT_ERROR = 0x2;
        /// A segment names memory that may not be used so.
        const PROTECTION_ERROR = 0x4;
        /// Longer than the receive, or than the maximum transfer size.
        const LENGTH_ERROR = 0x8;
        /// Part of the data went.
        const PARTIAL_ERROR = 0x10;
        /// Given back unused, since the interface was disconnected or broke.
        const FLUSHED = 0x20;
        /// The connection was lost while this was under way.
        const TRANSPORT_ERROR = 0x40;
        /// The peer refused the RDMA transfer: handle, tag, rights or bounds.
        const RDMA_PROTECTION_ERROR = 0x80;
        /// The peer could not receive it.
        const REMOTE_DESCRIPTOR_ERROR = 0x100;
        /// On a receive: an RDMA write with immediate data used it.
        const REMOTE_RDMA_WRITE = 0x30000;
        /// Immediate data came with it.
        const IMMEDIATE = 0x80000;
    }
}

impl Status {
    /// All bits that tell of an error.
    pub const ERRORS: Self = Self::from_bits_retain(0x1fe);

    /// Whether it completed without error.
    pub fn is_success(self) -> bool {
        // Both in one look.
        self.bits() & (Self::DONE.bits() | Self::ERRORS.bits()) == Self::DONE.bits()
    }
}

/// One piece of work for a virtual interface.
///
/// It is boxed and moves: from the caller to the work queue when it is posted, and back with its completion. So
/// it cannot be changed while the NIC works on it, and a program that posts it again allocates nothing.
#[derive(Debug, Default)]
pub struct Descriptor {
    /// What to do (send queues).
    pub operation: Operation,
    /// The memory to gather from, or (receives and RDMA reads) to scatter to, in order.
    pub segments: Vec<Segment>,
    /// To send: 32 bits for the peer's completion. After a receive: what came, or `None`.
    pub immediate: Option<u32>,
    /// To send: not before all earlier RDMA reads of the queue have completed (VIPL's QFENCE).
    pub fence: bool,
    /// The caller's word; not looked at.
    pub context: u64,
    outcome: Outcome,
    pub(crate) length: u32,
}

/// A status, by what it differs from success: so that whoever asks for that, as everyone does, looks at one word for none
/// of the bits that tell it.
#[derive(Clone, Copy)]
struct Outcome(u32);

impl Outcome {
    fn status(self) -> Status {
        Status::from_bits_retain(self.0 ^ Status::DONE.bits())
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Self(status.bits() ^ Status::DONE.bits())
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Status::default().into()
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.status().fmt(f)
    }
}

impl Descriptor {
    /// A send of these segments, or a receive into them.
    pub fn new(segments: Vec<Segment>) -> Box<Self> {
        Box::new(Self { segments, ..Self::default() })
    }

    /// An RDMA write of these segments.
    pub fn rdma_write(segments: Vec<Segment>, to: RemoteMemory) -> Box<Self> {
        Box::new(Self { operation: Operation::RdmaWrite(to), segments, ..Self::default() })
    }

    /// An RDMA read into these segments.
    pub fn rdma_read(segments: Vec<Segment>, from: RemoteMemory) -> Box<Self> {
        Box::new(Self { operation: Operation::RdmaRead(from), segments, ..Self::default() })
    }

    /// Whether it is a message and nothing else: one segment, no immediate data, no fence.
    #[inline(always)]
    pub(crate) fn is_plain_send(&self) -> bool {
        (self.segments.len() == 1) & (self.beside_segments() == 0)
    }

    /// What it has beside its segments: 0 if it is a message and nothing else.
    #[inline(always)]
    pub(crate) fn beside_segments(&self) -> u32 {
        u32::from(!matches!(self.operation, Operation::Send))
            | u32::from(self.immediate.is_some())
            | u32::from(self.fence)
    }

    /// What became of it.
    #[inline]
    pub fn status(&self) -> Status {
        self.outcome.status()
    }

    #[inline(always)]
    pub(crate) fn set_status(&mut self, status: Status) {
        self.outcome = status.into();
    }

    /// Bytes transferred, once it completed without error.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Bytes that its segments name.
    pub fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.len())).sum()
    }
}

/// Names a virtual interface of a NIC: a slot, and how often it was used before. One word, since it is compared for
/// every completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ViId(u64);

impl ViId {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | slot as u64)
    }

    /// 0 if it is the same.
    #[inline(always)]
    pub(crate) fn differs(self, other: Self) -> u64 {
        self.0 ^ other.0
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        self.0 as u32 as usize
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// One of the two work queues of a virtual interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)] // Completions move by whole words.
pub enum WorkQueue {
    /// Sends and RDMA.
    Send,
    /// Receives.
    Receive,
}

/// A descriptor that the NIC has finished with.
#[derive(Debug)]
pub struct Completion {
    /// The interface that it was posted to.
    pub vi: ViId,
    /// And the queue.
    pub queue: WorkQueue,
    /// The descriptor, with its [`Descriptor::status`].
    pub descriptor: Box<Descriptor>,
}
