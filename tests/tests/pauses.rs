//! A program that does something else for long, and then sends: what it sends is not taken for old.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uvia::{Clock, Descriptor, Nic};
use uvia_tests::{ViPair, memory_pair};

/// Longer than any retransmission time-out, and shorter than what a peer is taken for dead after.
const PAUSE: u64 = 400_000_000;

fn frames(nic: &Nic) -> u64 {
    nic.statistics().adapter.tx_frames
}

/// Two ends that have talked, and the time that they go by.
fn pair() -> (ViPair, Arc<AtomicU64>) {
    let time = Arc::new(AtomicU64::new(1));
    let pair = ViPair::over_memory_at(memory_pair(), Clock::manual(time.clone()));
    for _ in 0..100 {
        time.fetch_add(100_000, Ordering::Relaxed);
        for end in [&pair.a, &pair.b] {
            end.nic.poll().expect("the adapter works");
        }
    }
    (pair, time)
}

#[test]
fn what_is_sent_after_a_pause_is_not_repeated_at_once() {
    let (pair, time) = pair();
    let memory = pair.a.memory(64).expect("memory is registered");
    pair.b
        .vi
        .post_receive(Descriptor::new(vec![pair.b.memory(64).unwrap().segment(0..64).unwrap()]))
        .expect("a receive is posted");
    let before = frames(&pair.a.nic);
    time.fetch_add(PAUSE, Ordering::Relaxed);
    pair.a.vi.post_send(Descriptor::new(vec![memory.segment(0..64).unwrap()])).expect("a send is posted");
    for _ in 0..10 {
        time.fetch_add(10_000, Ordering::Relaxed);
        pair.a.nic.poll().expect("the adapter works");
    }
    assert_eq!(frames(&pair.a.nic), before + 1, "the message, once");

    // It is repeated when nothing is heard for long, however seldom the program looks.
    for look in [1_000_000, 20_000_000, 200_000_000] {
        let look_for = |nanoseconds: u64| {
            for _ in 0..nanoseconds / look {
                time.fetch_add(look, Ordering::Relaxed);
                pair.a.nic.poll().expect("the adapter works");
            }
        };
        // What was begun with another rhythm is over.
        look_for(600_000_000);
        let before = frames(&pair.a.nic);
        look_for(600_000_000);
        assert!(frames(&pair.a.nic) > before, "the message, again, with a look every {look} ns");
    }
    let received = pair.drive(|pair| pair.b.cq.poll().expect("the adapter works"));
    assert!(received.descriptor.status().is_success());
}
