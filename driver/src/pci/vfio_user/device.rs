//! One PCI function that another process serves.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uvia_vfio_user::client::{Client, RegionDetails};
use uvia_vfio_user::memory::SharedMemory;
use uvia_vfio_user::wire::{RegionAreas, irq, irq_set, region};
use uvia_vfio_user::{Error as PeerError, Rights as RegionRights};

use super::VfioUserDomain;
use super::memory::Link;
use crate::dma::DmaDomain;
use crate::pci::config::{self, COMMAND_BUS_MASTER, COMMAND_MEMORY};
use crate::pci::{InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome};
use crate::{Error, Result};

/// BARs of a function.
const BARS: usize = region::BARS as usize;

/// A function at the other end of a connection.
pub struct VfioUserDevice {
    name: String,
    client: Arc<Client>,
    link: Arc<Link>,
    domain: Arc<VfioUserDomain>,
    /// The same, as the trait hands it out.
    dma: Arc<dyn DmaDomain>,
    bars: Vec<RegionDetails>,
    config_size: u64,
    interrupts: InterruptCounts,
    resettable: bool,
    /// Serialises changes of the command register.
    command: Mutex<()>,
    routed: Mutex<Option<InterruptKind>>,
    mapped: Mutex<[Weak<RegionMapping>; BARS]>,
    /// Whether anything ever was: then messages and stores must be kept in order.
    any_mapped: AtomicBool,
}

impl VfioUserDevice {
    /// Takes over a connection: asks what is there, and brings it into the state that an opened function has.
    pub(super) fn new(
        name: &str,
        domain: Arc<VfioUserDomain>,
        client: Arc<Client>,
        link: Arc<Link>,
    ) -> Result<Self> {
        let bars: Vec<RegionDetails> =
            (0..region::BARS).map(|bar| client.region_info(bar)).collect::<std::result::Result<_, _>>()?;
        // Some servers refuse to describe what they lack.
        let count = |kind| match client.irq_info(irq_index(kind)) {
            Err(PeerError::Refused { .. }) => Ok(0),
            described => described.map(|details| details.count),
        };
        let interrupts = InterruptCounts {
            intx: count(InterruptKind::Intx)?,
            msi: count(InterruptKind::Msi)?,
            msix: count(InterruptKind::Msix)?,
        };
        let device = Self {
            name: name.to_owned(),
            dma: domain.clone(),
            domain,
            bars,
            config_size: client.region_info(region::CONFIG)?.size,
            interrupts,
            resettable: client.is_resettable()?,
            client,
            link,
            command: Mutex::new(()),
            routed: Mutex::new(None),
            mapped: Mutex::default(),
            any_mapped: AtomicBool::new(false),
        };
        device.reset()?;
        Ok(device)
    }

    /// Memory decoding on, bus mastering off.
    fn quiet_command(&self) -> Result<()> {
        let _guard = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        config::change_command(self, COMMAND_MEMORY, COMMAND_BUS_MASTER)
    }

    fn bar(&self, bar: u8) -> Result<&RegionDetails> {
        self.bars
            .get(usize::from(bar))
            .ok_or_else(|| Error::Argument { what: format!("BAR {bar}: there are BARs 0 to 5") })
    }

