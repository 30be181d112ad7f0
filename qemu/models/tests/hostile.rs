//! Clients that keep no rules: whatever they write into registers, configuration space and memory, a model goes
//! on, does bounded work in each call, and touches nothing but what was mapped.

use std::time::Duration;

use proptest::prelude::*;
use uvia_driver::nic::MacAddress;
use uvia_models::bus::{Bus, DmaFault};
use uvia_models::faults::Lies;
use uvia_models::function::{Function, Outside};
use uvia_models::machine::Kind;
use uvia_models::port::{Frame, Port};
use uvia_models::random::Random;

const MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0x12, 0x34, 1]);
/// Where the client's memory lies: all else is not mapped.
const BASE: u64 = 0x10_0000;
const LEN: usize = 0x1_0000;

/// Memory that changes while it is looked at.
struct Memory {
    bytes: Vec<u8>,
    random: Random,
    restless: bool,
    accesses: usize,
}

impl Memory {
    fn place(&mut self, address: u64, len: usize) -> Result<std::ops::Range<usize>, DmaFault> {
        self.accesses += 1;
        if self.restless && self.random.below(8) == 0 {
            let at = self.random.below(LEN as u64) as usize;
            self.bytes[at] = self.random.next() as u8;
        }
        let start = address.checked_sub(BASE).ok_or(DmaFault::NotMapped)?;
        let start = usize::try_from(start).map_err(|_| DmaFault::NotMapped)?;
        match start.checked_add(len) {
            Some(end) if end <= LEN => Ok(start..end),
            _ => Err(DmaFault::NotMapped),
        }
    }
}

impl Bus for Memory {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let range = self.place(address, into.len())?;
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        let range = self.place(address, from.len())?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn intx(&mut self, _asserted: bool) {}
    fn message(&mut self, _vector: u16) {}
    fn messages_routed(&self) -> bool {
        false
    }
}

/// Frames without end.
struct Flood {
    random: Random,
    sent: usize,
}

impl Port for Flood {
    fn send(&mut self, frame: Frame) {
        assert!(frame.len() <= 0x1_0300, "{} bytes", frame.len());
        self.sent += 1;
    }

    fn receive(&mut self) -> Option<Frame> {
        let len = self.random.below(2000) as usize;
        Some(vec![0xff; len])
    }

    fn missed(&mut self) -> u64 {
        self.random.below(3)
    }

    fn link(&self) -> bool {
        true
    }
}

/// Values that matter: addresses in and around the memory, small numbers, all bits.
fn value(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => random.below(256),
        1 => BASE + (random.below(LEN as u64) & !0xf),
        2 => random.next() & 0xffff,
        3 => 1 << random.below(32),
        4 => u64::MAX,
        _ => random.next(),
    }
}

/// Registers that bring a chip to life, so that not all of the random calls hit a dead one.
fn wake(kind: Kind, function: &mut Function, outside: &mut Outside<'_>, random: &mut Random) {
    function.config_write(outside, 4, &[6, 0]);
    let write = |function: &mut Function, outside: &mut Outside<'_>, bar, offset, bytes: &[u8]| {
        function.write(outside, bar, offset, bytes);
    };
    if kind == Kind::E1000 {
        for (register, value) in [
            (0x2800, BASE),
            (0x2804, 0),
            (0x2808, 128 * (1 + random.below(16))),
            (0x2818, random.below(40)),
            (0x3800, BASE + 0x4000),
            (0x3804, 0),
            (0x3808, 128 * (1 + random.below(16))),
            (0x0100, 0x8002 | random.next() & 0x0607_0f3c),
            (0x0400, 0xa),
            (0x3818, random.below(40)),
        ] {
            write(function, outside, 0, register, &(value as u32).to_le_bytes());
        }
        return;
    }
    let packed = kind == Kind::VirtioPacked && random.below(2) == 0;
    write(function, outside, 4, 0x14, &[3]);
    let features: u64 = 1 << 32 | 1 << 33 | 1 << 17 | u64::from(packed) << 34 | (random.below(2) << 29);
    for half in 0..2u32 {
        write(function, outside, 4, 0x08, &half.to_le_bytes());
        write(function, outside, 4, 0x0c, &((features >> (32 * half)) as u32).to_le_bytes());
    }
    write(function, outside, 4, 0x14, &[11]);
    for queue in 0..3u16 {
        let size = 1u16 << random.below(7);
        rings(outside, random, queue.into(), size.into(), packed);
        write(function, outside, 4, 0x16, &queue.to_le_bytes());
        write(function, outside, 4, 0x18, &size.to_le_bytes());
        for (area, register) in [0x20, 0x28, 0x30].into_iter().enumerate() {
            let address = BASE + u64::from(queue) * 0x3000 + area as u64 * 0x1000;
            write(function, outside, 4, register, &address.to_le_bytes());
        }
        write(function, outside, 4, 0x1c, &[1, 0]);
    }
    write(function, outside, 4, 0x14, &[15]);
}

