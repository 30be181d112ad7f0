//! One of two rails is cut at random moments, by 1000 seeds: every message comes once, in order.

mod common;

use common::program::{Numbers, Shape, execute, generate};
use common::{Kind, run};

/// How many seeds, where `usual` would be.
fn count(usual: u64) -> u64 {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match () {
        () if set("UVIA_LONG") => usual * 10,
        () if set("UVIA_QUICK") => usual / 10,
        () => usual,
    }
}

/// Sends numbered messages of random lengths, each followed by a random program, and cuts a rail on the way.
fn cut_at_random(kinds: [Kind; 2], seed: u64) {
    const MESSAGES: usize = 24;
    let shape = Shape { ranks: 2, channels: 1, phases: 3, most_pieces: 4, most: 600_000 };
    run(
        2,
        &kinds,
        |options| {
            options.packet_bytes = 512;
            options.window = 8;
            options.thresholds.long = 4096;
            if seed.is_multiple_of(2) {
                // Who waits without end names places ahead.
                options.patience = None;
            }
        },
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            let mut numbers = Numbers(seed);
            let (who, when, which) = (numbers.below(2), numbers.below(MESSAGES), numbers.below(2));
            let me = session.rank();
            let program = generate(seed, shape);
            for n in 0..MESSAGES {
                let len = numbers.below(3000);
                if me == who && n == when {
                    channel.cut(1 - me, &format!("rail{which}")).unwrap();
                }
                // Rank 0 streams ahead of rank 1, which reads later.
                if me == 0 {
                    let bytes = vec![n as u8; len];
                    channel
                        .send(1, |message| {
                            message.put(&(n as u32))?;
                            message.safer(&bytes, uvia_message::ReceiveMode::Cheaper)
                        })
                        .unwrap_or_else(|e| panic!("seed {seed}, message {n}: {e}"));
                } else {
                    let mut bytes = vec![0; len];
                    let room = &mut bytes[..];
                    let number = channel
                        .receive(0, |message| {
                            let number: u32 = message.get()?;
                            message.cheaper(room, uvia_message::SendMode::Safer)?;
                            uvia_message::Result::Ok(number)
                        })
                        .unwrap_or_else(|e| panic!("seed {seed}, message {n}: {e}"));
                    assert_eq!(number as usize, n, "seed {seed}");
                    assert!(bytes.iter().all(|byte| *byte == n as u8), "seed {seed}: message {n}");
                }
                if n % 8 == 4 {
                    execute(seed, &program, &session, std::slice::from_ref(&channel))
                        .unwrap_or_else(|e| panic!("seed {seed}, rank {me}, program: {e}"));
                }
            }
        },
    );
}

#[test]
fn nothing_is_lost_or_comes_twice_when_a_rail_of_virtual_interfaces_dies() {
    (0..count(600)).for_each(|seed| cut_at_random([Kind::Vi, Kind::Vi], seed));
}

#[test]
fn nor_when_the_rails_are_of_different_kinds() {
    (1000..1000 + count(200)).for_each(|seed| cut_at_random([Kind::Vi, Kind::Shared], seed));
    (2000..2000 + count(200)).for_each(|seed| cut_at_random([Kind::Tcp, Kind::Vi], seed));
}
