//! Hosts, the wire between them, and time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use uvia_driver::dma::IdentityDomain;
use uvia_driver::nic::{MacAddress, RxFrame};

use super::adapter::{Behaviour, Port};
use super::rng::Rng;
use crate::engine::{Engine, EngineConfig, Event, Time, Tuning};
use crate::{MemoryAttributes, MemoryRegion, NetAddress, ProtectionTag, ViAttributes, ViId};

/// What the wire does to frames; chances in millionths, times in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) duplication: u64,
    pub(super) reordering: u64,
    pub(super) corruption: u64,
    /// Shortest time on the wire.
    pub(super) delay: u64,
    /// Longest time more.
    pub(super) jitter: u64,
    /// Longest time more of a frame that is reordered.
    pub(super) late: u64,
    /// The wire is dead from time to time: every so often, for so long.
    pub(super) dead_every: u64,
    pub(super) dead_for: u64,
    /// Every host sees every frame.
    pub(super) hub: bool,
}

/// A host: an engine and its adapter.
pub(super) struct Host {
    pub(super) mac: MacAddress,
    pub(super) engine: Engine,
    pub(super) port: Port,
    /// The host does nothing.
    pub(super) dead: bool,
}

/// The tag of all memory and interfaces here.
pub(super) const TAG: ProtectionTag = ProtectionTag::new(1, 1);

impl Host {
    pub(super) fn region(&mut self, domain: &Arc<IdentityDomain>, len: usize) -> MemoryRegion {
        self.engine.regions().allocate(domain.clone(), len, MemoryAttributes::remote(TAG)).unwrap()
    }
}

type InFlight = Reverse<(u64, u64, usize, Vec<u8>)>;

/// All there is.
pub(super) struct World {
    pub(super) now: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) faults: Faults,
    pub(super) domain: Arc<IdentityDomain>,
    pub(super) rng: Rng,
    /// Frames that reached a host.
    pub(super) delivered: u64,
    /// By the host that sends: bytes of a frame, after its first 14, that the wire carries. Longer ones are lost.
    pub(super) carries: Vec<usize>,
    /// All frames from this host are lost.
    pub(super) cut: Option<usize>,
    /// What went over the wire, when that is wanted.
    pub(super) trace: Option<Vec<Vec<u8>>>,
    frames: BinaryHeap<InFlight>,
    counter: u64,
    /// Steps since time last moved.
    still: u32,
}

/// What an engine of a simulation is made with.
pub(super) fn config(n: usize, seed: u64, tuning: Tuning) -> EngineConfig {
    EngineConfig {
        mac: mac(n),
        name: format!("host{n}"),
        mtu: 1500,
        largest: 1500,
        rx_slots: 256,
        max_segments: 4,
        seed: seed.wrapping_mul(31).wrapping_add(n as u64),
        lossless: false,
        tuning,
    }
}

