//! Protection tags and registered memory, as objects of a NIC.

use crate::{Error, MemoryAttributes, MemoryHandle, MemoryRegion, Nic, ProtectionTag, Result};

impl Nic {
    /// Ends a protection tag. Its number is never given to another.
    ///
    /// # Errors
    /// [`Error::InUse`] while a region is registered or an interface was created with it; [`Error::Parameter`] for a tag
    /// of another NIC or that is no more.
    pub fn destroy_tag(&self, tag: ProtectionTag) -> Result<()> {
        let mut core = self.shared().core();
        core.tags.check(tag)?;
        if core.provider.uses_tag(tag) {
            return Err(Error::InUse("the protection tag (by a region or a virtual interface)"));
        }
        core.tags.destroy(tag);
        Ok(())
    }

    /// Refuses a tag that is not one of this NIC's.
    pub(crate) fn check_tag(&self, tag: ProtectionTag) -> Result<()> {
        self.shared().core().tags.check(tag)
    }

    /// The region that is registered with this NIC by that handle.
    ///
    /// # Errors
    /// [`Error::Protection`] when there is none, or none any more.
    pub fn region(&self, handle: MemoryHandle) -> Result<MemoryRegion> {
        self.shared().core().provider.region(handle).ok_or(Error::Protection {
            handle,
            why: "no memory is registered with this NIC by that handle (any more)",
        })
    }

    /// Changes tag and rights of a registered region. That counts at once: for what is posted from now on, and for every
    /// access of a peer whose frame is taken later, also in the middle of a transfer. A read of a peer's that it forbids and
    /// that is not wholly answered ends its connection, by [`ConnectionLoss::RdmaProtection`](crate::ConnectionLoss), once
    /// more of the answer is due. Descriptors that were posted before are done as they are.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a region or a tag of another NIC, or a tag that is no more; [`Error::Protection`] for
    /// memory that the program has unmapped.
    pub fn set_memory_attributes(&self, region: &MemoryRegion, attributes: MemoryAttributes) -> Result<()> {
        let core = self.shared().core();
        if !core.tags.is_of(region.tag()) {
            return Err(Error::Parameter("the region is registered with another NIC".to_owned()));
        }
        // The tag that it has is in being for as long as it is registered.
        if region.tag() != attributes.tag {
            core.tags.check(attributes.tag)?;
        }
        if region.is_gone() {
            return Err(region.gone());
        }
        region.set_attributes(attributes);
        Ok(())
    }

    /// Ends a registration now: the handle is stale, and the memory unmapped, when this returns. (Dropping the last clone
    /// does the same, as soon as no descriptor refers to it any more.)
    ///
    /// # Errors
    /// The region comes back, with [`Error::InUse`] while something else refers to it: a clone, a descriptor that was
    /// posted and has not been reaped, or one that is still to be posted; or with [`Error::Parameter`] when it is another
    /// NIC's.
    pub fn deregister(&self, region: MemoryRegion) -> std::result::Result<(), (MemoryRegion, Error)> {
        let core = self.shared().core();
        if region.tag().nic() != self.shared().id() {
            let e = Error::Parameter("the region is registered with another NIC".to_owned());
            return Err((region, e));
        }
        let ended = region.end();
        // Unmapping takes system calls: after the lock is free.
        drop(core);
        match ended {
            Ok(inner) => {
                drop(inner);
                Ok(())
            }
            Err(region) => {
                Err((region, Error::InUse("the memory region (by a descriptor, or a clone of it)")))
            }
        }
    }
}
