//! A device whose driver is made to give it receive buffers that lie elsewhere.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use uvia_driver::Result;
use uvia_driver::dma::{DmaDomain, DomainLimits, Rights};
use uvia_driver::pci::{InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome};
use uvia_driver::pio::RingMemory;

/// A device that finds receive buffers, which are what it may only write, in other memory: whatever their driver is told.
pub struct Misdirected {
    device: Arc<dyn PciDevice>,
    domain: Arc<dyn DmaDomain>,
}

impl Misdirected {
    /// The same device, with its receive buffers at the beginning of this memory, which is mapped for it.
    pub fn new(device: Arc<dyn PciDevice>, into: &RingMemory) -> Arc<Self> {
        let domain = Elsewhere { domain: device.domain().clone(), iova: into.iova(), len: into.len() };
        Arc::new(Self { device, domain: Arc::new(domain) })
    }
}

struct Elsewhere {
    domain: Arc<dyn DmaDomain>,
    iova: u64,
    len: usize,
}

impl DmaDomain for Elsewhere {
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        if rights == Rights::WRITE {
            assert!(len <= self.len, "{len} bytes of receive buffers, where there is room for {}", self.len);
            return Ok(self.iova);
        }
        // SAFETY: the caller's promise is the same.
        unsafe { self.domain.map(address, len, rights) }
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        if iova == self.iova { Ok(()) } else { self.domain.unmap(iova, len) }
    }

    fn limits(&self) -> DomainLimits {
        self.domain.limits()
    }
}

impl PciDevice for Misdirected {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn domain(&self) -> &Arc<dyn DmaDomain> {
        &self.domain
    }

    fn config_read(&self, offset: u16, into: &mut [u8]) -> Result<()> {
        self.device.config_read(offset, into)
    }

    fn config_write(&self, offset: u16, from: &[u8]) -> Result<()> {
        self.device.config_write(offset, from)
    }

    fn region(&self, bar: u8) -> Result<RegionInfo> {
        self.device.region(bar)
    }

    fn region_read(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        self.device.region_read(bar, offset, into)
    }

    fn region_write(&self, bar: u8, offset: u64, from: &[u8]) -> Result<()> {
        self.device.region_write(bar, offset, from)
    }

    fn map_region(&self, bar: u8) -> Result<Option<Arc<RegionMapping>>> {
        self.device.map_region(bar)
    }

    fn interrupts(&self) -> InterruptCounts {
        self.device.interrupts()
    }

    fn enable_interrupts(&self, kind: InterruptKind, vectors: &[BorrowedFd<'_>]) -> Result<()> {
        self.device.enable_interrupts(kind, vectors)
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        self.device.disable_interrupts(kind)
    }

    fn unmask_intx(&self) -> Result<()> {
        self.device.unmask_intx()
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        self.device.set_bus_master(on)
    }

    fn reset(&self) -> Result<ResetOutcome> {
        self.device.reset()
    }

    fn is_gone(&self) -> bool {
        self.device.is_gone()
    }
}
