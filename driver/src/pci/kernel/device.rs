//! One PCI function behind a VFIO device file.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use memmap2::MmapOptions;
use vfio_bindings::bindings::vfio;
use vfio_ioctls::{VfioDevice, VfioRegionInfoCap};

use super::{KernelDomain, ioctl};
use crate::dma::DmaDomain;
use crate::pci::config::{self, COMMAND_BUS_MASTER, COMMAND_MEMORY};
use crate::pci::{
    InterruptCounts, InterruptKind, PciAddress, PciDevice, RegionInfo, RegionMapping, ResetOutcome,
};
use crate::{Error, Result};

/// BARs of a function.
const BARS: usize = 6;

/// How often a reset is tried while the kernel says that somebody else holds the device's lock.
const RESET_TRIES: u32 = 20;

/// A function opened through the kernel.
pub struct KernelDevice {
    name: String,
    address: PciAddress,
    /// Taken out when dropped.
    vfio: ManuallyDrop<VfioDevice>,
    domain: Arc<KernelDomain>,
    /// The same, as the trait hands it out.
    dma: Arc<dyn DmaDomain>,
    /// Serialises changes of the command register.
    command: Mutex<()>,
    routed: Mutex<Option<InterruptKind>>,
    mapped: Mutex<[Weak<RegionMapping>; BARS]>,
}

impl KernelDevice {
    /// Takes over an opened device. The kernel has just reset it, where that can be done, and has turned bus
    /// mastering off; neither is left to chance.
    pub(super) fn new(domain: Arc<KernelDomain>, address: PciAddress, vfio: VfioDevice) -> Result<Self> {
        let device = Self {
            name: address.to_string(),
            address,
            vfio: ManuallyDrop::new(vfio),
            dma: domain.clone(),
            domain,
            command: Mutex::new(()),
            routed: Mutex::new(None),
            mapped: Mutex::default(),
        };
        device.quiet_command()?;
        Ok(device)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the device keeps its file open until it is dropped, and `self` holds it.
        unsafe { BorrowedFd::borrow_raw(self.vfio.as_raw_fd()) }
    }

    /// Memory decoding on (else touching a mapped BAR is a bus error), bus mastering off.
    fn quiet_command(&self) -> Result<()> {
        let _guard = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        config::change_command(self, COMMAND_MEMORY, COMMAND_BUS_MASTER)
    }

