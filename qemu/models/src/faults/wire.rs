//! A wire that loses, delays, reorders, duplicates and corrupts.

use std::time::Duration;

use super::plan::{LinkOutage, WireFault, WireRule};
use crate::port::Frame;
use crate::random::Random;

/// When a frame leaves the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// At once.
    Now,
    /// At a time.
    At(Duration),
}

/// One adapter's wire towards the switch.
#[derive(Debug)]
pub struct FaultyWire {
    rules: Vec<WireRule>,
    outages: Vec<LinkOutage>,
    events: u64,
    random: Random,
    /// Waits for the frame that follows it.
    swapped: Option<Frame>,
}

impl FaultyWire {
    /// A wire with these rules.
    pub fn new(rules: Vec<WireRule>, outages: Vec<LinkOutage>, random: Random) -> Self {
        Self { rules, outages, events: 0, random, swapped: None }
    }

    /// Whether the link is up.
    pub fn link(&self, now: Duration) -> bool {
        !self.outages.iter().any(|o| o.from <= now && o.until.is_none_or(|until| now < until))
    }

    /// When the link changes next.
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let times = self.outages.iter().flat_map(|o| [Some(o.from), o.until]).flatten();
        times.filter(|time| *time > now).min()
    }

    /// Whether frames pass through as they are, for ever.
    pub fn is_perfect(&self) -> bool {
        self.rules.is_empty()
    }

    /// A frame goes in; what comes out, and when, goes to `out`.
    pub fn pass(&mut self, now: Duration, mut frame: Frame, out: &mut dyn FnMut(Departure, Frame)) {
        if self.rules.is_empty() {
            return out(Departure::Now, frame);
        }
        self.events += 1;
        let before = self.swapped.take();
        let (mut lost, mut twice, mut swap, mut departure) = (false, false, false, Departure::Now);
        for rule in &self.rules {
            if !rule.when.happens(self.events, &mut self.random) {
                continue;
            }
            match rule.fault {
                WireFault::Loss => lost = true,
                WireFault::Duplicate => twice = true,
                WireFault::Reorder => swap = true,
                WireFault::Corrupt => {
                    let at = self.random.below(frame.len() as u64) as usize;
                    if let Some(byte) = frame.get_mut(at) {
                        *byte ^= 1 + self.random.below(255) as u8;
                    }
                }
                WireFault::Delay(least, most) => {
                    let range = (most - least).as_nanos() as u64 + 1;
                    departure = Departure::At(now + least + Duration::from_nanos(self.random.below(range)));
                }
            }
        }
        if !lost {
            if twice {
                out(departure, frame.clone());
            }
            if swap {
                self.swapped = Some(frame);
            } else {
                out(departure, frame);
            }
        }
        if let Some(before) = before {
            out(Departure::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::When;

    fn pass(fault: WireFault) -> Vec<(Departure, Frame)> {
        let rule = WireRule { fault, when: When::At(2) };
        let mut wire = FaultyWire::new(vec![rule], Vec::new(), Random::new(1));
        let mut out = Vec::new();
        for n in 1..=3 {
            wire.pass(Duration::ZERO, vec![n; 60], &mut |when, frame| out.push((when, frame)));
        }
        out
    }

    fn firsts(out: &[(Departure, Frame)]) -> Vec<u8> {
        out.iter().map(|(_, frame)| frame[0]).collect()
    }

    #[test]
    fn the_second_frame_suffers() {
        assert_eq!(firsts(&pass(WireFault::Loss)), [1, 3]);
        assert_eq!(firsts(&pass(WireFault::Duplicate)), [1, 2, 2, 3]);
        assert_eq!(firsts(&pass(WireFault::Reorder)), [1, 3, 2]);
        let corrupt = pass(WireFault::Corrupt);
        assert_eq!(corrupt[1].1.iter().filter(|byte| **byte != 2).count(), 1);
        let delayed = pass(WireFault::Delay(Duration::from_millis(1), Duration::from_millis(2)));
        let Departure::At(at) = delayed[1].0 else { panic!("not delayed") };
        assert!((Duration::from_millis(1)..=Duration::from_millis(2)).contains(&at));
    }

    #[test]
    fn the_link_goes_and_comes() {
        let outage = |from, until: Option<u64>| LinkOutage {
            from: Duration::from_secs(from),
            until: until.map(Duration::from_secs),
        };
        let wire = FaultyWire::new(Vec::new(), vec![outage(2, Some(3)), outage(9, None)], Random::new(1));
        let up: Vec<bool> = (0..11).map(|s| wire.link(Duration::from_secs(s))).collect();
        assert_eq!(up, [true, true, false, true, true, true, true, true, true, false, false]);
        assert_eq!(wire.next_change(Duration::from_secs(2)), Some(Duration::from_secs(3)));
        assert_eq!(wire.next_change(Duration::from_secs(9)), None);
    }
}
