//! Our drivers on models that lie, through the operations of the conformance suite: never a panic, never a token
//! twice, never an access to memory that was not given, always an error or recovery in bounded time; and once the
//! model tells the truth again, a reset brings everything back.
//!
//! A case is a line: what the two models are, what the first one lies about, and a seed that all else follows from. One
//! that failed goes into `lies/corpus.txt`, which runs as a test of its own.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use uvia_driver::Error;
use uvia_driver::nic::{NicConfig, RxFilter};
use uvia_models::faults::{Lie, Lies, Plan, When};
use uvia_models::machine::Kind;
use uvia_models::random::Random;
use uvia_tests::bench::InProcess;
use uvia_tests::conformance::{Bench, End, Pair};

/// Cases, for proptest's usual count of 256.
const CASES: u32 = 4;
/// Lies by which a reset itself may take its second of patience, so that a few cases have to do.
const SLOW: [Lie; 2] = [Lie::NoReset, Lie::Removed];
/// Lies by which a device stores a completion, or fetches, where nobody told it to: then the I/O address space has to
/// block it, and blocked accesses are not the driver's fault.
const WILD: [Lie; 2] = [Lie::BadId, Lie::Garbage];
/// One operation of a driver takes no longer, whatever the device does: a reset, and a command that is not answered.
const BOUND: Duration = Duration::from_secs(4);

/// One case.
#[derive(Debug, Clone, PartialEq)]
struct Case {
    kinds: [Kind; 2],
    seed: u64,
    ring: usize,
    /// The lies begin before the device is opened.
    early: bool,
    lies: Vec<(Lie, When)>,
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
fn check(error: &Error) {
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
fn run(case: &Case) {
    let bench = InProcess::with_faults(case.kinds, case.seed, Plan::default());
    let config = NicConfig {
        tx_ring: case.ring,
        rx_ring: case.ring,
        interrupts: true,
        // Of devices that offer them; also the driver of split ones has to get on with those.
        packed_rings: case.seed % 2 == 0,
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

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![(1u64..200).prop_map(When::At), (0.0..0.2f64).prop_map(When::Chance), Just(When::Chance(1.0))]
}

fn any_case() -> impl Strategy<Value = Case> {
    let kind = || prop::sample::select(Kind::ALL);
    let lies: Vec<_> = Lie::ALL.iter().copied().filter(|lie| !SLOW.contains(lie)).collect();
    let lies = prop::collection::vec((prop::sample::select(lies), any_when()), 1..4);
    let ring = prop::sample::select(vec![1usize, 8, 16, 37, 64, 256]);
    let early = prop_oneof![3 => Just(false), 1 => Just(true)];
    (kind(), kind(), any::<u64>(), ring, early, lies).prop_map(|(liar, other, seed, ring, early, lies)| {
        Case { kinds: [liar, other], seed, ring, early, lies }
    })
}

fn more_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases * CASES, failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(more_cases())]

    #[test]
    fn lies_end_in_errors_or_recovery(case in any_case()) {
        println!("{case}");
        run(&case);
    }

    #[test]
    fn a_case_is_a_line(case in any_case()) {
        prop_assert_eq!(case.to_string().parse(), Ok(case));
    }
}

#[test]
fn cases_that_failed_once() {
    let mut count = 0;
    for line in
        include_str!("lies/corpus.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        println!("{line}");
        run(&line.parse().unwrap_or_else(|e| panic!("{e}")));
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn each_lie_alone_and_always() {
    for liar in Kind::ALL {
        for lie in Lie::ALL.iter().filter(|lie| !SLOW.contains(lie)) {
            for seed in 2..4 {
                for when in [When::Chance(1.0), When::At(3)] {
                    let kinds = [*liar, Kind::E1000];
                    let case = Case { kinds, seed, ring: 16, early: seed == 3, lies: vec![(*lie, when)] };
                    println!("{case}");
                    run(&case);
                }
            }
        }
    }
}

/// The e1000 driver stops everything by its own registers, and needs no reset; the virtio driver sees that the status
/// stays.
#[test]
fn a_reset_that_does_not_reset() {
    for kind in Kind::ALL {
        let bench = InProcess::new([*kind; 2]);
        let mut pair = Pair::usual(&bench);
        pair.a.send_one(60, 1);
        bench.set_lies(0, Lies::new(&[(Lie::NoReset, When::Chance(1.0))], Random::new(1)));
        if let Err(e) = pair.a.nic.reset() {
            check(&e);
        }
        bench.set_lies(0, Lies::none());
        pair.a.nic.reset().unwrap();
        pair.a.settle();
        pair.sync();
        pair.exchange();
    }
}

/// By plan and not by hand: models follow a link's outage when its time has come, and wake whoever sleeps.
#[test]
fn outages_come_in_time() {
    for kind in Kind::ALL {
        let plan = Plan::parse("nic 0 link down at 100s for 1s").unwrap();
        let bench = InProcess::with_faults([*kind; 2], 1, plan);
        let mut pair = Pair::usual(&bench);
        pair.a.nic.arm(true).unwrap();
        assert!(pair.a.nic.link().unwrap().up && !pair.a.readable(Duration::ZERO));
        bench.machine().advance(Duration::from_secs(100));
        bench.machine().run(10);
        assert!(pair.a.readable(Duration::ZERO), "{kind:?}");
        assert!(!pair.a.nic.link().unwrap().up && pair.b.nic.link().unwrap().up);
        bench.machine().advance(Duration::from_secs(1));
        pair.sync();
        pair.exchange();
    }
}
