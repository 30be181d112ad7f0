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
    lease: Lease,
}

/// How a place is named to the peer's port.
pub(super) fn token_of(place: RemoteMemory) -> [u8; 16] {
    (u128::from(place.handle.0) << 64 | u128::from(place.address)).to_le_bytes()
}

/// The place that a peer's port has named.
fn place_of(token: &[u8; 16]) -> RemoteMemory {
    let words = u128::from_le_bytes(*token);
    RemoteMemory { address: words as u64, handle: MemoryHandle((words >> 64) as u32) }
}

impl ViPort {
    /// Has memory at hand of which a put is to follow. What is wrong with it the put tells.
    ///
    /// # Safety
    /// The memory is valid and nobody writes it while this is called.
    pub(crate) unsafe fn prepare(&mut self, memory: Span) {
        // SAFETY: the caller's promise.
        unsafe { self.registrations.prepare(memory) };
    }

    /// As [`Port::put`], perhaps with a word for the other end: [`Event::Word`] gives it that once all is there, behind
    /// whatever was sent before. It takes a receive there, as a packet does.
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
        word: Option<u32>,
    ) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(id, put, memory, (token, offset), uvia::Operation::RdmaWrite, word) }
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
        let lease = unsafe { self.registrations.source(memory)? };
        let place = place_of(token);
        let to = RemoteMemory { address: place.address.wrapping_add(offset), ..place };
        let mut descriptor = self.spare.pop().unwrap_or_default();
        descriptor.operation = operation(to);
        descriptor.immediate = word;
        descriptor.segments.push(lease.segment(0..memory.len)?);
        let index = self.free_puts.pop().unwrap_or_else(|| {
            self.puts.push(None);
            self.puts.len() as u32 - 1
        });
        descriptor.context = context(what::PUT, index, id);
        self.puts[index as usize] = Some(Put { id: put, link: id, lease });
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
        self.registrations.sent(put.lease);
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
