//! The door to an I/O address space.

use std::ops::RangeInclusive;

use crate::Result;

bitflags::bitflags! {
    /// What devices may do with a mapping.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rights: u32 {
        /// Fetch from it (transmit).
        const READ = 1;
        /// Store into it (receive).
        const WRITE = 2;
    }
}

/// What an I/O address space can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainLimits {
    /// Usable ranges of I/O virtual addresses: the aperture less the reserved windows, ascending.
    pub apertures: Vec<RangeInclusive<u64>>,
    /// Most mappings at a time, where there is a limit.
    pub max_mappings: Option<u64>,
    /// The granularity of mappings, bytes; a power of two.
    pub page_size: u64,
}

/// An I/O address space: what is mapped here, the devices opened into it can reach, and nothing else.
pub trait DmaDomain: Send + Sync {
    /// Pins `[address, address + len)` and maps it at an I/O virtual address of the domain's choice, which is
    /// returned. Contiguous: byte `n` of the memory lies at the returned address plus `n`.
    ///
    /// # Errors
    /// Unaligned or empty ranges, memory that cannot be pinned with these rights, and every limit by its name.
    ///
    /// # Safety
    /// Devices may read (and with [`Rights::WRITE`] write) the memory at any time until [`Self::unmap`]
    /// returns: until then the caller keeps it from being used for anything that this would break, and
    /// reaches it by volatile or atomic access only.
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64>;

    /// Takes a whole mapping away, by what [`Self::map`] returned and its length. The caller has made sure
    /// that no device has work in hand that refers to it.
    fn unmap(&self, iova: u64, len: usize) -> Result<()>;

    /// What the space can hold.
    fn limits(&self) -> DomainLimits;
}
