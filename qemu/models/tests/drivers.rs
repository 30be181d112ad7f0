//! Our drivers on every model, and models at both ends of a wire.

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use common::{mac, machine, pair, pair_with};
use uvia_driver::nic::{MacAddress, NicConfig, RxFilter};
use uvia_models::faults::Plan;
use uvia_models::machine::Kind;

#[test]
fn bring_up() {
    for kind in Kind::ALL {
        let mut pair = pair(*kind, 64, 64);
        for (n, end) in pair.ends.iter_mut().enumerate() {
            assert_eq!(end.nic.properties().mac, mac(n as u8 + 1));
            assert_eq!(end.nic.properties().max_frame, 1514);
            assert!(end.nic.link().unwrap().up);
            assert_eq!(end.blocked(), 0);
        }
    }
}

#[test]
fn every_size_between_all_kinds() {
    for first in Kind::ALL {
        for second in Kind::ALL {
            let config = NicConfig { tx_ring: 64, rx_ring: 64, interrupts: false };
            let mut pair = pair_with(machine([*first, *second], 1, Plan::default()), &config).unwrap();
            for len in 60..=1514 {
                let token = len as u64;
                for address in [mac(2), mac(1)] {
                    let [a, b] = &mut pair.ends;
                    let (from, to) = if address == mac(2) { (a, b) } else { (b, a) };
                    let bytes = from.put(address, token, len, 1 + len % 16).unwrap().unwrap();
                    from.nic.flush().unwrap();
                    assert_eq!(from.reclaimed().unwrap(), [token]);
                    assert!(to.received(4).unwrap() == [bytes], "{first:?} {second:?} {len}");
                }
            }
            for end in &mut pair.ends {
                let s = end.nic.statistics();
                assert_eq!((s.tx_frames, s.rx_frames), (1455, 1455));
                assert_eq!(s.tx_bytes, (60..=1514).sum::<u64>());
                assert_eq!((s.rx_bytes, s.rx_missed, s.rx_errors), (s.tx_bytes, 0, 0));
                assert_eq!(end.blocked(), 0);
            }
        }
    }
}

#[test]
fn many_laps_of_odd_bursts() {
    for kind in Kind::ALL {
        for ring in [8, 24, 64] {
            let mut pair = pair(*kind, ring, ring);
            let [a, b] = &mut pair.ends;
            let mut token = 0;
            for round in 0..3000 {
                let mut expected = VecDeque::new();
                for n in 0..round % 7 {
                    let parts = 1 + (round + n) % 3;
                    let Some(bytes) = a.put(mac(2), token, 60 + n * 31, parts).unwrap() else { break };
                    expected.push_back((token, bytes));
                    token += 1;
                }
                a.nic.flush().unwrap();
                let mut frames: VecDeque<_> = b.received(64).unwrap().into();
                // The ring gives back some of its buffers at a time.
                frames.extend(b.received(64).unwrap());
                for done in a.reclaimed().unwrap() {
                    let (token, bytes) = expected.pop_front().unwrap();
                    assert_eq!(done, token);
                    assert!(frames.pop_front() == Some(bytes), "{kind:?} {ring} {token}");
                }
                assert!(expected.is_empty() && frames.is_empty());
            }
            assert_eq!(b.nic.statistics().rx_frames, token);
        }
    }
}

#[test]
fn a_flood_waits_in_the_wire_and_what_does_not_fit_is_counted() {
    for kind in Kind::ALL {
        let mut pair = pair(*kind, 64, 16);
        let [a, b] = &mut pair.ends;
        let sent = 2000;
        let mut token = 0;
        while token < sent {
            while token < sent && a.put(mac(2), token, 64, 1).unwrap().is_some() {
                token += 1;
            }
            a.nic.flush().unwrap();
            a.reclaimed().unwrap();
        }
        let mut got = 0;
        loop {
            let frames = b.received(10).unwrap().len();
            got += frames as u64;
            if frames == 0 {
                break;
            }
        }
        let dropped = pair.machine.switch().lock().counts(1).dropped;
        assert!(dropped > 0);
        assert_eq!(got + dropped, sent);
        if *kind == Kind::E1000 {
            assert_eq!(pair.ends[1].nic.statistics().rx_missed, dropped);
        }
    }
}

#[test]
fn filters_are_kept_to() {
    for kind in Kind::ALL {
        let mut pair = pair(*kind, 64, 64);
        let [a, b] = &mut pair.ends;
        let group = MacAddress([0x33, 0x33, 0, 0, 0, 1]);
        let mut passes = |filter: RxFilter, to: MacAddress| {
            b.nic.set_filter(filter).unwrap();
            a.put(to, 1, 60, 1).unwrap().unwrap();
            a.nic.flush().unwrap();
            a.reclaimed().unwrap();
            b.received(9).unwrap().len() == 1
        };
        let none = RxFilter::default();
        let groups = RxFilter { all_multicast: true, ..none };
        let all = RxFilter { promiscuous: true, ..none };
        assert!(passes(none, mac(2)) && passes(none, MacAddress::BROADCAST));
        assert!(!passes(none, mac(9)) && !passes(none, group));
        assert!(!passes(groups, mac(9)) && passes(groups, group));
        assert!(passes(all, mac(9)) && passes(all, group));
    }
}

