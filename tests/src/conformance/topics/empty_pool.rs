//! Receivers that do not look.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uvia_driver::nic::NicConfig;

use super::super::frame::{SHORTEST, token};
use super::super::{Bench, End, PATIENCE, Pair};
use crate::Idle;

/// When nothing came for so long, nothing is under way.
const WHILE: Duration = Duration::from_millis(100);
/// A sender that got nothing out for so long does not before somebody receives: QEMU's virtio is told of a receiver
/// without buffers.
const HELD_UP: Duration = Duration::from_secs(1);

/// As many frames as there are buffers wait in them until somebody looks.
pub fn what_there_are_buffers_for_waits(bench: &dyn Bench) {
    Pair::usual(bench).both_ways(|from, to| {
        let count = to.nic.properties().rx_slots.min(200);
        let (mut sent, mut idle) = (Vec::new(), Idle::default());
        while sent.len() < count {
            match from.put(SHORTEST + sent.len(), 1) {
                Some(bytes) => sent.push(bytes),
                None if from.reclaim() == 0 => idle.pause(),
                None => idle = Idle::default(),
            }
        }
        from.nic.flush().unwrap();
        from.settle();
        std::thread::sleep(Duration::from_millis(50));
        to.expect(&sent);
    });
}

/// Far more frames than there are buffers: some arrive, whole and no more than once, the others are lost, or wait at a
/// sender whose wire holds it up; and afterwards all is well.
pub fn a_flood_is_counted_or_lost_and_gone_afterwards(bench: &dyn Bench) {
    let flood = bench.effort().of(20_000, 4000, 2000);
    let config = NicConfig { tx_ring: 64, rx_ring: 16, interrupts: false, ..NicConfig::default() };
    let mut pair = Pair::ready(bench, &config);
    for backwards in [false, true] {
        let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
        let (before, lost_before) = (to.nic.statistics(), bench.dropped(usize::from(!backwards)));
        let mut sent = pour(from, flood);
        // What there is arrives within a while; when nothing came for some time, there is no more. Where drops are counted,
        // it is known what is still under way.
        let flood = sent.len();
        let lost =
            || bench.dropped(usize::from(!backwards)).zip(lost_before).map(|(now, before)| now - before);
        let (mut arrived, mut idle) = (0, Idle::default());
        let (mut known, mut last) = (0, Instant::now());
        loop {
            let lost = lost();
            let now_known = arrived + lost.unwrap_or(0) as usize;
            if now_known > known {
                (known, last) = (now_known, Instant::now());
            }
            let patience = if lost.is_some() && known < flood { PATIENCE } else { WHILE };
            if last.elapsed() >= patience {
                break;
            }
            from.reclaim();
            let frames = to.take(10);
            if frames.is_empty() {
                idle.pause();
            }
            for frame in frames {
                // A queue on the way that overflowed may let a later one pass.
                let bytes = token(&frame).and_then(|token| sent.remove(&token));
                assert!(
                    bytes.expect("a frame that was sent, and had not come yet") == frame,
                    "a frame differs"
                );
                arrived += 1;
                idle = Idle::default();
            }
        }
        from.settle();
        let after = to.nic.statistics();
        let missed = after.rx_missed - before.rx_missed;
        if let Some(lost) = lost() {
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

/// Sends so many frames, or as many as go out while nobody receives: by their tokens.
fn pour(from: &mut End, flood: usize) -> HashMap<u64, Vec<u8>> {
    let (mut sent, mut progress, mut idle) = (HashMap::new(), Instant::now(), Idle::default());
    while sent.len() < flood {
        if let Some(bytes) = from.put(SHORTEST + sent.len() % 40, 1) {
            sent.insert(token(&bytes).expect("it is one of ours"), bytes);
            (progress, idle) = (Instant::now(), Idle::default());
        } else if from.reclaim() == 0 {
            if progress.elapsed() > HELD_UP {
                println!("the wire holds the sender up after {} frames", sent.len());
                break;
            }
            idle.pause();
        }
    }
    from.nic.flush().unwrap();
    sent
}
