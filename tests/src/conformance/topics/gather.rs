//! Frames whose bytes lie in several places.

use super::super::frame::SHORTEST;
use super::super::{Bench, Pair};

/// Cuts at any place: in the header, one byte long, and with parts of no bytes at all, which are passed over.
pub fn odd_splits_arrive_whole(bench: &dyn Bench) {
    Pair::usual(bench).both_ways(|from, to| {
        let most = from.nic.properties().max_segments;
        let longest = from.nic.properties().max_frame.min(to.nic.properties().max_frame);
        let mut lists: Vec<(usize, Vec<usize>)> = Vec::new();
        for cut in (1..SHORTEST).chain([longest / 2, longest - 1]) {
            lists.push((longest, vec![cut]));
            lists.push((SHORTEST.max(cut + 1), vec![cut]));
        }
        // As many as there may be: of a byte each but for the last, or the first.
        lists.push((longest, (1..most).collect()));
        lists.push((SHORTEST, (1..most).collect()));
        lists.push((longest, (1..most).map(|n| longest - most + n).collect()));
        for parts in 1..=most {
            lists.push((1001.min(longest), (1..parts).map(|n| 1001.min(longest) * n / parts).collect()));
        }
        // Parts without bytes at the beginning, in the middle, at the end, and more of them than there may be parts.
        lists.push((100, vec![0]));
        lists.push((100, vec![100]));
        lists.push((100, vec![0, 0, 13, 13, 13, 100]));
        lists.push((100, vec![50; most + 3]));
        for (len, cuts) in lists {
            let sent = from.try_put_cut(len, &cuts).unwrap().expect("there is room in an empty ring");
            from.nic.flush().unwrap();
            to.expect(&[sent]);
            from.settle();
        }
    });
}
