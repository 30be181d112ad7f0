//! Messages over a guest's two adapters, back to back: what every port has to do, and random programs.

mod common;

use common::program::{Shape, execute, generate};
use common::{Kind, run, suite};

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn real_adapters_pass_the_suite() {
    suite::all(&[Kind::Device]);
}

/// Runs seeds of programs on these rails.
fn programs(rails: &[Kind], seeds: std::ops::Range<u64>, most: usize) {
    let shape = Shape { ranks: 2, channels: 2, phases: 4, most_pieces: 4, most };
    run(
        shape.ranks,
        rails,
        |options| options.thresholds.long = 4096,
        |session| {
            let channels: Vec<_> =
                (0..shape.channels).map(|n| session.channel(n, &[]).expect("a channel")).collect();
            for seed in seeds.clone() {
                let program = generate(seed, shape);
                if let Err(e) = execute(seed, &program, &session, &channels) {
                    panic!("{rails:?}, seed {seed}, rank {}: {e}", session.rank());
                }
            }
        },
    );
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn random_programs_come_to_what_they_must() {
    programs(&[Kind::Device], 0..100, 20_000);
    programs(&[Kind::Device], 100..104, 1 << 20);
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn so_they_do_on_rails_of_different_kinds() {
    programs(&[Kind::Device, Kind::Shared], 200..240, 100_000);
    programs(&[Kind::Tcp, Kind::Device], 300..320, 100_000);
}