#[test]
fn interrupts_only_while_armed() {
    for kind in Kind::ALL {
        let mut pair = pair(*kind, 64, 64);
        let [a, b] = &mut pair.ends;
        let mut send = |token| {
            a.put(mac(2), token, 60, 1).unwrap().unwrap();
            a.nic.flush().unwrap();
            a.reclaimed().unwrap();
        };
        send(1);
        b.nic.arm(false).unwrap();
        send(2);
        assert!(!b.readable(), "{kind:?}");
        b.nic.arm(true).unwrap();
        assert_eq!(b.received(9).unwrap().len(), 2);
        b.nic.arm(true).unwrap();
        assert!(!b.readable());
        send(3);
        assert!(b.readable());
        b.nic.arm(false).unwrap();
        send(4);
        assert!(!b.readable());
        assert_eq!(b.received(9).unwrap().len(), 2);
        b.nic.reset().unwrap();
        b.nic.arm(true).unwrap();
        send(5);
        assert!(b.readable());
    }
}

#[test]
fn a_reset_gives_tokens_back_and_all_works_again() {
    for kind in Kind::ALL {
        let mut pair = pair(*kind, 64, 64);
        let [a, b] = &mut pair.ends;
        for round in 0..50 {
            a.put(mac(2), 1, 60, 1).unwrap().unwrap();
            a.nic.flush().unwrap();
            a.put(mac(2), 2, 60, 2).unwrap().unwrap();
            a.nic.reset().unwrap();
            let mut tokens = a.reclaimed().unwrap();
            tokens.sort_unstable();
            assert_eq!(tokens, [1, 2]);
            b.received(9).unwrap();
            let bytes = a.put(mac(2), 3, 100, 2).unwrap().unwrap();
            a.nic.flush().unwrap();
            assert_eq!(a.reclaimed().unwrap(), [3]);
            assert!(b.received(9).unwrap() == [bytes], "{kind:?} {round}");
            assert_eq!((a.blocked(), b.blocked()), (0, 0));
        }
    }
}

#[test]
fn the_link_goes_and_comes_and_wakes() {
    for kind in Kind::ALL {
        let plan = Plan::parse("nic 0 link down at 100s for 1s").unwrap();
        let mut pair = pair_with(machine([*kind; 2], 1, plan), &NicConfig::default()).unwrap();
        let [a, b] = &mut pair.ends;
        a.nic.arm(true).unwrap();
        assert!(a.nic.link().unwrap().up && !a.readable());
        pair.machine.advance(Duration::from_secs(100));
        pair.machine.run(10);
        assert!(a.readable(), "{kind:?}");
        assert!(!a.nic.link().unwrap().up && b.nic.link().unwrap().up);
        // What is sent now is lost, and its memory comes back.
        a.put(mac(2), 7, 60, 1).unwrap().unwrap();
        a.nic.flush().unwrap();
        assert_eq!(a.reclaimed().unwrap(), [7]);
        assert!(b.received(9).unwrap().is_empty());
        pair.machine.advance(Duration::from_secs(1));
        a.nic.arm(true).unwrap();
        assert!(a.nic.link().unwrap().up);
        a.put(mac(2), 8, 60, 1).unwrap().unwrap();
        a.nic.flush().unwrap();
        assert_eq!(b.received(9).unwrap().len(), 1);
    }
}

#[test]
fn closing_leaves_nothing_mapped_and_nothing_touched() {
    for kind in Kind::ALL {
        for round in 0..200 {
            let mut pair = pair(*kind, 64, 64);
            let [a, _b] = &mut pair.ends;
            for n in 0..round % 60 {
                a.put(mac(2), n, 60, 1).unwrap();
            }
            if round % 2 == 0 {
                a.nic.flush().unwrap();
            }
            let (domain, machine) = (pair.domain.clone(), pair.machine.clone());
            drop(pair);
            assert_eq!(domain.mapped(), 0);
            machine.run(100);
            for nic in machine.nics() {
                assert_eq!(nic.with(|function| function.dma_log().blocked()), 0);
            }
        }
    }
}

#[test]
fn the_next_client_finds_a_reset_device() {
    for kind in Kind::ALL {
        let machine = machine([*kind; 2], 1, Plan::default());
        for _ in 0..100 {
            let config = NicConfig { tx_ring: 8, rx_ring: 8, interrupts: true };
            let mut pair = pair_with(machine.clone(), &config).unwrap();
            let [a, b] = &mut pair.ends;
            let bytes = a.put(mac(2), 1, 60, 1).unwrap().unwrap();
            a.nic.flush().unwrap();
            assert!(b.received(9).unwrap() == [bytes]);
        }
    }
}
