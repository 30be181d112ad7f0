//! How long pieces become registered memory.

use uvia::{MemoryAttributes, MemoryRegion, Nic, ProtectionTag};

use crate::Result;
use crate::span::Span;

/// Registered memory that holds a span, for as long as this is kept.
pub struct Lease {
    /// The region.
    pub region: MemoryRegion,
    /// Where the span begins in it, bytes.
    pub offset: usize,
}

/// Registers memory for long pieces.
pub trait Registrar: Send {
    /// Registers a span, or finds it registered.
    ///
    /// # Errors
    /// The NIC or the system does not let it be registered.
    ///
    /// # Safety
    /// The memory is valid, and nobody else touches it while a descriptor names it or a peer may write it.
    unsafe fn lease(&mut self, memory: Span) -> Result<Lease>;
}

/// Registers each piece, and unregisters it when it is done.
pub struct Direct {
    nic: Nic,
    attributes: MemoryAttributes,
}

impl Direct {
    /// With a NIC, under a tag.
    pub fn new(nic: &Nic, tag: ProtectionTag) -> Self {
        Self { nic: nic.clone(), attributes: MemoryAttributes::remote_write(tag) }
    }
}

impl Registrar for Direct {
    unsafe fn lease(&mut self, memory: Span) -> Result<Lease> {
        // SAFETY: the caller's promise.
        let region = unsafe { self.nic.register(memory.start, memory.len, self.attributes)? };
        Ok(Lease { region, offset: 0 })
    }
}
