//! Files of faults.
//!
//! ```text
//! # A line a rule; what follows # is a comment.
//! wire loss 1%                    # of all adapters
//! wire delay 5% 100us..2ms
//! nic 0 wire corrupt 0.1%         # of the first one only
//! nic 1 link down at 500ms for 200ms
//! lie bad-id 0.5%                 # by chance
//! nic 0 lie never at 17           # the 17th completion, once
//! ```

use std::time::Duration;

use super::Lie;
use crate::random::Random;

/// When a fault happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// At the n-th event, counted from 1, once.
    At(u64),
    /// At each event with this probability.
    Chance(f64),
}

impl When {
    /// Whether it happens at the n-th event.
    pub fn happens(&self, event: u64, random: &mut Random) -> bool {
        match *self {
            Self::At(n) => n == event,
            // 2^53 values, as many as a double tells apart.
            Self::Chance(chance) => ((random.next() >> 11) as f64) < chance * (1u64 << 53) as f64,
        }
    }
}

/// What may happen to a frame on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFault {
    /// It is lost.
    Loss,
    /// It comes later, by a time drawn from the range.
    Delay(Duration, Duration),
    /// It comes after the frame that follows it.
    Reorder,
    /// It comes twice.
    Duplicate,
    /// A byte of it is another.
    Corrupt,
}

/// One rule for frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WireRule {
    /// What.
    pub fault: WireFault,
    /// When; the events are the frames that an adapter sends.
    pub when: When,
}

/// A time without link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOutage {
    /// From when on, since the start.
    pub from: Duration,
    /// Until when; `None`: for ever.
    pub until: Option<Duration>,
}

/// All rules of a file; an adapter's number, where a rule is for one only.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    wire: Vec<(Option<usize>, WireRule)>,
    lies: Vec<(Option<usize>, (Lie, When))>,
    outages: Vec<(Option<usize>, LinkOutage)>,
}

/// A line that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct PlanError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Plan {
    /// Reads rules.
    ///
    /// # Errors
    /// The first line that is none.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            plan.rule(&words).map_err(|what| PlanError { line: n + 1, what })?;
        }
        Ok(plan)
    }

    fn rule(&mut self, words: &[&str]) -> Result<(), String> {
        let (nic, words) = match words {
            ["nic", n, rest @ ..] => {
                let n = n.parse().map_err(|_| format!("{n:?} is not an adapter's number"))?;
                (Some(n), rest)
            }
            _ => (None, words),
        };
        match words {
            [] if nic.is_none() => (),
            ["wire", fault, rest @ ..] => self.wire.push((nic, wire_rule(fault, rest)?)),
            ["lie", name, rest @ ..] => {
                let lie = Lie::ALL.iter().find(|lie| lie.name() == *name).ok_or_else(|| {
                    let names: Vec<_> = Lie::ALL.iter().map(|lie| lie.name()).collect();
                    format!("{name:?} is not a lie; those are {}", names.join(", "))
                })?;
                self.lies.push((nic, (*lie, when(rest)?)));
            }
            ["link", "down", "at", from, rest @ ..] => {
                let from = duration(from)?;
                let until = match rest {
                    [] => None,
                    ["for", length] => Some(from + duration(length)?),
                    _ => return Err("after the time: `for` and how long, or nothing".to_owned()),
                };
                self.outages.push((nic, LinkOutage { from, until }));
            }
            _ => return Err("a rule is `wire ...`, `lie ...` or `link down at ...`".to_owned()),
        }
        Ok(())
    }

    /// Adds a lie of all adapters.
    #[must_use]
    pub fn with_lie(mut self, lie: Lie, when: When) -> Self {
        self.lies.push((None, (lie, when)));
        self
    }

    /// Adds a fault of every wire.
    #[must_use]
    pub fn with_wire(mut self, fault: WireFault, when: When) -> Self {
        self.wire.push((None, WireRule { fault, when }));
        self
    }

    /// Rules for frames that adapter `nic` sends.
    pub fn wire(&self, nic: usize) -> Vec<WireRule> {
        of(&self.wire, nic)
    }

    /// Lies that adapter `nic` tells.
    pub fn lies(&self, nic: usize) -> Vec<(Lie, When)> {
        of(&self.lies, nic)
    }

    /// When adapter `nic` is without link.
    pub fn outages(&self, nic: usize) -> Vec<LinkOutage> {
        of(&self.outages, nic)
    }

    /// The highest adapter's number that a rule names.
    pub fn highest(&self) -> Option<usize> {
        let wire = self.wire.iter().filter_map(|(nic, _)| *nic);
        let lies = self.lies.iter().filter_map(|(nic, _)| *nic);
        let outages = self.outages.iter().filter_map(|(nic, _)| *nic);
        wire.chain(lies).chain(outages).max()
    }
}

