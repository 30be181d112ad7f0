//! Frames of every size.

use super::super::frame::SHORTEST;
use super::super::{Bench, Effort, Pair};

/// Of frames that are longer than on most networks, a sample is enough.
const USUAL: usize = 2048;

/// From the shortest to the longest, each alone, its content whole.
pub fn every_size_arrives_whole(bench: &dyn Bench) {
    Pair::usual(bench).both_ways(|from, to| {
        let most = from.nic.properties().max_segments;
        let longest = from.nic.properties().max_frame.min(to.nic.properties().max_frame);
        // In guests every size, too: each is a few microseconds.
        let step = if bench.effort() == Effort::Quick { 3 } else { 1 };
        let usual = (SHORTEST..=longest.min(USUAL)).step_by(step);
        let beyond = (USUAL + 1..longest).step_by(bench.effort().of(97, 397, 97)).chain([longest]);
        for len in usual.chain(beyond.filter(|len| *len > USUAL)) {
            let sent = from.send_one(len, 1 + len % most);
            to.expect(&[sent]);
            from.settle();
        }
    });
}
