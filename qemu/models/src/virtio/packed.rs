//! The packed virtqueue (VIRTIO 1.2, 2.8), device's side.

use super::ring::{Areas, Chain, Part, RingFault};
use crate::bus::Bus;
use crate::faults::{Completion, Lies};

/// `struct pvirtq_desc`: address, length, id, flags.
const DESCRIPTOR: u64 = 16;
const FLAGS: u64 = 14;
const F_NEXT: u16 = 1 << 0;
const F_WRITE: u16 = 1 << 1;
const F_INDIRECT: u16 = 1 << 2;
const F_AVAIL: u16 = 1 << 7;
const F_USED: u16 = 1 << 15;

/// `struct pvirtq_event_suppress`: offset and wrap counter, flags.
const EVENT_ENABLE: u16 = 0;
const EVENT_DISABLE: u16 = 1;
const EVENT_DESC: u16 = 2;

pub(super) struct PackedRing {
    areas: Areas,
    size: u16,
    event_idx: bool,
    avail: Place,
    used: Place,
    /// Descriptors of the chain with an id, for the ids that the device has.
    lengths: Box<[u16]>,
    /// Descriptors passed over in the ring since the driver was last asked whether it wants an interrupt.
    added: u16,
}

/// A place in the ring, and the wrap counter there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    index: u16,
    wrap: bool,
}

impl Place {
    const START: Self = Self { index: 0, wrap: true };

    /// `count` is at most the ring's size.
    fn advance(&mut self, count: u16, size: u16) {
        let index = u32::from(self.index) + u32::from(count);
        if index >= u32::from(size) {
            self.index = (index - u32::from(size)) as u16;
            self.wrap = !self.wrap;
        } else {
            self.index = index as u16;
        }
    }

    fn word(self) -> u16 {
        self.index | u16::from(self.wrap) << 15
    }

    fn is_available(self, flags: u16) -> bool {
        (flags & F_AVAIL != 0) == self.wrap && (flags & F_USED != 0) != self.wrap
    }
}

impl PackedRing {
    /// A queue of `size` descriptors, at most 32768. `None`: the areas cannot be ones.
    pub(super) fn new(size: u16, areas: Areas, event_idx: bool) -> Option<Self> {
        let aligned = areas.descriptors.is_multiple_of(16)
            && areas.driver.is_multiple_of(4)
            && areas.device.is_multiple_of(4);
        (aligned && (1..=0x8000).contains(&size)).then(|| Self {
            areas,
            size,
            event_idx,
            avail: Place::START,
            used: Place::START,
            lengths: vec![0; size.into()].into(),
            added: 0,
        })
    }

    pub(super) fn extent(&self) -> (Areas, u64) {
        (self.areas, self.size.into())
    }

    fn descriptor(&self, index: u16) -> u64 {
        self.areas.descriptors.wrapping_add(u64::from(index) * DESCRIPTOR)
    }

    fn is_available(&self, bus: &mut dyn Bus) -> Result<bool, RingFault> {
        let mut flags = [0; 2];
        bus.read(self.descriptor(self.avail.index).wrapping_add(FLAGS), &mut flags)?;
        Ok(self.avail.is_available(u16::from_le_bytes(flags)))
    }

    pub(super) fn pop(&mut self, bus: &mut dyn Bus, chain: &mut Chain) -> Result<bool, RingFault> {
        chain.parts.clear();
        // The flags before the rest that they stand for.
        if !self.is_available(bus)? {
            return Ok(false);
        }
        let start = self.avail;
        let mut at = start;
        loop {
            if chain.parts.len() >= usize::from(self.size) {
                return Err(RingFault::Chain);
            }
            let mut bytes = [0; DESCRIPTOR as usize];
            bus.read(self.descriptor(at.index), &mut bytes)?;
            let [a, b, c, d, e, f, g, h, len @ .., i0, i1, f0, f1] = bytes;
            let flags = u16::from_le_bytes([f0, f1]);
            if flags & F_INDIRECT != 0 {
                return Err(RingFault::Chain); // not offered
            }
            chain.id = u16::from_le_bytes([i0, i1]);
            chain.parts.push(Part {
                address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                len: u32::from_le_bytes(len),
                write: flags & F_WRITE != 0,
            });
            at.advance(1, self.size);
            if flags & F_NEXT == 0 {
                break;
            }
        }
        let count = chain.parts.len() as u16;
        let Some(length) = self.lengths.get_mut(usize::from(chain.id)) else { return Err(RingFault::Index) };
        *length = count;
        self.avail = at;
        chain.check()?;
        Ok(true)
    }

