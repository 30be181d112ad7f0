//! What the layer promises beside the bytes: copies, back-pressure, fairness, errors that name the place.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Kind, run};
use uvia_message::{Error, ReceiveMode, Result, SendMode, Source};

#[test]
fn short_pieces_are_copied_once_at_each_end_and_long_ones_never() {
    run(
        2,
        &[Kind::Vi],
        |_| (),
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            let short = vec![1u8; 10_000];
            let long = vec![2u8; 1 << 20];
            let (mut got_short, mut got_long) = (vec![0; 10_000], vec![0; 1 << 20]);
            if session.rank() == 0 {
                channel
                    .send(1, |message| -> Result<()> {
                        message.cheaper(&short, ReceiveMode::Cheaper)?;
                        message.cheaper(&long, ReceiveMode::Express)?;
                        message.later(&long, ReceiveMode::Cheaper)?;
                        message.safer(&long, ReceiveMode::Cheaper)
                    })
                    .unwrap();
                assert_eq!(session.copied(), (10_000, 0));
            } else {
                let (mut late, mut safe) = (vec![0; 1 << 20], vec![0; 1 << 20]);
                let (a, b, c) = (&mut got_short[..], &mut late[..], &mut safe[..]);
                channel
                    .receive(0, |message| -> Result<()> {
                        message.cheaper(a, SendMode::Cheaper)?;
                        message.express(&mut got_long, SendMode::Cheaper)?;
                        message.cheaper(b, SendMode::Later)?;
                        message.cheaper(c, SendMode::Safer)
                    })
                    .unwrap();
                assert!(got_short == short && got_long == long && late == long && safe == long);
                assert_eq!(session.copied(), (0, 10_000));
            }
        },
    );
}

#[test]
fn who_sends_to_one_that_does_not_receive_waits_and_loses_nothing() {
    for kind in [Kind::Vi, Kind::Tcp, Kind::Shared] {
        const MESSAGES: usize = 400;
        let (sent, go) = (AtomicUsize::new(0), AtomicBool::new(false));
        run(
            3,
            &[kind],
            |options| options.window = 8,
            |session| {
                let channel = session.channel(0, &[]).unwrap();
                let other = session.channel(1, &[]).unwrap();
                match session.rank() {
                    0 => {
                        for n in 0..MESSAGES {
                            channel.send(1, |message| message.put(&(n as u32))).unwrap();
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    1 => {
                        // Another channel of the same rank is in nobody's way, nor is another rank.
                        for n in 0..50u32 {
                            assert_eq!(other.receive(2, |message| message.get::<u32>()).unwrap(), n);
                        }
                        while sent.load(Ordering::Relaxed) < 8 {
                            session.progress().unwrap();
                            std::thread::yield_now();
                        }
                        // Nothing was taken: so no more can have gone than there is room for.
                        for _ in 0..1000 {
                            session.progress().unwrap();
                        }
                        assert!(sent.load(Ordering::Relaxed) <= 8, "{kind:?}");
                        go.store(true, Ordering::Relaxed);
                        for n in 0..MESSAGES as u32 {
                            assert_eq!(channel.receive(0, |message| message.get::<u32>()).unwrap(), n);
                        }
                    }
                    _ => (0..50u32).for_each(|n| other.send(1, |message| message.put(&n)).unwrap()),
                }
            },
        );
        assert!(go.load(Ordering::Relaxed) && sent.load(Ordering::Relaxed) == MESSAGES);
    }
}

#[test]
fn messages_of_several_senders_are_taken_as_they_come_and_each_senders_in_order() {
    const MESSAGES: usize = 200;
    run(
        4,
        &[Kind::Vi],
        |_| (),
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            if session.rank() > 0 {
                (0..MESSAGES as u32).for_each(|n| channel.send(0, |message| message.put(&n)).unwrap());
                return;
            }
            let mut next = [0u32; 4];
            for _ in 0..3 * MESSAGES {
                let (from, n) = channel
                    .receive(Source::Any, |message| -> Result<(usize, u32)> {
                        Ok((message.rank(), message.get()?))
                    })
                    .unwrap();
                assert_eq!(n, next[from], "in order");
                next[from] += 1;
            }
            assert_eq!(next[1..], [MESSAGES as u32; 3]);
        },
    );
}

#[test]
fn what_is_unpacked_otherwise_than_it_was_packed_is_named_by_its_position() {
    run(
        2,
        &[Kind::Vi],
        |options| options.describe = true,
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            if session.rank() == 0 {
                channel
                    .send(1, |message| -> Result<()> {
                        message.safer(b"abc", ReceiveMode::Express)?;
                        message.safer(b"defg", ReceiveMode::Cheaper)
                    })
                    .unwrap();
                channel.send(1, |message| message.put(&5u8)).unwrap();
                return;
            }
            let mut bytes = [0; 3];
            let error = channel
                .receive(0, |message| -> Result<()> {
                    message.express(&mut bytes, SendMode::Safer)?;
                    message.express(&mut bytes, SendMode::Safer)
                })
                .unwrap_err();
            let Error::Mismatch { rank: 0, position: 1, packed, unpacked } = &error else {
                panic!("{error}")
            };
            assert!(packed.starts_with("4 bytes") && unpacked.starts_with("3 bytes"), "{error}");
            assert_eq!(&bytes, b"abc");
            // The next message is not touched by that.
            assert_eq!(channel.receive(0, |message| message.get::<u8>()).unwrap(), 5);
        },
    );
}

