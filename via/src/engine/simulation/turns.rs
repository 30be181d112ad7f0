//! Interfaces that share an adapter, and numbers that wrap.

use super::pair::{MILLI, Pair, REGION, SECOND, attributes};
use super::world::{Faults, World};
use crate::engine::Tuning;
use crate::wire::data;
use crate::{Descriptor, Status, ViId, ViState, WorkQueue};

#[test]
fn a_turn_does_not_outlive_its_connection() {
    let mut pair = Pair::new();
    let behaviour = &mut pair.world.hosts[0].port.behaviour;
    (behaviour.slots, behaviour.notice) = (2, 100 * MILLI);
    for n in 0..5 {
        let mut message = pair.message(0, 0..5000);
        message.context = n;
        pair.send(0, message);
    }
    // It waits for the adapter when it is disconnected; what is posted then has to wait behind what the adapter
    // refers to, and is not to be sent.
    pair.disconnect(0);
    for n in 5..8 {
        let mut late = pair.message(0, 0..10);
        late.context = n;
        pair.send(0, late);
    }
    pair.world.hosts[0].port.behaviour.slots = 64;
    pair.world.trace = Some(Vec::new());
    for n in 0..8 {
        let descriptor = pair.wait(0).descriptor;
        assert_eq!((descriptor.context, descriptor.status()), (n, Status::DONE | Status::FLUSHED));
    }
    pair.world.run(SECOND);
    assert!(pair.completion(0).is_none());
    let trace = pair.world.trace.take().unwrap();
    let data = trace.iter().filter(|frame| frame[15] == data::DATA);
    assert!(data.count() <= 2, "frames of a connection that is no more");
    pair.world.hosts[0].engine.destroy_vi(pair.vi[0]).unwrap();
}

/// Messages of an interface in a race: well more than the window.
const MESSAGES: usize = 400;

/// Several interfaces with more to send than the adapter takes; answers how many messages of each had arrived
/// when the first had sent all of its.
fn race(lengths: &[usize], slots: usize) -> Vec<usize> {
    let mut world = World::good(Tuning::default());
    let behaviour = &mut world.hosts[0].port.behaviour;
    (behaviour.slots, behaviour.fetch, behaviour.notice) = (slots, 2_000, 2_000);
    let domain = world.domain.clone();
    let from = world.hosts[0].region(&domain, REGION);
    let to = world.hosts[1].region(&domain, REGION);
    let ends: Vec<(ViId, ViId)> = lengths.iter().map(|_| world.connect(0, 1, &attributes())).collect();
    for ((_, server), len) in ends.iter().zip(lengths) {
        for _ in 0..MESSAGES {
            let (_, engine, port) = world.at(1);
            let receive = Descriptor::new(vec![to.segment(0..*len).unwrap()]);
            engine.post_receive(*server, receive, port);
        }
    }
    for ((client, _), len) in ends.iter().zip(lengths) {
        for _ in 0..MESSAGES {
            let (now, engine, port) = world.at(0);
            engine.post_send(now, *client, Descriptor::new(vec![from.segment(0..*len).unwrap()]), port);
        }
    }
    let mut arrived = vec![0; lengths.len()];
    let done = world.until(10 * SECOND, |world| {
        while let Some(completion) = world.hosts[1].port.completions.pop_front() {
            assert_eq!(completion.queue, WorkQueue::Receive);
            let n = ends.iter().position(|(_, server)| *server == completion.vi).unwrap();
            arrived[n] += 1;
        }
        arrived.contains(&MESSAGES)
    });
    assert!(done);
    arrived
}

#[test]
fn interfaces_have_their_turns() {
    for slots in [4, 16, 64] {
        let arrived = race(&[1000; 5], slots);
        let least = *arrived.iter().min().unwrap();
        assert!(least >= MESSAGES / 2, "{arrived:?} of {MESSAGES} messages of each, with {slots} slots");
    }
}

