//! What is made from a NIC: tags, memory, queues, interfaces, listeners.

use std::sync::Arc;

use super::Nic;
use crate::connection::Listener;
use crate::cq::{CompletionQueue, Ring};
use crate::credits::Credits;
use crate::handle::Handle;
use crate::{
    EndpointClass, Error, MemoryAttributes, MemoryRegion, PioProperties, ProtectionTag, Result, Vi,
    ViAttributes,
};

impl Nic {
    /// A new protection tag.
    ///
    /// # Errors
    /// [`Error::Resource`] when there are as many as there may be.
    pub fn create_tag(&self) -> Result<ProtectionTag> {
        self.0.core().tags.create()
    }

    /// Allocates and registers zeroed memory; at least `len` bytes, whole pages.
    ///
    /// # Errors
    /// No memory, a limit of the DMA domain, or a tag of another NIC.
    pub fn allocate(&self, len: usize, attributes: MemoryAttributes) -> Result<MemoryRegion> {
        let mut core = self.0.core();
        core.tags.check(attributes.tag)?;
        core.provider.allocate(len, attributes)
    }

    /// Registers memory of the caller's, at any address.
    ///
    /// Should the program unmap it nevertheless, by munmap, mremap or otherwise, this is noticed before that call
    /// returns, where the system permits ([`MemoryRegion::is_watched`]): the region is then
    /// [gone](MemoryRegion::is_gone), what uses it fails with a protection error, and whatever is mapped there later
    /// stays untouched. A forked child's copy is nothing to the NIC.
    ///
    /// # Errors
    /// As [`Nic::allocate`].
    ///
    /// # Safety
    /// Until the last clone of the region and the last descriptor with it are gone, the memory is reached by volatile
    /// or atomic access only while a descriptor with it is posted or a peer may write it. It stays mapped as long;
    /// where it is watched, it stays so while a transfer may be under way: a descriptor with it is posted on a connected
    /// interface, or a peer writes or reads it. The system tells of an unmapping when the pages are gone already, so that a
    /// copy which the NIC makes in that moment faults: the program is killed by SIGSEGV. [`Nic::deregister`] says whether
    /// anything may be under way.
    pub unsafe fn register(
        &self,
        address: *mut u8,
        len: usize,
        attributes: MemoryAttributes,
    ) -> Result<MemoryRegion> {
        let region = {
            let mut core = self.0.core();
            core.tags.check(attributes.tag)?;
            // SAFETY: the caller's promise is the same.
            unsafe { core.provider.register(address, len, attributes)? }
        };
        if let Err(e) = region.watch(self.0.standstill.clone()) {
            tracing::debug!("{len} bytes at {address:p}: {e}");
        }
        Ok(region)
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// [`Error::Resource`] for more entries than the NIC allows, or more queues; [`Error::Parameter`] for no entry.
    pub fn create_cq(&self, entries: usize) -> Result<CompletionQueue> {
        self.0.check_entries(entries)?;
        CompletionQueue::new(&self.0, entries)
    }

    /// What virtual interfaces of class [`EndpointClass::Pio`] can do here, and how many more of them there can be now.
    ///
    /// # Errors
    /// [`Error::ClassUnavailable`] with the reason.
    pub fn pio(&self) -> Result<PioProperties> {
        self.0.core().provider.pio()
    }

    /// Creates a virtual interface; work queues without a completion queue are reaped by the interface itself.
    ///
    /// # Errors
    /// [`Error::ClassUnavailable`], [`Error::ReliabilityLevel`], [`Error::TooLong`], [`Error::Resource`] when
    /// a limit or a completion queue's entries do not suffice, [`Error::Parameter`] for a tag or completion
    /// queue of another NIC. For class Pio also [`Error::BeyondClass`] for more than it has ([`Nic::pio`]), and
    /// [`uvia_driver::Error::NoWindow`] when all windows of the adapter memory are leased.
    pub fn create_vi(
        &self,
        attributes: &ViAttributes,
        send: Option<&CompletionQueue>,
        receive: Option<&CompletionQueue>,
    ) -> Result<Vi> {
        if attributes.class == EndpointClass::PioElseDma {
            let of = |class| ViAttributes { class, ..*attributes };
            return match self.create_vi(&of(EndpointClass::Pio), send, receive) {
                Err(e) if e.is_of_class() => self.create_vi(&of(EndpointClass::Dma), send, receive),
                outcome => outcome,
            };
        }
        attributes.check(&self.0.properties)?;
        if [send, receive].iter().flatten().any(|cq| !cq.belongs_to(&self.0)) {
            return Err(Error::Parameter("the completion queue belongs to another NIC".to_owned()));
        }
        let send = promised(&self.0, send, attributes.send_depth)?;
        let receive = promised(&self.0, receive, attributes.receive_depth).inspect_err(|_| send.undo())?;
        let credits = Arc::new(Credits::default());
        let id = {
            let mut core = self.0.core();
            let created = core.tags.check(attributes.tag).and_then(|()| core.provider.create_vi(attributes));
            let id = created.inspect_err(|_| {
                send.undo();
                receive.undo();
            })?;
            core.sinks.open(id, credits.clone(), send.ring.key(), receive.ring.key());
            core.sinks.set_owner(id, self.0.number);
            id
        };
        Ok(Vi::new(self.0.shared.clone(), id, credits, *attributes, send.into_parts(), receive.into_parts()))
    }

    /// Waits for connection requests at a discriminator, keeping up to `backlog` unanswered ones.
    ///
    /// # Errors
    /// When somebody on this NIC waits there already, or the discriminator is too long.
    pub fn listen(&self, discriminator: &[u8], backlog: usize) -> Result<Listener> {
        let id = self.0.core().provider.listen(discriminator, backlog)?;
        Ok(Listener::new(self.0.shared.clone(), id))
    }
}

/// Entries of a completion queue, promised to a work queue that is being made.
struct Promised {
    ring: Arc<Ring>,
    shared: bool,
    depth: usize,
}

fn promised(nic: &Handle, cq: Option<&CompletionQueue>, depth: usize) -> Result<Promised> {
    let (ring, shared) = match cq {
        Some(cq) => (cq.ring().clone(), true),
        None => (Ring::new(nic, depth), false),
    };
    ring.promise(depth)?;
    Ok(Promised { ring, shared, depth })
}

impl Promised {
    fn undo(&self) {
        self.ring.release(self.depth);
    }

    fn into_parts(self) -> (Arc<Ring>, bool) {
        (self.ring, self.shared)
    }
}
