//! Frames that lie in adapter memory.

use std::time::Instant;

use uvia_driver::nic::TxFrame;
use uvia_driver::pio::{SLOT, SLOTS, Template, Window};

use super::super::frame::{HEADER, SHORTEST, content};
use super::super::{Bench, End, PATIENCE, Pair};
use crate::Idle;

/// Takes back what is in flight in a window.
fn settle(from: &mut End, window: &mut Window) {
    let (start, mut idle) = (Instant::now(), Idle::default());
    while (0..SLOTS).any(|n| window.is_flying(n)) {
        let landed = from.nic.reclaim(&mut |slot| window.landed(slot as usize));
        if landed.expect("a NIC that works gives tokens back") == 0 {
            idle.pause();
        }
        assert!(start.elapsed() < PATIENCE, "a slot did not come back");
    }
}

/// Frames of all sizes, from all slots and odd places in them; and it is the slot that is fetched from, and not what was
/// to be stored there.
pub fn frames_are_fetched_from_slots(bench: &dyn Bench) {
    let memory = &bench.adapter_memory();
    let laps = bench.effort().of(20, 5, 3);
    Pair::usual(bench).both_ways(|from, to| {
        let nic = from.nic.properties().device.clone();
        let mut window = memory.memory.lease(from.domain.clone(), &nic).unwrap_or_else(|e| panic!("{e}"));
        let longest = SLOT.min(from.nic.properties().max_frame);
        for lap in 0..laps {
            let mut sent = Vec::new();
            for n in 0..SLOTS {
                let len = [SHORTEST, SHORTEST + 1, 64, 127, 300, longest - 7, longest][(lap + n) % 7];
                let frame = content(from.nic.properties().mac, from.peer, (lap * SLOTS + n) as u64, len);
                let mut slot = window.slot(n).expect("it has landed");
                // The header ends at a word, wherever it begins, where there is room for it to begin anywhere.
                let segment = if len + 16 - HEADER <= SLOT && lap % 2 == 1 {
                    slot.put(16, &frame[HEADER..]);
                    let start = slot.put_before(16, &frame[..HEADER]);
                    slot.send(start..start + len)
                } else {
                    slot.put(0, &frame);
                    slot.send(0..len)
                };
                let frame_of_slot = TxFrame { segments: &[segment], token: n as u64 };
                assert!(from.nic.transmit(&frame_of_slot).unwrap(), "there is room for 16 frames");
                sent.push(frame);
            }
            from.nic.flush().unwrap();
            to.expect(&sent);
            settle(from, &mut window);
        }
        // Changed on the other side after it was stored: this is what goes out.
        let mut frame = content(from.nic.properties().mac, from.peer, 7, 200);
        let mut slot = window.slot(5).expect("it has landed");
        slot.put(0, &frame);
        let segment = slot.send(0..200);
        let at = window.offset() + 5 * SLOT;
        assert!(memory.read(at, 200) == frame, "what was stored lies in the adapter memory");
        frame[100..150].fill(0xa5);
        memory.write(at + 100, &[0xa5; 50]);
        assert!(from.nic.transmit(&TxFrame { segments: &[segment], token: 5 }).unwrap());
        from.nic.flush().unwrap();
        to.expect(&[frame]);
        settle(from, &mut window);
        // One that is prebuilt, and sent with a number in it.
        let mut frame = content(from.nic.properties().mac, from.peer, 8, 90);
        let mut template = Template::new(9, &frame).unwrap();
        for round in 0..laps as u64 {
            frame[51..59].copy_from_slice(&round.to_le_bytes());
            template.patch(51, &round.to_le_bytes()).unwrap();
            let segment = template.send(&mut window).expect("it has landed");
            assert!(from.nic.transmit(&TxFrame { segments: &[segment], token: 9 }).unwrap());
            from.nic.flush().unwrap();
            to.expect(&[frame.clone()]);
            settle(from, &mut window);
        }
    });
}

/// Slots in flight when the NIC is reset come back, and are sent from again.
pub fn a_reset_lets_go_of_slots(bench: &dyn Bench) {
    let memory = &bench.adapter_memory();
    let mut pair = Pair::usual(bench);
    for round in 0..bench.effort().of(10, 3, 2) {
        let (from, to) = (&mut pair.a, &mut pair.b);
        let nic = from.nic.properties().device.clone();
        let mut window = memory.memory.lease(from.domain.clone(), &nic).unwrap_or_else(|e| panic!("{e}"));
        let left = memory.memory.windows().left;
        for n in 0..SLOTS {
            let frame = content(from.nic.properties().mac, from.peer, n as u64, 100 + n);
            let mut slot = window.slot(n).expect("it has landed");
            slot.put(0, &frame);
            let segment = slot.send(0..frame.len());
            assert!(from.nic.transmit(&TxFrame { segments: &[segment], token: n as u64 }).unwrap());
            if n == 5 + round {
                from.nic.flush().unwrap();
            }
        }
        from.nic.reset().unwrap();
        settle(from, &mut window);
        to.take(usize::MAX);
        pair.sync();
        let (from, to) = (&mut pair.a, &mut pair.b);
        let frame = content(from.nic.properties().mac, from.peer, 99, 100);
        let mut slot = window.slot(3).expect("it was let go of");
        slot.put(0, &frame);
        let segment = slot.send(0..100);
        assert!(from.nic.transmit(&TxFrame { segments: &[segment], token: 3 }).unwrap());
        from.nic.flush().unwrap();
        to.expect(&[frame]);
        settle(from, &mut window);
        drop(window);
        memory.wait_for_windows(left + 1);
    }
}
