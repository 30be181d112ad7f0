//! The switch that joins the adapters of a process: it learns who is where, and keeps a bounded queue a port.

pub mod link;
mod outside;
pub mod tap;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use outside::Waker;
use parking_lot::Mutex;

use crate::faults::{Departure, FaultyWire};
use crate::port::{Frame, LONGEST, Port};

/// Frames that wait at a port, at most: what comes then is dropped and counted.
const QUEUE: usize = 1024;
/// Stations that are remembered; with more, frames go everywhere, as in any switch.
const STATIONS: usize = 4096;
/// Frames on delayed wires, at most.
const DELAYED: usize = 16384;

/// Ports, and who was heard at which.
#[derive(Default)]
pub struct Switch {
    ports: Vec<State>,
    stations: HashMap<[u8; 6], usize>,
    delayed: BTreeMap<(Duration, u64), (usize, Frame)>,
    sequence: u64,
    now: Duration,
    /// Called when a frame waits at a port that is not an adapter's.
    listeners: Vec<(usize, Listener)>,
}

/// Told that a port has frames.
type Listener = Box<dyn Fn() + Send>;

struct State {
    queue: VecDeque<Frame>,
    wire: FaultyWire,
    /// Somebody pulled the cable.
    pulled: bool,
    missed: u64,
    counts: PortCounts,
}

impl State {
    fn link(&self, now: Duration) -> bool {
        !self.pulled && self.wire.link(now)
    }
}

/// What a port did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounts {
    /// Frames that came in from the adapter.
    pub received: u64,
    /// Frames put into the queue towards the adapter.
    pub forwarded: u64,
    /// Frames that found that queue full.
    pub dropped: u64,
    /// Frames lost since the link was down.
    pub unlinked: u64,
}

impl Switch {
    /// A switch without ports.
    pub fn new() -> Arc<Mutex<Self>> {
        Arc::default()
    }

    /// Adds a port with a wire to it.
    pub fn add(switch: &Arc<Mutex<Self>>, wire: FaultyWire) -> SwitchPort {
        let mut locked = switch.lock();
        locked.ports.push(State {
            queue: VecDeque::new(),
            wire,
            pulled: false,
            missed: 0,
            counts: PortCounts::default(),
        });
        SwitchPort { index: locked.ports.len() - 1, switch: switch.clone() }
    }

    /// Time passes: delayed frames arrive. Answers when something happens next by itself.
    pub fn advance(&mut self, now: Duration) -> Option<Duration> {
        self.now = self.now.max(now);
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (from, frame) = entry.remove();
            self.forward(from, frame);
        }
        let arrival = self.delayed.keys().next().map(|(due, _)| *due);
        let change = self.ports.iter().filter_map(|port| port.wire.next_change(self.now)).min();
        arrival.into_iter().chain(change).min()
    }

    /// Pulls a port's cable, or puts it in again.
    pub fn set_pulled(&mut self, port: usize, pulled: bool) {
        if let Some(port) = self.ports.get_mut(port) {
            port.pulled = pulled;
        }
    }

    /// Counters of a port.
    pub fn counts(&self, port: usize) -> PortCounts {
        self.ports.get(port).map(|port| port.counts).unwrap_or_default()
    }

    fn take_in(&mut self, from: usize, frame: Frame) {
        let now = self.now;
        let Some(port) = self.ports.get_mut(from) else { return };
        port.counts.received += 1;
        if !port.link(now) {
            port.counts.unlinked += 1;
            return;
        }
        if frame.len() < 14 || frame.len() > LONGEST {
            return;
        }
        if port.wire.is_perfect() {
            return self.forward(from, frame);
        }
        let mut out = Vec::new();
        port.wire.pass(now, frame, &mut |departure, frame| out.push((departure, frame)));
        for (departure, frame) in out {
            match departure {
                Departure::Now => self.forward(from, frame),
                Departure::At(due) if self.delayed.len() < DELAYED => {
                    self.sequence += 1;
                    self.delayed.insert((due, self.sequence), (from, frame));
                }
                Departure::At(_) => self.ports[from].counts.dropped += 1,
            }
        }
    }

    fn forward(&mut self, from: usize, frame: Frame) {
        let Some((destination, rest)) = frame.split_first_chunk::<6>() else { return };
        let Some(source) = rest.first_chunk::<6>() else { return };
        if source[0] & 1 == 0
            && (self.stations.len() < STATIONS || self.stations.contains_key(source))
            && self.stations.get(source) != Some(&from)
        {
            self.stations.insert(*source, from);
        }
        let known = if destination[0] & 1 == 0 { self.stations.get(destination).copied() } else { None };
        match known {
            Some(to) if to == from => (),
            Some(to) => self.put(to, frame),
            None => {
                let others = (0..self.ports.len()).filter(|to| *to != from).collect::<Vec<_>>();
                if let Some((last, others)) = others.split_last() {
                    for to in others {
                        self.put(*to, frame.clone());
                    }
                    self.put(*last, frame);
                }
            }
        }
    }

    fn put(&mut self, to: usize, frame: Frame) {
        let now = self.now;
        let port = &mut self.ports[to];
        if !port.link(now) {
            port.counts.unlinked += 1;
        } else if port.queue.len() >= QUEUE {
            port.counts.dropped += 1;
            port.missed += 1;
        } else {
            port.queue.push_back(frame);
            port.counts.forwarded += 1;
            for (_, tell) in self.listeners.iter().filter(|(port, _)| *port == to) {
                tell();
            }
        }
    }
}

