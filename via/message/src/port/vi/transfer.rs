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
    /// Looks up the registration of memory of which a put is to follow, and keeps it for that; or for nothing any more,
    /// where it is empty. What is wrong with it the put tells.
    ///
    /// # Safety
    /// As for [`Port::put`], until that put is over, or this is called with nothing.
    pub(crate) unsafe fn prepare(&mut self, memory: Span) {
        self.ahead = None;
        if !memory.is_empty() {
            // SAFETY: the caller's promise.
            let lease = unsafe { self.cache.lease_private(memory.start, memory.len) };
            self.ahead = lease.ok().map(|lease| (memory, lease));
        }
    }

    /// The registration of memory that is put or got.
    ///
    /// # Safety
    /// As for [`Port::put`] or [`Port::get`].
    unsafe fn lease(&mut self, memory: Span) -> Result<Lease> {
        match self.ahead.take() {
            Some((known, lease)) if (known.start, known.len) == (memory.start, memory.len) => Ok(lease),
            // SAFETY: the caller's promise.
            _ => Ok(unsafe { self.cache.lease_private(memory.start, memory.len)? }),
        }
    }

    /// As [`Port::put`], with a word for the other end: [`Event::Word`] gives it that once all is there, behind whatever
    /// was sent before. It takes a receive there, as a packet does.
    ///
    /// # Errors
    /// As [`Port::put`].
    ///
    /// # Safety
    /// As for [`Port::put`].
    pub(crate) unsafe fn put_with_word(
        &mut self,
        id: LinkId,
        put: u64,
        memory: Span,
        (token, offset): (&[u8; 16], u64),
        word: u32,
    ) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(id, put, memory, (token, offset), uvia::Operation::RdmaWrite, Some(word)) }
    }

    /// Puts or gets: see [`Port::put`]. With a word it puts: see [`ViPort::put_with_word`].
    ///
    /// # Safety
    /// As for [`Port::put`] or [`Port::get`].
    pub(super) unsafe fn transfer(
        &mut self,
        id: LinkId,
        put: u64,
        memory: Span,
        (token, offset): (&[u8; 16], u64),
        operation: fn(RemoteMemory) -> uvia::Operation,
        word: Option<u32>,
    ) -> Result<bool> {
        let depth = self.depth.puts;
        match self.link(id) {
            Some(link) if link.vi.is_some() && link.puts < depth => {}
            _ => return Ok(false),
        }
        // SAFETY: the caller's promise.
        let lease = unsafe { self.lease(memory)? };
        let [address, handle] = [0, 8].map(|at| {
            token[at..].iter().take(8).rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        });
        let to = RemoteMemory { address: address.wrapping_add(offset), handle: MemoryHandle(handle as u32) };
        let mut descriptor = self.spare.pop().unwrap_or_default();
        descriptor.operation = operation(to);
        descriptor.immediate = word;
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
        descriptor.immediate = None;
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