fn of<T: Copy>(rules: &[(Option<usize>, T)], nic: usize) -> Vec<T> {
    rules.iter().filter(|(of, _)| of.is_none_or(|of| of == nic)).map(|(_, rule)| *rule).collect()
}

fn wire_rule(fault: &str, rest: &[&str]) -> Result<WireRule, String> {
    let (fault, rest) = match (fault, rest) {
        ("loss", _) => (WireFault::Loss, rest),
        ("reorder", _) => (WireFault::Reorder, rest),
        ("duplicate", _) => (WireFault::Duplicate, rest),
        ("corrupt", _) => (WireFault::Corrupt, rest),
        ("delay", [rest @ .., range]) => {
            let (least, most) = match range.split_once("..") {
                Some((least, most)) => (duration(least)?, duration(most)?),
                None => (duration(range)?, duration(range)?),
            };
            if least > most {
                return Err(format!("{range} ends before it begins"));
            }
            (WireFault::Delay(least, most), rest)
        }
        _ => return Err(format!("{fault:?} is not one of loss, delay, reorder, duplicate, corrupt")),
    };
    Ok(WireRule { fault, when: when(rest)? })
}

fn when(words: &[&str]) -> Result<When, String> {
    match words {
        ["at", n] => match n.parse() {
            Ok(n) if n > 0 => Ok(When::At(n)),
            _ => Err(format!("{n:?} is not the number of an event, counted from 1")),
        },
        [chance] => {
            let (number, unit) = match chance.strip_suffix('%') {
                Some(number) => (number, 0.01),
                None => (*chance, 1.0),
            };
            let value = number.parse::<f64>().ok().map(|value| value * unit);
            match value.filter(|value| (0.0..=1.0).contains(value)) {
                Some(value) => Ok(When::Chance(value)),
                None => Err(format!("{chance:?} is not a probability such as 2.5% or 0.025")),
            }
        }
        _ => Err("when: a probability (2.5%), or `at` and the number of the event".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a time such as 50us, 20ms or 1.5s");
    let end = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let unit = match &text[end..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(bad()),
    };
    let seconds = text[..end].parse::<f64>().map_err(|_| bad())? * unit;
    // A day is more than anything here runs, and no sum of two overflows.
    if (0.0..=86_400.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_every_kind_of_rule() {
        let plan = Plan::parse(
            "# faults\n\nwire loss 1% # of all\nnic 1 wire delay 0.05 100us..2ms\nwire corrupt at 3\n\
             nic 0 lie bad-id at 17\nlie late 2.5%\nnic 1 link down at 500ms for 0.2s\nlink down at 1s\n",
        )
        .unwrap();
        assert_eq!(plan.wire(0).len(), 2);
        let delay = WireFault::Delay(Duration::from_micros(100), Duration::from_millis(2));
        assert_eq!(plan.wire(1)[1], WireRule { fault: delay, when: When::Chance(0.05) });
        assert_eq!(plan.lies(0), [(Lie::BadId, When::At(17)), (Lie::Late, When::Chance(0.025))]);
        assert_eq!(plan.lies(1), [(Lie::Late, When::Chance(0.025))]);
        let outage = LinkOutage { from: Duration::from_millis(500), until: Some(Duration::from_millis(700)) };
        assert_eq!(plan.outages(1)[0], outage);
        assert_eq!(plan.outages(0), [LinkOutage { from: Duration::from_secs(1), until: None }]);
        assert_eq!(plan.highest(), Some(1));
    }

    #[test]
    fn what_is_no_rule_is_named_by_its_line() {
        for (text, named) in [
            ("wire", "a rule is"),
            ("nic 0", "a rule is"),
            ("\nwire los 1%", "line 2: \"los\""),
            ("wire loss 101%", "101%"),
            ("wire loss NaN", "NaN"),
            ("wire loss -1", "-1"),
            ("wire delay 1% 3ms..2ms", "ends before"),
            ("wire delay 1% 3", "not a time"),
            ("wire delay", "delay"),
            ("lie lie 1%", "those are bad-id"),
            ("lie gone at 0", "counted from 1"),
            ("nic x lie gone at 1", "adapter's number"),
            ("link down at 1e99s", "not a time"),
            ("link down at 1s until 2s", "`for`"),
        ] {
            let error = Plan::parse(text).unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn chances_are_about_kept() {
        let mut random = Random::new(5);
        let mut count = |chance| (0..10_000).filter(|_| When::Chance(chance).happens(1, &mut random)).count();
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((900..1100).contains(&count(0.1)));
    }
}
