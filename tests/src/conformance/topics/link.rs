//! Cables that are pulled. For benches that can.

use std::time::{Duration, Instant};

use super::super::bench::Line;
use super::super::{Bench, End, PATIENCE, Pair};

fn wait_for_link(end: &mut End, up: bool) {
    let start = Instant::now();
    while end.nic.link().unwrap().up != up {
        assert!(start.elapsed() < PATIENCE, "the link does not change to up={up}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn lose(from: &mut End, to: &mut End) {
    for n in 0..10 {
        from.send_one(100 + n, 2);
    }
    from.settle();
    assert!(to.take(64).is_empty(), "frames without a link");
}

/// The link goes and comes, each wakes a sleeper, and what is sent meanwhile is lost and comes back.
pub fn goes_and_comes(bench: &dyn Bench) {
    let rounds = bench.effort().of(20, 4, 2);
    let mut pair = Pair::usual(bench);
    for _ in 0..rounds {
        for end in [0, 1] {
            let (here, there) =
                if end == 0 { (&mut pair.a, &mut pair.b) } else { (&mut pair.b, &mut pair.a) };
            here.nic.arm(true).unwrap();
            assert!(here.nic.link().unwrap().up && here.take(64).is_empty());
            assert!(!here.readable(Duration::from_millis(5)), "woken by nothing");
            bench.cable(end, Line::Pulled);
            assert!(here.readable(PATIENCE), "the link's end woke nobody");
            wait_for_link(here, false);
            assert!(!here.nic.ready().unwrap());
            lose(here, there);
            lose(there, here);
            here.nic.arm(true).unwrap();
            assert!(here.take(64).is_empty());
            bench.cable(end, Line::Plugged);
            assert!(here.readable(PATIENCE), "the link's return woke nobody");
            wait_for_link(here, true);
            pair.sync();
            pair.exchange();
        }
    }
}
