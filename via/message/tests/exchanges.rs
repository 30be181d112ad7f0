//! Exchanges: nobody waits for another to receive first, whatever the ranks' pattern and however long the pieces are; and
//! each end's place is known before it sends.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::program::Numbers;
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

/// A message of a ring: its length is that of its number, and so are its bytes.
fn ring_image(seed: u64, from: usize, round: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed ^ (from as u64) << 32 ^ (round as u64) << 40);
    let around = [0, 1, 4095, 4096, 4097, 104, 105, 208, 209, 1 << 20, 4 << 20, (4 << 20) + 1];
    let len = match numbers.below(4) {
        0 => around[numbers.below(if round.is_multiple_of(8) { 12 } else { 9 })],
        1 => numbers.below(60_000),
        _ => numbers.below(700),
    };
    let first = numbers.next() as u8;
    (0..len).map(|n| first.wrapping_add((n / 50) as u8)).collect()
}

/// Each thread of a rank has a channel, and a ring on it in a direction and with steps of its own.
fn rings(
    session: &Session,
    seed: u64,
    threads: usize,
    rounds: usize,
    cut: &(dyn Fn(&Channel, usize, usize) + Sync),
) {
    let (rank, size) = (session.rank(), session.size());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let channel = session.channel(thread, &[]).unwrap();
            scope.spawn(move || {
                let seed = seed ^ (thread as u64) << 56;
                for round in 0..rounds {
                    cut(&channel, thread, round);
                    let step = 1 + (thread + round) % (size - 1);
                    let (to, from) = ((rank + step) % size, (rank + size - step) % size);
                    let (bytes, wanted) = (ring_image(seed, rank, round), ring_image(seed, from, round));
                    let mut room = vec![0xcc; wanted.len() + 64];
                    channel
                        .exchange(to, &bytes, from, &mut room[..wanted.len()])
                        .unwrap_or_else(|e| panic!("seed {seed:#x}, rank {rank}, round {round}: {e}"));
                    let (place, beside) = room.split_at(wanted.len());
                    assert!(place == wanted, "seed {seed:#x}, rank {rank}, round {round}");
                    assert!(beside.iter().all(|byte| *byte == 0xcc), "seed {seed:#x}, round {round}: beside");
                }
            });
        }
    });
}

/// How many rounds, where `usual` would be.
fn count(usual: usize) -> usize {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match () {
        () if set("UVIA_LONG") => usual * 10,
        () if set("UVIA_QUICK") => usual / 4,
        () => usual,
    }
}

#[test]
fn threads_exchange_in_rings_of_any_size_with_the_smallest_windows() {
    let kinds: [&[Kind]; 5] =
        [&[Kind::Vi], &[Kind::Pio], &[Kind::Shared], &[Kind::Tcp], &[Kind::Vi, Kind::Vi]];
    for (n, kinds) in kinds.into_iter().enumerate() {
        for size in [2, 3, 5, 8] {
            let change = |options: &mut SessionOptions| {
                options.patience = (n + size).is_multiple_of(3).then_some(common::PATIENCE);
                (options.window, options.packet_bytes) = ([2, 3, 5][size % 3], 128);
                options.thresholds.long = 4096;
                options.thresholds.read = if size == 5 { 8192 } else { Thresholds::NEVER };
                options.thresholds.gather = if size == 3 { 200 } else { Thresholds::NEVER };
            };
            run(size, kinds, change, |session| rings(&session, n as u64, 2, count(24), &|_, _, _| ()));
        }
    }
}

/// What is under way when a rail dies comes by the other, and once.
#[test]
fn so_they_do_while_rails_die() {
    for seed in 0..count(40) as u64 {
        let kinds =
            [[Kind::Vi, Kind::Vi], [Kind::Vi, Kind::Shared], [Kind::Tcp, Kind::Vi]][seed as usize % 3];
        let mut numbers = Numbers(seed);
        let size = 2 + numbers.below(3);
        let (who, when, which) = (numbers.below(size), numbers.below(12), numbers.below(2));
        let change = |options: &mut SessionOptions| {
            endless(options);
            options.thresholds.long = 4096;
            (options.window, options.packet_bytes) = ([2, 8][seed as usize % 2], 512);
        };
        run(size, &kinds, change, |session| {
            let me = session.rank();
            rings(&session, seed, 2, 12, &|channel, thread, round| {
                if me == who && round == when {
                    let other = (me + 1 + thread % (size - 1)) % size;
                    channel.cut(other, &format!("rail{which}")).unwrap();
                }
            });
        });
    }
}

/// The others hear of it, wherever they are, and nobody waits for ever.
#[test]
fn a_rank_that_leaves_in_the_middle_leaves_nobody_waiting() {
    for (n, kinds) in
        [&[Kind::Vi][..], &[Kind::Tcp], &[Kind::Shared], &[Kind::Vi, Kind::Vi]].into_iter().enumerate()
    {
        for (len, size) in [(10, 2), (10, 3), (20_000, 3), (1 << 20, 2), (1 << 20, 3), (5 << 20, 4)] {
            let failed = AtomicUsize::new(0);
            run(size, kinds, endless, |session| {
                let channel = session.channel(0, &[]).unwrap();
                let (rank, size) = (session.rank(), session.size());
                let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
                let (bytes, mut room) = (vec![rank as u8; len], vec![9; len]);
                for round in 0..20 {
                    if rank == 1 && round == 3 + n {
                        return;
                    }
                    if let Err(e) = channel.exchange(to, &bytes, from, &mut room) {
                        assert!(round >= 3 + n - 1, "{kinds:?}, rank {rank} of {size}, round {round}: {e}");
                        // The place is ours again.
                        room.fill(7);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        assert!(room.iter().all(|byte| *byte == 7), "{kinds:?}, rank {rank}: written late");
                        failed.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    assert!(room.iter().all(|byte| usize::from(*byte) == from), "{kinds:?}, round {round}");
                }
            });
            assert_eq!(failed.load(Ordering::Relaxed), size - 1, "{kinds:?}: {len} bytes, {size} ranks");
        }
    }
}

/// More than can be put at once, in one piece.
#[test]
fn what_takes_more_puts_than_there_may_be_is_exchanged_too() {
    for kinds in [&[Kind::Vi][..], &[Kind::Shared], &[Kind::Vi, Kind::Vi]] {
        run(2, kinds, endless, |session| {
            let channel = session.channel(0, &[]).unwrap();
            let (rank, other) = (session.rank(), 1 - session.rank());
            let image = |rank: usize, n: usize| (n >> 12) as u8 ^ rank as u8;
            let lengths = [(70 << 20) + 1, 66 << 20];
            let bytes: Vec<u8> = (0..lengths[rank]).map(|n| image(rank, n)).collect();
            let mut room = vec![0; lengths[other]];
            for _ in 0..2 {
                room.fill(0);
                channel.exchange(other, &bytes, other, &mut room).unwrap();
                assert!(room.iter().enumerate().all(|(n, byte)| *byte == image(other, n)), "{kinds:?}");
            }
        });
    }
}
