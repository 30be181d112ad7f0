//! Rings whose descriptors cannot be fetched for a while.

mod outside;

use outside::{EN, HEAD, Memory, RECEIVE, RINGS, TAIL, Wire, e1000, outside, set_ring, start};
use uvia_models::function::Function;

/// Registers of 82540EM.
const TCTL: u64 = 0x400;
const TRANSMIT: usize = 0x3800;

/// As a client does that has mapped the rings' registers: no message tells the model of the tail.
#[test]
fn they_are_fetched_when_the_tail_moves_again() {
    let mut function = e1000();
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
    set_ring(&function, RECEIVE, 0x1000, 2);
    set_ring(&function, TRANSMIT, 0x2000, 2);
    let mut around = outside(&mut memory, &mut wire, 1);
    start(&mut function, &mut around, 0);
    function.write(&mut around, 0, TCTL, &EN.to_le_bytes());
    let work = |function: &mut Function, memory: &mut Memory, wire: &mut Wire| {
        function.work(&mut outside(memory, wire, 2), 64);
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
