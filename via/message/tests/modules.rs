//! Transmission modules: which are taken shows in a session's counts, and what each costs in copies.

mod common;

use std::sync::Mutex;

use common::{Kind, run};
use uvia_message::{ModuleCounts, ReceiveMode, Result, SendMode, Session, SessionOptions, Thresholds};

const MESSAGES: usize = 16;

/// What came of a session's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcome {
    sender: ModuleCounts,
    receiver: ModuleCounts,
    /// Bytes that the sender has copied, and the receiver.
    copied: (u64, u64),
}

/// Sends [`MESSAGES`] of one piece each from rank 0 to 1, with an answer of a byte to each.
fn messages(kind: Kind, len: usize, send: SendMode, thresholds: Thresholds) -> Outcome {
    let outcome = Mutex::new(Outcome::default());
    let change = |options: &mut SessionOptions| options.thresholds = thresholds;
    run(2, &[kind], change, |session: Session| {
        let channel = session.channel(0, &[]).unwrap();
        let mut buffer = vec![0; len];
        // The first makes the connection, and registers what is to be; and all there is to be asked for is there then.
        for number in 0..MESSAGES {
            let byte = number as u8 + 1;
            if session.rank() == 0 {
                buffer.fill(byte);
                channel.send(1, |message| message.pack(&buffer, send, ReceiveMode::Cheaper)).unwrap();
                assert_eq!(channel.receive(1, |answer| answer.get::<u8>()).unwrap(), byte);
            } else {
                buffer.fill(0);
                let room = &mut buffer[..];
                channel.receive(0, |message| message.unpack(room, send, ReceiveMode::Cheaper)).unwrap();
                assert!(buffer.iter().all(|found| *found == byte), "{kind:?} {len} message {number}");
                channel.send(0, |answer| answer.put(&byte)).unwrap();
            }
        }
        let mut outcome = outcome.lock().unwrap();
        if session.rank() == 0 {
            (outcome.sender, outcome.copied.0) = (session.module_counts(), session.copied().0);
        } else {
            // The answers are not meant.
            (outcome.receiver, outcome.copied.1) = (session.module_counts(), session.copied().1);
        }
    });
    outcome.into_inner().unwrap()
}

const ALL: Thresholds = Thresholds { inline: 128, gather: 4096, long: 16 << 10, read: 64 << 10 };
const SENT: u64 = MESSAGES as u64;

#[test]
fn short_pieces_are_copied_once_at_each_end() {
    for kind in [Kind::Vi, Kind::Tcp, Kind::Shared] {
        let outcome = messages(kind, 1000, SendMode::Cheaper, ALL);
        assert_eq!(outcome.sender, ModuleCounts { copied: SENT, ..ModuleCounts::default() }, "{kind:?}");
        assert_eq!(outcome.copied, (1000 * SENT, 1000 * SENT), "{kind:?}");
    }
}

#[test]
fn pieces_of_middle_size_are_taken_from_their_place() {
    for send in [SendMode::Cheaper, SendMode::Later] {
        for kind in [Kind::Tcp, Kind::Shared] {
            let outcome = messages(kind, 6000, send, ALL);
            assert_eq!(
                outcome.sender,
                ModuleCounts { gathered: SENT, ..ModuleCounts::default() },
                "{kind:?}"
            );
            assert_eq!(outcome.copied, (0, 6000 * SENT), "{kind:?} {send:?}");
        }
        // Where memory has to be registered it is when it is used a second time.
        let outcome = messages(Kind::Vi, 6000, send, ALL);
        assert_eq!(outcome.sender, ModuleCounts { gathered: SENT - 1, copied: 1, ..ModuleCounts::default() });
        assert_eq!(outcome.copied, (6000, 6000 * SENT), "{send:?}");
    }
    // What may change at once is copied.
    let outcome = messages(Kind::Vi, 6000, SendMode::Safer, ALL);
    assert_eq!((outcome.sender.gathered, outcome.copied.0), (0, 6000 * SENT));
}

#[test]
fn long_pieces_are_written_or_read_and_copied_by_nobody() {
    for kind in [Kind::Vi, Kind::Tcp, Kind::Shared] {
        let outcome = messages(kind, 20_000, SendMode::Cheaper, ALL);
        assert_eq!((outcome.sender.written, outcome.sender.read), (SENT, 0), "{kind:?}");
        assert_eq!(outcome.copied, (0, 0), "{kind:?}");
        // Nothing of them can be expected: each comes when the one before was answered.
        let outcome = messages(kind, 5 << 20, SendMode::Cheaper, ALL);
        assert_eq!((outcome.sender.written, outcome.sender.read), (0, SENT), "{kind:?}");
        assert_eq!(outcome.copied, (0, 0), "{kind:?}");
        let outcome = messages(kind, 100_000, SendMode::Safer, ALL);
        assert_eq!((outcome.sender.written, outcome.sender.read), (SENT, 0), "{kind:?}");
    }
}

#[test]
fn the_smallest_packets_go_inline_where_an_endpoint_was_granted() {
    for (kind, len) in [(Kind::Pio, 64), (Kind::Pio, 0), (Kind::Pio, 1000), (Kind::Vi, 64)] {
        let ModuleCounts { inline, copied, gathered, written, read } =
            messages(kind, len, SendMode::Cheaper, ALL).sender;
        assert_eq!((inline + copied, gathered, written, read), (SENT, 0, 0, 0), "{kind:?} {len}");
        if kind == Kind::Pio && len <= 64 {
            // Until the endpoint is connected they go as others.
            assert!(inline > SENT / 2, "{inline} of {SENT}");
        } else {
            assert_eq!(inline, 0, "{kind:?} {len}");
        }
    }
    let none = Thresholds { inline: 0, ..ALL };
    assert_eq!(messages(Kind::Pio, 64, SendMode::Cheaper, none).sender.inline, 0);
}

/// A piece that the receiver has named a place for already is written, however long it is.
#[test]
fn what_is_expected_is_written() {
    const LONG: usize = 100_000;
    let counts = Mutex::new(ModuleCounts::default());
    let change = |options: &mut SessionOptions| options.thresholds = Thresholds { read: 16 << 10, ..ALL };
    run(2, &[Kind::Shared], change, |session: Session| {
        let (channel, word) = (session.channel(0, &[]).unwrap(), session.channel(1, &[]).unwrap());
        let (mut a, mut b) = (vec![1; LONG], vec![2; LONG]);
        if session.rank() == 0 {
            channel
                .send(1, |message| -> Result<()> {
                    message.safer(&a, ReceiveMode::Cheaper)?;
                    // The other end has come to the second by now, and has said so before it gave word.
                    word.receive(1, |word| word.get::<u8>())?;
                    message.cheaper(&b, ReceiveMode::Cheaper)
                })
                .unwrap();
            *counts.lock().unwrap() = session.module_counts();
            return;
        }
        let room = (&mut a[..], &mut b[..]);
        room.0.fill(0);
        room.1.fill(0);
        channel
            .receive(0, |message| -> Result<()> {
                message.cheaper(room.0, SendMode::Safer)?;
                message.cheaper(room.1, SendMode::Cheaper)?;
                word.send(0, |word| word.put(&0u8))
            })
            .unwrap();
        assert!(a == [1; LONG] && b == [2; LONG]);
    });
    let ModuleCounts { written, read, .. } = counts.into_inner().unwrap();
    assert_eq!((written, read), (2, 0));
}
