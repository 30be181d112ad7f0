//! Where a transmit ring lies: in the host's memory, or in an adapter's.
//!
//! Drivers are compiled for either, so that the one costs nothing where the other is not used.

use std::sync::Arc;

use super::order;
use crate::Result;
use crate::dma::{DmaDomain, DmaMemory, Rights};
use crate::pio::{AdapterMemory, RingMemory};

/// Where a transmit ring lies.
#[derive(Debug, Clone, Default)]
pub enum RingPlace {
    /// In the host's memory.
    #[default]
    Host,
    /// In windows of this adapter memory: what the driver writes of the ring. A device that fetches from its own memory
    /// saves a read over the bus; where the device writes into the same ring (e1000, packed virtqueues), looking for what
    /// it has done is a read over the bus for the processor.
    Adapter(Arc<AdapterMemory>),
}

impl PartialEq for RingPlace {
    /// Whether it is the same place; adapter memory goes by its name.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host, Self::Host) => true,
            (Self::Adapter(one), Self::Adapter(other)) => one.name() == other.name(),
            _ => false,
        }
    }
}

impl Eq for RingPlace {}

/// Memory of a ring that the driver writes, and some devices too. All values are as the device sees them: little-endian.
pub(super) trait Shared: Sized + Send {
    /// What it is made of: nothing for the host's memory.
    type Of;

    /// Whether a load costs no more than others.
    const NEAR: bool;

    /// At least `len` bytes of it, zeroed, mapped with these rights for a device of that name.
    fn allocate(
        of: &Self::Of,
        domain: &Arc<dyn DmaDomain>,
        device: &str,
        len: usize,
        rights: Rights,
    ) -> Result<Self>;

    /// The adapter memory's name, where it is one's.
    fn memory(&self) -> Option<&str>;

    fn iova(&self) -> u64;

    /// Bytes, a multiple of 8.
    fn len(&self) -> usize;

    /// Stores a word at a multiple of 8.
    fn store(&mut self, at: usize, word: u64);

    /// Stores two bytes at a multiple of 2.
    fn store16(&mut self, at: usize, value: u16);

    /// Loads a word that the device writes.
    fn load(&self, at: usize) -> u64;

    /// Between the stores that fill a ring and the one by which the device learns of them.
    fn before_publish();

    /// After the one by which the device learns of them, should it be looking.
    fn after_publish();

    /// After all stores, before the write to a register that makes the device look.
    fn before_doorbell();

    /// Whether the device may reach for it: said before it may, and when it can no more.
    fn set_in_use(&mut self, in_use: bool);
}

impl Shared for DmaMemory {
    type Of = ();

    const NEAR: bool = true;

    fn allocate(_: &(), domain: &Arc<dyn DmaDomain>, _: &str, len: usize, rights: Rights) -> Result<Self> {
        DmaMemory::allocate(domain.clone(), len, rights)
    }

    fn memory(&self) -> Option<&str> {
        None
    }

    #[inline]
    fn iova(&self) -> u64 {
        DmaMemory::iova(self)
    }

    fn len(&self) -> usize {
        DmaMemory::len(self)
    }

    #[inline]
    fn store(&mut self, at: usize, word: u64) {
        self.write(at, word.to_le());
    }

    #[inline]
    fn store16(&mut self, at: usize, value: u16) {
        self.write(at, value.to_le());
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        u64::from_le(self.read(at))
    }

    #[inline]
    fn before_publish() {
        order::before_publish();
    }

    #[inline]
    fn after_publish() {}

    #[inline]
    fn before_doorbell() {
        order::before_doorbell();
    }

    fn set_in_use(&mut self, _: bool) {}
}

/// Stores that are combined are written out in no order, unless they are fenced; and they wait for as long as they may.
impl Shared for RingMemory {
    type Of = Arc<AdapterMemory>;

    const NEAR: bool = false;

    fn allocate(
        of: &Arc<AdapterMemory>,
        domain: &Arc<dyn DmaDomain>,
        device: &str,
        len: usize,
        rights: Rights,
    ) -> Result<Self> {
        of.lease_ring(domain.clone(), device, len, rights)
    }

    fn memory(&self) -> Option<&str> {
        Some(RingMemory::memory(self))
    }

    #[inline]
    fn iova(&self) -> u64 {
        RingMemory::iova(self)
    }

    fn len(&self) -> usize {
        RingMemory::len(self)
    }

    #[inline]
    fn store(&mut self, at: usize, word: u64) {
        RingMemory::store(self, at, word);
    }

    #[inline]
    fn store16(&mut self, at: usize, value: u16) {
        RingMemory::store16(self, at, value);
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        RingMemory::load(self, at)
    }

    #[inline]
    fn before_publish() {
        Self::fence();
    }

    #[inline]
    fn after_publish() {
        Self::fence();
    }

    #[inline]
    fn before_doorbell() {
        Self::fence();
        // What lies in the host's memory goes before, too.
        order::before_doorbell();
    }

    fn set_in_use(&mut self, in_use: bool) {
        RingMemory::set_in_use(self, in_use);
    }
}
