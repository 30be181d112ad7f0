//! With the end-to-end check no flipped bit of a connection's frame does anything.

use super::pair::{Pair, REGION, SECOND};
use super::world::World;
use crate::engine::Tuning;
use crate::wire::data;
use crate::{Descriptor, Status, ViState};

/// The Ethernet addresses are for the adapter: a frame that is let in by mistake is still what was sent.
const FIRST_BIT: usize = 12 * 8;

fn flips(frame: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (FIRST_BIT..frame.len() * 8).map(|bit| {
        let mut damaged = frame.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        damaged
    })
}

#[test]
fn no_flipped_bit_is_taken() {
    let mut pair = Pair::with(World::good(Tuning { integrity: true, ..Tuning::default() }));
    let pattern: Vec<u8> = (0..REGION).map(|n| (n * 7 % 251) as u8).collect();
    pair.region[0].write(0, &pattern).unwrap();
    pair.region[1].write(0, &[0xee; REGION]).unwrap();
    pair.world.run(SECOND / 100);
    // What host 0 sends is seen here, and does not arrive.
    pair.world.cut = Some(0);
    pair.world.trace = Some(Vec::new());
    // A short message comes first: without its flag of the check it would look like the plainest of frames.
    pair.post_receive(1, 4000..5000);
    let message = pair.message(0, 4000..5000);
    pair.send(0, message);
    pair.post_receive(1, 0..1000);
    pair.post_receive(1, 2000..4000);
    let mut message = pair.message(0, 0..1000);
    message.immediate = Some(7);
    pair.send(0, message);
    let to = pair.region[1].remote(8000).unwrap();
    let mut write = Descriptor::rdma_write(vec![pair.region[0].segment(8000..10_000).unwrap()], to);
    write.immediate = Some(8);
    pair.send(0, write);
    pair.world.run(1_000);
    let sent = pair.world.trace.take().unwrap();
    // No more than are repeated when nothing is acknowledged.
    assert_eq!(sent.len(), 4, "a frame for each message, two for the write");
    for frame in &sent {
        assert_eq!(frame[15], data::DATA);
        for damaged in flips(frame) {
            pair.world.deliver(1, &damaged);
        }
    }
    assert!(pair.completion(1).is_none());
    let mut bytes = vec![0; REGION];
    pair.region[1].read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0xee));
    for host in [0, 1] {
        assert_eq!((pair.state(host), pair.world.event(host)), (ViState::Connected, None));
    }

    // Now they arrive, and the acknowledgements do not.
    pair.world.cut = Some(1);
    pair.world.trace = Some(Vec::new());
    for status in [Status::default(), Status::IMMEDIATE, Status::IMMEDIATE | Status::REMOTE_RDMA_WRITE] {
        assert_eq!(pair.wait(1).descriptor.status(), Status::DONE | status);
    }
    pair.region[1].read(0, &mut bytes).unwrap();
    assert!(bytes[..1000] == pattern[..1000] && bytes[4000..5000] == pattern[4000..5000]);
    assert!(bytes[8000..10_000] == pattern[8000..10_000]);
    let between = bytes[1000..4000].iter().chain(&bytes[5000..8000]);
    assert!(between.chain(&bytes[10_000..]).all(|byte| *byte == 0xee));
    pair.world.run(SECOND / 10);
    let sent = pair.world.trace.take().unwrap();
    let acknowledgements: Vec<_> = sent.iter().filter(|frame| frame[15] == data::ACK).collect();
    assert!(!acknowledgements.is_empty());
    for frame in acknowledgements {
        for damaged in flips(frame) {
            pair.world.deliver(0, &damaged);
        }
    }
    assert!(pair.completion(0).is_none());
    pair.world.cut = None;
    for _ in 0..3 {
        assert_eq!(pair.wait(0).descriptor.status(), Status::DONE);
    }
    assert!(pair.completion(0).is_none() && pair.completion(1).is_none());
}
