//! Two NICs back to back.

use std::time::{Duration, Instant};

use uvia_driver::Result;
use uvia_driver::nic::NicConfig;

use super::{Bench, End};
use crate::Idle;

/// How long anything may take; far beyond what it needs, also under emulation.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// After so long a probe that did not come is sent once more: the receiver may not have been awake.
const PROBE_AGAIN: Duration = Duration::from_millis(400);

/// Both ends.
pub struct Pair {
    /// One.
    pub a: End,
    /// The other.
    pub b: End,
    probes: u64,
}

impl Pair {
    /// Opens both NICs, and waits for nothing.
    ///
    /// # Errors
    /// Those of the bench.
    pub fn try_open(bench: &dyn Bench, config: &NicConfig) -> Result<Self> {
        let [a, b] = bench.open(config)?;
        let (of_a, of_b) = (a.nic.properties().mac, b.nic.properties().mac);
        Ok(Self { a: End::new(a, of_b, 1)?, b: End::new(b, of_a, 0)?, probes: 0 })
    }

    /// As [`Self::try_open`], on NICs that come up.
    pub fn open(bench: &dyn Bench, config: &NicConfig) -> Self {
        Self::try_open(bench, config).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Opens both NICs, and waits until frames go both ways.
    pub fn ready(bench: &dyn Bench, config: &NicConfig) -> Self {
        let mut pair = Self::open(bench, config);
        pair.sync();
        pair
    }

    /// A pair with rings of the usual size, ready.
    pub fn usual(bench: &dyn Bench) -> Self {
        Self::ready(bench, &NicConfig::default())
    }

    /// Waits until frames go both ways. What was under way before is taken, and forgotten.
    pub fn sync(&mut self) {
        for backwards in [false, true] {
            let number = &mut self.probes;
            let (from, to) = if backwards { (&mut self.b, &mut self.a) } else { (&mut self.a, &mut self.b) };
            let start = Instant::now();
            let (mut probe, mut sent, mut idle) = (None, start, Idle::default());
            // The last one that was sent: then there is none behind it.
            while probe.is_none() || to.probed != probe {
                if probe.is_none() || sent.elapsed() > PROBE_AGAIN {
                    *number += 1;
                    probe = from.probe(*number).expect("a NIC that works takes frames").or(probe);
                    sent = Instant::now();
                }
                if to.take(64).is_empty() && from.reclaim() == 0 && to.probed != probe {
                    idle.pause();
                }
                assert!(start.elapsed() < PATIENCE, "frames do not get through");
            }
            from.settle();
        }
        for end in [&mut self.a, &mut self.b] {
            end.nic.wait_ready(PATIENCE).expect("a NIC that hears frames is ready");
        }
    }

    /// The pair seen from either side.
    pub fn both_ways(&mut self, mut test: impl FnMut(&mut End, &mut End)) {
        test(&mut self.a, &mut self.b);
        test(&mut self.b, &mut self.a);
    }

    /// One frame each way: it works.
    pub fn exchange(&mut self) {
        self.both_ways(|from, to| {
            let sent = from.send_one(77, 2);
            to.expect(&[sent]);
            from.settle();
        });
    }
}
