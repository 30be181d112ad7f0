//! Closing, and opening again.

use std::time::Instant;

use uvia_driver::nic::NicConfig;

use super::super::frame::SHORTEST;
use super::super::{Bench, Pair};

/// With frames in both rings, told of or not, taken or not: it closes, nothing is touched afterwards (the bench sees
/// to that), and the next one who opens finds nothing of it.
pub fn with_frames_in_flight(bench: &dyn Bench) {
    let rounds = bench.effort().of(100, 20, 4);
    for round in 0..rounds {
        let config =
            NicConfig { tx_ring: 64, rx_ring: 32, interrupts: round % 2 == 0, ..NicConfig::default() };
        let mut pair = Pair::open(bench, &config);
        pair.both_ways(|from, to| {
            for n in 0..round % 60 {
                from.put(SHORTEST + n, 1 + n % 3);
            }
            if round % 3 > 0 {
                from.nic.flush().unwrap();
            }
            to.take(round % 4);
        });
        drop(pair);
    }
    let mut pair = Pair::usual(bench);
    pair.exchange();
    assert!(pair.a.take(64).is_empty() && pair.b.take(64).is_empty());
}

/// Again and again, without waiting for the link.
pub fn opens_and_closes_again_and_again(bench: &dyn Bench) {
    let (start, rounds) = (Instant::now(), bench.effort().of(1000, 50, 20));
    for round in 0..rounds {
        let config = NicConfig { interrupts: round % 2 == 0, ..NicConfig::default() };
        let pair = Pair::try_open(bench, &config).unwrap_or_else(|e| panic!("round {round}: {e}"));
        drop(pair);
    }
    println!("{rounds} times in {:?}", start.elapsed());
    Pair::usual(bench).exchange();
}
