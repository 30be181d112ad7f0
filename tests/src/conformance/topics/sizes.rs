//! Frames of every size.

use uvia_driver::nic::{NicConfig, TxFrame};

use super::super::frame::{HEADER, SHORTEST};
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

/// The longest frames, as many at a time as there are buffers for: whole, and counted to the byte.
pub fn the_longest_fill_every_buffer(bench: &dyn Bench) {
    let rounds = bench.effort().of(20, 5, 4);
    let config = NicConfig { tx_ring: 32, rx_ring: 32, interrupts: false, ..NicConfig::default() };
    Pair::ready(bench, &config).both_ways(|from, to| {
        let longest = from.nic.properties().max_frame.min(to.nic.properties().max_frame);
        let burst = from.nic.properties().tx_slots.min(to.nic.properties().rx_slots).min(32);
        let before = (from.nic.statistics(), to.nic.statistics());
        let mut count = 0;
        for round in 0..rounds {
            let mut sent = Vec::new();
            for n in 0..burst {
                // In parts too, as far as they have room.
                let Some(bytes) = from.put(longest, 1 + (round + n) % 3) else { break };
                sent.push(bytes);
            }
            from.nic.flush().unwrap();
            to.expect(&sent);
            from.settle();
            count += sent.len() as u64;
        }
        let after = (from.nic.statistics(), to.nic.statistics());
        assert_eq!(after.0.tx_bytes - before.0.tx_bytes, count * longest as u64);
        assert_eq!(after.1.rx_bytes - before.1.rx_bytes, count * longest as u64);
        assert_eq!((after.1.rx_errors, after.1.rx_missed), (before.1.rx_errors, before.1.rx_missed));
    });
}

/// A limit that is asked for is kept, where the device does not decide by itself: as long a frame goes through, and one
/// byte more is not sent.
pub fn no_longer_than_was_asked_for(bench: &dyn Bench) {
    let limits = NicConfig::FRAMES;
    let usual = Pair::open(bench, &NicConfig::default());
    let [of_a, of_b] = [&usual.a, &usual.b].map(|end| end.nic.properties().max_frame);
    drop(usual);
    let all = [*limits.start(), 4000, 2044, *limits.end()];
    for wanted in all.into_iter().take(bench.effort().of(4, 4, 2)) {
        let config = NicConfig { max_frame: Some(wanted), ..NicConfig::default() };
        let mut pair = Pair::ready(bench, &config);
        for (end, without) in [(&pair.a, of_a), (&pair.b, of_b)] {
            let p = end.nic.properties();
            assert!(p.max_frame >= p.mtu + HEADER);
            // One that decides by itself does so either way.
            let right = if without == *limits.end() { p.max_frame == wanted } else { p.max_frame == without };
            assert!(right, "{wanted} were asked for: {p:?}");
        }
        pair.both_ways(|from, to| {
            let longest = from.nic.properties().max_frame;
            if longest <= to.nic.properties().max_frame {
                let sent = from.send_one(longest, 2);
                to.expect(&[sent]);
                from.settle();
            }
            let segments = [from.lasting(longest), from.lasting(1)];
            let refused = from.nic.transmit(&TxFrame { segments: &segments, token: 1 });
            assert!(refused.is_err(), "a frame of {} bytes is taken", longest + 1);
        });
        pair.exchange();
    }
}