    pub(super) fn push(&mut self, bus: &mut dyn Bus, completion: Completion) -> Result<(), RingFault> {
        let id = completion.id as u16;
        // An id that is a lie takes one descriptor.
        let count = self.lengths.get_mut(usize::from(id)).map_or(1, std::mem::take).clamp(1, self.size);
        let at = self.descriptor(self.used.index);
        let mut body = [0; 6];
        body[..4].copy_from_slice(&completion.length.to_le_bytes());
        body[4..].copy_from_slice(&id.to_le_bytes());
        bus.write(at.wrapping_add(8), &body)?;
        let mut flags = if self.used.wrap { F_AVAIL | F_USED } else { 0 };
        if completion.length > 0 {
            flags |= F_WRITE;
        }
        bus.write(at.wrapping_add(FLAGS), &flags.to_le_bytes())?;
        self.used.advance(count, self.size);
        self.added = self.added.saturating_add(count).min(self.size);
        Ok(())
    }

    pub(super) fn wants_interrupt(&mut self, bus: &mut dyn Bus) -> Result<bool, RingFault> {
        bus.fence();
        let mut event = [0; 4];
        bus.read(self.areas.driver, &mut event)?;
        let added = std::mem::take(&mut self.added);
        let flags = u16::from_le_bytes([event[2], event[3]]) & 3;
        if flags == EVENT_DISABLE {
            return Ok(false);
        }
        if flags != EVENT_DESC || !self.event_idx {
            return Ok(true);
        }
        // Counted along the ring: the driver's place, and ours before and after.
        let event = u16::from_le_bytes([event[0], event[1]]);
        let mut place = i32::from(event & 0x7fff);
        if (event >> 15 != 0) != self.used.wrap {
            place -= i32::from(self.size);
        }
        let new = i32::from(self.used.index);
        Ok(place < new && place >= new - i32::from(added))
    }

    pub(super) fn listen(&mut self, bus: &mut dyn Bus) -> Result<bool, RingFault> {
        let (place, flags) = if self.event_idx { (self.avail.word(), EVENT_DESC) } else { (0, EVENT_ENABLE) };
        let word = u32::from(place) | u32::from(flags) << 16;
        bus.write(self.areas.device, &word.to_le_bytes())?;
        bus.fence();
        self.is_available(bus)
    }

    pub(super) fn silence(&mut self, bus: &mut dyn Bus) -> Result<(), RingFault> {
        Ok(bus.write(self.areas.device.wrapping_add(2), &EVENT_DISABLE.to_le_bytes())?)
    }

    pub(super) fn mislead(&mut self, bus: &mut dyn Bus, lies: &mut Lies) {
        let at = self.descriptor(lies.random().below(self.size.into()) as u16);
        let flags = (lies.random().next() as u16 & (F_AVAIL | F_USED)).to_le_bytes();
        let _ = bus.write(at.wrapping_add(FLAGS), &flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::DmaFault;

    const SIZE: u16 = 5;

    /// Memory from 0 on, with descriptors at 0 and the two event structures behind.
    struct Memory(Vec<u8>);

    impl Bus for Memory {
        fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
            let at = address as usize;
            into.copy_from_slice(self.0.get(at..at + into.len()).ok_or(DmaFault::NotMapped)?);
            Ok(())
        }
        fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
            let at = address as usize;
            self.0.get_mut(at..at + from.len()).ok_or(DmaFault::NotMapped)?.copy_from_slice(from);
            Ok(())
        }
        fn intx(&mut self, _asserted: bool) {}
        fn message(&mut self, _vector: u16) {}
        fn messages_routed(&self) -> bool {
            false
        }
    }

    const AREAS: Areas = Areas { descriptors: 0, driver: 0x100, device: 0x104 };

    /// The driver's side, as simple as can be.
    struct Driver {
        avail: Place,
        used: Place,
    }

