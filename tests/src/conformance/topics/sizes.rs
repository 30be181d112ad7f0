//! Frames of every size.

use super::super::frame::SHORTEST;
use super::super::{Bench, Pair};

/// From the shortest to the longest, each alone, its content whole.
pub fn every_size_arrives_whole(bench: &dyn Bench) {
    // In guests every size, too: each is a few microseconds.
    let step = bench.effort().of(1, 1, 1);
    Pair::usual(bench).both_ways(|from, to| {
        let most = from.nic.properties().max_segments;
        let longest = from.nic.properties().max_frame.min(to.nic.properties().max_frame);
        for len in (SHORTEST..=longest).step_by(step) {
            let sent = from.send_one(len, 1 + len % most);
            to.expect(&[sent]);
            from.settle();
        }
    });
}
