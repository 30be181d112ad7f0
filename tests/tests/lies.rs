//! Our drivers on models that lie: random cases, those that failed once, and each lie alone.
//!
//! A case is a line: what the two models are, what the first one lies about, and a seed that all else follows from. One
//! that failed goes into `lies/corpus.txt`, which runs as a test of its own.

use std::panic::catch_unwind;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use uvia_models::faults::{Lie, Lies, Plan, When};
use uvia_models::machine::Kind;
use uvia_models::random::Random;
use uvia_tests::bench::InProcess;
use uvia_tests::conformance::Pair;
use uvia_tests::lies::{Case, RINGS, SLOW, check, run};

/// Cases, for each of proptest's usual count of 256.
const CASES: u32 = 4;
/// With `UVIA_LONG`.
const LONG: u32 = 16;
/// So many run at a time: now and then a driver waits for a second for what a lying device never answers, and all that it
/// needs the processor for is a tenth of that.
const AT_A_TIME: u32 = 16;

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![(1u64..200).prop_map(When::At), (0.0..0.2f64).prop_map(When::Chance), Just(When::Chance(1.0))]
}

fn any_case() -> impl Strategy<Value = Case> {
    let kind = || prop::sample::select(Kind::ALL);
    let lies: Vec<_> = Lie::ALL.iter().copied().filter(|lie| !SLOW.contains(lie)).collect();
    let lies = prop::collection::vec((prop::sample::select(lies), any_when()), 1..4);
    let ring = prop::sample::select(RINGS.to_vec());
    let early = prop_oneof![3 => Just(false), 1 => Just(true)];
    (kind(), kind(), any::<u64>(), ring, early, lies).prop_map(|(liar, other, seed, ring, early, lies)| {
        Case { kinds: [liar, other], seed, ring, early, lies }
    })
}

fn more_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let times = if std::env::var_os("UVIA_LONG").is_some() { LONG } else { CASES };
    ProptestConfig { cases: usual.cases * times, failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: more_cases().cases.div_ceil(AT_A_TIME), ..more_cases() })]

    #[test]
    fn lies_end_in_errors_or_recovery(cases in prop::collection::vec(any_case(), AT_A_TIME as usize)) {
        thread::scope(|scope| {
            for case in &cases {
                scope.spawn(move || {
                    // Whoever fails tells which: what all of them print comes in any order.
                    catch_unwind(|| run(case)).unwrap_or_else(|_| panic!("failed: {case}"));
                });
            }
        });
    }
}

proptest! {
    #![proptest_config(more_cases())]

    /// As a fuzzer gives them, in a few cases: whatever the bytes, the case can be run, and its line runs it again.
    #[test]
    fn bytes_are_cases(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        let case = Case::from_bytes(Kind::ALL, &bytes);
        prop_assert_eq!(case.to_string().parse(), Ok(case));
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
