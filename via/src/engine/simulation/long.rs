//! The short ways of long messages: frames in the middle of one go out together, and come in as a run. Whatever is not
//! just so leaves the run, and the next frame that is begins another.

use super::pair::{MILLI, Pair, REGION, SECOND, attributes};
use super::world::{TAG, World};
use crate::engine::Tuning;
use crate::wire::data;
use crate::{
    ConnectionLoss, Descriptor, MemoryAttributes, Operation, Status, ViAttributes, ViState, WorkQueue,
};

/// Bytes of a write of `FRAMES` frames, whose last has one byte.
const FRAME: usize = (1500 - 34 - 16) & !7;
const FRAMES: usize = 20;
const BYTES: usize = (FRAMES - 1) * FRAME + 3;

/// What a write's byte is.
fn byte(n: usize) -> u8 {
    (n * 7 + n / 251) as u8
}

/// A write of host 0's into host 1's memory, posted, all of whose frames are in the air: taken off the wire.
fn in_the_air() -> (Pair, Vec<Vec<u8>>) {
    let mut pair = Pair::new();
    let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
    pair.region[0].write(0, &bytes).unwrap();
    pair.region[1].write(0, &[0xee; REGION]).unwrap();
    let segments = vec![pair.region[0].segment(0..BYTES).unwrap()];
    let write = Descriptor::rdma_write(segments, pair.region[1].remote(8).unwrap());
    pair.world.cut = Some(0);
    pair.world.trace = Some(Vec::new());
    pair.send(0, write);
    let sent = |world: &World| world.trace.as_ref().is_some_and(|trace| trace.len() == FRAMES);
    assert!(pair.world.until(MILLI, |world| sent(world)));
    let frames = pair.world.trace.take().unwrap();
    pair.world.cut = None;
    (pair, frames)
}

/// Frames that host 1 has taken as parts of runs.
fn in_runs(pair: &Pair) -> u64 {
    pair.world.hosts[1].engine.core.in_runs
}

/// Lets the receiver have its turn.
fn poll(pair: &mut Pair) {
    let (now, engine, port) = pair.world.at(1);
    engine.poll(now, port);
}

/// All has arrived, once, and is where it belongs; nothing else was touched.
fn arrives(mut pair: Pair) {
    let done = pair.wait(0);
    assert_eq!((done.queue, done.descriptor.status()), (WorkQueue::Send, Status::DONE));
    assert_eq!(done.descriptor.length() as usize, BYTES);
    let mut memory = vec![0; REGION];
    pair.region[1].read(0, &mut memory).unwrap();
    assert!((0..BYTES).all(|n| memory[8 + n] == byte(n)));
    assert!(memory[..8].iter().chain(&memory[8 + BYTES..]).all(|b| *b == 0xee));
    pair.world.run(SECOND);
    assert!(pair.completion(0).is_none() && pair.completion(1).is_none());
    assert_eq!((pair.state(0), pair.state(1)), (ViState::Connected, ViState::Connected));
}

#[test]
fn all_frames_between_the_first_and_the_last_are_a_run() {
    let (mut pair, frames) = in_the_air();
    assert_eq!(pair.world.hosts[0].engine.core.sent_long, FRAMES as u64 - 1);
    for frame in &frames {
        pair.world.deliver(1, frame);
    }
    assert_eq!(in_runs(&pair), FRAMES as u64 - 2);
    arrives(pair);
}

#[test]
fn a_run_ends_with_its_burst_and_the_next_burst_begins_another() {
    let (mut pair, frames) = in_the_air();
    for burst in frames.chunks(5) {
        for frame in burst {
            pair.world.deliver(1, frame);
        }
        poll(&mut pair);
        assert!(pair.world.hosts[1].engine.core.run.is_none(), "it holds the memory beyond its burst");
    }
    // In each burst the first frame is looked at in full, and the last frame of all.
    assert_eq!(in_runs(&pair), FRAMES as u64 - 4 - 1);
    arrives(pair);
}