#[test]
fn a_message_that_is_given_up_is_heard_of_and_the_next_one_comes() {
    run(
        2,
        &[Kind::Vi],
        |_| (),
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            let long = vec![3u8; 1 << 18];
            if session.rank() == 0 {
                let given_up: Result<()> = channel.send(1, |message| {
                    message.put(&1u64)?;
                    message.cheaper(&long, ReceiveMode::Cheaper)?;
                    Err(Error::Config("the program has thought better of it".to_owned()))
                });
                assert!(matches!(given_up, Err(Error::Config(_))));
                channel.send(1, |message| message.put(&2u64)).unwrap();
                let refused = channel.send(1, |message| -> Result<()> {
                    message.put(&3u64)?;
                    message.cheaper(&long, ReceiveMode::Cheaper)
                });
                assert!(matches!(refused, Err(Error::Refused { rank: 1 })), "{refused:?}");
                channel.send(1, |message| message.put(&4u64)).unwrap();
                return;
            }
            let mut bytes = vec![0; 1 << 18];
            let room = &mut bytes[..];
            let heard = channel.receive(0, |message| -> Result<()> {
                message.get::<u64>()?;
                message.cheaper(room, SendMode::Cheaper)
            });
            assert!(matches!(heard, Err(Error::Abandoned { rank: 0 })), "{heard:?}");
            assert_eq!(channel.receive(0, |message| message.get::<u64>()).unwrap(), 2);
            let given_up: Result<()> = channel.receive(0, |message| {
                assert_eq!(message.get::<u64>()?, 3);
                Err(Error::Config("no more of this".to_owned()))
            });
            assert!(matches!(given_up, Err(Error::Config(_))));
            assert_eq!(channel.receive(0, |message| message.get::<u64>()).unwrap(), 4);
        },
    );
}

#[test]
fn wrong_ranks_and_channels_are_refused_and_a_rank_that_has_gone_is_told_of() {
    run(
        2,
        &[Kind::Vi],
        |_| (),
        |session| {
            assert!(matches!(session.channel(64, &[]), Err(Error::Channel { .. })));
            assert!(matches!(session.channel(0, &["nothing"]), Err(Error::Config(_))));
            let channel = session.channel(0, &[]).unwrap();
            for rank in [session.rank(), 2] {
                assert!(matches!(channel.send(rank, |message| message.put(&0u8)), Err(Error::Rank { .. })));
            }
            if session.rank() == 0 {
                channel.send(1, |message| message.put(&9u8)).unwrap();
            } else {
                // What was sent before it went still comes.
                assert_eq!(channel.receive(0, |message| message.get::<u8>()).unwrap(), 9);
                let gone = channel.receive(Source::Any, |message| message.get::<u8>());
                assert!(matches!(gone, Err(Error::Unreachable { rank: 0, .. })), "{gone:?}");
            }
        },
    );
}