    fn check_register(&self, bar: u8, offset: u64, len: usize) -> Result<()> {
        let size = self.bar(bar)?.size;
        let aligned = matches!(len, 1 | 2 | 4 | 8) && offset.is_multiple_of(len as u64);
        if !aligned || offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(Error::Argument {
                what: format!(
                    "{}: BAR {bar} offset {offset:#x}: {len} bytes are no naturally aligned access of 1, 2, 4 or 8 \
                     bytes within its {size:#x}",
                    self.name
                ),
            });
        }
        Ok(())
    }

    fn check_config(&self, offset: u16, len: usize) -> Result<()> {
        if u64::from(offset) + len as u64 > self.config_size {
            return Err(Error::Argument {
                what: format!(
                    "{}: configuration space {offset:#x}+{len} is beyond its {:#x} bytes",
                    self.name, self.config_size
                ),
            });
        }
        Ok(())
    }

    fn unroute(&self, routed: &mut Option<InterruptKind>) -> Result<()> {
        if let Some(kind) = *routed {
            self.sleepers(Vec::new());
            self.client.unroute_irqs(irq_index(kind))?;
            *routed = None;
        }
        Ok(())
    }

    /// Whom to wake when the connection ends.
    fn sleepers(&self, events: Vec<OwnedFd>) {
        *self.link.sleepers.lock().unwrap_or_else(PoisonError::into_inner) = events;
    }

    fn routed(&self) -> MutexGuard<'_, Option<InterruptKind>> {
        self.routed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PciDevice for VfioUserDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn domain(&self) -> &Arc<dyn DmaDomain> {
        &self.dma
    }

    fn config_read(&self, offset: u16, into: &mut [u8]) -> Result<()> {
        self.check_config(offset, into.len())?;
        Ok(self.client.region_read(region::CONFIG, offset.into(), into)?)
    }

    fn config_write(&self, offset: u16, from: &[u8]) -> Result<()> {
        self.check_config(offset, from.len())?;
        // Not posted: bus mastering is off when this says so.
        Ok(self.client.region_write(region::CONFIG, offset.into(), from)?)
    }

    fn region(&self, bar: u8) -> Result<RegionInfo> {
        let details = self.bar(bar)?;
        Ok(RegionInfo {
            size: details.size,
            readable: details.rights.contains(RegionRights::READ),
            writable: details.rights.contains(RegionRights::WRITE),
            mappable: details.file.is_some() && details.areas != RegionAreas::None,
        })
    }

    fn region_read(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check_register(bar, offset, into.len())?;
        Ok(self.client.region_read(bar.into(), offset, into)?)
    }

    fn region_write(&self, bar: u8, offset: u64, from: &[u8]) -> Result<()> {
        self.check_register(bar, offset, from.len())?;
        if self.any_mapped.load(Ordering::Relaxed) {
            // A store to mapped memory would overtake a posted message; on a bus it does not.
            Ok(self.client.region_write(bar.into(), offset, from)?)
        } else {
            Ok(self.client.region_post(bar.into(), offset, from)?)
        }
    }

    fn map_region(&self, bar: u8) -> Result<Option<Arc<RegionMapping>>> {
        let details = self.bar(bar)?;
        let Some(file) = &details.file else { return Ok(None) };
        let areas = match &details.areas {
            RegionAreas::None => return Ok(None),
            RegionAreas::Whole => std::slice::from_ref(&(0..details.size)).to_vec(),
            RegionAreas::Sparse(areas) => areas.clone(),
        };
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut mapped[usize::from(bar)];
        if let Some(mapping) = slot.upgrade() {
            return Ok(Some(mapping));
        }
        let map = |area: std::ops::Range<u64>| {
            let fd = file.try_clone()?;
            let offset = details.offset.checked_add(area.start).ok_or(std::io::ErrorKind::InvalidInput)?;
            let (Ok(start), Ok(len)) = (usize::try_from(area.start), usize::try_from(area.end - area.start))
            else {
                return Err(std::io::ErrorKind::OutOfMemory.into());
            };
            let memory =
                SharedMemory::from_peer(fd, offset, len, details.rights.contains(RegionRights::WRITE))?;
            Ok((start, memory))
        };
        match areas.into_iter().filter(|area| !area.is_empty()).map(map).collect::<std::io::Result<Vec<_>>>()
        {
            Ok(parts) if parts.is_empty() => Ok(None),
            Ok(parts) => {
                let mapping = Arc::new(RegionMapping::of_parts(parts));
                *slot = Arc::downgrade(&mapping);
                self.any_mapped.store(true, Ordering::Relaxed);
                Ok(Some(mapping))
            }
            Err(e) => {
                // Messages do as well.
                tracing::debug!("{}: BAR {bar} is not mapped: {e}", self.name);
                Ok(None)
            }
        }
    }

    fn interrupts(&self) -> InterruptCounts {
        self.interrupts
    }

    fn enable_interrupts(&self, kind: InterruptKind, vectors: &[BorrowedFd<'_>]) -> Result<()> {
        let most = match kind {
            InterruptKind::Intx => self.interrupts.intx,
            InterruptKind::Msi => self.interrupts.msi,
            InterruptKind::Msix => self.interrupts.msix,
        };
        if vectors.len() > most as usize {
            return Err(Error::Unsupported {
                device: self.name.clone(),
                what: format!("routing {} {kind:?} vectors (it has {most})", vectors.len()),
            });
        }
        let mut routed = self.routed();
        self.unroute(&mut routed)?;
        if vectors.is_empty() {
            return Ok(());
        }
        let copies: std::io::Result<Vec<OwnedFd>> =
            vectors.iter().map(BorrowedFd::try_clone_to_owned).collect();
        self.sleepers(copies.map_err(|e| Error::io(format!("{}: keeping its eventfds", self.name), e))?);
        *routed = Some(kind);
        // Were the connection to end before, this fails.
        self.client.route_irqs(irq_index(kind), 0, vectors)?;
        Ok(())
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        let mut routed = self.routed();
        if *routed == Some(kind) { self.unroute(&mut routed) } else { Ok(()) }
    }

    fn unmask_intx(&self) -> Result<()> {
        Ok(self.client.act_on_irqs(irq_set::ACTION_UNMASK, irq::INTX, 0, 1)?)
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        let (set, clear) = if on { (COMMAND_BUS_MASTER, 0) } else { (0, COMMAND_BUS_MASTER) };
        let _guard = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        config::change_command(self, set, clear)
    }

    fn reset(&self) -> Result<ResetOutcome> {
        self.unroute(&mut self.routed())?;
        self.quiet_command()?;
        if !self.resettable {
            return Ok(ResetOutcome::Unsupported);
        }
        match self.client.reset() {
            Ok(()) => {}
            // As the kernel answers for a function that cannot be reset alone.
            Err(PeerError::Refused { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                return Ok(ResetOutcome::Unsupported);
            }
            Err(e) => return Err(e.into()),
        }
        self.quiet_command()?;
        Ok(ResetOutcome::Done)
    }

    fn is_gone(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for VfioUserDevice {
    fn drop(&mut self) {
        // One whose process is gone is quiet.
        if !self.client.is_closed()
            && let Err(e) = self.reset()
        {
            tracing::warn!("closing: {e}");
        }
        self.domain.release(&self.client);
    }
}

fn irq_index(kind: InterruptKind) -> u32 {
    match kind {
        InterruptKind::Intx => irq::INTX,
        InterruptKind::Msi => irq::MSI,
        InterruptKind::Msix => irq::MSIX,
    }
}
