//! What both kinds of virtqueues are to the device.

use super::packed::PackedRing;
use super::split::SplitRing;
use crate::bus::{Bus, DmaFault};
use crate::faults::{Completion, Lies};

/// Where a queue lies: the three areas, by their addresses (VIRTIO 1.2, 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Areas {
    pub(super) descriptors: u64,
    pub(super) driver: u64,
    pub(super) device: u64,
}

/// One buffer of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) address: u64,
    pub(super) len: u32,
    /// The device writes it.
    pub(super) write: bool,
}

/// A chain that the driver made available.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chain {
    /// By which it is given back.
    pub(super) id: u16,
    /// Readable parts first, as the specification wants it: checked.
    pub(super) parts: Vec<Part>,
}

impl Chain {
    /// Bytes of the parts that the device may write (or read).
    pub(super) fn bytes(&self, write: bool) -> u64 {
        self.parts.iter().filter(|part| part.write == write).map(|part| u64::from(part.len)).sum()
    }

    /// Whether it can be one: some parts, readable ones first.
    pub(super) fn check(&self) -> Result<(), RingFault> {
        if self.parts.is_empty() {
            return Err(RingFault::Chain);
        }
        if self.parts.is_sorted_by_key(|part| part.write) { Ok(()) } else { Err(RingFault::Chain) }
    }

    /// Fetches what there is to read, if it is no more than `most` bytes.
    pub(super) fn read(&self, bus: &mut dyn Bus, most: usize, into: &mut Vec<u8>) -> Result<bool, DmaFault> {
        into.clear();
        if self.bytes(false) > most as u64 {
            return Ok(false);
        }
        for part in self.parts.iter().filter(|part| !part.write && part.len > 0) {
            let start = into.len();
            into.resize(start + part.len as usize, 0);
            bus.read(part.address, &mut into[start..])?;
        }
        Ok(true)
    }

    /// Stores bytes into the parts for that, as far as they go; `place` says where each is really stored.
    pub(super) fn write(
        &self,
        bus: &mut dyn Bus,
        mut from: &[u8],
        mut place: impl FnMut(u64) -> u64,
    ) -> Result<usize, DmaFault> {
        let mut done = 0;
        for part in self.parts.iter().filter(|part| part.write) {
            let (now, rest) = from.split_at(from.len().min(part.len as usize));
            if now.is_empty() {
                continue;
            }
            bus.write(place(part.address), now)?;
            done += now.len();
            from = rest;
        }
        Ok(done)
    }
}

/// A queue that cannot be gone on with: the device asks to be reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingFault {
    /// The ring's memory cannot be reached.
    Memory,
    /// An index that is further than the ring is long.
    Index,
    /// A chain that loops, or ends nowhere, or has no parts or parts in the wrong order.
    Chain,
}

impl From<DmaFault> for RingFault {
    fn from(_: DmaFault) -> Self {
        Self::Memory
    }
}

/// A virtqueue of either kind.
pub(super) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

macro_rules! either {
    ($self:ident, $ring:ident => $call:expr) => {
        match $self {
            Ring::Split($ring) => $call,
            Ring::Packed($ring) => $call,
        }
    };
}

impl Ring {
    /// The next chain, put into `chain`; false when there is none.
    pub(super) fn pop(&mut self, bus: &mut dyn Bus, chain: &mut Chain) -> Result<bool, RingFault> {
        either!(self, ring => ring.pop(bus, chain))
    }

    /// Gives a chain back. Its id and length may be anything at all.
    pub(super) fn push(&mut self, bus: &mut dyn Bus, completion: Completion) -> Result<(), RingFault> {
        either!(self, ring => ring.push(bus, completion))
    }

    /// Whether the driver wants an interrupt for what was given back since this was last asked.
    pub(super) fn wants_interrupt(&mut self, bus: &mut dyn Bus) -> Result<bool, RingFault> {
        either!(self, ring => ring.wants_interrupt(bus))
    }

    /// Asks for notifications; true when there is a chain already, which is then not notified.
    pub(super) fn listen(&mut self, bus: &mut dyn Bus) -> Result<bool, RingFault> {
        either!(self, ring => ring.listen(bus))
    }

    /// Asks for no notifications.
    pub(super) fn silence(&mut self, bus: &mut dyn Bus) -> Result<(), RingFault> {
        either!(self, ring => ring.silence(bus))
    }

    /// A lie: an index or a used flag that is wrong.
    pub(super) fn mislead(&mut self, bus: &mut dyn Bus, lies: &mut Lies) {
        either!(self, ring => ring.mislead(bus, lies));
    }

    /// A lie: random bytes over some of the ring.
    pub(super) fn garble(&mut self, bus: &mut dyn Bus, lies: &mut Lies) {
        let (areas, size) = either!(self, ring => ring.extent());
        let (area, len) = match lies.random().below(3) {
            0 => (areas.descriptors, 16 * size),
            1 => (areas.driver, 6 + 2 * size),
            _ => (areas.device, 6 + 8 * size),
        };
        let mut bytes = [0; 16];
        let count = 1 + lies.random().below(16);
        lies.random().fill(&mut bytes);
        let offset = lies.random().below(len.saturating_sub(count) + 1);
        let _ = bus.write(area.wrapping_add(offset), &bytes[..count as usize]);
    }
}