#[test]
fn a_frame_that_comes_again_is_in_no_run_and_the_run_goes_on() {
    for n in [0, 1, 9, FRAMES - 2] {
        let (mut pair, frames) = in_the_air();
        for (at, frame) in frames.iter().enumerate() {
            pair.world.deliver(1, frame);
            if at >= n {
                pair.world.deliver(1, &frames[n]);
            }
        }
        assert_eq!(in_runs(&pair), FRAMES as u64 - 2, "frame {n} came again and again");
        arrives(pair);
    }
}

#[test]
fn a_lost_frame_ends_the_run_and_what_closes_the_gap_begins_another() {
    for lost in [1, 2, 10, FRAMES - 2] {
        let (mut pair, frames) = in_the_air();
        for (n, frame) in frames.iter().enumerate() {
            if n != lost {
                pair.world.deliver(1, frame);
            }
        }
        assert_eq!(in_runs(&pair), lost as u64 - 1, "nothing behind the gap is in its turn");
        // It is sent again, for what is said by what came behind it, or when nothing is.
        arrives(pair);
    }
}

#[test]
fn frames_that_change_places_leave_the_run_and_come_back() {
    let (mut pair, mut frames) = in_the_air();
    frames.swap(7, 8);
    frames.swap(12, 14);
    for frame in &frames {
        pair.world.deliver(1, frame);
    }
    // Of the first pair one came early and the other closed the gap; of the second, of three, one closed it last.
    assert_eq!(in_runs(&pair), FRAMES as u64 - 2 - 2 - 3);
    arrives(pair);
}

#[test]
fn frames_of_another_connection_in_between_change_nothing() {
    let (mut pair, frames) = in_the_air();
    let (theirs, ours) = pair.world.connect(0, 1, &ViAttributes::new(TAG));
    let receive = Descriptor::new(vec![pair.region[1].segment(REGION - 64..REGION).unwrap()]);
    let (_, engine, port) = pair.world.at(1);
    engine.post_receive(ours, receive, port);
    for frame in &frames[..10] {
        pair.world.deliver(1, frame);
    }
    let before = in_runs(&pair);
    let message = Descriptor::new(vec![pair.region[0].segment(0..64).unwrap()]);
    let (now, engine, port) = pair.world.at(0);
    engine.post_send(now, theirs, message, port);
    let frame = port.fetch().unwrap();
    pair.world.deliver(1, &frame);
    for frame in &frames[10..] {
        pair.world.deliver(1, frame);
    }
    assert_eq!(in_runs(&pair), before + (FRAMES - 10 - 1) as u64);
    let came = pair.wait(1);
    assert_eq!((came.vi, came.descriptor.status()), (ours, Status::DONE));
}

/// What a run skips is what it was checked for when it began: a frame that says another thing is looked at in full.
#[test]
fn a_frame_that_names_other_memory_or_another_place_ends_the_connection() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(Change, ConnectionLoss); 8] = [
        // The address, the handle: no such memory.
        (|frame| frame[53] ^= 0x40, ConnectionLoss::RdmaProtection),
        (|frame| frame[56] ^= 0x7, ConnectionLoss::RdmaProtection),
        // The total: less than what came, more than what may be, and another one, which is more than there is.
        (|frame| frame[60..64].copy_from_slice(&1_u32.to_le_bytes()), ConnectionLoss::Protocol),
        (|frame| frame[60..64].copy_from_slice(&u32::MAX.to_le_bytes()), ConnectionLoss::Protocol),
        (
            |frame| frame[60..64].copy_from_slice(&(REGION as u32).to_le_bytes()),
            ConnectionLoss::RdmaProtection,
        ),
        // The message, the offset.
        (|frame| frame[40] ^= 1, ConnectionLoss::Protocol),
        (|frame| frame[44] ^= 8, ConnectionLoss::Protocol),
        // The last frame, before its time.
        (|frame| frame[16] |= data::LAST as u8, ConnectionLoss::Protocol),
    ];
    for (n, (change, loss)) in changes.into_iter().enumerate() {
        let (mut pair, mut frames) = in_the_air();
        change(&mut frames[5]);
        for frame in &frames {
            pair.world.deliver(1, frame);
        }
        assert_eq!(in_runs(&pair), 4, "change {n}");
        assert_eq!((pair.state(1), pair.loss(1)), (ViState::Error, Some(loss)), "change {n}");
        let mut memory = vec![0; REGION];
        pair.region[1].read(0, &mut memory).unwrap();
        assert!(memory[8 + 5 * FRAME..].iter().all(|b| *b == 0xee), "change {n}: bytes were written");
    }
}

