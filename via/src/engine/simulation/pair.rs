//! Two hosts and a connection between them, for scenarios.

use super::world::{TAG, World};
use crate::engine::{Event, Tuning};
use crate::{Completion, ConnectionLoss, Descriptor, MemoryRegion, ViAttributes, ViId, ViState};

pub(super) const MILLI: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) fn attributes() -> ViAttributes {
    ViAttributes::new(TAG)
}

/// Two hosts, connected; each with a region.
pub(super) struct Pair {
    pub(super) world: World,
    pub(super) vi: [ViId; 2],
    pub(super) region: [MemoryRegion; 2],
}

pub(super) const REGION: usize = 64 << 10;

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(World::good(Tuning::default()))
    }

    pub(super) fn with(world: World) -> Self {
        Self::of(world, &attributes(), REGION)
    }

    /// With interfaces of these attributes, and regions of so many bytes.
    pub(super) fn of(mut world: World, attributes: &ViAttributes, bytes: usize) -> Self {
        let (client, server) = world.connect(0, 1, attributes);
        let domain = world.domain.clone();
        let region = [0, 1].map(|host| world.hosts[host].region(&domain, bytes));
        Self { world, vi: [client, server], region }
    }

    pub(super) fn send(&mut self, host: usize, descriptor: Box<Descriptor>) {
        let (now, engine, port) = self.world.at(host);
        engine.post_send(now, self.vi[host], descriptor, port);
    }

    pub(super) fn post_receive(&mut self, host: usize, range: std::ops::Range<usize>) {
        let descriptor = Descriptor::new(vec![self.region[host].segment(range).unwrap()]);
        let (_, engine, port) = self.world.at(host);
        engine.post_receive(self.vi[host], descriptor, port);
    }

    pub(super) fn message(&self, host: usize, range: std::ops::Range<usize>) -> Box<Descriptor> {
        Descriptor::new(vec![self.region[host].segment(range).unwrap()])
    }

    pub(super) fn completion(&mut self, host: usize) -> Option<Completion> {
        self.world.hosts[host].port.completions.pop_front()
    }

    /// The next completion of a host, which has to come soon.
    pub(super) fn wait(&mut self, host: usize) -> Completion {
        let there = self.world.until(10 * SECOND, |world| !world.hosts[host].port.completions.is_empty());
        assert!(there, "host {host} completed nothing");
        self.completion(host).unwrap()
    }

    pub(super) fn state(&self, host: usize) -> ViState {
        self.world.hosts[host].engine.state(self.vi[host]).unwrap()
    }

    pub(super) fn loss(&self, host: usize) -> Option<ConnectionLoss> {
        self.world.hosts[host].engine.loss(self.vi[host])
    }

    pub(super) fn disconnect(&mut self, host: usize) {
        let (now, engine, port) = self.world.at(host);
        engine.disconnect(now, self.vi[host], port).unwrap();
    }

    /// Both ends are broken, for these reasons, and said so once.
    pub(super) fn broken(&mut self, here: ConnectionLoss, there: ConnectionLoss) {
        self.world.run(50 * MILLI);
        for (host, loss) in [(0, here), (1, there)] {
            assert_eq!(self.state(host), ViState::Error);
            assert_eq!(self.loss(host), Some(loss));
            assert_eq!(self.world.event(host), Some(Event::Broken { vi: self.vi[host], loss }));
            assert_eq!(self.world.event(host), None);
        }
    }
}