pub(super) fn mac(n: usize) -> MacAddress {
    MacAddress([0x52, 0x54, 0, 0, 0, n as u8 + 1])
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults, behaviour: &Behaviour, configs: Vec<EngineConfig>) -> Self {
        let mut rng = Rng(seed);
        let hosts: Vec<_> = configs
            .into_iter()
            .map(|config| Host {
                mac: config.mac,
                port: Port::new(
                    behaviour.clone(),
                    config.max_segments,
                    config.largest.max(config.mtu),
                    rng.next(),
                ),
                engine: Engine::new(config).unwrap(),
                dead: false,
            })
            .collect();
        Self {
            now: 1_000,
            carries: vec![usize::MAX; hosts.len()],
            hosts,
            faults,
            domain: Arc::default(),
            rng,
            delivered: 0,
            cut: None,
            trace: None,
            frames: BinaryHeap::new(),
            counter: 0,
            still: 0,
        }
    }

    /// Two hosts on a good wire.
    pub(super) fn good(tuning: Tuning) -> Self {
        let behaviour = Behaviour { slots: 64, fetch: 0, notice: 0, copies: 0 };
        let faults = Faults { delay: 5_000, ..Faults::default() };
        let configs = (0..2).map(|n| config(n, 7, tuning.clone())).collect();
        Self::new(7, faults, &behaviour, configs)
    }

    /// A host and what its engine talks to, with the time set.
    pub(super) fn at(&mut self, host: usize) -> (Time, &mut Engine, &mut Port) {
        let now = self.now;
        let host = &mut self.hosts[host];
        host.port.now = now;
        (Time(now), &mut host.engine, &mut host.port)
    }

    /// Puts a frame on the wire.
    pub(super) fn send(&mut self, from: usize, bytes: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.push(bytes.to_vec());
        }
        let len = bytes.len() - 14;
        if self.cut == Some(from) || self.is_wire_dead() || len > self.carries[from] {
            return;
        }
        for to in 0..self.hosts.len() {
            let meant = bytes[..6] == self.hosts[to].mac.0 || bytes[..6] == [0xff; 6];
            if to == from || !(meant || self.faults.hub || self.hosts.len() == 2) {
                continue;
            }
            // An adapter takes no frame that it has no buffer for.
            if len > self.hosts[to].port.largest || self.rng.chance(self.faults.loss) {
                continue;
            }
            let copies = if self.rng.chance(self.faults.duplication) { 2 } else { 1 };
            for _ in 0..copies {
                let mut at = self.now + self.faults.delay + self.rng.below(self.faults.jitter + 1);
                if self.rng.chance(self.faults.reordering) {
                    at += self.rng.below(self.faults.late + 1);
                }
                let mut frame = bytes.to_vec();
                if self.rng.chance(self.faults.corruption) {
                    for _ in 0..=self.rng.below(3) {
                        let bit = self.rng.below(frame.len() as u64 * 8);
                        frame[bit as usize / 8] ^= 1 << (bit % 8);
                    }
                }
                self.counter += 1;
                self.frames.push(Reverse((at, self.counter, to, frame)));
            }
        }
    }

    fn is_wire_dead(&self) -> bool {
        let Faults { dead_every, dead_for, .. } = self.faults;
        dead_every != 0 && self.now % dead_every > dead_every - dead_for
    }

    /// Goes on to the next thing that happens, but not beyond `limit`. False when that was reached.
    pub(super) fn step(&mut self, limit: u64) -> bool {
        let mut next = limit;
        for host in self.hosts.iter().filter(|host| !host.dead) {
            next = next.min(host.port.next().unwrap_or(limit));
            next = next.min(host.engine.deadline().map_or(limit, |at| at.0));
        }
        if let Some(Reverse((at, ..))) = self.frames.peek() {
            next = next.min(*at);
        }
        self.still = if next > self.now { 0 } else { self.still + 1 };
        assert!(self.still < 10_000, "an engine wants to be polled over and over, and time stands still");
        self.now = self.now.max(next);
        while let Some(Reverse((at, ..))) = self.frames.peek() {
            if *at > self.now {
                break;
            }
            let Some(Reverse((_, _, to, frame))) = self.frames.pop() else { break };
            self.deliver(to, &frame);
        }
        for n in 0..self.hosts.len() {
            if self.hosts[n].dead {
                continue;
            }
            let (now, engine, port) = self.at(n);
            while let Some(token) = port.reclaim() {
                engine.transmitted(token, 1, port);
            }
            engine.poll(now, port);
            while let Some(frame) = self.hosts[n].port.fetch() {
                self.send(n, &frame);
                self.hosts[n].port.give_back(frame);
            }
        }
        self.now < limit
    }

    /// Hands a frame to a host.
    pub(super) fn deliver(&mut self, to: usize, frame: &[u8]) {
        if self.hosts[to].dead {
            return;
        }
        self.delivered += 1;
        let (now, engine, port) = self.at(to);
        engine.begin_burst(now);
        engine.receive(RxFrame::from_slice(frame), port);
    }

    /// Lets time go by.
    pub(super) fn run(&mut self, nanos: u64) {
        let limit = self.now + nanos;
        while self.step(limit) {}
    }

    /// Runs until something is so; `nanos` at most.
    pub(super) fn until(&mut self, nanos: u64, mut what: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now + nanos;
        loop {
            if what(self) {
                return true;
            }
            if !self.step(limit) {
                return what(self);
            }
        }
    }

    /// The next event of a host.
    pub(super) fn event(&mut self, host: usize) -> Option<Event> {
        self.hosts[host].port.events.pop_front()
    }

    /// Connects a new interface of `from` to a new one of `to`.
    pub(super) fn connect(&mut self, from: usize, to: usize, attributes: &ViAttributes) -> (ViId, ViId) {
        let client = self.hosts[from].engine.create_vi(attributes).unwrap();
        let server = self.hosts[to].engine.create_vi(attributes).unwrap();
        self.connect_these(from, client, to, server);
        (client, server)
    }

    /// Connects two idle interfaces.
    pub(super) fn connect_these(&mut self, from: usize, client: ViId, to: usize, server: ViId) {
        let listener = self.hosts[to].engine.listen(b"there", 8).unwrap();
        let address = NetAddress::new(self.hosts[to].mac, *b"there").unwrap();
        let (now, engine, port) = self.at(from);
        engine.connect(now, client, b"here", &address, 60_000_000_000, b"ask", port).unwrap();
        let mut request = None;
        let found = self.until(60_000_000_000, |world| {
            request = world.hosts[to].engine.next_request(listener);
            request.is_some()
        });
        assert!(found, "no request came");
        let request = request.unwrap();
        assert_eq!(request.private_data, b"ask");
        let (now, engine, port) = self.at(to);
        engine.accept(now, request.id, server, b"yes", port).unwrap();
        let connected = self.until(60_000_000_000, |world| {
            let is = |e: &Event| matches!(e, Event::Connected { vi, .. } if *vi == client);
            world.hosts[from].port.events.iter().any(is)
        });
        assert!(connected, "the acceptance did not come");
        self.hosts[from].port.events.retain(|e| !matches!(e, Event::Connected { .. }));
        self.hosts[to].port.events.retain(|e| !matches!(e, Event::Request { .. }));
        let (now, engine, port) = self.at(to);
        engine.unlisten(now, listener, port);
    }
}
