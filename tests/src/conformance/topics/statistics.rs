//! Counters.

use super::super::frame::SHORTEST;
use super::super::{Bench, Pair};

/// Frames and bytes, at both ends, over a reset too.
pub fn counters_add_up(bench: &dyn Bench) {
    let mut pair = Pair::usual(bench);
    for round in 0..2 {
        pair.both_ways(|from, to| {
            let before = (from.nic.statistics(), to.nic.statistics());
            let mut bytes = 0;
            for n in 0..50 {
                let sent = from.send_one(SHORTEST + n * 29, 1 + n % 4);
                bytes += sent.len() as u64;
                to.expect(&[sent]);
            }
            from.settle();
            let after = (from.nic.statistics(), to.nic.statistics());
            let sent = (after.0.tx_frames - before.0.tx_frames, after.0.tx_bytes - before.0.tx_bytes);
            let received = (after.1.rx_frames - before.1.rx_frames, after.1.rx_bytes - before.1.rx_bytes);
            assert_eq!((sent, received), ((50, bytes), (50, bytes)), "round {round}");
            // The other direction is another matter, and there was no reason to miss any.
            assert_eq!((after.0.rx_frames, after.1.tx_frames), (before.0.rx_frames, before.1.tx_frames));
            assert_eq!((after.1.rx_errors, after.1.rx_missed), (before.1.rx_errors, before.1.rx_missed));
            assert!(after.0.doorbells > before.0.doorbells);
        });
        // Counters are those since the adapter was opened.
        let before = pair.a.nic.statistics();
        pair.a.nic.reset().unwrap();
        let after = pair.a.nic.statistics();
        assert!(after.tx_frames >= before.tx_frames && after.rx_bytes >= before.rx_bytes);
        assert!(after.doorbells >= before.doorbells);
        pair.sync();
    }
}
