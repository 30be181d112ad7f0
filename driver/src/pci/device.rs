//! The door to a PCI function: what a driver may ask of it, whichever way it is reached.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use uvia_vfio_user::memory::SharedMemory;

use crate::Result;
use crate::dma::DmaDomain;

/// An I/O address space that devices can be opened into. All of them reach whatever is mapped in it.
pub trait DeviceDomain: DmaDomain {
    /// Opens the device called `name` into this domain. The device is reset where it can be, and cannot
    /// master the bus until [`PciDevice::set_bus_master`].
    ///
    /// # Errors
    /// What keeps it from being opened, by name: not bound, group not viable or busy, no IOMMU, no rights.
    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn PciDevice>>;
}

/// One PCI function under our control.
///
/// Closing (dropping the last handle) turns bus mastering off and resets the function where it can be, before
/// the domain's mappings may go.
pub trait PciDevice: Send + Sync {
    /// The name that it was opened by.
    fn name(&self) -> &str;

    /// The I/O address space that the device lives in.
    fn domain(&self) -> &Arc<dyn DmaDomain>;

    /// Reads configuration space at byte `offset`. Errors when the range is beyond its end.
    fn config_read(&self, offset: u16, into: &mut [u8]) -> Result<()>;

    /// Writes configuration space at byte `offset`.
    fn config_write(&self, offset: u16, from: &[u8]) -> Result<()>;

    /// Describes base address register `bar` (0 to 5). A BAR that the device lacks has size 0.
    fn region(&self, bar: u8) -> Result<RegionInfo>;

    /// Reads a BAR by message or system call: 1, 2, 4 or 8 bytes, naturally aligned.
    fn region_read(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes a BAR by message or system call: 1, 2, 4 or 8 bytes, naturally aligned. It may be posted, as on the bus:
    /// the device sees it before whatever is asked of it later.
    fn region_write(&self, bar: u8, offset: u64, from: &[u8]) -> Result<()>;

    /// The BAR mapped into this process, all of it or in parts, or `None` where it cannot be; use
    /// [`crate::mmio::Registers`] for an accessor that takes whichever way there is for each register.
    fn map_region(&self, bar: u8) -> Result<Option<Arc<RegionMapping>>>;

    /// How many vectors of each kind the device has.
    fn interrupts(&self) -> InterruptCounts;

    /// Routes the first `vectors.len()` vectors of `kind` to eventfds. Replaces what was routed before.
    fn enable_interrupts(&self, kind: InterruptKind, vectors: &[BorrowedFd<'_>]) -> Result<()>;

    /// Takes the routing of `kind` away. Harmless when there is none.
    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()>;

    /// Lets the next INTx through: the line is masked after each one that was delivered.
    fn unmask_intx(&self) -> Result<()>;

    /// Allows (or forbids) the device to read and write memory. Forbidden when opened.
    fn set_bus_master(&self, on: bool) -> Result<()>;

    /// Resets the function. Bus mastering is off afterwards, interrupts are not routed.
    fn reset(&self) -> Result<ResetOutcome>;

    /// Whether the way to the function is known to be lost for good; costs no system call. A driver that only looks
    /// at memory would not notice: it asks when there is nothing to do. Whoever sleeps on an interrupt is woken.
    fn is_gone(&self) -> bool {
        false
    }
}

/// What a reset request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetOutcome {
    /// The function was reset.
    Done,
    /// The platform has no way to reset this function alone: the driver must use the device's own.
    Unsupported,
}

/// A base address register, as the platform describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegionInfo {
    /// Bytes; 0 when the device has no such BAR.
    pub size: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be mapped, at least in part.
    pub mappable: bool,
}

/// Which interrupt mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InterruptKind {
    /// The level-triggered pin, auto-masked: see [`PciDevice::unmask_intx`].
    Intx,
    /// Message signalled.
    Msi,
    /// Message signalled, extended.
    Msix,
}

/// Vectors a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterruptCounts {
    /// 0 or 1.
    pub intx: u32,
    /// MSI vectors.
    pub msi: u32,
    /// MSI-X vectors.
    pub msix: u32,
}

/// A BAR's memory in this process, unmapped when dropped. It may have holes, which are reached by message.
#[derive(Debug)]
pub struct RegionMapping {
    parts: Vec<Part>,
}

/// A part of a BAR that is mapped.
#[derive(Debug)]
struct Part {
    /// Where in the BAR it begins.
    start: usize,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    /// Of the device's own file.
    Device(memmap2::MmapRaw),
    /// Shared with the process that serves the device.
    Shared(SharedMemory),
}

impl RegionMapping {
    /// Takes over a mapping of a whole BAR.
    pub fn new(map: memmap2::MmapRaw) -> Self {
        Self { parts: vec![Part { start: 0, memory: Memory::Device(map) }] }
    }

    /// Takes over mappings of parts of a BAR, each with where it begins.
    pub fn of_parts(parts: impl IntoIterator<Item = (usize, SharedMemory)>) -> Self {
        let part = |(start, memory)| Part { start, memory: Memory::Shared(memory) };
        Self { parts: parts.into_iter().map(part).collect() }
    }

    /// Where the `len` bytes at `offset` of the BAR are, if all of them are mapped. To be reached by volatile access
    /// of natural alignment only; BARs are mapped at page boundaries, so that an aligned offset is an aligned address.
    #[inline]
    pub fn place(&self, offset: usize, len: usize) -> Option<*mut u8> {
        self.parts.iter().find_map(|part| {
            let (first, size) = match &part.memory {
                Memory::Device(map) => (map.as_mut_ptr(), map.len()),
                Memory::Shared(memory) => (memory.as_ptr(), memory.len()),
            };
            let within = offset.wrapping_sub(part.start);
            (offset >= part.start && within <= size && size - within >= len)
                .then(|| first.wrapping_add(within))
        })
    }
}
