//! Our drivers on models that lie, through the operations of the conformance suite: never a panic, never a token twice,
//! never an access to memory that was not given, always an error or recovery in bounded time; and once the model tells the
//! truth again, a reset brings everything back.
//!
//! A [`Case`] is a line of text, or, for a fuzzer, any bytes.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use uvia_driver::Error;
use uvia_driver::nic::{NicConfig, RxFilter};
use uvia_models::faults::{Lie, Lies, Plan, When};
use uvia_models::machine::Kind;
use uvia_models::random::Random;

use crate::bench::InProcess;
use crate::conformance::{Bench, End, Pair};

/// Lies by which a reset itself may take its second of patience, so that a few cases have to do.
pub const SLOW: [Lie; 2] = [Lie::NoReset, Lie::Removed];
/// Lies by which a device stores a completion, or fetches, where nobody told it to: then the I/O address space has to
/// block it, and blocked accesses are not the driver's fault.
const WILD: [Lie; 2] = [Lie::BadId, Lie::Garbage];
/// One operation of a driver takes no longer, whatever the device does: a reset, and a command that is not answered.
const BOUND: Duration = Duration::from_secs(4);
/// Sizes of rings: odd ones too, and such as drivers round up.
pub const RINGS: [usize; 6] = [1, 8, 16, 37, 64, 256];

/// One case: all that happens follows from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The one that lies, and the one that does not.
    pub kinds: [Kind; 2],
    /// Of everything that is left to chance. Even: packed virtqueues are asked for.
    pub seed: u64,
    /// Descriptors of a ring.
    pub ring: usize,
    /// The lies begin before the device is opened.
    pub early: bool,
    /// What it lies about, and when.
    pub lies: Vec<(Lie, When)>,
}

