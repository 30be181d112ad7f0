//! Places that are named ahead: a receiver that waits for one long piece has told its sender where that goes, so that nobody
//! asks. And what comes of such a place where another message comes, or none.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Kind, PATIENCE, run};
use uvia_message::{
    Channel, Error, Outgoing, Policy, ReceiveMode, Result, SendMode, Session, SessionOptions, Source,
    Thresholds,
};

const KINDS: [&[Kind]; 4] = [&[Kind::Vi], &[Kind::Tcp], &[Kind::Shared], &[Kind::Vi, Kind::Shared]];
const LONG: usize = 300_000;
/// Long enough for the other end to wait by then, mostly.
const MOMENT: Duration = Duration::from_millis(5);

/// Waits end with what is waited for only: otherwise no place is named ahead.
fn endless(options: &mut SessionOptions) {
    options.patience = None;
}

fn receive(channel: &Channel, room: &mut [u8]) -> Result<()> {
    channel.receive(0, |message| message.cheaper(room, SendMode::Cheaper))
}

fn wait_for(flag: &AtomicBool) {
    let start = Instant::now();
    while !flag.load(Ordering::Acquire) {
        assert!(start.elapsed() < PATIENCE, "the other end does not come so far");
        std::thread::yield_now();
    }
}

/// Packets that a session has sent for its messages.
fn packets(session: &Session) -> u64 {
    let counts = session.module_counts();
    counts.copied + counts.inline
}

/// Of a message whose place was named there is one packet, its end; one more would ask for the place. On virtual interfaces
/// that end comes with the piece, and there is no packet.
#[test]
fn who_is_waited_for_does_not_ask() {
    const WANTED: usize = 8;
    for kinds in [&[Kind::Vi][..], &[Kind::Tcp], &[Kind::Shared]] {
        let ends = if kinds == [Kind::Vi] { 0 } else { 1 };
        run(2, kinds, endless, |session| {
            let channel = session.channel(0, &[]).unwrap();
            channel.connect(1 - session.rank()).unwrap();
            let (mut buffer, start) = (vec![0; LONG], Instant::now());
            if session.rank() == 1 {
                let (mut number, mut goes_on) = (0u8, 1);
                while goes_on != 0 {
                    receive(&channel, &mut buffer).unwrap();
                    assert!(buffer.iter().all(|byte| *byte == number), "{kinds:?}: message {number}");
                    number = number.wrapping_add(1);
                    channel.send(0, |word| word.put(&number)).unwrap();
                    goes_on = channel.receive(0, |word| word.get::<u8>()).unwrap();
                }
                return;
            }
            let (mut number, mut unasked) = (0u8, 0);
            while unasked < WANTED {
                assert!(
                    start.elapsed() < PATIENCE,
                    "{kinds:?}: {unasked} of {number} messages went without asking"
                );
                std::thread::sleep(MOMENT);
                buffer.fill(number);
                let before = (packets(&session), session.copied().0);
                channel.send(1, |message| message.cheaper(&buffer, ReceiveMode::Cheaper)).unwrap();
                unasked += usize::from(packets(&session) - before.0 == ends);
                assert_eq!(session.copied().0, before.1, "long pieces are not copied");
                number = number.wrapping_add(1);
                assert_eq!(channel.receive(1, |word| word.get::<u8>()).unwrap(), number);
                channel.send(1, |word| word.put(&u8::from(unasked < WANTED))).unwrap();
            }
            assert_eq!(session.module_counts().written, u64::from(number));
        });
    }
}

/// Two ranks that answer each other with long pieces send no packets, but for when one is late: neither to ask, nor to end
/// their messages.
#[test]
fn who_answers_sends_no_packet_beside_the_piece() {
    // In one write, and in several.
    [LONG, (9 << 20) + 1].into_iter().for_each(answers_without_packets);
}

fn answers_without_packets(len: usize) {
    const WANTED: usize = 4;
    let change = |options: &mut SessionOptions| {
        endless(options);
        options.policy = Policy::Latency;
    };
    run(2, &[Kind::Vi], change, |session| {
        let other = 1 - session.rank();
        let channel = session.channel(0, &[]).unwrap();
        channel.connect(other).unwrap();
        let (mut buffer, mut room, start) = (vec![1; len], vec![0; len], Instant::now());
        let receive = |room: &mut [u8]| {
            channel.receive(other, |message| message.cheaper(room, SendMode::Cheaper)).unwrap();
        };
        let send = |bytes: &[u8]| {
            channel.send(other, |message| message.cheaper(bytes, ReceiveMode::Cheaper)).unwrap();
        };
        if session.rank() == 1 {
            while buffer[0] != 0 {
                receive(&mut buffer);
                send(&buffer);
            }
            return;
        }
        let (mut rounds, mut without) = (0u64, 0);
        while buffer[0] != 0 {
            assert!(start.elapsed() < PATIENCE, "{without} of {rounds} messages went without a packet");
            buffer[0] = u8::from(without < WANTED);
            let before = packets(&session);
            send(&buffer);
            receive(&mut room);
            assert!(room == buffer);
            without += usize::from(packets(&session) == before);
            rounds += 1;
        }
        assert_eq!(session.copied(), (0, 0), "long pieces are not copied");
    });
}

