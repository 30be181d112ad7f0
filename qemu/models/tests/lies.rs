//! Our drivers on models that lie: never a panic, never a token twice, always an error or recovery; and once the
//! model tells the truth again, a reset brings everything back.

mod common;

use std::collections::HashSet;

use common::{End, Pair, mac, machine, pair_with};
use proptest::prelude::*;
use uvia_driver::Error;
use uvia_driver::nic::NicConfig;
use uvia_models::faults::{Lie, Lies, Plan, When};
use uvia_models::machine::Kind;
use uvia_models::random::Random;

/// What a driver may answer when the device does not keep the rules.
fn check(error: &Error) {
    assert!(
        matches!(error, Error::Device { .. } | Error::Timeout { .. } | Error::Unsupported { .. }),
        "{error:?}"
    );
}

/// Uses an adapter until it faults; answers whether it did.
fn use_for(
    end: &mut End,
    other: &mut End,
    rounds: u64,
    token: &mut u64,
    seen: &mut HashSet<u64>,
    random: &mut Random,
) -> bool {
    let mut step = || -> uvia_driver::Result<()> {
        for _ in 0..random.below(6) {
            let (len, parts) = (60 + random.below(1400) as usize, 1 + random.below(4) as usize);
            if end.put(mac(2), *token, len, parts)?.is_some() {
                *token += 1;
            }
        }
        end.nic.flush()?;
        // Tokens that come before a fault have come.
        end.nic.reclaim(&mut |done| assert!(done < *token && seen.insert(done), "token {done} twice"))?;
        for _ in 0..random.below(6) {
            other.put(mac(1), 0, 60 + random.below(1400) as usize, 1)?;
        }
        other.nic.flush()?;
        other.reclaimed()?;
        for frame in end.received(16)? {
            assert!(frame.len() <= 2048);
        }
        end.nic.arm(random.below(2) == 0)?;
        end.nic.link()?;
        end.nic.statistics();
        other.received(64)?;
        Ok(())
    };
    for _ in 0..rounds {
        if let Err(e) = step() {
            check(&e);
            return true;
        }
    }
    false
}

/// Whether frames go both ways.
fn works(pair: &mut Pair) -> bool {
    let [a, b] = &mut pair.ends;
    b.received(1024).unwrap();
    a.received(1024).unwrap();
    let sent = a.put(mac(2), u64::MAX, 100, 2).unwrap().unwrap();
    a.nic.flush().unwrap();
    a.reclaimed().unwrap();
    let back = b.put(mac(1), u64::MAX, 200, 1).unwrap().unwrap();
    b.nic.flush().unwrap();
    b.reclaimed().unwrap();
    b.received(9).unwrap() == [sent] && a.received(9).unwrap() == [back]
}

/// Lies by which a reset itself may take its second of patience, so that a few cases have to do.
const SLOW: [Lie; 2] = [Lie::NoReset, Lie::Removed];

fn run(kind: Kind, lies: &[(Lie, When)], seed: u64, ring: usize) {
    let config = NicConfig { tx_ring: ring, rx_ring: ring, interrupts: true };
    let mut pair = pair_with(machine([kind, Kind::E1000], seed, Plan::default()), &config).unwrap();
    let mut random = Random::new(seed);
    let (mut token, mut seen) = (0, HashSet::new());
    for _ in 0..3 {
        let told = Lies::new(lies, Random::new(seed));
        pair.ends[0].device.nic().with(|function| function.set_lies(told));
        let [a, b] = &mut pair.ends;
        let faulted = use_for(a, b, 100, &mut token, &mut seen, &mut random);
        a.device.nic().with(|function| function.set_lies(Lies::none()));
        if faulted || random.below(2) == 0 {
            a.nic.reset().unwrap();
        } else {
            continue;
        }
        // All that was outstanding comes back, once.
        for done in a.reclaimed().unwrap() {
            assert!(seen.insert(done), "token {done} twice");
        }
        assert_eq!(seen.len() as u64, token);
        assert!(works(&mut pair), "{kind:?} {lies:?} {seed}");
        seen.remove(&u64::MAX);
    }
    let (machine, domain) = (pair.machine.clone(), pair.domain.clone());
    drop(pair);
    assert_eq!(domain.mapped(), 0);
    let accesses = || machine.nics().iter().map(|nic| nic.with(|f| f.dma_log().accesses())).sum::<u64>();
    let before = accesses();
    machine.run(100);
    assert_eq!(accesses(), before, "memory touched after closing");
}

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![(1u64..200).prop_map(When::At), (0.0..0.2f64).prop_map(When::Chance), Just(When::Chance(1.0)),]
}

