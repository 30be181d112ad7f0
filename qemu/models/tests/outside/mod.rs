//! What is around a function in tests: memory, and a wire.

use std::time::Duration;

use uvia_driver::nic::MacAddress;
use uvia_models::bus::{Bus, DmaFault};
use uvia_models::faults::Lies;
use uvia_models::function::{Function, Outside};
use uvia_models::machine::Kind;
use uvia_models::port::{Frame, Port};
use uvia_models::random::Random;

/// Registers of 82540EM: those of its rings are in a window of their own, which begins at `RINGS`.
pub const RCTL: u64 = 0x100;
pub const RINGS: usize = 0x2000;
pub const RECEIVE: usize = 0x2800;
/// Of a ring's registers: its base is the first.
pub const LENGTH: usize = 0x08;
pub const HEAD: usize = 0x10;
pub const TAIL: usize = 0x18;
/// Bits of RCTL.
pub const EN: u32 = 1 << 1;
pub const BROADCAST: u32 = 1 << 15;

/// An e1000 that tells no lies.
pub fn e1000() -> Function {
    let model = Kind::E1000.build(MacAddress([2, 0, 0, 0, 0, 1]), None).unwrap();
    Function::new(model, Lies::new(&[], Random::new(0)))
}

/// Writes a ring of 8 descriptors at `base` into its registers, of which those before `tail` are given.
pub fn set_ring(function: &Function, registers: usize, base: u32, tail: u32) {
    let pages = function.windows()[0].pages.clone();
    for (register, value) in [(0, base), (LENGTH, 128), (HEAD, 0), (TAIL, tail)] {
        pages.store(registers + register - RINGS, value);
    }
}

/// What is around a function a second after it was made, or some seconds.
pub fn outside<'a>(memory: &'a mut Memory, wire: &'a mut Wire, seconds: u64) -> Outside<'a> {
    Outside { bus: memory, port: wire, now: Duration::from_secs(seconds) }
}

/// Makes a function the bus's master, and switches its receiver on.
pub fn start(function: &mut Function, outside: &mut Outside<'_>, rctl: u32) {
    function.config_write(outside, 4, &7_u16.to_le_bytes());
    function.write(outside, 0, RCTL, &(rctl | EN | BROADCAST).to_le_bytes());
}

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
