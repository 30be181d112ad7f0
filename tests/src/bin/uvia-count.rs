//! Rounds of 64-byte messages over adapters made of memory, for counting instructions: `uvia-count raw|vi ROUNDS`.
//!
//! What two counts with different numbers of rounds differ by, divided, is what a round costs; a round is a message
//! each way.

use std::process::ExitCode;

use uvia_tests::{PingPong, RawPair, ViPair, memory_pair};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (kind, rounds) = (arguments.next(), arguments.next().and_then(|n| n.parse::<usize>().ok()));
    match (kind.as_deref(), rounds) {
        (Some("raw"), Some(rounds)) => {
            let (a, b, domain) = memory_pair();
            let mut pair = RawPair::new(a, b, domain, 64);
            (0..rounds).for_each(|_| pair.round());
        }
        (Some("vi"), Some(rounds)) => {
            let mut ping = PingPong::new(ViPair::over_memory(memory_pair()), 64);
            (0..rounds).for_each(|_| ping.round());
        }
        _ => {
            eprintln!("usage: uvia-count raw|vi ROUNDS");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