fn any_lies() -> impl Strategy<Value = Vec<(Lie, When)>> {
    let lies: Vec<_> = Lie::ALL.iter().copied().filter(|lie| !SLOW.contains(lie)).collect();
    prop::collection::vec((prop::sample::select(lies), any_when()), 1..4)
}

proptest! {
    #![proptest_config(common::cases(400))]

    #[test]
    fn lies_end_in_errors_or_recovery(
        kind in prop::sample::select(vec![Kind::E1000, Kind::Virtio]),
        lies in any_lies(),
        seed: u64,
        ring in prop::sample::select(vec![8usize, 16, 64, 256]),
    ) {
        run(kind, &lies, seed, ring);
    }
}

#[test]
fn each_lie_alone_and_always() {
    for kind in [Kind::E1000, Kind::Virtio] {
        for lie in Lie::ALL.iter().filter(|lie| !SLOW.contains(lie)) {
            for seed in 0..4 {
                run(kind, &[(*lie, When::Chance(1.0))], seed, 16);
                run(kind, &[(*lie, When::At(3))], seed, 16);
            }
        }
    }
}

#[test]
fn a_removed_device_is_gone_for_good_and_closing_it_harms_nothing() {
    for kind in [Kind::E1000, Kind::Virtio] {
        let config = NicConfig { tx_ring: 16, rx_ring: 16, interrupts: true };
        let mut pair = pair_with(machine([kind; 2], 1, Plan::default()), &config).unwrap();
        let [a, b] = &mut pair.ends;
        a.device.nic().with(|f| f.set_lies(Lies::new(&[(Lie::Removed, When::At(1))], Random::new(1))));
        check(&a.nic.link().unwrap_err());
        check(&a.nic.reset().unwrap_err());
        check(&a.nic.reset().unwrap_err());
        b.put(mac(1), 1, 60, 1).unwrap();
        b.nic.flush().unwrap();
        assert_eq!(b.reclaimed().unwrap(), [1]);
        let domain = pair.domain.clone();
        drop(pair);
        assert_eq!(domain.mapped(), 0);
    }
}

#[test]
fn a_reset_that_does_not_reset() {
    for kind in [Kind::E1000, Kind::Virtio] {
        let config = NicConfig { tx_ring: 16, rx_ring: 16, interrupts: true };
        let mut pair = pair_with(machine([kind; 2], 1, Plan::default()), &config).unwrap();
        let [a, _] = &mut pair.ends;
        a.put(mac(2), 1, 60, 1).unwrap();
        a.nic.flush().unwrap();
        a.device.nic().with(|f| f.set_lies(Lies::new(&[(Lie::NoReset, When::Chance(1.0))], Random::new(1))));
        // The e1000 driver stops everything by its own registers, and needs no reset; the virtio driver sees
        // that the status stays.
        if let Err(e) = a.nic.reset() {
            check(&e);
        }
        a.device.nic().with(|f| f.set_lies(Lies::none()));
        a.nic.reset().unwrap();
        assert_eq!(a.reclaimed().unwrap(), [1]);
        assert!(works(&mut pair), "{kind:?}");
        let domain = pair.domain.clone();
        drop(pair);
        assert_eq!(domain.mapped(), 0);
    }
}
