//! Frames that come in parts: whatever comes of them, how often and in which order, each byte is put in its place once.

use super::adapter::Behaviour;
use super::pair::{MILLI, Pair, REGION, SECOND, attributes};
use super::rng::Rng;
use super::world::{Faults, World, config};
use crate::engine::{EngineConfig, Tuning};
use crate::wire::{FIXED, data};
use crate::{ConnectionLoss, Descriptor, ReliabilityLevel, Status, ViAttributes, ViState};

/// Bytes of a message that is one long frame, which has its last byte in `LEN - 1`.
const LEN: usize = 6000;
/// Where it goes in the receiver's memory.
const AT: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    /// With immediate data.
    Write,
    Read,
}

const KINDS: [Kind; 3] = [Kind::Send, Kind::Write, Kind::Read];

fn byte(n: usize) -> u8 {
    (n * 7 + n / 251) as u8
}

/// A long frame that was sent and did not arrive, with the hosts that it goes from and to.
struct Flight {
    pair: Pair,
    frame: Vec<u8>,
    from: usize,
    to: usize,
}

impl Flight {
    fn new(kind: Kind) -> Self {
        let behaviour = Behaviour { slots: 64, fetch: 0, notice: 0, copies: 0 };
        let configs = (0..2).map(|n| EngineConfig { largest: 8174, ..config(n, 7, Tuning::default()) });
        let faults = Faults { delay: 5_000, ..Faults::default() };
        let world = World::new(7, faults, &behaviour, configs.collect());
        let mut pair = Pair::of(world, &ViAttributes { rdma_read: true, ..attributes() }, REGION);
        let (from, to) = if kind == Kind::Read { (1, 0) } else { (0, 1) };
        // The way is known before.
        for _ in 0..2 {
            let local = vec![pair.region[0].segment(0..20_000).unwrap()];
            let remote = pair.region[1].remote(0).unwrap();
            pair.send(
                0,
                match kind {
                    Kind::Read => Descriptor::rdma_read(local, remote),
                    _ => Descriptor::rdma_write(local, remote),
                },
            );
            assert!(pair.wait(0).descriptor.status().is_success());
            pair.world.run(10 * MILLI);
        }
        let pattern: Vec<u8> = (0..LEN).map(byte).collect();
        pair.region[from].write(0, &pattern).unwrap();
        pair.region[to].write(0, &[0xee; REGION]).unwrap();
        let segment = |host: usize, at| vec![pair.region[host].segment(at..at + LEN).unwrap()];
        let descriptor = match kind {
            Kind::Send => Descriptor::new(segment(0, 0)),
            Kind::Write => {
                let mut write = Descriptor::rdma_write(segment(0, 0), pair.region[1].remote(AT).unwrap());
                write.immediate = Some(9);
                write
            }
            Kind::Read => Descriptor::rdma_read(segment(0, AT), pair.region[1].remote(0).unwrap()),
        };
        if kind != Kind::Read {
            pair.post_receive(1, AT..AT + LEN);
        }
        pair.world.trace = Some(Vec::new());
        pair.world.cut = Some(from);
        pair.send(0, descriptor);
        let long =
            |world: &World| world.trace.as_ref().unwrap().iter().find(|frame| frame.len() > LEN).cloned();
        assert!(pair.world.until(MILLI, |world| long(world).is_some()));
        let frame = long(&pair.world).unwrap();
        pair.world.trace = None;
        Self { pair, frame, from, to }
    }

    /// A part of the frame.
    fn part(&self, at: usize, len: usize) -> Vec<u8> {
        let flags = u16::from_le_bytes([self.frame[16], self.frame[17]]);
        let last = at + len == LEN;
        let immediate = flags & data::IMMEDIATE != 0;
        let mut made = (flags & !data::NOW & !data::DRY) | data::PART;
        if !last {
            made = (made & !(data::LAST | data::IMMEDIATE)) | data::MORE;
        }
        let header = FIXED + data::extension_bytes(flags);
        let mut part = self.frame[..header].to_vec();
        if immediate && !last {
            part.drain(FIXED..FIXED + 4);
        }
        part[16..18].copy_from_slice(&made.to_le_bytes());
        part[20..22].copy_from_slice(&(len as u16).to_le_bytes());
        part[44..48].copy_from_slice(&(at as u32).to_le_bytes());
        part.extend_from_slice(&self.frame[header + at..header + at + len]);
        part
    }

