//! What every port has to do, whatever it is on: bytes, copies, back-pressure, fairness, errors that name the place.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Kind, run};
use uvia_message::{Channel, Error, ReceiveMode, Result, SendMode, Session, Source, Thresholds};

/// One thing that holds on any rails.
pub type Topic = fn(&[Kind]);

/// All of it, by name.
pub const ALL: &[(&str, Topic)] = &[
    ("a message is unpacked as it was packed", a_message_is_unpacked_as_it_was_packed),
    ("copies", short_pieces_are_copied_once_at_each_end_and_long_ones_never),
    ("back-pressure", who_sends_to_one_that_does_not_receive_waits_and_loses_nothing),
    ("both ends send beyond the credits", both_ends_may_send_beyond_what_the_other_has_room_for),
    ("one receiver of all is stopped", one_that_does_not_receive_stops_nobody_else),
    ("senders in order", messages_of_several_senders_are_taken_as_they_come_and_each_senders_in_order),
    ("fairness", senders_take_turns),
    ("mismatch", what_is_unpacked_otherwise_than_it_was_packed_is_named_by_its_position),
    ("given up", a_message_that_is_given_up_is_heard_of_and_the_next_one_comes),
    ("wrong ranks", wrong_ranks_and_channels_are_refused_and_a_rank_that_has_gone_is_told_of),
];

/// Runs all of it.
pub fn all(rails: &[Kind]) {
    for (name, topic) in ALL {
        let start = Instant::now();
        topic(rails);
        println!("{rails:?}: {name}: {:?}", start.elapsed());
    }
}

pub fn a_message_is_unpacked_as_it_was_packed(rails: &[Kind]) {
    run(
        2,
        rails,
        |_| (),
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            let image: Vec<u8> = (0..100_000u32).map(|n| (n * 7 / 3) as u8).collect();
            if session.rank() == 0 {
                channel
                    .send(1, |message| {
                        message.put(&(image.len() as u64))?;
                        message.later(b"behind", ReceiveMode::Cheaper)?;
                        message.cheaper(&image, ReceiveMode::Cheaper)?;
                        message.safer(b"end", ReceiveMode::Express)
                    })
                    .unwrap();
                let answer: u32 = channel.receive(1, |message| message.get()).unwrap();
                assert_eq!(answer, 77);
            } else {
                let (mut got, mut behind) = (Vec::new(), [0; 6]);
                let (room, late) = (&mut got, &mut behind);
                let end = channel
                    .receive(Source::Any, |message| -> Result<[u8; 3]> {
                        assert_eq!(message.rank(), 0);
                        room.resize(message.get::<u64>()? as usize, 0);
                        message.cheaper(late, SendMode::Later)?;
                        message.cheaper(room, SendMode::Cheaper)?;
                        let mut end = [0; 3];
                        message.express(&mut end, SendMode::Safer)?;
                        Ok(end)
                    })
                    .unwrap();
                assert!(got == image && &behind == b"behind" && &end == b"end");
                channel.send(0, |message| message.put(&77u32)).unwrap();
            }
        },
    );
}

