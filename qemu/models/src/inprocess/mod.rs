//! Models as devices of the same process, for tests: what the driver sees is a [`PciDevice`] like any other.
//!
//! Everything happens in the caller's thread: after each access to a register the machine runs until it has
//! nothing to do, and 10 us of virtual time pass. So a test's outcome depends on its calls and the seed only.

mod routes;
mod space;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use routes::Routes;
use space::Space;
use uvia_driver::dma::{DmaDomain, DomainLimits, Rights};
use uvia_driver::pci::{
    DeviceDomain, InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome, config,
};
use uvia_driver::{Error, Result};

use crate::bus::{Bus, DmaFault};
use crate::machine::{Machine, Nic};

/// What an access to a register takes.
const ACCESS: Duration = Duration::from_micros(10);
/// Rounds after an access, at most: two adapters that keep each other busy do not keep the caller.
const ROUNDS: usize = 10_000;

/// An I/O address space that a machine's adapters can be opened into, by their names.
pub struct ModelDomain {
    space: Arc<Space>,
    machine: Arc<Machine>,
}

impl ModelDomain {
    /// An empty space for a machine's adapters.
    pub fn new(machine: Arc<Machine>) -> Arc<Self> {
        Arc::new(Self { space: Arc::default(), machine })
    }

    /// Mappings in force.
    pub fn mapped(&self) -> usize {
        self.space.mapped()
    }

    /// Opens an adapter and hands out the concrete device.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn open_model(self: &Arc<Self>, name: &str) -> Result<Arc<ModelDevice>> {
        let found = self.machine.nics().iter().find(|nic| nic.name() == name);
        let nic = found.ok_or_else(|| Error::NotFound { device: name.to_owned() })?;
        let routes: Arc<Mutex<Routes>> = Arc::default();
        nic.attach(Box::new(SpaceBus { space: self.space.clone(), routes: routes.clone() }));
        let device = Arc::new(ModelDevice {
            nic: nic.clone(),
            machine: self.machine.clone(),
            domain: self.clone(),
            routes,
        });
        device.reset()?;
        config::change_command(&*device, config::COMMAND_MEMORY, 0)?;
        Ok(device)
    }
}

impl DmaDomain for ModelDomain {
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        // SAFETY: the caller's promise.
        unsafe { self.space.map(address, len, rights) }
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        self.space.unmap(iova, len)
    }

    fn limits(&self) -> DomainLimits {
        self.space.limits()
    }
}

impl DeviceDomain for ModelDomain {
    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn PciDevice>> {
        Ok(self.open_model(name)?)
    }
}

/// The bus of a function in this process.
struct SpaceBus {
    space: Arc<Space>,
    routes: Arc<Mutex<Routes>>,
}

impl Bus for SpaceBus {
    fn read(&mut self, address: u64, into: &mut [u8]) -> std::result::Result<(), DmaFault> {
        self.space.read(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> std::result::Result<(), DmaFault> {
        self.space.write(address, from)
    }

    fn intx(&mut self, asserted: bool) {
        self.routes.lock().drive(asserted);
    }

    fn message(&mut self, vector: u16) {
        self.routes.lock().message(vector);
    }

    fn messages_routed(&self) -> bool {
        self.routes.lock().has_messages()
    }
}

/// A model's function, opened.
pub struct ModelDevice {
    nic: Arc<Nic>,
    machine: Arc<Machine>,
    domain: Arc<dyn DmaDomain>,
    routes: Arc<Mutex<Routes>>,
}

impl ModelDevice {
    /// The adapter behind it.
    pub fn nic(&self) -> &Arc<Nic> {
        &self.nic
    }

    fn run(&self) {
        self.machine.advance(ACCESS);
        self.machine.run(ROUNDS);
    }

    fn bar(&self, bar: u8, offset: u64, len: usize) -> Result<()> {
        let size = self.nic.with(|function| function.bar(bar));
        match offset.checked_add(len as u64) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::Argument { what: format!("{offset:#x}+{len:#x} is beyond BAR {bar}") }),
        }
    }
}

impl PciDevice for ModelDevice {
    fn name(&self) -> &str {
        self.nic.name()
    }

    fn domain(&self) -> &Arc<dyn DmaDomain> {
        &self.domain
    }

    fn config_read(&self, offset: u16, into: &mut [u8]) -> Result<()> {
        self.nic.with(|function| function.config_read(offset.into(), into));
        Ok(())
    }

    fn config_write(&self, offset: u16, from: &[u8]) -> Result<()> {
        self.nic.call(self.machine.now(), |function, outside| {
            function.config_write(outside, offset.into(), from);
        });
        self.run();
        Ok(())
    }

    fn region(&self, bar: u8) -> Result<RegionInfo> {
        let size = self.nic.with(|function| function.bar(bar));
        Ok(RegionInfo { size, readable: size > 0, writable: size > 0, mappable: false })
    }

    fn region_read(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        self.bar(bar, offset, into.len())?;
        self.run();
        self.nic.call(self.machine.now(), |function, outside| function.read(outside, bar, offset, into));
        Ok(())
    }

    fn region_write(&self, bar: u8, offset: u64, from: &[u8]) -> Result<()> {
        self.bar(bar, offset, from.len())?;
        self.nic.call(self.machine.now(), |function, outside| function.write(outside, bar, offset, from));
        self.run();
        Ok(())
    }

    fn map_region(&self, _bar: u8) -> Result<Option<Arc<RegionMapping>>> {
        Ok(None)
    }

    fn interrupts(&self) -> InterruptCounts {
        let vectors = self.nic.with(|function| function.vectors());
        InterruptCounts { intx: vectors.intx, msi: 0, msix: vectors.msix }
    }

    fn enable_interrupts(&self, kind: InterruptKind, vectors: &[BorrowedFd<'_>]) -> Result<()> {
        self.routes.lock().enable(kind, vectors)
    }

    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()> {
        self.routes.lock().disable(kind);
        Ok(())
    }

    fn unmask_intx(&self) -> Result<()> {
        self.routes.lock().unmask();
        Ok(())
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        let bit = config::COMMAND_BUS_MASTER;
        config::change_command(self, if on { bit } else { 0 }, if on { 0 } else { bit })
    }

    fn reset(&self) -> Result<ResetOutcome> {
        self.routes.lock().clear();
        self.nic.call(self.machine.now(), |function, outside| function.reset(outside));
        // A function that ignores its reset is kept from memory all the same, as the kernel would do it.
        self.set_bus_master(false)?;
        Ok(ResetOutcome::Done)
    }
}

impl Drop for ModelDevice {
    fn drop(&mut self) {
        self.nic.detach(self.machine.now());
    }
}
