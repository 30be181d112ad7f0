//! Transmit rings that lie in adapter memory.

use std::time::Instant;

use uvia_driver::Error;
use uvia_driver::dma::{DmaMemory, Rights};
use uvia_driver::nic::{NicConfig, RingPlace, TxFrame};

use super::super::frame::content;
use super::super::{Bench, End, Memory, PATIENCE, Pair};

/// Frames of the small rings here.
const RING: usize = 16;
/// A frame of the two that differ.
const LENGTH: usize = 200;

/// NICs with their rings in this memory.
fn config(memory: &Memory) -> NicConfig {
    NicConfig {
        tx_ring: RING,
        tx_ring_place: RingPlace::Adapter(memory.memory.clone()),
        ..NicConfig::default()
    }
}

/// A pair of such, or none where the NICs have no ring that could lie there: then they say so.
fn pair(bench: &dyn Bench, memory: &Memory) -> Option<Pair> {
    let mut pair = match Pair::try_open(bench, &config(memory)) {
        Ok(pair) if bench.has_rings() => pair,
        Err(Error::Unsupported { what, .. }) if !bench.has_rings() => {
            assert!(what.contains("adapter memory"), "{what}");
            return None;
        }
        Ok(_) => panic!("a NIC without a ring has put it into adapter memory"),
        Err(e) => panic!("{e}"),
    };
    pair.sync();
    Some(pair)
}

/// Bursts of all lengths over a small ring, both ways.
fn laps(pair: &mut Pair, laps: usize) {
    pair.both_ways(|from, to| {
        for lap in 0..laps {
            let sent: Vec<_> = (0..1 + lap % RING)
                .map_while(|n| from.put(60 + (lap * 37 + n * 101) % 1000, 1 + (lap + n) % 3))
                .collect();
            from.nic.flush().unwrap();
            to.expect(&sent);
            let start = Instant::now();
            while from.outstanding() > 0 {
                from.reclaim();
                assert!(start.elapsed() < PATIENCE, "a token did not come back");
            }
        }
    });
}

/// Frames go out by a ring that lies in adapter memory: what the device fetches is what lies there, and not what the
/// driver has put into it.
pub fn is_fetched_from_adapter_memory(bench: &dyn Bench) {
    let memory = &bench.adapter_memory();
    let left = memory.memory.windows().left;
    let Some(mut pair) = pair(bench, memory) else { return };
    for end in [&pair.a, &pair.b] {
        assert_eq!(end.nic.properties().tx_ring_memory.as_deref(), Some(memory.memory.name()));
    }
    assert!(memory.memory.windows().left + 2 <= left, "each ring takes a window at least");
    laps(&mut pair, bench.effort().of(200, 40, 20));
    pair.both_ways(|from, to| {
        let frames = DmaMemory::allocate(from.domain.clone(), 4096, Rights::READ).unwrap();
        let contents = [1, 2].map(|token| content(from.mac(), from.peer, token, LENGTH));
        let [first, second] = [0, 2048].map(|at| frames.segment(at..at + LENGTH).unwrap());
        frames.write_bytes(0, &contents[0]);
        frames.write_bytes(2048, &contents[1]);
        let before = memory.read(0, memory.len());
        assert!(from.nic.transmit(&TxFrame { segments: &[first], token: 1 }).unwrap());
        // The device was not told of it. Where the descriptor lies its address is changed, from the memory's other side.
        let there = memory.read(0, memory.len());
        let places: Vec<_> = (0..there.len())
            .step_by(8)
            .filter(|at| {
                there[*at..at + 8] == first.iova().to_le_bytes() && before[*at..at + 8] != there[*at..at + 8]
            })
            .collect();
        assert_eq!(places.len(), 1, "a descriptor with the frame's address lies in the adapter memory");
        memory.write(places[0], &second.iova().to_le_bytes());
        from.nic.flush().unwrap();
        to.expect(&contents[1..]);
        wait_for(from, 1);
    });
    drop(pair);
    memory.wait_for_windows(left);
}

fn wait_for(from: &mut End, token: u64) {
    let start = Instant::now();
    while from.nic.reclaim(&mut |done| assert_eq!(done, token)).unwrap() == 0 {
        assert!(start.elapsed() < PATIENCE, "the token did not come back");
    }
}

/// A reset in the middle of traffic empties a ring in adapter memory too, and it goes on.
pub fn is_emptied_by_a_reset(bench: &dyn Bench) {
    let memory = &bench.adapter_memory();
    let Some(mut pair) = pair(bench, memory) else { return };
    for round in 0..bench.effort().of(6, 2, 1) {
        let from = &mut pair.a;
        for n in 0..RING / 2 {
            from.put(100 + n, 1 + n % 2).expect("there is room");
            if n == 2 + round % 4 {
                from.nic.flush().unwrap();
            }
        }
        from.nic.reset().unwrap();
        from.reclaim();
        assert_eq!(from.outstanding(), 0, "all tokens came back");
        pair.b.take(usize::MAX);
        pair.sync();
        laps(&mut pair, 5);
    }
}

/// A ring finds no place in memory that others have, and the NIC says so; it comes up when there is room again.
pub fn needs_windows(bench: &dyn Bench) {
    let memory = &bench.adapter_memory();
    let nobody = || std::sync::Arc::new(uvia_driver::dma::IdentityDomain::default());
    let mut taken: Vec<_> = std::iter::from_fn(|| memory.memory.lease(nobody(), "nobody").ok()).collect();
    let refused = match Pair::try_open(bench, &config(memory)) {
        Err(e) => e,
        Ok(_) => panic!("there is no window left"),
    };
    match refused {
        Error::Unsupported { .. } if !bench.has_rings() => return,
        Error::NoWindow { windows, unsettled: 0, .. } => assert_eq!(windows, taken.len()),
        other => panic!("{other}"),
    }
    let windows = taken.len();
    taken.clear();
    memory.wait_for_windows(windows);
    pair(bench, memory).expect("it has rings").exchange();
}
