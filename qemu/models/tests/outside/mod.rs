//! What is around a function in tests: memory, and a wire.

use uvia_models::bus::{Bus, DmaFault};
use uvia_models::port::{Frame, Port};

/// Memory that may be away.
pub struct Memory {
    pub bytes: Vec<u8>,
    pub away: bool,
    /// Accesses to memory that was away.
    pub missed: usize,
}

impl Memory {
    fn part(&mut self, address: u64, len: usize) -> Result<&mut [u8], DmaFault> {
        self.missed += usize::from(self.away);
        let start = address as usize;
        self.bytes.get_mut(start..start + len).filter(|_| !self.away).ok_or(DmaFault::NotMapped)
    }
}

impl Bus for Memory {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        into.copy_from_slice(self.part(address, into.len())?);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.part(address, from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn intx(&mut self, _asserted: bool) {}
    fn message(&mut self, _vector: u16) {}
    fn messages_routed(&self) -> bool {
        false
    }
}

/// A wire with frames on it.
#[derive(Default)]
pub struct Wire {
    pub arriving: Vec<Frame>,
    pub sent: Vec<Frame>,
}

impl Port for Wire {
    fn send(&mut self, frame: Frame) {
        self.sent.push(frame);
    }

    fn receive(&mut self) -> Option<Frame> {
        self.arriving.pop()
    }

    fn missed(&mut self) -> u64 {
        0
    }

    fn link(&self) -> bool {
        true
    }
}
