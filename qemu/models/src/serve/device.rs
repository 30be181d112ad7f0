//! A function as the protocol's server wants it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uvia_vfio_user::server::{Description, Device, DmaError, DmaSpace, Interrupts, Region};
use uvia_vfio_user::wire::{irq, region};

use super::worker::{Doorbells, Handle};
use crate::bus::{Bus, DmaFault};
use crate::config;
use crate::function::Function;
use crate::machine::{Machine, Nic};

/// What clients are told of a function.
pub(super) fn describe(function: &Function, doorbells: Doorbells) -> Description {
    let vectors = function.vectors();
    let mut description = Description::pci(config::SIZE as u64)
        .with_vectors(irq::INTX, vectors.intx)
        .with_vectors(irq::MSIX, vectors.msix);
    for bar in 0..region::BARS {
        let size = function.bar(bar as u8);
        if size == 0 {
            continue;
        }
        let mut region = Region::registers(size);
        let window = function.windows().into_iter().find(|window| u32::from(window.bar) == bar);
        if let Some(window) = window.filter(|_| doorbells == Doorbells::Polled || function.is_memory()) {
            let area = window.pages.area();
            let area = area.start as u64..area.end as u64;
            region = region.with_shared(window.pages.memory().clone(), vec![area]);
        }
        description = description.with_bar(bar, region);
    }
    description
}

/// A function with its client.
pub(super) struct Served {
    machine: Arc<Machine>,
    nic: Arc<Nic>,
    worker: Handle,
    dma: DmaSpace,
    interrupts: Interrupts,
    /// Whether message vectors are routed, for the bus.
    routed: Arc<AtomicBool>,
}

impl Served {
    pub(super) fn new(
        machine: Arc<Machine>,
        nic: Arc<Nic>,
        worker: Handle,
        dma: DmaSpace,
        interrupts: Interrupts,
    ) -> Self {
        Self { machine, nic, worker, dma, interrupts, routed: Arc::default() }
    }

    pub(super) fn name(&self) -> &str {
        self.nic.name()
    }

    /// Messages were handled: there may be work.
    pub(super) fn handled(&self) {
        self.worker.work(&self.machine);
    }
}

impl Device for Served {
    fn region_read(&mut self, index: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if index == region::CONFIG {
            self.nic.with(|function| function.config_read(offset, into));
            return Ok(());
        }
        let bar = u8::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.nic.call(self.machine.now(), |function, outside| function.read(outside, bar, offset, into));
        Ok(())
    }

    fn region_write(&mut self, index: u32, offset: u64, from: &[u8]) -> io::Result<()> {
        let now = self.machine.now();
        if index == region::CONFIG {
            self.nic.call(now, |function, outside| function.config_write(outside, offset, from));
            return Ok(());
        }
        let bar = u8::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.nic.call(now, |function, outside| function.write(outside, bar, offset, from));
        Ok(())
    }

    fn reset(&mut self) {
        self.nic.call(self.machine.now(), |function, outside| function.reset(outside));
    }

    fn attached(&mut self) {
        self.routed.store(false, Ordering::Relaxed);
        self.nic.attach(Box::new(ClientBus {
            dma: self.dma.clone(),
            interrupts: self.interrupts.clone(),
            routed: self.routed.clone(),
        }));
        self.worker.arrived();
        tracing::info!(nic = self.nic.name(), "a client is there");
    }

    fn detached(&mut self) {
        self.nic.detach(self.machine.now());
        self.worker.left();
    }

    fn interrupts_changed(&mut self, kind: u32) {
        if kind == irq::MSIX {
            let vectors = self.nic.with(|function| function.vectors().msix);
            let any = (0..vectors).any(|vector| self.interrupts.is_routed(irq::MSIX, vector));
            self.routed.store(any, Ordering::Relaxed);
        }
    }
}

/// The bus of a function whose client is another process.
struct ClientBus {
    dma: DmaSpace,
    interrupts: Interrupts,
    routed: Arc<AtomicBool>,
}

fn fault(error: &DmaError) -> DmaFault {
    match error {
        DmaError::Unmapped(_) => DmaFault::NotMapped,
        DmaError::Denied { .. } => DmaFault::Forbidden,
        _ => DmaFault::Unreachable,
    }
}

impl Bus for ClientBus {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let outcome = self.dma.read(address, into).map_err(|e| fault(&e));
        std::sync::atomic::fence(Ordering::Acquire);
        outcome
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        std::sync::atomic::fence(Ordering::Release);
        self.dma.write(address, from).map_err(|e| fault(&e))
    }

    fn intx(&mut self, asserted: bool) {
        self.interrupts.set_intx(asserted);
    }

    fn message(&mut self, vector: u16) {
        self.interrupts.trigger(irq::MSIX, vector.into());
    }

    fn messages_routed(&self) -> bool {
        self.routed.load(Ordering::Relaxed)
    }
}