    /// Where in the device's file `len` bytes at `offset` of a region are.
    fn place(&self, index: u32, offset: u64, len: usize) -> Result<u64> {
        let size = self.vfio.get_region_size(index);
        if offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(Error::Argument {
                what: format!(
                    "{}: {} {offset:#x}+{len} is beyond its {size:#x} bytes",
                    self.name,
                    region(index)
                ),
            });
        }
        Ok(self.vfio.get_region_offset(index) + offset)
    }

    fn register_place(&self, bar: u8, offset: u64, len: usize) -> Result<u64> {
        if !matches!(len, 1 | 2 | 4 | 8) || !offset.is_multiple_of(len as u64) {
            return Err(Error::Argument {
                what: format!(
                    "{}: BAR {bar} offset {offset:#x}: {len} bytes are no naturally aligned access of 1, 2, 4 or \
                     8 bytes",
                    self.name
                ),
            });
        }
        self.place(bar_index(bar)?, offset, len)
    }

    /// Whether the whole of a region can be mapped: no part is kept back.
    fn wholly_mappable(&self, index: u32) -> bool {
        let size = self.vfio.get_region_size(index);
        self.vfio.get_region_caps(index).iter().all(|cap| match cap {
            VfioRegionInfoCap::SparseMmap(sparse) => {
                sparse.areas.iter().any(|area| area.offset == 0 && area.size >= size)
            }
            _ => true,
        })
    }

    fn unroute(&self, routed: &mut Option<InterruptKind>) -> Result<()> {
        if let Some(kind) = *routed {
            ioctl::unroute_interrupts(self.fd(), irq_index(kind))
                .map_err(|e| Error::io(format!("{}: disabling {kind:?} interrupts", self.name), e))?;
            *routed = None;
        }
        Ok(())
    }

    fn routed(&self) -> std::sync::MutexGuard<'_, Option<InterruptKind>> {
        self.routed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PciDevice for KernelDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn domain(&self) -> &Arc<dyn DmaDomain> {
        &self.dma
    }

    fn config_read(&self, offset: u16, into: &mut [u8]) -> Result<()> {
        let at = self.place(vfio::VFIO_PCI_CONFIG_REGION_INDEX, offset.into(), into.len())?;
        ioctl::read_at(self.fd(), into, at)
            .map_err(|e| Error::io(format!("{}: reading configuration space {offset:#x}", self.name), e))
    }

    fn config_write(&self, offset: u16, from: &[u8]) -> Result<()> {
        let at = self.place(vfio::VFIO_PCI_CONFIG_REGION_INDEX, offset.into(), from.len())?;
        ioctl::write_at(self.fd(), from, at)
            .map_err(|e| Error::io(format!("{}: writing configuration space {offset:#x}", self.name), e))
    }

    fn region(&self, bar: u8) -> Result<RegionInfo> {
        let index = bar_index(bar)?;
        let flags = self.vfio.get_region_flags(index);
        let has = |flag| flags & flag != 0;
        Ok(RegionInfo {
            size: self.vfio.get_region_size(index),
            readable: has(vfio::VFIO_REGION_INFO_FLAG_READ),
            writable: has(vfio::VFIO_REGION_INFO_FLAG_WRITE),
            mappable: has(vfio::VFIO_REGION_INFO_FLAG_MMAP),
        })
    }

    fn region_read(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        let at = self.register_place(bar, offset, into.len())?;
        ioctl::read_at(self.fd(), into, at)
            .map_err(|e| Error::io(format!("{}: reading BAR {bar} offset {offset:#x}", self.name), e))
    }

    fn region_write(&self, bar: u8, offset: u64, from: &[u8]) -> Result<()> {
        let at = self.register_place(bar, offset, from.len())?;
        ioctl::write_at(self.fd(), from, at)
            .map_err(|e| Error::io(format!("{}: writing BAR {bar} offset {offset:#x}", self.name), e))
    }

    fn map_region(&self, bar: u8) -> Result<Option<Arc<RegionMapping>>> {
        let info = self.region(bar)?;
        let index = bar_index(bar)?;
        if !info.mappable || info.size == 0 || !self.wholly_mappable(index) {
            return Ok(None);
        }
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut mapped[usize::from(bar)];
        if let Some(mapping) = slot.upgrade() {
            return Ok(Some(mapping));
        }
        let what = || format!("{}: mapping BAR {bar} of {:#x} bytes", self.name, info.size);
        let len = usize::try_from(info.size)
            .map_err(|_| Error::Io { what: what(), source: io::ErrorKind::OutOfMemory.into() })?;
        let map = MmapOptions::new()
            .offset(self.vfio.get_region_offset(index))
            .len(len)
            .map_raw(self.vfio.as_raw_fd())
            .map_err(|e| Error::io(what(), e))?;
        let mapping = Arc::new(RegionMapping::new(map));
        *slot = Arc::downgrade(&mapping);
        Ok(Some(mapping))
    }

    fn interrupts(&self) -> InterruptCounts {
        let count = |kind| self.vfio.get_irq_info(irq_index(kind)).map_or(0, |info| info.count);
        InterruptCounts {
            intx: count(InterruptKind::Intx),
            msi: count(InterruptKind::Msi),
            msix: count(InterruptKind::Msix),
        }
    }

    fn enable_interrupts(&self, kind: InterruptKind, vectors: &[BorrowedFd<'_>]) -> Result<()> {
        let counts = self.interrupts();
        let most = match kind {
            InterruptKind::Intx => counts.intx,
            InterruptKind::Msi => counts.msi,
            InterruptKind::Msix => counts.msix,
        };
        if vectors.len() > most as usize {
            return Err(Error::Unsupported {
                device: self.name.clone(),
                what: format!("routing {} {kind:?} vectors (it has {most})", vectors.len()),
            });
        }
        let mut routed = self.routed();
        // VFIO changes neither the kind nor the number of vectors in place.
        self.unroute(&mut routed)?;
        if vectors.is_empty() {
            return Ok(());
        }
        ioctl::route_interrupts(self.fd(), irq_index(kind), vectors).map_err(|e| {
            Error::io(format!("{}: routing {} {kind:?} vectors", self.name, vectors.len()), e)
        })?;
        *routed = Some(kind);
        Ok(())
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        let mut routed = self.routed();
        if *routed == Some(kind) { self.unroute(&mut routed) } else { Ok(()) }
    }

    fn unmask_intx(&self) -> Result<()> {
        ioctl::unmask_interrupt(self.fd(), irq_index(InterruptKind::Intx))
            .map_err(|e| Error::io(format!("{}: unmasking INTx", self.name), e))
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        let (set, clear) = if on { (COMMAND_BUS_MASTER, 0) } else { (0, COMMAND_BUS_MASTER) };
        let _guard = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        config::change_command(self, set, clear)
    }

    fn reset(&self) -> Result<ResetOutcome> {
        self.unroute(&mut self.routed())?;
        // The kernel restores the command register after a reset as it was before.
        self.quiet_command()?;
        let outcome = reset(self.fd()).map_err(|e| Error::io(format!("{}: resetting it", self.name), e))?;
        self.quiet_command()?;
        Ok(outcome)
    }
}