/// Rings of a queue as a driver might have filled them, but for what is random.
fn rings(outside: &mut Outside<'_>, random: &mut Random, queue: u64, size: u64, packed: bool) {
    let base = BASE + queue * 0x3000;
    for slot in 0..size {
        let address = BASE + 0x9000 + random.below(0x6000);
        let (length, rare) = (random.below(1600), random.below(16) == 0);
        let chained = random.below(3) == 0;
        let writable = u64::from(queue == 0) * 2;
        let flags = if rare { random.next() & 0xffff } else { writable | u64::from(chained) };
        let word = match packed {
            true => length | random.below(size) << 32 | (flags | 1 << 7) << 48,
            false => length | (flags & 0xffff) << 32 | random.below(size) << 48,
        };
        outside.bus.write(base + 16 * slot, &address.to_le_bytes()).unwrap();
        outside.bus.write(base + 16 * slot + 8, &word.to_le_bytes()).unwrap();
        let head = random.below(size + 1) as u16;
        outside.bus.write(base + 0x1000 + 4 + 2 * slot, &head.to_le_bytes()).unwrap();
    }
    let index = random.below(size + 1) as u32;
    outside.bus.write(base + 0x1000, &(index << 16).to_le_bytes()).unwrap();
}

/// Descriptors that are nearly right: addresses in memory, lengths that fit, flags of all kinds.
fn plausible(memory: &mut Memory, random: &mut Random) {
    for slot in 0..LEN / 16 {
        if random.below(3) == 0 {
            continue;
        }
        let address = BASE + random.below(LEN as u64);
        memory.bytes[slot * 16..slot * 16 + 8].copy_from_slice(&address.to_le_bytes());
        let length = [random.below(64), random.below(2048), random.next()][random.below(3) as usize];
        let word = length & 0xffff_ffff | (random.next() << 32);
        memory.bytes[slot * 16 + 8..slot * 16 + 16].copy_from_slice(&word.to_le_bytes());
    }
}

/// Answers how many frames the model sent.
fn run(kind: Kind, seed: u64, restless: bool) -> usize {
    let mut random = Random::new(seed);
    let mut memory = Memory { bytes: vec![0; LEN], random: Random::part(seed, 1), restless, accesses: 0 };
    let mut port = Flood { random: Random::part(seed, 2), sent: 0 };
    let mut function = Function::new(kind.build(MAC, None).unwrap(), Lies::none());
    if random.below(2) == 0 {
        random.fill(&mut memory.bytes);
    } else {
        plausible(&mut memory, &mut random);
    }
    for round in 0..200u64 {
        let mut outside = Outside { bus: &mut memory, port: &mut port, now: Duration::from_micros(round) };
        if round % 16 == 0 {
            wake(kind, &mut function, &mut outside, &mut random);
        }
        let bar = if random.below(4) == 0 { random.below(7) as u8 } else { [0, 4][random.below(2) as usize] };
        let offset = match random.below(4) {
            0 => random.below(0x40),
            1 => [0x100, 0x400, 0x2808, 0x2810, 0x2818, 0x3808, 0x3810, 0x3818][random.below(8) as usize],
            2 => 0x3000 + 4 * random.below(4),
            _ => random.next() >> random.below(64),
        };
        let len = [1, 2, 4, 8, random.below(40) as usize][random.below(5) as usize];
        let mut bytes = [0; 40];
        match random.below(5) {
            0 => function.read(&mut outside, bar, offset, &mut bytes[..len]),
            1 | 2 => {
                bytes[..8].copy_from_slice(&value(&mut random).to_le_bytes());
                function.write(&mut outside, bar, offset, &bytes[..len]);
            }
            3 => {
                random.fill(&mut bytes);
                function.config_write(&mut outside, offset & 0x1fff, &bytes[..len]);
                function.config_write(&mut outside, 4, &[6, 0]);
                function.config_read(offset, &mut bytes[..len]);
            }
            _ => {
                let at = random.below(LEN as u64 - 40) as usize;
                random.fill(&mut bytes);
                memory.bytes[at..at + len].copy_from_slice(&bytes[..len]);
            }
        }
        let before = memory.accesses;
        let mut outside = Outside { bus: &mut memory, port: &mut port, now: Duration::from_micros(round) };
        let work = function.work(&mut outside, 16);
        // A chain may have as many parts as a queue is long, each looked at and fetched.
        assert!(work.done <= 64, "{work:?}");
        assert!(memory.accesses - before <= 64 * 600, "{} accesses", memory.accesses - before);
    }
    port.sent
}

/// For proptest's usual count of 256 cases: 200 calls each, and what the rings make of them.
const CASES: u32 = 8;

fn more_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases * CASES, failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(more_cases())]

    #[test]
    fn anything_goes(kind in prop::sample::select(Kind::ALL), seed: u64, restless: bool) {
        run(kind, seed, restless);
    }
}

#[test]
fn known_tricks() {
    for kind in Kind::ALL {
        // That the model is alive: otherwise this would test little.
        let sent: usize = (0..50).map(|seed| run(*kind, seed, seed % 2 == 0)).sum();
        assert!(sent > 30, "{kind:?}: {sent}");
    }
}