/// Rank 1 waits for one long piece, and then for a second message; rank 0 sends what `send` does, and then that.
fn other_message(
    what: &str,
    send: impl for<'a> Fn(&mut Outgoing<'a>, &'a [u8]) -> Result<()> + Sync,
    is_as_expected: impl Fn(&Result<()>) -> bool + Sync,
) {
    for (kinds, read) in KINDS.into_iter().flat_map(|kinds| [(kinds, LONG), (kinds, Thresholds::NEVER)]) {
        // An offer may cross with the place.
        let change = |options: &mut SessionOptions| {
            endless(options);
            options.thresholds.read = read;
        };
        run(2, kinds, change, |session| {
            let channel = session.channel(0, &[]).unwrap();
            channel.connect(1 - session.rank()).unwrap();
            let buffer = vec![7; LONG];
            if session.rank() == 0 {
                for n in 0..6 {
                    if n % 2 == 0 {
                        std::thread::sleep(MOMENT);
                    }
                    // What comes of it is the receiver's to judge.
                    let _ = channel.send(1, |message| send(message, &buffer));
                    channel
                        .send(1, |message| message.cheaper(&buffer[..LONG / 2], ReceiveMode::Cheaper))
                        .unwrap();
                }
                assert_eq!(channel.receive(1, |word| word.get::<u8>()).unwrap(), 6);
                return;
            }
            for n in 0..6 {
                let mut room = vec![0; LONG];
                let outcome = receive(&channel, &mut room);
                assert!(is_as_expected(&outcome), "{kinds:?}, {what} {n}: {outcome:?}");
                if outcome.is_ok() {
                    assert!(room == buffer, "{kinds:?}, {what} {n}");
                }
                // It is the program's again: nobody writes there.
                room.fill(1);
                let mut second = vec![0; LONG / 2];
                receive(&channel, &mut second).unwrap_or_else(|e| panic!("{kinds:?}, {what} {n}: {e}"));
                assert!(second == buffer[..LONG / 2], "{kinds:?}, {what} {n}: the next message");
                assert!(
                    room.iter().all(|byte| *byte == 1),
                    "{kinds:?}, {what} {n}: the place was written late"
                );
            }
            channel.send(0, |word| word.put(&6u8)).unwrap();
        });
    }
}

#[test]
fn a_piece_that_is_packed_otherwise_comes_all_the_same() {
    other_message("safer", |message, bytes| message.safer(bytes, ReceiveMode::Cheaper), Result::is_ok);
    other_message("later", |message, bytes| message.later(bytes, ReceiveMode::Cheaper), Result::is_ok);
    other_message("express", |message, bytes| message.cheaper(bytes, ReceiveMode::Express), Result::is_ok);
}

#[test]
fn a_place_is_void_where_another_message_comes() {
    let is_mismatch = |outcome: &Result<()>| matches!(outcome, Err(Error::Mismatch { .. }));
    other_message(
        "a short one",
        |message, bytes| message.cheaper(&bytes[..100], ReceiveMode::Cheaper),
        is_mismatch,
    );
    other_message("none", |_, _| Ok(()), is_mismatch);
    other_message(
        "a short piece behind it",
        |message, bytes| {
            message.cheaper(bytes, ReceiveMode::Cheaper)?;
            message.cheaper(&bytes[..100], ReceiveMode::Cheaper)
        },
        is_mismatch,
    );
    other_message(
        "a short piece before it",
        |message, bytes| {
            message.safer(&bytes[..100], ReceiveMode::Express)?;
            message.cheaper(bytes, ReceiveMode::Cheaper)
        },
        is_mismatch,
    );
}

#[test]
fn a_message_that_is_given_up_is_heard_of() {
    other_message(
        "one that is given up",
        |message, bytes| {
            message.cheaper(bytes, ReceiveMode::Cheaper)?;
            message.cheaper(&bytes[..100], ReceiveMode::Cheaper)?;
            Err(Error::Failed)
        },
        |outcome| matches!(outcome, Err(Error::Abandoned { .. })),
    );
}

/// Who waits ahead has the next message to itself.
#[test]
fn no_other_receive_takes_a_message_that_is_waited_for() {
    for kinds in KINDS {
        let may_send = AtomicBool::new(false);
        run(2, kinds, endless, |session| {
            let channel = session.channel(0, &[]).unwrap();
            channel.connect(1 - session.rank()).unwrap();
            let buffer = vec![7; LONG];
            if session.rank() == 0 {
                wait_for(&may_send);
                channel.send(1, |message| message.cheaper(&buffer, ReceiveMode::Cheaper)).unwrap();
                channel.send(1, |message| message.put(&3u8)).unwrap();
                assert_eq!(channel.receive(1, |word| word.get::<u8>()).unwrap(), 4);
                return;
            }
            std::thread::scope(|scope| {
                let first = scope.spawn(|| {
                    let mut room = vec![0; LONG];
                    receive(&channel, &mut room).map(|()| room == buffer)
                });
                let start = Instant::now();
                // Until the other thread has it.
                loop {
                    match channel.try_begin_receive(0).map(drop) {
                        Ok(()) => assert!(start.elapsed() < PATIENCE, "{kinds:?}: nobody waits"),
                        Err(Error::Busy { rank: 0, way: "from" }) => break,
                        Err(e) => panic!("{kinds:?}: {e}"),
                    }
                }
                may_send.store(true, Ordering::Release);
                // From any it is not taken either, but the one behind it is.
                let second = channel.receive(Source::Any, |message| message.get::<u8>()).unwrap();
                assert_eq!(second, 3, "{kinds:?}");
                assert!(first.join().unwrap().unwrap(), "{kinds:?}");
                channel.send(0, |word| word.put(&4u8)).unwrap();
            });
        });
    }
}

