//! Receivers that do not look.

use std::time::{Duration, Instant};

use uvia_driver::nic::NicConfig;

use super::super::frame::{SHORTEST, token};
use super::super::{Bench, PATIENCE, Pair};

/// As many frames as there are buffers wait in them until somebody looks.
pub fn what_there_are_buffers_for_waits(bench: &dyn Bench) {
    Pair::usual(bench).both_ways(|from, to| {
        let count = to.nic.properties().rx_slots.min(200);
        let mut sent = Vec::new();
        while sent.len() < count {
            match from.put(SHORTEST + sent.len(), 1) {
                Some(bytes) => sent.push(bytes),
                None => drop(from.reclaim()),
            }
        }
        from.nic.flush().unwrap();
        from.settle();
        std::thread::sleep(Duration::from_millis(50));
        to.expect(&sent);
    });
}

/// Far more frames than there are buffers: some arrive, in order and whole, the others are lost; the sender is not
/// held up, and afterwards nothing is.
pub fn a_flood_is_counted_or_lost_and_gone_afterwards(bench: &dyn Bench) {
    let flood = bench.effort().of(20_000, 4000, 2000);
    let config = NicConfig { tx_ring: 64, rx_ring: 16, interrupts: false };
    let mut pair = Pair::ready(bench, &config);
    for backwards in [false, true] {
        let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
        let (before, lost_before) = (to.nic.statistics(), bench.dropped(usize::from(!backwards)));
        let start = Instant::now();
        let mut sent = Vec::new();
        while sent.len() < flood {
            match from.put(SHORTEST + sent.len() % 40, 1) {
                Some(bytes) => sent.push(bytes),
                None => {
                    from.reclaim();
                    assert!(
                        start.elapsed() < PATIENCE * 3,
                        "a receiver that does not look holds the sender up"
                    );
                }
            }
        }
        from.nic.flush().unwrap();
        from.settle();
        // What there is arrives within a while; when nothing came for some time, there is no more.
        let (mut arrived, mut at, mut last) = (0, 0, Instant::now());
        while last.elapsed() < Duration::from_millis(100) {
            for frame in to.take(10) {
                let from_here = sent[at..].iter().position(|bytes| token(bytes) == token(&frame));
                at += from_here.expect("a frame that was sent, after those before");
                assert!(sent[at] == frame, "a frame of the flood differs");
                at += 1;
                arrived += 1;
                last = Instant::now();
            }
        }
        let after = to.nic.statistics();
        let missed = after.rx_missed - before.rx_missed;
        if let Some((lost, before)) = bench.dropped(usize::from(!backwards)).zip(lost_before) {
            let lost = lost - before;
            assert_eq!(arrived as u64 + lost, flood as u64, "frames that neither arrived nor were dropped");
            assert!(lost > 0 && (missed == 0 || missed == lost), "{missed} of {lost} counted as missed");
        }
        println!("{arrived} of {flood} arrived, {missed} counted as missed");
        assert!(arrived >= to.nic.properties().rx_slots, "less than there are buffers for: {arrived}");
        assert_eq!(after.rx_frames - before.rx_frames, arrived as u64);
        assert_eq!(after.rx_errors, before.rx_errors);
        assert!(missed <= (flood - arrived) as u64, "{missed} missed, but {arrived} of {flood} arrived");
        pair.exchange();
    }
}
