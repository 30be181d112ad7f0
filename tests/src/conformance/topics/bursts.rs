//! Many frames at a time.

use super::super::frame::SHORTEST;
use super::super::{Bench, Pair};

/// Bursts from one frame to all that fit, each told of once.
pub fn bursts_of_all_lengths_cost_one_doorbell(bench: &dyn Bench) {
    let rounds = bench.effort().of(600, 150, 150);
    Pair::usual(bench).both_ways(|from, to| {
        let before = from.nic.statistics();
        let most = from.nic.properties().tx_slots.min(to.nic.properties().rx_slots);
        let (mut frames, mut times_full) = (0, 0);
        for burst in (1..=64).chain([100, most / 2, most]).cycle().take(rounds) {
            let mut sent = Vec::new();
            for n in 0..burst {
                match from.put(SHORTEST + (burst * 31 + n * 7) % 1400, 1 + n % 3) {
                    Some(bytes) => sent.push(bytes),
                    None => {
                        times_full += 1;
                        break;
                    }
                }
            }
            from.nic.flush().unwrap();
            to.expect(&sent);
            from.settle();
            frames += sent.len() as u64;
        }
        let after = from.nic.statistics();
        assert_eq!(after.tx_frames - before.tx_frames, frames);
        let doorbells = after.doorbells - before.doorbells;
        println!("{frames} frames in {rounds} bursts by {doorbells} doorbells");
        // One a burst, and one for each time that a burst filled the ring. Buffers that are given back cost some too,
        // but this end receives nothing.
        assert!(doorbells <= rounds as u64 + times_full, "{doorbells} doorbells for {rounds} bursts");
    });
}
