//! Rings that wrap.

use uvia_driver::nic::NicConfig;

use super::super::frame::SHORTEST;
use super::super::{Bench, Effort, Pair};

/// Rings of odd sizes over many laps, so that frames of several parts lie across every ring's end; and once more
/// frames than 16 bits count.
pub fn many_laps_of_odd_rings(bench: &dyn Bench) {
    let effort = bench.effort();
    let sizes: &[usize] = &[8, 1, 3, 13, 24, 37, 100, 255, 1000];
    for size in &sizes[..effort.of(sizes.len(), 6, 2)] {
        laps(bench, *size, effort.of(30, 8, 30));
    }
    if effort == Effort::Full {
        // Indices of 16 bits wrap.
        laps(bench, 256, 70_000 / 128);
    }
}

fn laps(bench: &dyn Bench, ring: usize, laps: usize) {
    let config = NicConfig { tx_ring: ring, rx_ring: ring, interrupts: false, ..NicConfig::default() };
    Pair::ready(bench, &config).both_ways(|from, to| {
        let p = from.nic.properties().clone();
        let (slots, room) = (p.tx_slots, to.nic.properties().rx_slots);
        let frames = laps * slots.max(16);
        let before = (from.nic.statistics(), to.nic.statistics());
        let (mut count, mut round) = (0, 0);
        while count < frames {
            // Bursts of 1 to 7, or as many as the peer has buffers for.
            let burst = (1 + round % 7).min(room);
            round += 1;
            let mut sent = Vec::new();
            for n in 0..burst {
                let parts = 1 + (round + n) % p.max_segments.min(4);
                let Some(bytes) = from.put(SHORTEST + (count + n) * 13 % 1000, parts) else { break };
                sent.push(bytes);
            }
            from.nic.flush().unwrap();
            to.expect(&sent);
            from.settle();
            count += sent.len();
        }
        assert_eq!(from.nic.statistics().tx_frames - before.0.tx_frames, count as u64);
        assert_eq!(to.nic.statistics().rx_frames - before.1.rx_frames, count as u64);
    });
}