impl Case {
    /// What a fuzzer's bytes stand for: any bytes are a case of this driver. The first ten are the case, each three that
    /// follow a lie; the slow ones are left out.
    pub fn from_bytes(liar: &[Kind], bytes: &[u8]) -> Self {
        let quick: Vec<_> = Lie::ALL.iter().copied().filter(|lie| !SLOW.contains(lie)).collect();
        let mut fixed = [0; 10];
        let (head, rest) = bytes.split_at(bytes.len().min(fixed.len()));
        fixed[..head.len()].copy_from_slice(head);
        let [shape, ring, seed @ ..] = fixed;
        let shape = usize::from(shape);
        let lie = |bytes: &[u8]| {
            let [lie, when, how] = [bytes[0], bytes[1], bytes[2]];
            let when = match how & 3 {
                0 => When::Chance(1.0),
                1 => When::Chance(f64::from(when) / 1024.0),
                _ => When::At(1 + u64::from(when)),
            };
            (quick[usize::from(lie) % quick.len()], when)
        };
        Self {
            kinds: [liar[(shape >> 1) % liar.len()], Kind::ALL[(shape >> 3) % Kind::ALL.len()]],
            seed: u64::from_le_bytes(seed),
            ring: RINGS[usize::from(ring) % RINGS.len()],
            early: shape & 1 != 0,
            lies: rest.chunks_exact(3).take(4).map(lie).collect(),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [liar, other] = self.kinds.map(Kind::name);
        write!(f, "{liar} {other} seed {} ring {}", self.seed, self.ring)?;
        f.write_str(if self.early { " early" } else { "" })?;
        for (lie, when) in &self.lies {
            match when {
                When::At(n) => write!(f, "; lie {} at {n}", lie.name())?,
                When::Chance(chance) => write!(f, "; lie {} {chance}", lie.name())?,
            }
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (head, lies) = line.split_once(';').unwrap_or((line, ""));
        let words: Vec<_> = head.split_whitespace().collect();
        let kind =
            |name: &str| Kind::ALL.iter().find(|kind| kind.name() == name).copied().ok_or(name.to_owned());
        let (names, early) = match words[..] {
            [liar, other, "seed", seed, "ring", ring] => ([liar, other, seed, ring], false),
            [liar, other, "seed", seed, "ring", ring, "early"] => ([liar, other, seed, ring], true),
            _ => return Err(format!("{line:?} is not a case")),
        };
        let number = |word: &str| word.parse().map_err(|e| format!("{word}: {e}"));
        Ok(Self {
            kinds: [kind(names[0])?, kind(names[1])?],
            seed: number(names[2])?,
            ring: number(names[3])? as usize,
            early,
            lies: Plan::parse(&lies.replace(';', "\n")).map_err(|e| e.to_string())?.lies(0),
        })
    }
}

/// What a driver may answer when the device does not keep the rules.
///
/// # Panics
/// It is something else.
pub fn check(error: &Error) {
    let right = matches!(error, Error::Device { .. } | Error::Timeout { .. } | Error::Unsupported { .. });
    assert!(right, "{error:?}");
}

/// One of the things that programs do with a NIC.
fn step(end: &mut End, other: &mut End, random: &mut Random) -> uvia_driver::Result<()> {
    match random.below(12) {
        0..3 => {
            for _ in 0..random.below(8) {
                let parts = 1 + random.below(end.nic.properties().max_segments.min(4) as u64);
                if end.try_put(60 + random.below(1400) as usize, parts as usize)?.is_none() {
                    break;
                }
            }
        }
        3..5 => end.nic.flush()?,
        5 => drop(end.try_reclaim()?),
        6 => drop(end.try_take(random.below(40) as usize)?),
        7 => {
            // The other end is honest, and does not mind.
            for _ in 0..random.below(8) {
                other.put(60 + random.below(1400) as usize, 1);
            }
            other.nic.flush()?;
            other.reclaim();
        }
        8 => drop(other.take(64)),
        9 => end.nic.arm(random.below(2) == 0)?,
        10 => {
            end.nic.link()?;
            end.nic.ready()?;
            end.nic.look_after()?;
            end.nic.statistics();
        }
        _ => {
            // Seldom: it waits for an answer, or makes the receiver deaf.
            if random.below(50) == 0 {
                let filter =
                    RxFilter { promiscuous: random.below(2) == 0, all_multicast: random.below(2) == 0 };
                match end.nic.set_filter(filter) {
                    Err(Error::Unsupported { .. }) => {}
                    outcome => outcome?,
                }
            }
        }
    }
    Ok(())
}

/// Runs a case.
///
/// # Panics
/// The driver did what it must not.
pub fn run(case: &Case) {
    let bench = InProcess::with_faults(case.kinds, case.seed, Plan::default());
    let config = NicConfig {
        tx_ring: case.ring,
        rx_ring: case.ring,
        interrupts: true,
        // Of devices that offer them; also the driver of split ones has to get on with those.
        packed_rings: case.seed.is_multiple_of(2),
        ..NicConfig::default()
    };
    let mut random = Random::new(case.seed);
    let lies = || Lies::new(&case.lies, Random::new(case.seed));
    if case.early {
        bench.set_lies(0, lies());
    }
    let mut pair = Pair::try_open(&bench, &config).unwrap_or_else(|e| {
        check(&e);
        assert!(case.early, "nobody lied: {e}");
        bench.set_lies(0, Lies::none());
        Pair::open(&bench, &config)
    });
    for round in 0..2 {
        if round > 0 || !case.early {
            bench.set_lies(0, lies());
        }
        let (mut faulted, mut resets) = (false, 0);
        for _ in 0..300 {
            let start = Instant::now();
            let outcome = step(&mut pair.a, &mut pair.b, &mut random);
            assert!(start.elapsed() < BOUND, "one operation took {:?}", start.elapsed());
            if let Err(e) = outcome {
                check(&e);
                faulted = true;
                // Sometimes it is used on, and sometimes reset while it still lies.
                match random.below(3) {
                    0 => continue,
                    // Not too often: it may take its time.
                    1 if resets < 1 => {
                        resets += 1;
                        pair.a.nic.reset().unwrap_or_else(|e| check(&e));
                    }
                    _ => break,
                }
            }
        }
        bench.set_lies(0, Lies::none());
        if faulted || random.below(2) == 0 {
            pair.a.nic.reset().unwrap_or_else(|e| panic!("the device is honest again: {e}"));
            // All that was outstanding comes back, once.
            pair.a.settle();
            pair.b.settle();
            pair.sync();
            pair.exchange();
        }
    }
    drop(pair);
    let accesses = bench.accesses();
    let stray = bench.stray();
    assert_eq!(bench.accesses(), accesses, "memory touched after closing");
    assert_eq!(bench.mapped(), Some(0));
    if !case.lies.iter().any(|(lie, _)| WILD.contains(lie)) {
        assert_eq!(stray, Some(0), "accesses to memory that was not given");
    }
}
