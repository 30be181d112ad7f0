//! Sleeping, and being woken.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::super::{Bench, End, PATIENCE, Pair};

/// A time in which something would have happened that must not.
const WHILE: Duration = Duration::from_millis(30);

fn send(from: &mut End) -> Vec<u8> {
    let sent = from.send_one(64, 1);
    from.settle();
    sent
}

/// Disarms a NIC, and lets go by what was on its way before: a wake that was raised for an earlier frame comes late where
/// the processor that is to take it is busy elsewhere.
fn hush(end: &mut End) {
    let start = Instant::now();
    loop {
        end.nic.arm(false).unwrap();
        if !end.readable(WHILE) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "woken again and again although disarmed and without a frame");
    }
}

/// Armed, a frame wakes; once it was taken, and the NIC armed again, nothing does until the next one.
pub fn a_sleeper_is_woken_once(bench: &dyn Bench) {
    let rounds = bench.effort().of(50, 10, 20);
    Pair::usual(bench).both_ways(|from, to| {
        hush(to);
        for round in 0..rounds {
            to.nic.arm(true).unwrap();
            assert!(to.take(64).is_empty());
            if round % 10 == 0 {
                assert!(!to.readable(WHILE), "woken by nothing, in round {round}");
            }
            let sent = send(from);
            assert!(to.readable(PATIENCE), "not woken in round {round}");
            to.expect(&[sent]);
        }
        // It stays armed while frames are taken without a sleep in between: the next one wakes. The first one's own wake
        // may still be under way when it is taken, and comes then once at most: a device writes the descriptor first,
        // then looks whether somebody is to be woken.
        to.nic.arm(true).unwrap();
        let sent = send(from);
        to.expect(&[sent]);
        to.nic.arm(true).unwrap();
        assert!(to.take(64).is_empty());
        if to.readable(WHILE) {
            to.nic.arm(true).unwrap();
            assert!(to.take(64).is_empty() && !to.readable(WHILE), "what was taken wakes again and again");
        }
        let sent = send(from);
        assert!(to.readable(PATIENCE));
        to.expect(&[sent]);
    });
}

/// Frames wake nobody before the NIC is armed, after it was disarmed, and after a reset; and a reset does not break it.
pub fn nobody_is_woken_who_is_not_armed(bench: &dyn Bench) {
    let mut pair = Pair::usual(bench);
    for backwards in [false, true] {
        let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
        hush(to);
        let sent = send(from);
        to.expect(&[sent]);
        assert!(!to.readable(WHILE), "woken although never armed");
        to.nic.arm(true).unwrap();
        let sent = send(from);
        assert!(to.readable(PATIENCE));
        to.nic.arm(false).unwrap();
        to.expect(&[sent]);
        hush(to);
        let sent = send(from);
        to.expect(&[sent]);
        assert!(!to.readable(WHILE), "woken although disarmed");
        to.nic.arm(true).unwrap();
        to.nic.reset().unwrap();
        pair.sync();
        let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
        to.nic.arm(true).unwrap();
        assert!(to.take(64).is_empty());
        let sent = send(from);
        assert!(to.readable(PATIENCE), "not woken after a reset");
        to.expect(&[sent]);
    }
}

/// A sender that keeps no pace with the sleeper: whenever a frame comes between arming, the last look and the sleep,
/// either the look finds it or it wakes.
pub fn nothing_is_lost_between_arming_and_sleeping(bench: &dyn Bench) {
    let frames = bench.effort().of(5000, 500, 300);
    Pair::usual(bench).both_ways(|from, to| {
        let (told, tell) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..frames {
                    // The receiver wants the next one; how long that takes to come is different each time.
                    if tell.recv().is_err() {
                        return;
                    }
                    for _ in 0..n * 37 % 4001 {
                        std::hint::spin_loop();
                    }
                    send(from);
                }
            });
            let mut slept = 0;
            for n in 0..frames {
                told.send(()).unwrap();
                loop {
                    to.nic.arm(true).unwrap();
                    if to.take(1).len() == 1 {
                        break;
                    }
                    slept += 1;
                    assert!(to.readable(PATIENCE), "frame {n} woke nobody");
                    if to.take(1).len() == 1 {
                        break;
                    }
                }
            }
            println!("slept {slept} times for {frames} frames");
            drop(told);
        });
    });
}