#[test]
fn a_hundred_interfaces_share_an_adapter_evenly() {
    for lengths in [[1000; 100], [4000; 100]] {
        let arrived = race(&lengths, 64);
        let (least, most) = (*arrived.iter().min().unwrap(), *arrived.iter().max().unwrap());
        assert!(least >= most * 3 / 4, "from {least} to {most} messages of each: {arrived:?}");
    }
}

#[test]
fn long_messages_do_not_keep_short_ones_waiting() {
    let arrived = race(&[60_000, 64, 60_000, 64], 8);
    assert!(arrived[1] == MESSAGES || arrived[3] == MESSAGES, "{arrived:?}");
    assert!(arrived[1].min(arrived[3]) >= MESSAGES / 2, "{arrived:?}");
}

/// Sequence and message numbers wrap in the middle of messages, with losses right there.
#[test]
fn numbers_wrap() {
    for back in [0, 1, 2, 40, 63, 64, 65] {
        let tuning = Tuning { first_sequence: Some(u32::MAX - back), ..Tuning::default() };
        let mut pair = Pair::with(World::good(tuning));
        pair.world.faults = Faults { delay: 5_000, loss: 200_000, ..Faults::default() };
        for n in 0..200_u32 {
            for (from, to) in [(0, 1), (1, 0)] {
                pair.post_receive(to, 0..4000);
                pair.region[from].write(8000, &n.to_le_bytes()).unwrap();
                let mut message = pair.message(from, 8000..8000 + 10 + n as usize % 4 * 1000);
                message.immediate = Some(n);
                pair.send(from, message);
                let came = pair.wait(to);
                assert_eq!((came.queue, came.descriptor.immediate), (WorkQueue::Receive, Some(n)));
                assert_eq!(came.descriptor.length(), 10 + n % 4 * 1000);
                let mut bytes = [0; 4];
                pair.region[to].read(0, &mut bytes).unwrap();
                assert_eq!(bytes, n.to_le_bytes());
                assert_eq!(pair.wait(from).descriptor.status(), Status::DONE);
            }
        }
        assert!(pair.completion(0).is_none() && pair.completion(1).is_none());
    }
}

#[test]
fn a_message_of_the_native_mtu_is_one_frame() {
    for integrity in [false, true] {
        let mut pair = Pair::with(World::good(Tuning { integrity, ..Tuning::default() }));
        let mtu = pair.world.hosts[0].engine.native_mtu();
        assert_eq!(mtu, 1500 - 34 - if integrity { 4 } else { 0 });
        for (len, frames) in [(mtu, 1), (mtu + 1, 2)] {
            pair.world.trace = Some(Vec::new());
            pair.post_receive(1, 0..len);
            let message = pair.message(0, 0..len);
            pair.send(0, message);
            pair.wait(0);
            assert_eq!(pair.wait(1).descriptor.length() as usize, len);
            let trace = pair.world.trace.take().unwrap();
            assert_eq!(trace.iter().filter(|frame| frame[15] == data::DATA).count(), frames);
        }
        assert_eq!(pair.state(0), ViState::Connected);
    }
}

/// A frame whose slot was damaged names a live connection at a place where it is not: answering with a reset would
/// end a connection that is well.
#[test]
fn a_damaged_slot_ends_nothing() {
    let mut pair = Pair::new();
    pair.world.trace = Some(Vec::new());
    pair.post_receive(1, 0..100);
    let message = pair.message(0, 0..100);
    pair.send(0, message);
    pair.wait(1);
    let mut frame = pair.world.trace.take().unwrap().remove(0);
    for slot in [1_u16, 2, 0x8000] {
        frame[18..20].copy_from_slice(&slot.to_le_bytes());
        pair.world.deliver(1, &frame);
        pair.world.run(MILLI);
        for host in [0, 1] {
            assert_eq!((pair.state(host), pair.world.event(host)), (ViState::Connected, None));
        }
    }
}