impl Drop for KernelDevice {
    fn drop(&mut self) {
        let quiet = self.unroute(&mut self.routed()).and_then(|()| self.set_bus_master(false));
        if let Err(e) = quiet {
            tracing::warn!("closing: {e}");
        }
        // SAFETY: `self` is being dropped; nothing uses the field after this.
        let vfio = unsafe { ManuallyDrop::take(&mut self.vfio) };
        let mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        // The kernel resets a device when its last file goes. A BAR that is still mapped somewhere is such a
        // file, as is one that the domain keeps: then it is reset here.
        let reset_now = |vfio: &VfioDevice| {
            // SAFETY: `vfio` keeps its file open during this call.
            let fd = unsafe { BorrowedFd::borrow_raw(vfio.as_raw_fd()) };
            if let Err(e) = reset(fd) {
                tracing::warn!("closing {}: resetting it: {e}", self.name);
            }
        };
        if mapped.iter().any(|bar| bar.strong_count() > 0) {
            reset_now(&vfio);
            self.domain.release(self.address, vfio, |_| {});
        } else {
            self.domain.release(self.address, vfio, reset_now);
        }
    }
}

fn reset(device: BorrowedFd<'_>) -> io::Result<ResetOutcome> {
    for _ in 1..RESET_TRIES {
        match ioctl::device_reset(device) {
            Ok(()) => return Ok(ResetOutcome::Done),
            Err(e) => match e.raw_os_error() {
                Some(libc::EINVAL | libc::ENOTTY) => return Ok(ResetOutcome::Unsupported),
                Some(libc::EAGAIN) => thread::sleep(Duration::from_millis(5)),
                _ => return Err(e),
            },
        }
    }
    ioctl::device_reset(device).map(|()| ResetOutcome::Done)
}

fn bar_index(bar: u8) -> Result<u32> {
    if usize::from(bar) >= BARS {
        return Err(Error::Argument { what: format!("BAR {bar}: there are BARs 0 to 5") });
    }
    Ok(vfio::VFIO_PCI_BAR0_REGION_INDEX + u32::from(bar))
}

fn irq_index(kind: InterruptKind) -> u32 {
    match kind {
        InterruptKind::Intx => vfio::VFIO_PCI_INTX_IRQ_INDEX,
        InterruptKind::Msi => vfio::VFIO_PCI_MSI_IRQ_INDEX,
        InterruptKind::Msix => vfio::VFIO_PCI_MSIX_IRQ_INDEX,
    }
}

fn region(index: u32) -> String {
    match index {
        vfio::VFIO_PCI_CONFIG_REGION_INDEX => "configuration space".to_owned(),
        bar => format!("BAR {bar}"),
    }
}
