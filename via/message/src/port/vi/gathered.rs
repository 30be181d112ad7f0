//! Packets that take bytes from the program's memory: descriptors of several segments.

use uvia::{CacheState, Descriptor, Lease, Operation};

use super::{ViPort, context, what};
use crate::Result;
use crate::port::{Buffer, LinkId};
use crate::span::Span;

/// Pieces of memory that were not registered, of which some are remembered.
const REMEMBERED: usize = 64;
/// Most parts of a packet beside its own bytes.
const MOST: usize = 4;

/// A packet that reads the program's memory.
pub(super) struct Gathered {
    link: LinkId,
    epoch: u32,
    index: u32,
    /// The buffer's own descriptor.
    own: Box<Descriptor>,
    /// Keep the memory registered.
    _leases: [Option<Lease>; MOST],
}

/// Packets that read the program's memory, and what is worth being registered for the next time.
pub(super) struct Gatherer {
    under_way: Vec<Option<Gathered>>,
    free: Vec<u32>,
    /// Memory that was not registered when it was last to be gathered, by its address.
    missed: Box<[(usize, usize)]>,
    is_possible: bool,
}

impl Gatherer {
    pub(super) fn new(state: &CacheState) -> Self {
        Self {
            under_way: Vec::new(),
            free: Vec::new(),
            missed: vec![(0, 0); REMEMBERED].into(),
            is_possible: *state == CacheState::On,
        }
    }

    pub(super) fn is_possible(&self) -> bool {
        self.is_possible
    }

    /// Whether that memory was asked for before: then it is likely to be once more, and worth what registering it takes.
    fn is_known(&mut self, part: Span) -> bool {
        let key = (part.start.addr(), part.len);
        let place = &mut self.missed[(key.0 >> 6 ^ key.0 >> 12) % REMEMBERED];
        std::mem::replace(place, key) == key
    }
}

impl ViPort {
    /// A lease of memory that is registered, or is now since it is used again and again.
    ///
    /// # Safety
    /// As for [`uvia::RegistrationCache::lease`].
    unsafe fn lease_for_packet(&mut self, part: Span) -> Result<Option<Lease>> {
        // SAFETY: the caller's promise.
        if let Some(lease) = unsafe { self.registrations.registered(part)? } {
            return Ok(Some(lease));
        }
        if !self.gatherer.is_known(part) {
            return Ok(None);
        }
        // SAFETY: the caller's promise. Where it cannot be registered, it is copied.
        Ok(unsafe { self.registrations.private(part) }.ok())
    }

    /// Sends a packet of `len` bytes of a buffer and of the parts. False: it did not come to that, and nothing was done.
    ///
    /// # Safety
    /// As for [`crate::port::Port::send_gathered`].
    pub(super) unsafe fn gather(
        &mut self,
        id: LinkId,
        buffer: Buffer,
        len: usize,
        parts: &[Span],
    ) -> Result<bool> {
        if parts.len() > MOST.min(self.nic.properties().max_segments.saturating_sub(1)) {
            return Ok(false);
        }
        let mut leases: [Option<Lease>; MOST] = Default::default();
        for (part, lease) in parts.iter().zip(&mut leases) {
            // SAFETY: the caller's promise.
            match unsafe { self.lease_for_packet(*part)? } {
                Some(registered) => *lease = Some(registered),
                None => return Ok(false),
            }
        }
        let mut descriptor = self.spare.pop().unwrap_or_default();
        descriptor.operation = Operation::Send;
        let Some(link) = self.links.get_mut(id as usize).and_then(Option::as_deref_mut) else {
            return Ok(true);
        };
        let Some(own) = link.take_descriptor(buffer.index) else { return Ok(true) };
        let outcome = own.segments.first().map_or(Ok(()), |segment| {
            let mut head = segment.clone();
            head.aim(buffer.index as usize * link.stride(), len as u32)?;
            descriptor.segments.push(head);
            for lease in leases.iter().flatten() {
                descriptor.segments.push(lease.segment(0..lease.len())?);
            }
            Ok(())
        });
        let number = self.gatherer.free.pop().unwrap_or_else(|| {
            self.gatherer.under_way.push(None);
            self.gatherer.under_way.len() as u32 - 1
        });
        descriptor.context = context(what::OTHER, what::GATHERED | number, id);
        let outcome = outcome.and_then(|()| link.post_gathered(descriptor));
        if let Err(e) = outcome {
            link.give_descriptor(buffer.index, own);
            self.gatherer.free.push(number);
            return Err(e.into());
        }
        let epoch = link.epoch;
        self.gatherer.under_way[number as usize] =
            Some(Gathered { link: id, epoch, index: buffer.index, own, _leases: leases });
        Ok(true)
    }

    /// The NIC has done with a packet that read the program's memory; one that has not gone stays counted. Answers its
    /// link, where that is there still.
    pub(super) fn gathered(&mut self, number: u32, went: bool) -> Option<LinkId> {
        let Gathered { link: id, epoch, index, own, .. } =
            self.gatherer.under_way.get_mut(number as usize).and_then(Option::take)?;
        self.gatherer.free.push(number);
        let link = self.links.get_mut(id as usize).and_then(Option::as_deref_mut)?;
        if link.epoch != epoch {
            return None;
        }
        link.gathering -= usize::from(went);
        link.sent(index, own);
        Some(id)
    }
}
