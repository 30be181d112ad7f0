//! Long pieces: RDMA writes and reads between registered memory of the program's.

use uvia::{Descriptor, Lease, MemoryHandle, RemoteMemory, ViId};

use super::{ViPort, context, what};
use crate::Result;
use crate::port::{Event, LinkId};
use crate::span::Span;

/// A put or a get that is under way.
pub(super) struct Put {
    id: u64,
    link: LinkId,
    /// Keeps the memory registered.
    _lease: Lease,
}

impl ViPort {
    /// Puts or gets: see [`Port::put`].
    ///
    /// # Safety
    /// As for [`Port::put`] or [`Port::get`].
    pub(super) unsafe fn transfer(
        &mut self,
        id: LinkId,
        put: u64,
        memory: Span,
        token: &[u8; 16],
        offset: u64,
        operation: fn(RemoteMemory) -> uvia::Operation,
    ) -> Result<bool> {
        let depth = self.depth.puts;
        match self.link(id) {
            Some(link) if link.vi.is_some() && link.puts < depth => {}
            _ => return Ok(false),
        }
        // SAFETY: the caller's promise.
        let lease = unsafe { self.cache.lease(memory.start, memory.len)? };
        let [address, handle] = [0, 8].map(|at| {
            token[at..].iter().take(8).rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        });
        let to = RemoteMemory { address: address.wrapping_add(offset), handle: MemoryHandle(handle as u32) };
        let mut descriptor = self.spare.pop().unwrap_or_default();
        descriptor.operation = operation(to);
        descriptor.segments.push(lease.segment(0..memory.len)?);
        let index = self.free_puts.pop().unwrap_or_else(|| {
            self.puts.push(None);
            self.puts.len() as u32 - 1
        });
        descriptor.context = context(what::PUT, index, id);
        self.puts[index as usize] = Some(Put { id: put, link: id, _lease: lease });
        let Some(link) = self.link(id) else { return Ok(false) };
        link.puts += 1;
        if let Some(vi) = &link.vi
            && let Err(refused) = vi.post_send(descriptor)
        {
            link.puts -= 1;
            self.puts[index as usize] = None;
            self.free_puts.push(index);
            return Err(refused.error.into());
        }
        Ok(true)
    }

    pub(super) fn keep_spare(&mut self, descriptor: Box<Descriptor>) {
        if self.spare.len() < self.depth.puts + self.depth.packets {
            self.spare.push(descriptor);
        }
    }

    pub(super) fn put_is_over(
        &mut self,
        index: u32,
        mut descriptor: Box<Descriptor>,
        vi: ViId,
    ) -> Option<Event> {
        let status = descriptor.status();
        descriptor.segments.clear();
        self.keep_spare(descriptor);
        let put = self.puts.get_mut(index as usize).and_then(Option::take)?;
        self.free_puts.push(index);
        let link = self.link(put.link)?;
        if !link.is_of(vi) {
            return None;
        }
        link.puts -= 1;
        if status.is_success() {
            return Some(Event::Put(put.link, put.id));
        }
        let why = link.loss(status);
        Some(self.lose(put.link, why))
    }
}
