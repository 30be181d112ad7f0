//! Random programs, compared with what they must come to: 10,000 of them, counted over all of this file's tests.

mod common;

use std::sync::Mutex;
use std::time::Instant;

use common::program::{Numbers, Shape, execute, generate};
use common::{Kind, run_mixed};
use uvia_message::{ModuleCounts, Thresholds};

/// How many programs, where `usual` would be.
fn count(usual: u64) -> u64 {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match () {
        () if set("UVIA_LONG") => usual * 10,
        () if set("UVIA_QUICK") => usual / 10,
        () => usual,
    }
}

fn programs(
    kinds: &[Kind],
    seeds: std::ops::Range<u64>,
    shape: Shape,
    packet_bytes: usize,
    describe: bool,
) -> ModuleCounts {
    programs_mixed(kinds, |_, _| true, seeds, shape, packet_bytes, describe)
}

/// Programs of one session.
const OF_SESSION: u64 = 200;

/// A rank's thresholds: its own, so that what has to be the same at both ends is found to be.
fn thresholds(seed: u64, rank: usize, shape: Shape) -> Thresholds {
    let mut numbers = Numbers(seed ^ (rank as u64) << 48 ^ 0x7468_7265);
    let bits = shape.most.ilog2() as usize;
    let mut some = |least: usize| (1 << (least + numbers.below(bits - least))) + numbers.below(64);
    let (gather, long, read) = (some(4), some(7), some(7));
    Thresholds { inline: numbers.below(200), gather, long, read }
}

fn add(all: &mut ModuleCounts, one: ModuleCounts) {
    let ModuleCounts { inline, copied, gathered, written, read } = one;
    all.inline += inline;
    all.copied += copied;
    all.gathered += gathered;
    all.written += written;
    all.read += read;
}

fn programs_mixed(
    kinds: &[Kind],
    has: impl Fn(usize, usize) -> bool + Sync,
    seeds: std::ops::Range<u64>,
    shape: Shape,
    packet_bytes: usize,
    describe: bool,
) -> ModuleCounts {
    let start = Instant::now();
    let all = Mutex::new(ModuleCounts::default());
    let mut first = seeds.start;
    while first < seeds.end {
        let next = seeds.end.min(first + OF_SESSION.min((seeds.end - seeds.start).div_ceil(4)));
        session_of_programs(kinds, &has, first..next, shape, packet_bytes, describe, &all);
        first = next;
    }
    let all = all.into_inner().expect("nobody panicked");
    println!("{kinds:?} {seeds:?} {shape:?}: {:?}, {all:?}", start.elapsed());
    all
}

fn session_of_programs(
    kinds: &[Kind],
    has: &(impl Fn(usize, usize) -> bool + Sync),
    seeds: std::ops::Range<u64>,
    shape: Shape,
    packet_bytes: usize,
    describe: bool,
    all: &Mutex<ModuleCounts>,
) {
    run_mixed(
        shape.ranks,
        kinds,
        has,
        |options| {
            options.packet_bytes = packet_bytes;
            options.window = [2, 3, 4, 8][Numbers(seeds.start ^ 0x7769).below(4)];
            options.thresholds = thresholds(seeds.start, options.rank, shape);
            options.describe = describe;
            if Numbers(seeds.start).below(2) == 0 {
                // Who waits without end names places ahead.
                options.patience = None;
            }
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
            add(&mut all.lock().expect("nobody panicked"), session.module_counts());
        },
    );
}

const SMALL: Shape = Shape { ranks: 2, channels: 1, phases: 8, most_pieces: 6, most: 20_000 };
const LARGE: Shape = Shape { ranks: 3, channels: 2, phases: 4, most_pieces: 4, most: 8 << 20 };

#[test]
fn on_virtual_interfaces() {
    let counts = programs(&[Kind::Vi], 0..count(3000), SMALL, 512, false);
    all_but_inline(counts);
    programs(&[Kind::Vi], 0..count(40), LARGE, 8192, false);
}

/// By interfaces of class Pio the smallest packets overtake others.
#[test]
fn on_virtual_interfaces_with_adapter_memory() {
    let counts = programs(&[Kind::Pio], 0..count(1000), SMALL, 512, false);
    assert!(counts.inline > 0, "{counts:?}");
    all_but_inline(ModuleCounts { inline: 0, ..counts });
    programs(&[Kind::Pio, Kind::Shared], 0..count(100), SMALL, 512, false);
}

/// All modules were used that are there on every port.
fn all_but_inline(counts: ModuleCounts) {
    let ModuleCounts { inline, copied, gathered, written, read } = counts;
    assert!(inline == 0 && [copied, gathered, written, read].iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn on_tcp() {
    all_but_inline(programs(&[Kind::Tcp], 0..count(1500), SMALL, 512, false));
    programs(&[Kind::Tcp], 0..count(20), LARGE, 8192, false);
}

#[test]
fn on_shared_memory() {
    all_but_inline(programs(&[Kind::Shared], 0..count(2000), SMALL, 512, false));
    programs(&[Kind::Shared], 0..count(20), LARGE, 8192, false);
}

#[test]
fn on_several_rails_of_different_kinds() {
    programs(&[Kind::Vi, Kind::Shared], 0..count(1100), SMALL, 512, false);
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
