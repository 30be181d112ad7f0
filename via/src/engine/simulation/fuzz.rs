//! Frames that no engine would send: nothing panics, and no memory is touched that was not offered.

use super::rng::Rng;
use super::world::{TAG, World, config};
use crate::engine::{Engine, Event, Tuning};
use crate::wire::{FIXED, control, data};
use crate::{Descriptor, MemoryAttributes, MemoryRegion, RemoteMemory, ViAttributes, ViId};

const REGION: usize = 8192;

/// Two connected hosts, with frames of every kind between them, and memory that nobody may write.
struct Target {
    world: World,
    vi: [ViId; 2],
    writable: MemoryRegion,
    guarded: Vec<MemoryRegion>,
}

impl Target {
    fn new(seed: u64) -> Self {
        let mut world = World::good(Tuning { first_sequence: Some(seed as u32), ..Tuning::default() });
        world.trace = Some(Vec::new());
        let (client, server) = world.connect(0, 1, &ViAttributes::new(TAG));
        let domain = world.domain.clone();
        let regions = world.hosts[1].engine.regions();
        let mut register = |attributes| {
            let region = regions.allocate(domain.clone(), REGION, attributes).unwrap();
            region.write(0, &[0xee; REGION]).unwrap();
            region
        };
        let guarded = vec![register(MemoryAttributes::local(TAG)), register(MemoryAttributes::local(TAG))];
        let writable = register(MemoryAttributes::remote_write(TAG));
        Self { world, vi: [client, server], writable, guarded }
    }

    fn post_receives(&mut self) {
        for _ in 0..4 {
            // Between two pages of canaries.
            let segment = self.guarded[0].segment(1000..5000).unwrap();
            let (_, engine, port) = self.world.at(1);
            engine.post_receive(self.vi[1], Descriptor::new(vec![segment]), port);
        }
    }

    /// Frames of every kind, as they went over the wire.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        let domain = self.world.domain.clone();
        let source = self.world.hosts[0].region(&domain, REGION);
        let to: RemoteMemory = self.writable.remote(16).unwrap();
        self.post_receives();
        let mut write = Descriptor::rdma_write(vec![source.segment(0..4000).unwrap()], to);
        write.immediate = Some(1);
        let mut send = Descriptor::new(vec![source.segment(0..3000).unwrap()]);
        send.immediate = Some(2);
        for descriptor in [write, send, Descriptor::new(vec![source.segment(0..64).unwrap()])] {
            let (now, engine, port) = self.world.at(0);
            engine.post_send(now, self.vi[0], descriptor, port);
        }
        let (now, engine, port) = self.world.at(0);
        engine.resolve(now, "host1", 1_000_000, port).unwrap();
        self.world.run(5_000_000);
        self.world.trace.clone().unwrap()
    }

    fn check(&self) {
        let mut bytes = [0; REGION];
        self.guarded[0].read(0, &mut bytes).unwrap();
        assert!(bytes[..1000].iter().chain(&bytes[5000..]).all(|byte| *byte == 0xee));
        self.guarded[1].read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0xee));
    }
}

/// Damages frames of every kind and hands them to an engine in the middle of its work, without the end-to-end
/// check.
#[test]
fn damaged_frames() {
    let mut broken = 0;
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let mut target = Target::new(seed << 26);
        let frames = target.frames();
        assert!(frames.len() > 10);
        for _ in 0..500 {
            let mut frame = frames[rng.below(frames.len() as u64) as usize].clone();
            match rng.below(4) {
                0 => frame.truncate(rng.below(frame.len() as u64 + 1) as usize),
                1 => {
                    let at = rng.below(frame.len().min(80) as u64) as usize;
                    frame[at] = rng.next() as u8;
                }
                2 => {
                    // A number that is nearly right, and where the next frame's belongs.
                    let next = rng.below(200) as u32;
                    let at = [32, 36, 40, 44][rng.below(4) as usize];
                    let value = u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
                    frame[at..at + 4].copy_from_slice(&value.wrapping_add(next).to_le_bytes());
                }
                _ => {
                    for _ in 0..=rng.below(8) {
                        let bit = rng.below(frame.len().min(90) as u64 * 8) as usize;
                        frame[bit / 8] ^= 1 << (bit % 8);
                    }
                }
            }
            target.world.deliver(rng.below(2) as usize, &frame);
            target.world.run(10_000);
            if target.world.hosts[1].port.events.iter().any(|e| matches!(e, Event::Broken { .. })) {
                broken += 1;
                break;
            }
        }
        target.world.run(1_000_000_000);
        target.check();
    }
    assert!(broken > 0, "no damage was ever noticed: the test does not reach far");
}