/// Rights that are taken away count from the next burst on, and so does memory that is let go of.
#[test]
fn a_right_that_is_taken_away_ends_the_run() {
    let (mut pair, frames) = in_the_air();
    for frame in &frames[..8] {
        pair.world.deliver(1, frame);
    }
    poll(&mut pair);
    pair.region[1].set_attributes(MemoryAttributes::local(TAG));
    pair.world.deliver(1, &frames[8]);
    assert_eq!(pair.loss(1), Some(ConnectionLoss::RdmaProtection));

    let (mut pair, frames) = in_the_air();
    for frame in &frames[..8] {
        pair.world.deliver(1, frame);
    }
    poll(&mut pair);
    assert_eq!(pair.region[1].users(), 1, "the run has let go of it");
    pair.region[1] = pair.region[0].clone();
    pair.world.deliver(1, &frames[8]);
    assert_eq!(pair.loss(1), Some(ConnectionLoss::RdmaProtection));
}

/// Bursts of frames do not take segments' ends, the adapter's and the window's for anything else than they are.
#[test]
fn messages_of_any_shape_arrive_over_adapters_of_any_size() {
    for slots in [2, 3, 7, 64] {
        for window in [2, 5, 64] {
            let mut world = World::good(Tuning { window, ..Tuning::default() });
            world.hosts.iter_mut().for_each(|host| host.port.behaviour.slots = slots);
            let mut pair = Pair::of(world, &ViAttributes { rdma_read: true, ..attributes() }, REGION);
            let bytes: Vec<u8> = (0..REGION).map(byte).collect();
            pair.region[0].write(0, &bytes).unwrap();
            for (first, rest) in [(1, 30_000), (FRAME, FRAME), (FRAME * 3, 1), (FRAME * 2 + 5, 20_000)] {
                for operation in [0, 1, 2] {
                    let (to, at) = if operation == 2 { (0, 0) } else { (1, 100) };
                    let total = first + rest;
                    pair.region[1].write(0, &vec![0xee; REGION]).unwrap();
                    if operation == 2 {
                        pair.region[1].write(100, &bytes[..total]).unwrap();
                        pair.region[0].write(0, &vec![0xee; REGION]).unwrap();
                    }
                    let segments = vec![
                        pair.region[0].segment(0..first).unwrap(),
                        pair.region[0].segment(first..total).unwrap(),
                    ];
                    let mut descriptor = Descriptor::new(segments);
                    match operation {
                        0 => pair.post_receive(1, 100..100 + total),
                        1 => descriptor.operation = Operation::RdmaWrite(pair.region[1].remote(100).unwrap()),
                        _ => descriptor.operation = Operation::RdmaRead(pair.region[1].remote(100).unwrap()),
                    }
                    pair.send(0, descriptor);
                    assert!(pair.wait(0).descriptor.status().is_success());
                    let mut memory = vec![0; total];
                    pair.region[to].read(at, &mut memory).unwrap();
                    assert!(
                        memory == bytes[..total],
                        "{slots} slots, window {window}, {first} and {rest} bytes"
                    );
                    if operation == 0 {
                        assert_eq!(pair.wait(1).descriptor.length() as usize, total);
                    }
                    pair.region[0].write(0, &bytes).unwrap();
                }
            }
            assert!(pair.completion(0).is_none() && pair.completion(1).is_none());
        }
    }
}