pub fn short_pieces_are_copied_once_at_each_end_and_long_ones_never(rails: &[Kind]) {
    run(
        2,
        rails,
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

pub fn who_sends_to_one_that_does_not_receive_waits_and_loses_nothing(rails: &[Kind]) {
    const MESSAGES: usize = 400;
    let (sent, go) = (AtomicUsize::new(0), AtomicBool::new(false));
    run(
        3,
        rails,
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
                    assert!(sent.load(Ordering::Relaxed) <= 8, "{rails:?}");
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

pub fn messages_of_several_senders_are_taken_as_they_come_and_each_senders_in_order(rails: &[Kind]) {
    const MESSAGES: usize = 200;
    run(
        4,
        rails,
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

pub fn what_is_unpacked_otherwise_than_it_was_packed_is_named_by_its_position(rails: &[Kind]) {
    run(
        2,
        rails,
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

pub fn a_message_that_is_given_up_is_heard_of_and_the_next_one_comes(rails: &[Kind]) {
    // Once where long pieces are written, and once where they are read.
    for read in [Thresholds::NEVER, 1] {
        give_up(rails, read);
    }
}

fn give_up(rails: &[Kind], read: usize) {
    run(
        2,
        rails,
        |options| options.thresholds.read = read,
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

pub fn wrong_ranks_and_channels_are_refused_and_a_rank_that_has_gone_is_told_of(rails: &[Kind]) {
    run(
        2,
        rails,
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

/// A number that everybody counts up.
fn count(at: &AtomicUsize) -> usize {
    at.fetch_add(1, Ordering::Relaxed) + 1
}

/// Drives a session that receives nothing, until `done`; and then for a while, in which nothing more may happen.
fn drive(session: &Session, done: impl Fn() -> bool) {
    while !done() {
        session.progress().unwrap();
        std::thread::yield_now();
    }
    for _ in 0..1000 {
        session.progress().unwrap();
    }
}

/// Messages of these tests: a number, and now and then a long piece.
fn send_numbered(channel: &Channel, to: usize, number: usize, long: &[u8]) {
    channel
        .send(to, |message| -> Result<()> {
            message.put(&(number as u64))?;
            if number % 8 == 7 { message.cheaper(long, ReceiveMode::Cheaper) } else { Ok(()) }
        })
        .unwrap_or_else(|e| panic!("message {number} to {to}: {e}"));
}

fn receive_numbered(channel: &Channel, from: usize, number: usize, long: &[u8]) {
    let mut bytes = vec![0; long.len()];
    let room = &mut bytes[..];
    let got: u64 = channel
        .receive(from, |message| -> Result<u64> {
            let got = message.get()?;
            if number % 8 == 7 {
                message.cheaper(room, SendMode::Cheaper)?;
            }
            Ok(got)
        })
        .unwrap_or_else(|e| panic!("message {number} from {from}: {e}"));
    assert_eq!(got as usize, number, "from {from}");
    assert!(number % 8 != 7 || bytes == long, "the long piece of {number} from {from}");
}

const WINDOW: usize = 8;

/// Each end sends many times what the other has room for, and receives nothing until both stand still.
pub fn both_ends_may_send_beyond_what_the_other_has_room_for(rails: &[Kind]) {
    const MESSAGES: usize = 64;
    let sent = [const { AtomicUsize::new(0) }; 2];
    run(
        2,
        rails,
        |options| {
            options.window = WINDOW;
            options.thresholds.long = 4096;
        },
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            let (me, other) = (session.rank(), 1 - session.rank());
            let long = vec![0x5a; 60_000];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0..MESSAGES {
                        send_numbered(&channel, other, number, &long);
                        count(&sent[me]);
                    }
                });
                // Seven short ones, and then a long piece that nobody waits for.
                let stuck = || sent.iter().all(|sent| sent.load(Ordering::Relaxed) == WINDOW - 1);
                drive(&session, stuck);
                assert!(stuck(), "{sent:?}");
                // The other end looks at both as well, before anything is taken.
                let seen = session.channel(1, &[]).unwrap();
                if me == 0 {
                    seen.send(1, |message| message.put(&0u8)).unwrap();
                    seen.receive(1, |message| message.get::<u8>()).unwrap();
                } else {
                    seen.receive(0, |message| message.get::<u8>()).unwrap();
                    seen.send(0, |message| message.put(&0u8)).unwrap();
                }
                (0..MESSAGES).for_each(|number| receive_numbered(&channel, other, number, &long));
            });
        },
    );
    assert!(sent.iter().all(|sent| sent.load(Ordering::Relaxed) == MESSAGES));
}

/// All send to all, one of whom takes nothing until the others are done with each other.
pub fn one_that_does_not_receive_stops_nobody_else(rails: &[Kind]) {
    const RANKS: usize = 4;
    const STOPPED: usize = RANKS - 1;
    const MESSAGES: usize = 40;
    let (done, to_stopped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    run(
        RANKS,
        rails,
        |options| {
            options.window = WINDOW;
            options.thresholds.long = 4096;
        },
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            let me = session.rank();
            let others = |but: usize| (0..RANKS).filter(move |rank| *rank != me && *rank != but);
            let long = vec![0xa5; 20_000];
            std::thread::scope(|scope| {
                for to in others(RANKS) {
                    let (channel, long, to_stopped) = (&channel, &long, &to_stopped);
                    scope.spawn(move || {
                        for number in 0..MESSAGES {
                            send_numbered(channel, to, number, long);
                            if to == STOPPED {
                                count(to_stopped);
                            }
                        }
                    });
                }
                if me == STOPPED {
                    drive(&session, || done.load(Ordering::Relaxed) == STOPPED);
                    // What is on its way to it has stopped where its room ends.
                    assert!(to_stopped.load(Ordering::Relaxed) <= STOPPED * WINDOW, "{to_stopped:?}");
                }
                for number in 0..MESSAGES {
                    others(RANKS).filter(|from| me == STOPPED || *from != STOPPED).for_each(|from| {
                        receive_numbered(&channel, from, number, &long);
                    });
                }
                if me != STOPPED {
                    count(&done);
                    (0..MESSAGES).for_each(|number| receive_numbered(&channel, STOPPED, number, &long));
                }
            });
        },
    );
    assert_eq!(to_stopped.load(Ordering::Relaxed), STOPPED * MESSAGES);
}

/// Whose messages have come are taken from in turn, however many more of somebody else's wait.
pub fn senders_take_turns(rails: &[Kind]) {
    const SENDERS: usize = 3;
    let (sent, go) = ([const { AtomicUsize::new(0) }; SENDERS], AtomicBool::new(false));
    run(
        SENDERS + 1,
        rails,
        |options| options.window = 4 * WINDOW,
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            if session.rank() > 0 {
                // One of them has much more to say than the others.
                let messages = if session.rank() == 1 { 4 * WINDOW } else { WINDOW };
                for _ in 0..messages {
                    channel.send(0, |message| message.put(&0u8)).unwrap();
                    count(&sent[session.rank() - 1]);
                }
                while !go.load(Ordering::Relaxed) {
                    session.progress().unwrap();
                    std::thread::yield_now();
                }
                return;
            }
            // Whatever comes of this, the others are not to wait for ever.
            let _go = Raised(&go);
            let all = [4 * WINDOW, WINDOW, WINDOW];
            drive(&session, || sent.iter().zip(all).all(|(sent, all)| sent.load(Ordering::Relaxed) == all));
            // What was sent is on its way, and nothing tells that it has come but that it is taken: a second is long, also
            // for an adapter whose machine has much else to do.
            let since = Instant::now();
            drive(&session, || since.elapsed() > Duration::from_secs(1));
            let mut from = [0; SENDERS];
            for turn in 0..all.iter().sum() {
                // That nothing more comes in between is not promised: what is, that it is in time.
                let rank = channel
                    .receive(Source::Any, |message| message.get::<u8>().map(|_| message.rank()))
                    .unwrap();
                from[rank - 1] += 1;
                if turn + 1 == SENDERS * WINDOW {
                    assert_eq!(from, [WINDOW; SENDERS], "in turn");
                }
            }
            assert_eq!(from, all);
        },
    );
}

/// Sets a flag when it goes, by a panic too.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