/// As a peer that breaks the protocol would: a right identity, and the rest at random.
#[test]
fn forged_frames() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mut target = Target::new(seed);
        let frames = target.frames();
        let model = frames.iter().find(|f| f[15] == data::DATA).unwrap().clone();
        target.post_receives();
        for _ in 0..100 {
            let mut frame = model[..FIXED].to_vec();
            frame[16..18].copy_from_slice(&((rng.next() & 0xdef) as u16).to_le_bytes());
            let payload = rng.below(600) as u16;
            frame[20..22].copy_from_slice(&payload.to_le_bytes());
            let near = |rng: &mut Rng, at: usize, span: u64| {
                let value = u32::from_le_bytes(model[at..at + 4].try_into().unwrap());
                value.wrapping_add(rng.below(span) as u32).to_le_bytes()
            };
            for (at, span) in [(32, 20), (36, 3), (40, 6)] {
                let bytes = near(&mut rng, at, span);
                frame[at..at + 4].copy_from_slice(&bytes);
            }
            let offset = if rng.chance(600_000) { rng.below(8000) as u32 } else { 0 };
            frame[44..48].copy_from_slice(&offset.to_le_bytes());
            let extensions = data::extension_bytes(u16::from_le_bytes([frame[16], frame[17]]));
            for _ in 0..extensions + payload as usize {
                frame.push(rng.next() as u8);
            }
            if rng.chance(500_000) && extensions >= 16 {
                // A write to memory that is there, at the edge of it.
                let remote = target.writable.remote(rng.below(REGION as u64) as usize).unwrap();
                let at = FIXED + extensions - 16;
                frame[at..at + 8].copy_from_slice(&remote.address.to_le_bytes());
                frame[at + 8..at + 12].copy_from_slice(&remote.handle.0.to_le_bytes());
                frame[at + 12..at + 16].copy_from_slice(&(rng.below(9000) as u32).to_le_bytes());
            }
            target.world.deliver(1, &frame);
            if rng.chance(100_000) {
                target.world.run(100_000);
            }
        }
        target.world.run(1_000_000_000);
        target.check();
    }
}

#[test]
fn noise() {
    let mut rng = Rng(1);
    let mut world = World::good(Tuning::default());
    for round in 0..200_000 {
        let mut frame: Vec<u8> = (0..rng.below(200)).map(|_| rng.next() as u8).collect();
        if round % 2 == 0 && frame.len() >= 16 {
            frame[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 1]);
            frame[12..15].copy_from_slice(&[0x88, 0xb5, 1]);
            frame[15] = rng.below(30) as u8;
        }
        world.deliver(0, &frame);
        control::parse(&frame);
    }
    assert!(world.hosts[0].port.events.is_empty());
}

/// Every prefix and every flipped bit of management frames is refused: they always carry the check.
#[test]
fn management_frames_are_taken_whole_or_not_at_all() {
    let mut target = Target::new(0);
    let frames = target.frames();
    let management = frames.iter().filter(|f| f[15] > data::ACK);
    let mut count = 0;
    for frame in management {
        count += 1;
        let (envelope, control) = control::parse(frame).unwrap();
        assert_eq!(control::emit(&envelope, &control), *frame);
        let len = 14 + u16::from_le_bytes([frame[16], frame[17]]) as usize;
        for short in 0..len {
            assert!(control::parse(&frame[..short]).is_none());
        }
        // The destination is for the adapter to check; the engine looks at it too.
        for bit in 6 * 8..len * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(control::parse(&damaged).is_none(), "bit {bit}");
        }
    }
    assert!(count >= 4);
}

#[test]
fn no_frame_is_answered_more_than_once() {
    let mut engine = Engine::new(config(0, 1, Tuning::default())).unwrap();
    let mut target = Target::new(0);
    let frames = target.frames();
    let mut world = World::good(Tuning::default());
    std::mem::swap(&mut engine, &mut world.hosts[0].engine);
    for frame in frames {
        let before = world.hosts[0].port.offered;
        let mut frame = frame;
        frame[..6].copy_from_slice(&world.hosts[0].mac.0);
        world.deliver(0, &frame);
        assert!(world.hosts[0].port.offered - before <= 1);
        world.run(1_000_000);
    }
}
