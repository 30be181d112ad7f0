//! Who sends on one connection and then leaves another is not seen to leave before what it sent.

use std::time::Duration;

use super::pair::{MILLI, REGION, SECOND, attributes};
use super::world::{Faults, World};
use crate::engine::{Event, Tuning};
use crate::{Descriptor, MemoryRegion, ReliabilityLevel, ViAttributes, ViId, WorkQueue};

/// Two connections from host 0 to host 1, and memory of each host.
struct Two {
    world: World,
    /// The one that is left.
    leaving: (ViId, ViId),
    /// The one that messages go over.
    other: (ViId, ViId),
    memory: [MemoryRegion; 2],
}

fn two(attributes: &ViAttributes) -> Two {
    let mut world = World::good(Tuning::default());
    let leaving = world.connect(0, 1, attributes);
    let other = world.connect(0, 1, attributes);
    let domain = world.domain.clone();
    let memory = [0, 1].map(|host| world.hosts[host].region(&domain, REGION));
    Two { world, leaving, other, memory }
}

impl Two {
    fn post_receive(&mut self) {
        let (_, engine, port) = self.world.at(1);
        engine.post_receive(
            self.other.1,
            Descriptor::new(vec![self.memory[1].segment(0..9000).unwrap()]),
            port,
        );
    }

    fn send(&mut self) {
        let (now, engine, port) = self.world.at(0);
        let message = Descriptor::new(vec![self.memory[0].segment(0..9000).unwrap()]);
        engine.post_send(now, self.other.0, message, port);
    }

    fn leave(&mut self) {
        let (now, engine, port) = self.world.at(0);
        engine.disconnect(now, self.leaving.0, port).unwrap();
    }

    fn has_heard(&self) -> bool {
        let is = |event: &Event| matches!(event, Event::Broken { vi, .. } if *vi == self.leaving.1);
        self.world.hosts[1].port.events.iter().any(is)
    }

    /// Runs until the peer has heard that one was left; after how long, and how many messages it had by then.
    fn heard(&mut self) -> (u64, usize) {
        let start = self.world.now;
        while !self.has_heard() {
            let limit = start + 60 * SECOND;
            assert!(self.world.step(limit), "it never heard");
        }
        let done = &self.world.hosts[1].port.completions;
        let came = done.iter().filter(|done| {
            done.queue == WorkQueue::Receive
                && done.vi == self.other.1
                && done.descriptor.status().is_success()
        });
        (self.world.now - start, came.count())
    }
}

const LEVELS: [ReliabilityLevel; 2] =
    [ReliabilityLevel::ReliableDelivery, ReliabilityLevel::ReliableReception];

#[test]
fn a_message_whose_frames_are_lost_comes_before_its_sender_is_seen_to_leave_elsewhere() {
    for reliability in LEVELS {
        let mut two = two(&ViAttributes { reliability, ..attributes() });
        for _ in 0..3 {
            two.post_receive();
        }
        // All that is sent in this moment is lost, and comes again.
        two.world.cut = Some(0);
        for _ in 0..3 {
            two.send();
        }
        two.world.run(MILLI / 10);
        two.world.cut = None;
        two.leave();
        assert_eq!(two.heard().1, 3);
    }
}

#[test]
fn and_so_it_does_over_a_bad_wire_whatever_is_lost() {
    for seed in 0..50 {
        let mut two = two(&attributes());
        two.world.rng.0 ^= seed * 77 + 1;
        two.world.faults = Faults { delay: 5_000, jitter: 50_000, loss: 200_000, ..Faults::default() };
        for _ in 0..5 {
            two.post_receive();
            two.send();
        }
        two.leave();
        assert_eq!(two.heard().1, 5, "seed {seed}");
    }
}

#[test]
fn where_nothing_is_under_way_it_is_heard_at_once() {
    let mut two = two(&attributes());
    two.post_receive();
    two.send();
    two.world.run(10 * MILLI);
    two.leave();
    let (after, came) = two.heard();
    assert!(after < MILLI && came == 1, "{after} ns, {came} messages");
}

/// The other end lets its peer wait for a receive, for longer than anybody waits to hear that it was left.
#[test]
fn it_is_not_held_back_for_longer_than_a_peer_may_be_silent() {
    let mut two = two(&ViAttributes { not_ready: Some(Duration::from_secs(60)), ..attributes() });
    two.send();
    two.leave();
    let (after, came) = two.heard();
    let silence = Tuning::default().peer_timeout;
    assert!((silence..silence + SECOND).contains(&after) && came == 0, "{after} ns, {came} messages");
}

/// What it waited for is gone with its connection.
#[test]
fn nor_for_a_connection_that_is_no_more() {
    let mut two = two(&ViAttributes { not_ready: Some(Duration::from_secs(60)), ..attributes() });
    two.send();
    two.leave();
    two.world.run(100 * MILLI);
    assert!(!two.has_heard());
    let (now, engine, port) = two.world.at(0);
    engine.disconnect(now, two.other.0, port).unwrap();
    assert!(two.heard().0 < 10 * MILLI);
}
