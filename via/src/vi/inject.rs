//! Sends of bytes that lie anywhere, by interfaces of class Pio: the copy is the send.

use super::{PostError, Vi};
use crate::{Descriptor, EndpointClass, Error, MemoryRegion, Operation, Result, Segment, WorkQueue};

impl Vi {
    /// Sends `bytes`, which need not be registered and are the caller's again when this returns. The descriptor's
    /// segments are replaced by a buffer of its own, which it keeps: one that is used again allocates nothing. Immediate
    /// data and the fence are as for [`Vi::post_send`], and so is its completion, which gives the credit back.
    ///
    /// # Errors
    /// [`Error::NotInClass`] for an interface that is not of class Pio, [`Error::TooLong`] for more bytes than its
    /// maximum transfer size, which is at most the class's MTU; [`Error::WouldBlock`] when all credits are out: nothing
    /// is copied elsewhere to wait.
    pub fn inject(
        &self,
        mut descriptor: Box<Descriptor>,
        bytes: &[u8],
    ) -> std::result::Result<(), Box<PostError>> {
        let buffer = match self.buffer(&mut descriptor, bytes.len()) {
            Ok(buffer) => buffer,
            Err(error) => return Err(PostError::new(error, descriptor)),
        };
        if !self.credits.take(WorkQueue::Send, self.send.depth) {
            descriptor.segments.push(Segment::new(buffer, 0, 0));
            return Err(self.full(WorkQueue::Send, descriptor));
        }
        self.inject_from(buffer, descriptor, bytes);
        Ok(())
    }

    /// Sends bytes out of a buffer that is the descriptor's alone, and long enough.
    #[inline(always)]
    pub(super) fn inject_from(&self, buffer: MemoryRegion, mut descriptor: Box<Descriptor>, bytes: &[u8]) {
        buffer.fill_from(bytes);
        let len = bytes.len() as u32;
        descriptor.segments.push(Segment::new(buffer, 0, len));
        self.nic.post(self.id, WorkQueue::Send, descriptor);
    }

    /// Refuses what is no message for an interface of class Pio.
    #[inline(always)]
    pub(super) fn check_injection(&self, len: usize) -> Result<()> {
        if !self.pio {
            return Err(Error::NotInClass {
                class: EndpointClass::Dma,
                what: "sends of unregistered memory",
            });
        }
        let limit = self.max_transfer_size() as usize;
        if len > limit {
            return Err(Error::TooLong { length: len as u64, limit: limit as u64 });
        }
        Ok(())
    }

    /// The descriptor's buffer, for so many bytes, taken out of it; its segments are empty then.
    pub(super) fn buffer(&self, descriptor: &mut Descriptor, len: usize) -> Result<MemoryRegion> {
        self.check_injection(len)?;
        if descriptor.operation != Operation::Send {
            return Err(Error::NotInClass { class: EndpointClass::Pio, what: "RDMA" });
        }
        if let [segment] = &descriptor.segments[..]
            && segment.region().is_buffer()
            && segment.region().users() == 1
            && segment.region().len() >= len
            && let Some(segment) = descriptor.segments.pop()
        {
            return Ok(segment.into_region());
        }
        self.new_buffer(descriptor, self.max_transfer_size().max(1) as usize)
    }

    #[cold]
    fn new_buffer(&self, descriptor: &mut Descriptor, len: usize) -> Result<MemoryRegion> {
        let buffer = self.nic.core().provider.buffer(len)?;
        descriptor.segments.clear();
        descriptor.segments.reserve(1);
        Ok(buffer)
    }
}
