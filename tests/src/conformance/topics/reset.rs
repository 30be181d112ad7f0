//! Resets in the middle of traffic.

use std::collections::HashSet;

use super::super::frame::{SHORTEST, token};
use super::super::{Bench, Pair};

/// Frames in the ring are sent or dropped, each token comes back once, and all works again.
pub fn in_the_middle_of_traffic(bench: &dyn Bench) {
    let rounds = bench.effort().of(40, 8, 2);
    let mut pair = Pair::usual(bench);
    for round in 0..rounds {
        for backwards in [false, true] {
            let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
            // Some the device was told of, some not, all of them more than once around in the end.
            let (frames, told) = (20 + round % 40, round * 7 % 20);
            for n in 0..frames {
                if from.put(SHORTEST + n, 1 + n % 3).is_none() {
                    break;
                }
                if n == told {
                    from.nic.flush().unwrap();
                }
            }
            // Some tokens may have been taken back before.
            if round % 2 == 0 {
                from.reclaim();
            }
            from.nic.reset().unwrap();
            from.settle();
            // Nothing twice, and nothing that was never told of.
            let mut seen = HashSet::new();
            for frame in to.take(usize::MAX) {
                assert!(seen.insert(token(&frame)), "a frame twice");
            }
            assert!(seen.len() <= told + 1, "{} frames, but only {} were shown", seen.len(), told + 1);
            pair.sync();
            pair.exchange();
        }
    }
}

/// A receiver that is reset while frames come in loses some, and is not confused.
pub fn of_the_receiver(bench: &dyn Bench) {
    let rounds = bench.effort().of(40, 8, 2);
    let mut pair = Pair::usual(bench);
    for round in 0..rounds {
        for backwards in [false, true] {
            let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
            for n in 0..30 {
                from.send_one(SHORTEST + n, 1);
                if n == 5 {
                    to.take(round % 5);
                }
            }
            to.nic.reset().unwrap();
            from.settle();
            assert_eq!(to.reclaim(), 0, "tokens of a NIC that sent nothing");
            pair.sync();
            pair.exchange();
        }
    }
}
