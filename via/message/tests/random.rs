//! Random programs, compared with what they must come to: 10,000 of them, counted over all of this file's tests.

mod common;

use std::time::Instant;

use common::program::{Shape, execute, generate};
use common::{Kind, run_mixed};

/// How many programs, where `usual` would be.
fn count(usual: u64) -> u64 {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match () {
        () if set("UVIA_LONG") => usual * 10,
        () if set("UVIA_QUICK") => usual / 10,
        () => usual,
    }
}

fn programs(kinds: &[Kind], seeds: std::ops::Range<u64>, shape: Shape, packet_bytes: usize, describe: bool) {
    programs_mixed(kinds, |_, _| true, seeds, shape, packet_bytes, describe);
}

fn programs_mixed(
    kinds: &[Kind],
    has: impl Fn(usize, usize) -> bool + Sync,
    seeds: std::ops::Range<u64>,
    shape: Shape,
    packet_bytes: usize,
    describe: bool,
) {
    let start = Instant::now();
    run_mixed(
        shape.ranks,
        kinds,
        has,
        |options| {
            options.packet_bytes = packet_bytes;
            options.window = 8;
            options.threshold = 4096;
            options.describe = describe;
        },
        |session| {
            let channels: Vec<_> =
                (0..shape.channels).map(|n| session.channel(n, &[]).expect("a channel")).collect();
            for seed in seeds.clone() {
                let program = generate(seed, shape);
                if let Err(e) = execute(seed, &program, &session, &channels) {
                    panic!("seed {seed}, rank {}: {e}", session.rank());
                }
            }
        },
    );
    println!("{kinds:?} {seeds:?} {shape:?}: {:?}", start.elapsed());
}

const SMALL: Shape = Shape { ranks: 2, channels: 1, phases: 8, most_pieces: 6, most: 20_000 };
const LARGE: Shape = Shape { ranks: 3, channels: 2, phases: 4, most_pieces: 4, most: 8 << 20 };

#[test]
fn on_virtual_interfaces() {
    programs(&[Kind::Vi], 0..count(4000), SMALL, 512, false);
    programs(&[Kind::Vi], 0..count(40), LARGE, 8192, false);
}

#[test]
fn on_tcp() {
    programs(&[Kind::Tcp], 0..count(1500), SMALL, 512, false);
    programs(&[Kind::Tcp], 0..count(20), LARGE, 8192, false);
}

#[test]
fn on_shared_memory() {
    programs(&[Kind::Shared], 0..count(2000), SMALL, 512, false);
    programs(&[Kind::Shared], 0..count(20), LARGE, 8192, false);
}

#[test]
fn on_several_rails_of_different_kinds() {
    programs(&[Kind::Vi, Kind::Shared], 0..count(1200), SMALL, 512, false);
    programs(&[Kind::Vi, Kind::Tcp, Kind::Vi], 0..count(20), LARGE, 8192, false);
}

#[test]
fn with_descriptions() {
    programs(&[Kind::Vi], 10_000..10_000 + count(600), SMALL, 256, true);
}

/// Ranks 0 and 1 have virtual interfaces, 1 and 2 TCP, and 0 and 2 shared memory.
#[test]
fn between_ranks_that_have_different_ports() {
    let has = |rank: usize, rail: usize| match rail {
        0 => rank != 2,
        1 => rank != 0,
        _ => rank != 1,
    };
    programs_mixed(
        &[Kind::Vi, Kind::Tcp, Kind::Shared],
        has,
        0..count(600),
        Shape { ranks: 3, ..SMALL },
        512,
        false,
    );
}
