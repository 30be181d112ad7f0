//! Rings whose descriptors cannot be fetched for a while.

mod outside;

use std::time::Duration;

use outside::{Memory, Wire};
use uvia_driver::nic::MacAddress;
use uvia_models::faults::Lies;
use uvia_models::function::{Function, Outside};
use uvia_models::machine::Kind;
use uvia_models::random::Random;

/// Registers of 82540EM, and bits of them.
const RCTL: u64 = 0x100;
const TCTL: u64 = 0x400;
const EN: u32 = 1 << 1;
const BROADCAST: u32 = 1 << 15;
const RINGS: usize = 0x2000;
const RECEIVE: usize = 0x2800;
const TRANSMIT: usize = 0x3800;
const LENGTH: usize = 0x08;
const HEAD: usize = 0x10;
const TAIL: usize = 0x18;

/// As a client does that has mapped the rings' registers: no message tells the model of the tail.
#[test]
fn they_are_fetched_when_the_tail_moves_again() {
    let model = Kind::E1000.build(MacAddress([2, 0, 0, 0, 0, 1]), None).unwrap();
    let mut function = Function::new(model, Lies::new(&[], Random::new(0)));
    let pages = function.windows()[0].pages.clone();
    let mut memory = Memory { bytes: vec![0; 0x1_0000], away: false, missed: 0 };
    let mut wire = Wire::default();
    // Descriptors of buffers at 0x8000 and on, of 64 bytes to send.
    for (ring, command) in [(0x1000, 0), (0x2000, 0x0900_0040_u32)] {
        for n in 0..8 {
            let at = ring + 16 * n;
            memory.bytes[at..at + 8].copy_from_slice(&(0x8000 + 0x800 * n as u64).to_le_bytes());
            memory.bytes[at + 8..at + 12].copy_from_slice(&command.to_le_bytes());
        }
    }
    for (registers, base) in [(RECEIVE, 0x1000), (TRANSMIT, 0x2000)] {
        for (register, value) in [(0, base), (LENGTH, 128), (HEAD, 0), (TAIL, 2)] {
            pages.store(registers + register - RINGS, value);
        }
    }
    let mut outside = Outside { bus: &mut memory, port: &mut wire, now: Duration::from_secs(1) };
    function.config_write(&mut outside, 4, &7_u16.to_le_bytes());
    function.write(&mut outside, 0, RCTL, &(EN | BROADCAST).to_le_bytes());
    function.write(&mut outside, 0, TCTL, &EN.to_le_bytes());
    let work = |function: &mut Function, memory: &mut Memory, wire: &mut Wire| {
        function.work(&mut Outside { bus: memory, port: wire, now: Duration::from_secs(2) }, 64);
    };
    let head = |ring: usize| pages.load(ring + HEAD - RINGS);

    memory.away = true;
    wire.arriving = vec![vec![0xff; 64]];
    work(&mut function, &mut memory, &mut wire);
    assert_eq!((head(RECEIVE), head(TRANSMIT)), (0, 0));
    let missed = memory.missed;
    assert_eq!(missed, 2, "one fetch by each ring");
    wire.arriving = vec![vec![0xff; 64]];
    work(&mut function, &mut memory, &mut wire);
    assert_eq!(memory.missed, missed, "it does not try again and again");

    memory.away = false;
    for ring in [RECEIVE, TRANSMIT] {
        pages.store(ring + TAIL - RINGS, 4);
    }
    work(&mut function, &mut memory, &mut wire);
    assert_eq!((head(RECEIVE), head(TRANSMIT), wire.sent.len()), (1, 4, 4));
}
