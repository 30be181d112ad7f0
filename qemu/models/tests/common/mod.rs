//! Two adapters on a switch, with our drivers on them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::os::fd::AsRawFd;
use std::sync::Arc;

use uvia_driver::dma::{DmaMemory, DmaSegment, Rights};
use uvia_driver::nic::{self, MacAddress, NicConfig, TxFrame};
use uvia_driver::pci::{PciDevice, ResetOutcome};
use uvia_models::faults::Plan;
use uvia_models::inprocess::{ModelDevice, ModelDomain};
use uvia_models::machine::{Kind, Machine};

pub struct End {
    pub nic: Box<dyn nic::Nic>,
    pub device: Arc<ModelDevice>,
    pub payload: Payload,
}

pub struct Pair {
    pub ends: [End; 2],
    pub machine: Arc<Machine>,
    pub domain: Arc<ModelDomain>,
}

pub fn mac(n: u8) -> MacAddress {
    MacAddress([0x52, 0x54, 0, 0x12, 0x34, n])
}

/// A machine in virtual time with two adapters of these kinds.
pub fn machine(kinds: [Kind; 2], seed: u64, plan: Plan) -> Arc<Machine> {
    let mut machine = Machine::virtual_time(seed, plan);
    for (n, kind) in kinds.into_iter().enumerate() {
        machine.add(kind, mac(n as u8 + 1)).unwrap();
    }
    Arc::new(machine)
}

pub fn pair_with(machine: Arc<Machine>, config: &NicConfig) -> uvia_driver::Result<Pair> {
    let domain = ModelDomain::new(machine.clone());
    let open = |n: usize| -> uvia_driver::Result<End> {
        let device = domain.open_model(machine.nics()[n].name())?;
        let nic = nic::open(device.clone(), config)?;
        Ok(End { nic, payload: Payload::new(device.domain().clone()), device })
    };
    Ok(Pair { ends: [open(0)?, open(1)?], machine, domain })
}

pub fn pair(kind: Kind, tx_ring: usize, rx_ring: usize) -> Pair {
    let config = NicConfig { tx_ring, rx_ring, interrupts: true };
    pair_with(machine([kind; 2], 1, Plan::default()), &config).unwrap()
}

/// A caller's memory, and frames cut from it.
pub struct Payload {
    pub memory: DmaMemory,
}

const SLOT: usize = 2048;
const SLOTS: usize = 256;

impl Payload {
    pub fn new(domain: Arc<dyn uvia_driver::dma::DmaDomain>) -> Self {
        Self { memory: DmaMemory::allocate(domain, SLOT * SLOTS, Rights::READ).unwrap() }
    }

    /// A frame to `to` of `len` bytes in `parts`, its bytes by `seed`.
    pub fn frame(
        &self,
        seed: u64,
        len: usize,
        parts: usize,
        to: MacAddress,
        from: MacAddress,
    ) -> (Vec<DmaSegment>, Vec<u8>) {
        let start = seed as usize % SLOTS * SLOT;
        let mut bytes: Vec<u8> =
            (0..len).map(|n| (n * 7 + (seed % 1024) as usize * 13 + n / 251) as u8).collect();
        bytes[..6].copy_from_slice(&to.0);
        bytes[6..12].copy_from_slice(&from.0);
        self.memory.write_bytes(start, &bytes);
        let cut = |n: usize| start + len * n / parts;
        let segments = (0..parts).map(|n| self.memory.segment(cut(n)..cut(n + 1)).unwrap()).collect();
        (segments, bytes)
    }
}

impl End {
    /// Puts a frame; answers its bytes, or `None` when the ring is full.
    pub fn put(
        &mut self,
        to: MacAddress,
        token: u64,
        len: usize,
        parts: usize,
    ) -> uvia_driver::Result<Option<Vec<u8>>> {
        let from = self.nic.properties().mac;
        let (segments, bytes) = self.payload.frame(token, len, parts, to, from);
        Ok(self.nic.transmit(&TxFrame { segments: &segments, token })?.then_some(bytes))
    }

    pub fn reclaimed(&mut self) -> uvia_driver::Result<Vec<u64>> {
        let mut tokens = Vec::new();
        self.nic.reclaim(&mut |token| tokens.push(token))?;
        Ok(tokens)
    }

    pub fn received(&mut self, budget: usize) -> uvia_driver::Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        self.nic.receive(budget, &mut |frame| {
            let mut bytes = vec![0; frame.len()];
            assert!(frame.read(0, &mut bytes));
            frames.push(bytes);
        })?;
        Ok(frames)
    }

    pub fn readable(&self) -> bool {
        let mut poll =
            libc::pollfd { fd: self.nic.interrupt().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor in a local, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    pub fn function_reset(&self) -> ResetOutcome {
        self.device.reset().unwrap()
    }

    /// Accesses that the I/O address space refused.
    pub fn blocked(&self) -> u64 {
        self.device.nic().with(|function| function.dma_log().blocked())
    }
}

/// `usual` cases, or as many as the environment's PROPTEST_CASES says.
pub fn cases(usual: u32) -> proptest::prelude::ProptestConfig {
    let defaults = proptest::prelude::ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { defaults.cases } else { usual };
    proptest::prelude::ProptestConfig { cases, failure_persistence: None, ..defaults }
}