    /// All of it in parts of so many bytes.
    fn parts(&self, size: usize) -> Vec<Vec<u8>> {
        (0..LEN).step_by(size).map(|at| self.part(at, size.min(LEN - at))).collect()
    }

    fn deliver(&mut self, frame: &[u8]) {
        self.pair.world.deliver(self.to, frame);
    }

    fn memory(&self) -> Vec<u8> {
        let mut memory = vec![0; REGION];
        self.pair.region[self.to].read(0, &mut memory).unwrap();
        memory
    }

    /// How much of it is there, from its beginning; nothing else was touched.
    fn arrived(&self) -> usize {
        let memory = self.memory();
        let there = (0..LEN).take_while(|n| memory[AT + n] == byte(*n)).count();
        // A byte of the pattern may look like none.
        let rest = memory[..AT].iter().chain(&memory[AT + there..]);
        assert!(rest.filter(|byte| **byte != 0xee).count() == 0);
        there
    }

    /// All of it has arrived, once, and the connection goes on.
    fn ends_whole(mut self, kind: Kind) {
        self.pair.world.cut = None;
        assert_eq!(self.arrived(), LEN);
        if kind != Kind::Read {
            let received = self.pair.wait(1).descriptor;
            assert!(received.status().is_success());
            assert_eq!(
                (received.length() as usize, received.immediate.is_some()),
                (LEN, kind == Kind::Write)
            );
        }
        assert_eq!(self.pair.wait(0).descriptor.status(), Status::DONE);
        self.pair.world.run(2 * SECOND);
        for host in [0, 1] {
            assert_eq!(self.pair.state(host), ViState::Connected);
            assert!(self.pair.completion(host).is_none());
        }
        self.pair.region[self.to].write(0, &[0xee; REGION]).unwrap();
        let local = self.frame.clone();
        self.deliver(&local);
        assert_eq!(self.arrived(), 0, "it came again, and was taken again");
        for (from, to) in [(0, 1), (1, 0)] {
            self.pair.post_receive(to, 20_000..30_000);
            let message = self.pair.message(from, 0..9000);
            self.pair.send(from, message);
            assert!(self.pair.wait(to).descriptor.status().is_success());
            assert!(self.pair.wait(from).descriptor.status().is_success());
        }
    }
}

#[test]
fn parts_of_any_length_make_a_frame() {
    for kind in KINDS {
        for size in [1, 999, 1434, LEN - 1, LEN] {
            let mut flight = Flight::new(kind);
            for part in flight.parts(size) {
                flight.deliver(&part);
            }
            flight.ends_whole(kind);
        }
    }
}

#[test]
fn what_was_taken_is_passed_over_by_parts_and_by_the_whole_frame() {
    for kind in KINDS {
        let mut flight = Flight::new(kind);
        let parts = flight.parts(1000);
        flight.deliver(&parts[0]);
        flight.deliver(&parts[1]);
        flight.deliver(&parts[1]);
        flight.deliver(&parts[0]);
        assert_eq!(flight.arrived(), 2000);
        // Cut otherwise than before.
        let other = flight.part(1500, 1500);
        flight.deliver(&other);
        assert_eq!(flight.arrived(), 3000);
        // What its program has made of it meanwhile stays.
        let to = flight.to;
        flight.pair.region[to].write(AT, &[0x55; 3000]).unwrap();
        let whole = flight.frame.clone();
        flight.deliver(&whole);
        let memory = flight.memory();
        assert!(memory[AT..AT + 3000].iter().all(|byte| *byte == 0x55));
        let pattern: Vec<u8> = (0..3000).map(byte).collect();
        flight.pair.region[to].write(AT, &pattern).unwrap();
        flight.ends_whole(kind);
    }
}

