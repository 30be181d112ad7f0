//! Transmit rings that are full.

use std::time::Instant;

use uvia_driver::nic::NicConfig;

use super::super::frame::SHORTEST;
use super::super::{Bench, PATIENCE, Pair};
use crate::Idle;

/// A sender that is faster than its small ring: it is told so, and nothing is lost or overtakes.
pub fn says_so_and_loses_nothing(bench: &dyn Bench) {
    let wanted = bench.effort().of(10_000, 2000, 3000);
    let config = NicConfig { tx_ring: 16, rx_ring: 16, interrupts: false, ..NicConfig::default() };
    Pair::ready(bench, &config).both_ways(|from, to| {
        let slots = from.nic.properties().tx_slots;
        let (mut sent, mut full) = (Vec::new(), 0);
        let (start, mut idle) = (Instant::now(), Idle::default());
        while sent.len() < wanted {
            match from.put(SHORTEST + sent.len() % 900, 1 + sent.len() % 2) {
                Some(bytes) => sent.push(bytes),
                None => {
                    full += 1;
                    assert!(from.outstanding() > 0, "an empty ring is full");
                    if from.reclaim() == 0 {
                        idle.pause();
                    } else {
                        idle = Idle::default();
                    }
                    assert!(start.elapsed() < PATIENCE * 6, "no progress");
                    continue;
                }
            }
            assert!(from.outstanding() <= slots, "more frames than it said that fit");
            if sent.len() % 8 == 0 {
                from.nic.flush().unwrap();
                to.expect(&sent[sent.len() - 8..]);
            }
        }
        assert!(full > 0, "a ring of {slots} was never full");
        println!("the ring was full {full} times");
        from.nic.flush().unwrap();
        from.settle();
    });
}

/// Filled to the brim again and again, without a flush: the device comes to know of it all the same, each token
/// comes back once, and as much fits as was promised.
pub fn every_token_comes_back_once(bench: &dyn Bench) {
    let rounds = bench.effort().of(200, 40, 20);
    let config = NicConfig { tx_ring: 24, rx_ring: 256, interrupts: false, ..NicConfig::default() };
    Pair::ready(bench, &config).both_ways(|from, to| {
        let slots = from.nic.properties().tx_slots;
        for round in 0..rounds {
            let (start, mut idle) = (Instant::now(), Idle::default());
            let mut sent = Vec::new();
            // Frames of one part fill it exactly; those of more leave a rest.
            let parts = 1 + round % from.nic.properties().max_segments.min(3);
            while let Some(bytes) = from.put(SHORTEST + sent.len(), parts) {
                sent.push(bytes);
                assert!(sent.len() <= slots, "more than fit");
            }
            if parts == 1 {
                assert_eq!(sent.len(), slots, "as many as it said");
            }
            while from.outstanding() > 0 {
                if from.reclaim() == 0 {
                    idle.pause();
                }
                assert!(start.elapsed() < PATIENCE, "the device was not told of a full ring");
            }
            from.settle();
            to.expect(&sent);
        }
    });
}
