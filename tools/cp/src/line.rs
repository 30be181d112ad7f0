//! One end of a copy's connection: messages, chunks and grants over a virtual interface.

use std::time::{Duration, Instant};

use uvia::{
    CompletionQueue, ConnectionLoss, Descriptor, MemoryAttributes, MemoryRegion, Nic, ProtectionTag,
    RemoteMemory, Segment, Status, Vi, ViAttributes, ViState, WorkQueue,
};
use uvia_tools::Failure;

use crate::wire::{self, Message};

/// Bytes of a chunk, and chunks under way.
pub const CHUNK: usize = 256 * 1024;
/// Buffers of the receiver's ring.
pub const CHUNKS: usize = 16;

/// Receives posted: a ring of chunks or grants, and a few messages.
const RECEIVES: usize = CHUNKS + 8;
/// Messages on their way out.
const SENDS: usize = CHUNKS + 8;
/// Bytes of a message's buffer.
const SLOT: usize = wire::MAX;
/// The context of chunks is their buffer's number; of messages, this and their slot's number.
const MESSAGE: u64 = 1 << 32;

/// What has come, or gone.
#[derive(Debug)]
pub enum News {
    /// A message.
    Message(Message),
    /// The peer has written so many bytes into the next buffer.
    Chunk(u32),
    /// The peer has put away so many buffers.
    Granted(u32),
    /// A chunk of ours has arrived: its buffer may be filled again.
    Written(usize),
}

/// One end.
pub struct Line {
    /// The interface.
    pub vi: Vi,
    /// The NIC.
    pub nic: Nic,
    tag: ProtectionTag,
    cq: CompletionQueue,
    inbox: MemoryRegion,
    outbox: MemoryRegion,
    free: Vec<usize>,
}

impl Line {
    /// An interface that is ready to be connected.
    ///
    /// # Errors
    /// A limit of the NIC.
    pub fn new(nic: &Nic) -> Result<Self, Failure> {
        let tag = nic.create_tag()?;
        let mut attributes = ViAttributes::new(tag);
        attributes.max_transfer_size = CHUNK as u32;
        (attributes.send_depth, attributes.receive_depth) = (CHUNKS + SENDS, RECEIVES);
        let cq = nic.create_cq(attributes.send_depth + attributes.receive_depth)?;
        let vi = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
        let inbox = nic.allocate(RECEIVES * SLOT, MemoryAttributes::local(tag))?;
        let outbox = nic.allocate(SENDS * SLOT, MemoryAttributes::local(tag))?;
        let line = Self { vi, nic: nic.clone(), tag, cq, inbox, outbox, free: (0..SENDS).collect() };
        for slot in 0..RECEIVES {
            let mut receive = Descriptor::new(vec![line.inbox.segment(slot * SLOT..(slot + 1) * SLOT)?]);
            receive.context = slot as u64;
            line.vi.post_receive(receive)?;
        }
        Ok(line)
    }

    /// Memory for a ring of chunks; the peer may write it if `remote`.
    ///
    /// # Errors
    /// A limit of the NIC.
    pub fn ring(&self, remote: bool) -> Result<MemoryRegion, Failure> {
        let attributes =
            if remote { MemoryAttributes::remote_write(self.tag) } else { MemoryAttributes::local(self.tag) };
        Ok(self.nic.allocate(CHUNKS * CHUNK, attributes)?)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn say(&mut self, message: &Message) -> Result<(), Failure> {
        self.send(&message.to_bytes(), None)
    }

    /// Grants buffers.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn grant(&mut self, buffers: u32) -> Result<(), Failure> {
        self.send(&[], Some(buffers))
    }

    fn send(&mut self, bytes: &[u8], immediate: Option<u32>) -> Result<(), Failure> {
        // There are as many slots as may be under way in this protocol, grants and all.
        let slot = self.free.pop().ok_or_else(|| Failure::failed("the peer does not take its messages"))?;
        self.outbox.write(slot * SLOT, bytes)?;
        let mut send = Descriptor::new(vec![self.outbox.segment(slot * SLOT..slot * SLOT + bytes.len())?]);
        (send.immediate, send.context) = (immediate, MESSAGE | slot as u64);
        self.vi.post_send(send)?;
        Ok(())
    }

    /// Writes a chunk into a buffer of the peer's.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn write(&mut self, buffer: usize, from: Segment, to: RemoteMemory) -> Result<(), Failure> {
        let len = from.len();
        let mut write = Descriptor::rdma_write(vec![from], to);
        (write.immediate, write.context) = (Some(len), buffer as u64);
        self.vi.post_send(write)?;
        Ok(())
    }

    /// What has happened; waits for it up to `timeout`.
    ///
    /// # Errors
    /// The connection is lost, or the peer does not keep to the protocol.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<News>, Failure> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // In steps, so that a loss without a completion is noticed.
            let Some(completion) = self.cq.wait(left.min(Duration::from_millis(200)))? else {
                if self.vi.state() == ViState::Error {
                    return Err(self.lost());
                }
                if left.is_zero() {
                    return Ok(None);
                }
                continue;
            };
            let descriptor = completion.descriptor;
            if !descriptor.status().is_success() {
                // Messages that came before the loss were given out first: completions are in order.
                return Err(self.lost());
            }
            let context = descriptor.context;
            if completion.queue == WorkQueue::Send {
                if context & MESSAGE == 0 {
                    return Ok(Some(News::Written(context as usize)));
                }
                self.free.push((context & !MESSAGE) as usize);
                continue;
            }
            let news = if descriptor.status().contains(Status::REMOTE_RDMA_WRITE) {
                descriptor.immediate.map(News::Chunk)
            } else if descriptor.length() == 0 {
                descriptor.immediate.map(News::Granted)
            } else {
                let mut bytes = vec![0; descriptor.length() as usize];
                self.inbox.read(context as usize * SLOT, &mut bytes)?;
                Message::parse(&bytes).map(News::Message)
            };
            self.vi.post_receive(descriptor)?;
            return match news {
                None => Err(Failure::failed("the other end is no uvia-cp of this version")),
                news => Ok(news),
            };
        }
    }

    /// Waits until all messages have left and were acknowledged, or the connection is gone.
    pub fn drain(&mut self, timeout: Duration) {
        let end = Instant::now() + timeout;
        while self.free.len() < SENDS && Instant::now() < end {
            if self.next(Duration::from_millis(50)).is_err() {
                return;
            }
        }
    }

    /// Drives the connection while this thread is busy with something else.
    ///
    /// # Errors
    /// The adapter failed.
    pub fn tend(&self) -> Result<(), Failure> {
        self.nic.poll()?;
        Ok(())
    }

    fn lost(&self) -> Failure {
        match self.vi.loss() {
            Some(ConnectionLoss::PeerDisconnected) => {
                Failure::failed("the other end left before the copy was done")
            }
            Some(loss) => Failure::failed(format!("the connection was lost: {loss}")),
            None => Failure::failed("the connection was lost"),
        }
    }
}