    impl Driver {
        fn put(&mut self, memory: &mut Memory, id: u16, parts: u16) {
            for n in 0..parts {
                let next = if n + 1 < parts { F_NEXT } else { 0 };
                let wrap = if self.avail.wrap { F_AVAIL } else { F_USED };
                let word = u64::from(100 + n) | u64::from(id) << 32 | u64::from(next | wrap) << 48;
                memory.write(u64::from(self.avail.index) * 16 + 8, &word.to_le_bytes()).unwrap();
                self.avail.advance(1, SIZE);
            }
        }

        fn take(&mut self, memory: &mut Memory, parts: u16) -> Option<u16> {
            let mut bytes = [0; 8];
            memory.read(u64::from(self.used.index) * 16 + 8, &mut bytes).unwrap();
            let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
            let used = (flags & F_AVAIL != 0) == self.used.wrap && (flags & F_USED != 0) == self.used.wrap;
            used.then(|| {
                self.used.advance(parts, SIZE);
                u16::from_le_bytes([bytes[4], bytes[5]])
            })
        }
    }

    #[test]
    fn chains_go_round_and_round_and_come_back_in_any_order() {
        let mut memory = Memory(vec![0; 0x108]);
        let mut ring = PackedRing::new(SIZE, AREAS, true).unwrap();
        let mut driver = Driver { avail: Place::START, used: Place::START };
        let mut chain = Chain::default();
        for lap in 0..100u16 {
            assert_eq!(ring.pop(&mut memory, &mut chain), Ok(false));
            assert_eq!(ring.listen(&mut memory), Ok(false));
            let (first, second) = (lap % 4, 4);
            driver.put(&mut memory, first, 1 + lap % 2);
            driver.put(&mut memory, second, 2);
            let mut ids = Vec::new();
            while ring.pop(&mut memory, &mut chain).unwrap() {
                assert_eq!(chain.parts[0].len, 100);
                ids.push((chain.id, chain.parts.len() as u16));
            }
            assert_eq!(ids, [(first, 1 + lap % 2), (second, 2)]);
            for (id, _) in ids.iter().rev() {
                let completion = Completion { id: (*id).into(), length: 0, word: 0 };
                ring.push(&mut memory, completion).unwrap();
            }
            assert_eq!(driver.take(&mut memory, 2), Some(second));
            assert_eq!(driver.take(&mut memory, 1 + lap % 2), Some(first));
            assert_eq!(driver.take(&mut memory, 1), None);
        }
    }

    #[test]
    fn the_driver_says_when_it_is_interrupted() {
        let mut memory = Memory(vec![0; 0x108]);
        let mut ring = PackedRing::new(SIZE, AREAS, true).unwrap();
        let mut driver = Driver { avail: Place::START, used: Place::START };
        let mut chain = Chain::default();
        // Enabled; disabled; at the first one from here on; beyond the next one.
        for (event, wanted) in [
            (u32::from(EVENT_ENABLE) << 16, true),
            (u32::from(EVENT_DISABLE) << 16, false),
            (u32::from(EVENT_DESC) << 16 | 0x8000 | 2, true),
            (u32::from(EVENT_DESC) << 16 | 0x8000 | 4, false),
        ] {
            driver.put(&mut memory, 0, 1);
            assert_eq!(ring.pop(&mut memory, &mut chain), Ok(true));
            ring.push(&mut memory, Completion { id: 0, length: 0, word: 0 }).unwrap();
            memory.write(0x100, &event.to_le_bytes()).unwrap();
            assert_eq!(ring.wants_interrupt(&mut memory), Ok(wanted));
        }
    }

    #[test]
    fn a_chain_without_end_is_a_fault() {
        let mut memory = Memory(vec![0; 0x108]);
        let mut ring = PackedRing::new(SIZE, AREAS, false).unwrap();
        for slot in 0..u64::from(SIZE) {
            memory.write(slot * 16 + 14, &(F_NEXT | F_AVAIL).to_le_bytes()).unwrap();
        }
        assert_eq!(ring.pop(&mut memory, &mut Chain::default()), Err(RingFault::Chain));
        assert!(PackedRing::new(0, AREAS, false).is_none());
        assert!(PackedRing::new(4, Areas { driver: 2, ..AREAS }, false).is_none());
    }
}
