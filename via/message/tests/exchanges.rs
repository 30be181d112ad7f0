//! Exchanges: nobody waits for another to receive first, whatever the ranks' pattern and however long the pieces are; and
//! each end's place is known before it sends.

mod common;

use common::{Kind, run};
use uvia_message::{Channel, Error, ReceiveMode, SendMode, Session, SessionOptions, Thresholds};

const KINDS: [&[Kind]; 4] = [&[Kind::Vi], &[Kind::Tcp], &[Kind::Shared], &[Kind::Vi, Kind::Shared]];

/// Waits end with what is waited for only: then places are named ahead.
fn endless(options: &mut SessionOptions) {
    options.patience = None;
}

/// What a rank sends in a round.
fn image(rank: usize, round: usize) -> Vec<u8> {
    // In packets, in many of them, long, and in more than one put.
    const LENGTHS: [usize; 7] = [0, 64, 1 << 20, 20_000, 300_000, 5 << 20, 1];
    let len = LENGTHS[(round * 3 + rank * 2) % LENGTHS.len()];
    let first = (rank * 31 + round * 7) as u8;
    (0..len).map(|n| first.wrapping_add((n / 100) as u8)).collect()
}

fn exchange(channel: &Channel, rank: usize, round: usize, to: usize, from: usize) {
    let (bytes, wanted) = (image(rank, round), image(from, round));
    let mut room = vec![0; wanted.len()];
    channel
        .exchange(to, &bytes, from, &mut room)
        .unwrap_or_else(|e| panic!("rank {rank}, round {round}: {e}"));
    assert!(room == wanted, "rank {rank}, round {round}");
}

/// Rings of three, in both directions, and pairs.
fn rounds(session: &Session) {
    let channel = session.channel(0, &[]).unwrap();
    let rank = session.rank();
    for round in 0..21 {
        let (next, last) = ((rank + 1) % 3, (rank + 2) % 3);
        exchange(&channel, rank, round, next, last);
        exchange(&channel, rank, round + 100, last, next);
        // Each two in turn; the third is left out.
        if rank != round % 3 {
            exchange(&channel, rank, round + 200, 3 - rank - round % 3, 3 - rank - round % 3);
        }
    }
}

#[test]
fn ranks_exchange_in_rings_and_pairs_whatever_the_lengths() {
    for kinds in KINDS {
        run(3, kinds, endless, |session| rounds(&session));
    }
}

/// Where no place can be named ahead.
#[test]
fn so_they_do_with_patience_with_descriptions_and_without_long_pieces() {
    let never =
        Thresholds { inline: 0, gather: Thresholds::NEVER, long: Thresholds::NEVER, read: Thresholds::NEVER };
    let changes: [fn(&mut SessionOptions); 3] =
        [|_| (), |options| options.describe = true, |options| (options.patience, options.window) = (None, 4)];
    for (n, change) in changes.into_iter().enumerate() {
        let change = |options: &mut SessionOptions| {
            change(options);
            if n == 2 {
                options.thresholds = never;
            }
        };
        run(3, &[Kind::Vi], change, |session| rounds(&session));
    }
}

/// The other end need not exchange, as long as it sends what is received and receives what is sent.
#[test]
fn one_end_exchanges_and_the_other_sends_and_receives_in_either_order() {
    for kinds in KINDS {
        run(2, kinds, endless, |session| {
            let channel = session.channel(0, &[]).unwrap();
            let rank = session.rank();
            for round in 0..28 {
                if rank == 0 {
                    exchange(&channel, 0, round, 1, 1);
                    continue;
                }
                let (bytes, wanted) = (image(1, round), image(0, round));
                let mut room = vec![0; wanted.len()];
                let send =
                    || channel.send(0, |message| message.cheaper(&bytes, ReceiveMode::Cheaper)).unwrap();
                if round % 2 == 0 {
                    send();
                }
                channel.receive(0, |message| message.cheaper(&mut room, SendMode::Cheaper)).unwrap();
                if round % 2 == 1 {
                    send();
                }
                assert!(room == wanted, "round {round}");
            }
        });
    }
}

/// Who answers an exchange knows the place of its answer, which came before what it answers: so it never asks.
#[test]
fn the_answer_to_an_exchange_takes_no_packet() {
    run(2, &[Kind::Vi], endless, |session| {
        const ROUNDS: u64 = 50;
        let channel = session.channel(0, &[]).unwrap();
        let (bytes, mut room) = (vec![session.rank() as u8; 1 << 20], vec![9; 1 << 20]);
        channel.connect(1 - session.rank()).unwrap();
        let packets = || session.module_counts().copied + session.module_counts().inline;
        for round in 0..ROUNDS {
            if session.rank() == 0 {
                channel.exchange(1, &bytes, 1, &mut room).unwrap();
            } else {
                channel.receive(0, |message| message.cheaper(&mut room, SendMode::Cheaper)).unwrap();
                let before = packets();
                channel.send(0, |message| message.cheaper(&bytes, ReceiveMode::Cheaper)).unwrap();
                assert_eq!(packets(), before, "round {round}");
            }
            assert!(room.iter().all(|byte| usize::from(*byte) == 1 - session.rank()), "round {round}");
        }
        assert_eq!(session.module_counts().written, ROUNDS);
        assert_eq!(session.copied(), (0, 0));
    });
}

/// Where the message to be sent fails, nobody writes the place of the other one any more: its connection has ended.
#[test]
fn an_exchange_that_cannot_send_takes_its_place_back() {
    run(3, &[Kind::Vi], endless, |session| {
        let channel = session.channel(0, &[]).unwrap();
        let hear = |from| channel.receive(from, |message| message.get::<u8>());
        match session.rank() {
            0 => {
                assert_eq!((hear(1).unwrap(), hear(2).unwrap()), (1, 2));
                let gone = hear(2);
                assert!(matches!(gone, Err(Error::Unreachable { rank: 2, .. })), "{gone:?}");
                let mut room = vec![7; 1 << 20];
                let failed = channel.exchange(2, &[1; 1 << 20], 1, &mut room);
                assert!(matches!(failed, Err(Error::Unreachable { rank: 2, .. })), "{failed:?}");
                let ended = hear(1);
                assert!(matches!(ended, Err(Error::Unreachable { rank: 1, .. })), "{ended:?}");
            }
            1 => {
                channel.send(0, |message| message.put(&1u8)).unwrap();
                let ended = hear(0);
                assert!(matches!(ended, Err(Error::Unreachable { rank: 0, .. })), "{ended:?}");
            }
            _ => channel.send(0, |message| message.put(&2u8)).unwrap(),
        }
    });
}

#[test]
fn ranks_that_there_are_not_are_refused() {
    run(2, &[Kind::Shared], endless, |session| {
        let channel = session.channel(0, &[]).unwrap();
        let (own, other) = (session.rank(), 1 - session.rank());
        for (to, from) in [(own, other), (other, own), (2, other), (other, 2)] {
            let refused = channel.exchange(to, &[1], from, &mut [0]);
            assert!(matches!(refused, Err(Error::Rank { .. })), "{refused:?}");
        }
        exchange(&channel, own, 1, other, other);
    });
}
