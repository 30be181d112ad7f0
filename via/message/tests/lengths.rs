//! Long pieces of which the two ends have different lengths: the receiver is told both, nothing is written outside of its
//! room nor read behind the sender's piece, and the next message comes.

mod common;

use common::{Kind, run};
use uvia_message::{Channel, Error, Outgoing, ReceiveMode, Result, SendMode, SessionOptions, Thresholds};

const KINDS: [&[Kind]; 6] = [
    &[Kind::Vi],
    &[Kind::Pio],
    &[Kind::Tcp],
    &[Kind::Shared],
    &[Kind::Vi, Kind::Vi],
    &[Kind::Tcp, Kind::Shared, Kind::Vi],
];
/// What is sent, and what is received.
const LENGTHS: [[usize; 2]; 3] = [[2 << 20, 1 << 20], [1 << 20, 2 << 20], [(1 << 20) + 1, 1 << 20]];
const BEFORE: usize = 1 << 20;

/// Whether the receiver names places ahead, with sessions that wait without end; and whether a piece is read where it can be.
fn options(endless: bool, read: usize) -> impl Fn(&mut SessionOptions) {
    move |options| {
        if endless {
            options.patience = None;
        }
        options.thresholds.read = read;
    }
}

fn is_mismatch(outcome: &Result<()>, position: usize, [sent, wanted]: [usize; 2]) -> bool {
    let describe = |len: usize| format!("a long piece of {len} bytes");
    matches!(outcome, Err(Error::Mismatch { rank: 0, position: at, packed, unpacked })
        if *at == position && *packed == describe(sent) && *unpacked == describe(wanted))
}

/// Rank 0 sends by `send`, rank 1 receives by `receive`, whose long piece is the one at `position`.
fn differ(
    what: &str,
    position: usize,
    send: impl for<'a> Fn(&mut Outgoing<'a>, &'a [u8]) -> Result<()> + Sync,
    receive: impl Fn(&Channel, &mut [u8]) -> Result<()> + Sync,
) {
    for (kinds, endless, read) in KINDS
        .into_iter()
        .flat_map(|kinds| [(kinds, false), (kinds, true)])
        .flat_map(|(kinds, endless)| [1, Thresholds::NEVER].map(|read| (kinds, endless, read)))
    {
        run(2, kinds, options(endless, read), |session| {
            let channel = session.channel(0, &[]).unwrap();
            channel.connect(1 - session.rank()).unwrap();
            let mut buffer = vec![0; 4 << 20];
            for (n, lengths) in LENGTHS.into_iter().enumerate() {
                let name = format!("{what}, {kinds:?}, endless {endless}, read {read}: {lengths:?}");
                let [sent, wanted] = lengths;
                // All of the buffer is registered at both ends from now on.
                buffer.fill(1 + n as u8);
                if session.rank() == 0 {
                    channel.send(1, |out| out.cheaper(&buffer, ReceiveMode::Cheaper)).unwrap();
                    buffer[..sent].fill(100);
                    let outcome = channel.send(1, |out| send(out, &buffer[..sent]));
                    // A receiver that reads finds out when all that there was to send has gone.
                    let is_heard = matches!(outcome, Err(Error::Refused { rank: 1 }));
                    assert!(is_heard || (read == 1 && outcome.is_ok()), "{name}: {outcome:?}");
                    channel.send(1, |out| out.put(&7u8)).unwrap_or_else(|e| panic!("{name}: {e}"));
                    assert_eq!(channel.receive(1, |word| word.get::<u8>()).unwrap(), 8);
                    continue;
                }
                channel.receive(0, |message| message.cheaper(&mut buffer, SendMode::Cheaper)).unwrap();
                buffer.fill(50);
                let outcome = receive(&channel, &mut buffer[BEFORE..BEFORE + wanted]);
                assert!(is_mismatch(&outcome, position, lengths), "{name}: {outcome:?}");
                buffer[BEFORE..BEFORE + wanted].fill(50);
                let next = channel.receive(0, |word| word.get::<u8>());
                assert_eq!(next.unwrap_or_else(|e| panic!("{name}: {e}")), 7);
                // Neither beside the room, nor late.
                assert!(buffer.iter().all(|byte| *byte == 50), "{name}: what was not named was written");
                channel.send(0, |word| word.put(&8u8)).unwrap();
            }
        });
    }
}

#[test]
fn a_piece_that_is_all_of_its_message() {
    differ(
        "alone",
        0,
        |message, bytes| message.cheaper(bytes, ReceiveMode::Cheaper),
        |channel, room| channel.receive(0, |message| message.cheaper(room, SendMode::Cheaper)),
    );
}

#[test]
fn a_piece_that_is_waited_for() {
    differ(
        "express",
        1,
        |message, bytes| {
            message.put(&3u32)?;
            message.cheaper(bytes, ReceiveMode::Express)
        },
        |channel, room| {
            channel.receive(0, |message| {
                assert_eq!(message.get::<u32>()?, 3);
                message.express(room, SendMode::Cheaper)
            })
        },
    );
}

#[test]
fn a_piece_in_the_middle_that_may_change_at_once() {
    differ(
        "safer",
        1,
        |message, bytes| {
            message.cheaper(&bytes[..100], ReceiveMode::Cheaper)?;
            message.safer(bytes, ReceiveMode::Cheaper)?;
            message.cheaper(&bytes[..100], ReceiveMode::Cheaper)
        },
        |channel, room| {
            let (mut first, mut last) = ([0; 100], [0; 100]);
            channel.receive(0, |message| {
                message.express(&mut first, SendMode::Cheaper)?;
                message.express(room, SendMode::Safer)?;
                message.express(&mut last, SendMode::Cheaper)
            })
        },
    );
}

/// Both ends hear of it, each of what it receives; whoever exchanges loses the connection where its own message fails.
#[test]
fn an_exchange() {
    for kinds in KINDS {
        run(2, kinds, options(true, Thresholds::NEVER), |session| {
            let channel = session.channel(0, &[]).unwrap();
            let other = 1 - session.rank();
            channel.connect(other).unwrap();
            let mut buffer = vec![0; 4 << 20];
            channel.exchange(other, &[1; 4 << 20], other, &mut buffer).unwrap();
            buffer.fill(50);
            let outcome =
                channel.exchange(other, &[2; 2 << 20], other, &mut buffer[BEFORE..BEFORE + (1 << 20)]);
            let is_told = matches!(
                outcome,
                Err(Error::Refused { .. } | Error::Mismatch { .. } | Error::Unreachable { .. })
            );
            assert!(is_told, "{kinds:?}: {outcome:?}");
            assert!(buffer.iter().all(|byte| *byte == 50), "{kinds:?}: what was not named was written");
        });
    }
}