/// One port of a switch.
#[derive(Clone)]
pub struct SwitchPort {
    index: usize,
    switch: Arc<Mutex<Switch>>,
}

impl SwitchPort {
    /// Its number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// From now on `tell` is called when a frame waits here. It must not call the switch.
    pub fn listen(&self, tell: impl Fn() + Send + 'static) {
        self.switch.lock().listeners.push((self.index, Box::new(tell)));
    }

    /// Whether frames wait.
    pub fn is_waiting(&self) -> bool {
        !self.switch.lock().ports[self.index].queue.is_empty()
    }
}

impl Port for SwitchPort {
    fn send(&mut self, frame: Frame) {
        self.switch.lock().take_in(self.index, frame);
    }

    fn receive(&mut self) -> Option<Frame> {
        self.switch.lock().ports[self.index].queue.pop_front()
    }

    fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.switch.lock().ports[self.index].missed)
    }

    fn link(&self) -> bool {
        let switch = self.switch.lock();
        switch.ports[self.index].link(switch.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{LinkOutage, When, WireFault, WireRule};
    use crate::random::Random;

    fn wire(rules: Vec<WireRule>, outages: Vec<LinkOutage>) -> FaultyWire {
        FaultyWire::new(rules, outages, Random::new(1))
    }

    fn frame(to: u8, from: u8) -> Frame {
        [[to; 6], [from; 6], [0; 6]].concat()
    }

    #[test]
    fn it_learns_and_floods() {
        let switch = Switch::new();
        let mut ports: Vec<_> = (0..3).map(|_| Switch::add(&switch, wire(vec![], vec![]))).collect();
        let got = |ports: &mut Vec<SwitchPort>| -> Vec<usize> {
            ports.iter_mut().map(|port| std::iter::from_fn(|| port.receive()).count()).collect()
        };
        ports[0].send(frame(0xff, 2));
        assert_eq!(got(&mut ports), [0, 1, 1]);
        ports[1].send(frame(2, 4));
        assert_eq!(got(&mut ports), [1, 0, 0]);
        ports[0].send(frame(4, 2));
        assert_eq!(got(&mut ports), [0, 1, 0]);
        ports[0].send(frame(2, 2));
        ports[0].send(vec![1; 13]);
        assert_eq!(got(&mut ports), [0, 0, 0]);
        // It moved.
        ports[2].send(frame(0xff, 2));
        got(&mut ports);
        ports[1].send(frame(2, 4));
        assert_eq!(got(&mut ports), [0, 0, 1]);
    }

    #[test]
    fn queues_are_bounded_and_what_is_lost_is_counted() {
        let switch = Switch::new();
        let mut a = Switch::add(&switch, wire(vec![], vec![]));
        let mut b = Switch::add(&switch, wire(vec![], vec![]));
        for _ in 0..QUEUE + 5 {
            a.send(frame(0xff, 2));
        }
        assert_eq!((b.missed(), b.missed()), (5, 0));
        assert_eq!(std::iter::from_fn(|| b.receive()).count(), QUEUE);
        assert_eq!(switch.lock().counts(1).dropped, 5);
    }

    #[test]
    fn delayed_frames_arrive_in_time_and_outages_lose() {
        let ms = Duration::from_millis;
        let switch = Switch::new();
        let delay = WireRule { fault: WireFault::Delay(ms(2), ms(2)), when: When::At(1) };
        let outage = LinkOutage { from: ms(5), until: Some(ms(6)) };
        let mut a = Switch::add(&switch, wire(vec![delay], vec![outage]));
        let mut b = Switch::add(&switch, wire(vec![], vec![]));
        a.send(frame(0xff, 2));
        assert!(b.receive().is_none());
        assert_eq!(switch.lock().advance(ms(1)), Some(ms(2)));
        assert_eq!(switch.lock().advance(ms(2)), Some(ms(5)));
        assert!(b.receive().is_some());
        switch.lock().advance(ms(5));
        a.send(frame(0xff, 2));
        b.send(frame(0xff, 4));
        assert!(!a.link() && b.link() && a.receive().is_none() && b.receive().is_none());
        assert_eq!(switch.lock().advance(ms(6)), None);
        a.send(frame(0xff, 2));
        assert!(a.link() && b.receive().is_some());
    }

    #[test]
    fn a_pulled_cable_carries_nothing() {
        let switch = Switch::new();
        let mut a = Switch::add(&switch, wire(vec![], vec![]));
        let mut b = Switch::add(&switch, wire(vec![], vec![]));
        switch.lock().set_pulled(1, true);
        a.send(frame(0xff, 2));
        b.send(frame(0xff, 4));
        assert!(a.link() && !b.link() && a.receive().is_none() && b.receive().is_none());
        switch.lock().set_pulled(1, false);
        a.send(frame(0xff, 2));
        assert!(b.link() && b.receive().is_some());
    }
}