#[test]
fn a_part_behind_one_that_is_missing_is_forgotten() {
    for kind in KINDS {
        let mut flight = Flight::new(kind);
        let parts = flight.parts(1000);
        // The last one too, which comes alone.
        for n in [5, 1, 3] {
            flight.deliver(&parts[n]);
            assert_eq!(flight.arrived(), 0);
        }
        flight.deliver(&parts[0]);
        flight.deliver(&parts[2]);
        flight.deliver(&parts[5]);
        assert_eq!(flight.arrived(), 1000);
        for part in &parts[1..] {
            flight.deliver(part);
        }
        flight.ends_whole(kind);
    }
}

#[test]
fn parts_in_any_order_and_number_with_whole_frames_between_them() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let kind = KINDS[seed as usize % 3];
        let mut flight = Flight::new(kind);
        let sizes = [500 + rng.below(1500) as usize, 500 + rng.below(1500) as usize];
        let parts = sizes.map(|size| flight.parts(size));
        let whole = flight.frame.clone();
        for _ in 0..rng.below(40) {
            let of = &parts[rng.below(2) as usize];
            let part = of[rng.below(of.len() as u64) as usize].clone();
            flight.deliver(&part);
        }
        if rng.chance(500_000) {
            flight.deliver(&whole);
        } else {
            parts[0].iter().for_each(|part| flight.deliver(part));
        }
        flight.ends_whole(kind);
    }
}

/// What its sender does by itself meets what was taken already.
#[test]
fn the_sender_goes_on_where_parts_have_come() {
    for kind in KINDS {
        let mut flight = Flight::new(kind);
        let parts = flight.parts(1000);
        parts[..3].iter().for_each(|part| flight.deliver(part));
        flight.pair.world.cut = None;
        flight.pair.world.run(SECOND);
        flight.ends_whole(kind);
    }
}

#[test]
fn a_part_of_another_message_ends_the_connection_and_one_too_early_does_nothing() {
    for kind in KINDS {
        let mut flight = Flight::new(kind);
        let mut part = flight.part(0, 1000);
        part[40] ^= 1;
        flight.deliver(&part);
        assert_eq!(flight.pair.loss(flight.to), Some(ConnectionLoss::Protocol), "{kind:?}");
        assert_eq!(flight.arrived(), 0);

        let mut flight = Flight::new(kind);
        for ahead in [1, 5, 63, 64, 1000] {
            let mut part = flight.part(0, 1000);
            part[32] = part[32].wrapping_add(ahead as u8);
            flight.deliver(&part);
            assert_eq!(flight.arrived(), 0);
        }
        assert_eq!(flight.from, 1 - flight.to);
        for part in flight.parts(1000) {
            flight.deliver(&part);
        }
        flight.ends_whole(kind);
    }
}

/// There nothing is sent again: such a part is none of its sender's.
#[test]
fn parts_are_nothing_to_an_unreliable_connection() {
    let unreliable = ViAttributes { reliability: ReliabilityLevel::Unreliable, ..attributes() };
    let mut pair = Pair::of(World::good(Tuning::default()), &unreliable, REGION);
    pair.world.run(MILLI);
    pair.world.trace = Some(Vec::new());
    pair.world.cut = Some(0);
    pair.post_receive(1, 0..1000);
    let message = pair.message(0, 0..1000);
    pair.send(0, message);
    pair.world.run(MILLI);
    let whole = pair.world.trace.take().unwrap().into_iter().find(|frame| frame[15] == data::DATA).unwrap();
    for flags in [data::PART, data::PART | data::MORE] {
        let mut part = whole.clone();
        let keep = if flags & data::MORE == 0 { data::LAST } else { 0 };
        part[16..18].copy_from_slice(&(flags | keep).to_le_bytes());
        pair.world.deliver(1, &part);
    }
    pair.world.run(MILLI);
    assert!(pair.completion(1).is_none());
    assert_eq!(pair.state(1), ViState::Connected);
}
