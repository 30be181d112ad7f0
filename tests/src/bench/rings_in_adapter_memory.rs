//! NICs whose transmit rings lie in adapter memory.

use uvia_driver::Result;
use uvia_driver::nic::{NicConfig, RingPlace};

use crate::conformance::{Bench, Effort, Line, Memory, Opened};

/// A bench of NICs that are opened with their transmit rings in adapter memory.
pub struct RingsInAdapterMemory<B> {
    bench: B,
    memory: Memory,
}

impl<B: Bench> RingsInAdapterMemory<B> {
    /// The same NICs, and memory for their rings.
    ///
    /// # Panics
    /// When the system has none.
    pub fn new(bench: B) -> Self {
        Self { bench, memory: Memory::of_host() }
    }
}

impl<B: Bench> Bench for RingsInAdapterMemory<B> {
    /// It differs from the bench within in little.
    fn effort(&self) -> Effort {
        Effort::sample()
    }

    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]> {
        let tx_ring_place = match &config.tx_ring_place {
            RingPlace::Host => RingPlace::Adapter(self.memory.memory.clone()),
            elsewhere => elsewhere.clone(),
        };
        let opened = self.bench.open(&NicConfig { tx_ring_place, ..config.clone() })?;
        for Opened { nic, .. } in &opened {
            assert!(nic.properties().tx_ring_memory.is_some(), "the ring lies where it was asked for");
        }
        Ok(opened)
    }

    fn cable(&self, end: usize, line: Line) {
        self.bench.cable(end, line);
    }

    fn remove(&self, end: usize) {
        self.bench.remove(end);
    }

    fn dropped(&self, end: usize) -> Option<u64> {
        self.bench.dropped(end)
    }

    fn stray(&self) -> Option<u64> {
        self.bench.stray()
    }

    fn mapped(&self) -> Option<usize> {
        self.bench.mapped()
    }
}
