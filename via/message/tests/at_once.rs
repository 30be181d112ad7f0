//! Messages of one piece, which are waited for and taken in one step: what comes of them where they are not what was
//! expected, or where nothing of them is wanted.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::{Kind, PATIENCE, run};
use uvia_message::{Channel, Error, ReceiveMode, Result, SendMode, Session};

const KINDS: [Kind; 2] = [Kind::Vi, Kind::Tcp];

fn send(channel: &Channel, bytes: &[u8]) {
    channel.send(1, |message| message.cheaper(bytes, ReceiveMode::Cheaper)).unwrap();
}

fn receive(channel: &Channel, room: &mut [u8]) -> Result<()> {
    channel.receive(0, |message| message.cheaper(room, SendMode::Cheaper))
}

/// Rank 0 sends once rank 1 has said so; both on a channel of their own.
fn both(kind: Kind, first: impl Fn(&Channel) + Sync, second: impl Fn(&Channel, &dyn Fn()) + Sync) {
    let may_send = AtomicBool::new(false);
    run(
        2,
        &[kind],
        |_| {},
        |session: Session| {
            let channel = session.channel(0, &[]).unwrap();
            channel.connect(1 - session.rank()).unwrap();
            if session.rank() == 1 {
                return second(&channel, &|| may_send.store(true, Ordering::Release));
            }
            let start = Instant::now();
            while !may_send.load(Ordering::Acquire) {
                assert!(start.elapsed() < PATIENCE, "{kind:?}: rank 1 waits for a message");
                std::thread::yield_now();
            }
            first(&channel);
        },
    );
}

#[test]
fn a_message_of_a_rank_is_waited_for_when_it_is_ended() {
    for kind in KINDS {
        both(
            kind,
            |channel| send(channel, &[7; 100]),
            |channel, send| {
                let mut room = [0; 100];
                let into = &mut room;
                channel
                    .receive(0, |message| {
                        message.cheaper(into, SendMode::Cheaper)?;
                        send();
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                assert_eq!(room, [7; 100], "{kind:?}");
            },
        );
    }
}

#[test]
fn who_panics_before_a_message_has_begun_waits_for_none() {
    for kind in KINDS {
        both(
            kind,
            |channel| send(channel, &[7; 100]),
            |channel, send| {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    channel.receive(0, |_| -> Result<()> { resume_unwind(Box::new(())) })
                }));
                assert!(panicked.is_err());
                send();
                let mut room = [0; 100];
                receive(channel, &mut room).unwrap();
                assert_eq!(room, [7; 100], "{kind:?}");
            },
        );
    }
}

#[test]
fn a_message_of_which_nothing_is_wanted_is_thrown_away() {
    for kind in KINDS {
        both(
            kind,
            |channel| (1..=2).for_each(|number| send(channel, &[number; 100])),
            |channel, send| {
                send();
                let refused: Result<()> = channel.receive(0, |_| Err(Error::Failed));
                assert!(matches!(refused, Err(Error::Failed)), "{kind:?}: {refused:?}");
                let mut room = [0; 100];
                receive(channel, &mut room).unwrap();
                assert_eq!(room, [2; 100], "{kind:?}");
            },
        );
    }
}

#[test]
fn a_piece_of_another_length_is_a_mismatch_and_the_next_message_comes() {
    for kind in KINDS {
        both(
            kind,
            |channel| (1..=3).for_each(|number| send(channel, &[number; 100])),
            |channel, send| {
                send();
                for len in [99, 101] {
                    let outcome = receive(channel, &mut vec![0; len]);
                    assert!(matches!(outcome, Err(Error::Mismatch { .. })), "{kind:?} {len}: {outcome:?}");
                }
                let mut room = [0; 100];
                receive(channel, &mut room).unwrap();
                assert_eq!(room, [3; 100], "{kind:?}");
            },
        );
    }
}
