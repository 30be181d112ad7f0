//! The three ways to wait do what they say: by counts, since times say nothing.

mod common;

use std::sync::Mutex;

use common::{Kind, run};
use uvia_message::{Policy, Session, WaitCounts};

fn since(session: &Session, before: WaitCounts) -> WaitCounts {
    let now = session.wait_counts();
    WaitCounts {
        polls: now.polls - before.polls,
        yields: now.yields - before.yields,
        sleeps: now.sleeps - before.sleeps,
    }
}

/// What a receiver's wait has come to, for a message that is sent once `enough` of it was seen.
fn waited(kind: Kind, policy: Policy, enough: impl Fn(WaitCounts) -> bool + Sync) -> WaitCounts {
    let waiting: Mutex<Option<(Session, WaitCounts)>> = Mutex::default();
    let outcome: Mutex<WaitCounts> = Mutex::default();
    run(
        2,
        &[kind],
        |options| options.policy = policy,
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            channel.connect(1 - session.rank()).unwrap();
            if session.rank() == 0 {
                loop {
                    let seen =
                        waiting.lock().unwrap().as_ref().map(|(session, before)| since(session, *before));
                    if seen.is_some_and(&enough) {
                        break;
                    }
                    std::thread::yield_now();
                }
                channel.send(1, |message| message.put(&7u8)).unwrap();
                waiting.lock().unwrap().take();
            } else {
                let before = session.wait_counts();
                *waiting.lock().unwrap() = Some((session.clone(), before));
                assert_eq!(channel.receive(0, |message| message.get::<u8>()).unwrap(), 7);
                *outcome.lock().unwrap() = since(&session, before);
            }
        },
    );
    outcome.into_inner().unwrap()
}

const PORTS: [Kind; 3] = [Kind::Vi, Kind::Tcp, Kind::Shared];

#[test]
fn latency_polls_and_neither_yields_nor_sleeps() {
    for kind in PORTS {
        let counts = waited(kind, Policy::Latency, |seen| seen.polls > 30_000);
        assert!(counts.yields == 0 && counts.sleeps == 0, "{kind:?}: {counts:?}");
    }
}

#[test]
fn cpu_sleeps_at_once() {
    for kind in PORTS {
        let counts = waited(kind, Policy::Cpu, |seen| seen.sleeps >= 5);
        assert!(counts.sleeps >= 5 && counts.yields == 0, "{kind:?}: {counts:?}");
        assert_eq!(counts.polls, 1, "{kind:?}: {counts:?}");
    }
}

#[test]
fn adaptive_polls_for_a_while_then_yields_then_sleeps() {
    for kind in PORTS {
        let counts = waited(kind, Policy::Adaptive, |seen| seen.sleeps >= 3);
        assert!((50..=4000).contains(&counts.polls), "{kind:?}: {counts:?}");
        assert!(counts.yields == 200 && counts.sleeps >= 3, "{kind:?}: {counts:?}");
    }
}