/// The place is the program's again then: what is left of the connection reaches it no more.
#[test]
fn who_waits_hears_that_the_connection_is_gone() {
    for kinds in [&[Kind::Vi][..], &[Kind::Tcp], &[Kind::Shared]] {
        let (waits, over) = (AtomicBool::new(false), AtomicBool::new(false));
        run(2, kinds, endless, |session| {
            let channel = session.channel(0, &[]).unwrap();
            channel.connect(1 - session.rank()).unwrap();
            if session.rank() == 0 {
                wait_for(&waits);
                std::thread::sleep(MOMENT);
                channel.cut(1, "rail0").unwrap();
                wait_for(&over);
                return;
            }
            let mut room = vec![0; LONG];
            let outcome = channel.receive(0, |message| {
                message.cheaper(&mut room, SendMode::Cheaper)?;
                waits.store(true, Ordering::Release);
                Result::Ok(())
            });
            assert!(matches!(outcome, Err(Error::Unreachable { rank: 0, .. })), "{kinds:?}: {outcome:?}");
            over.store(true, Ordering::Release);
        });
    }
}

#[test]
fn a_place_on_a_rail_that_dies_is_named_anew() {
    for (kinds, dies) in [
        ([Kind::Vi, Kind::Vi], 0),
        ([Kind::Vi, Kind::Vi], 1),
        ([Kind::Vi, Kind::Shared], 0),
        ([Kind::Tcp, Kind::Vi], 0),
    ] {
        for who in 0..2 {
            let waits = AtomicBool::new(false);
            run(2, &kinds, endless, |session| {
                let channel = session.channel(0, &[]).unwrap();
                channel.connect(1 - session.rank()).unwrap();
                let (buffer, rail) = (vec![9; LONG], format!("rail{dies}"));
                if session.rank() == 0 {
                    wait_for(&waits);
                    std::thread::sleep(MOMENT);
                    if who == 0 {
                        channel.cut(1, &rail).unwrap();
                    }
                    channel.send(1, |message| message.cheaper(&buffer, ReceiveMode::Cheaper)).unwrap();
                    return;
                }
                std::thread::scope(|scope| {
                    let waiting = scope.spawn(|| {
                        let mut room = vec![0; LONG];
                        let into = &mut room;
                        channel
                            .receive(0, |message| {
                                message.cheaper(into, SendMode::Cheaper)?;
                                if who == 0 {
                                    waits.store(true, Ordering::Release);
                                }
                                Result::Ok(())
                            })
                            .unwrap();
                        room == buffer
                    });
                    if who == 1 {
                        std::thread::sleep(MOMENT);
                        channel.cut(0, &rail).unwrap();
                        waits.store(true, Ordering::Release);
                    }
                    assert!(waiting.join().unwrap(), "{kinds:?}, rail {dies} cut by rank {who}");
                });
            });
        }
    }
}

/// A session that loses its patience names no places: its next receive has another one.
#[test]
fn what_is_not_waited_for_any_more_is_not_written() {
    for kinds in [&[Kind::Vi][..], &[Kind::Tcp], &[Kind::Shared]] {
        let may_send = AtomicBool::new(false);
        let impatient = |options: &mut SessionOptions| {
            options.patience = (options.rank == 1).then_some(Duration::from_millis(20));
            options.policy = Policy::Adaptive;
        };
        run(2, kinds, impatient, |session| {
            let channel = session.channel(0, &[]).unwrap();
            if session.rank() == 0 {
                channel.connect(1).unwrap();
                wait_for(&may_send);
                channel.send(1, |message| message.cheaper(&[5; LONG], ReceiveMode::Cheaper)).unwrap();
                return;
            }
            while channel.connect(0).is_err() {}
            let mut first = vec![0; LONG];
            let outcome = receive(&channel, &mut first);
            assert!(matches!(outcome, Err(Error::Timeout { .. })), "{kinds:?}: {outcome:?}");
            may_send.store(true, Ordering::Release);
            let mut second = vec![0; LONG];
            while let Err(e) = receive(&channel, &mut second) {
                assert!(matches!(e, Error::Timeout { .. }), "{kinds:?}: {e}");
            }
            assert!(second == [5; LONG] && first == [0; LONG], "{kinds:?}");
        });
    }
}
