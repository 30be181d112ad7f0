//! Rounds of 64-byte messages over adapters made of memory, for counting instructions:
//! `uvia-count raw|vi|pio|template BURST ROUNDS` (pio: interfaces that send from adapter memory; template: prebuilt
//! messages with a word changed), and with a message each way over one of many connections after the other:
//! `uvia-count crowd CONNECTIONS ROUNDS`. A round of `uvia-count write BYTES ROUNDS` is an RDMA write of so many bytes.
//!
//! What two counts with different numbers of rounds differ by, divided, is what a round costs; a round is a burst of
//! so many messages each way.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uvia::{Clock, Nic, NicOptions, ViAttributes};
use uvia_tests::conformance::Memory;
use uvia_tests::{Crowd, LongWrites, PingPong, RawPair, ViPair, memory_pair};

/// Nanoseconds that pass with a round: about what one takes on adapters made of memory.
const ROUND: u64 = 1000;

/// Two interfaces of class Pio.
fn pio_pair(clock: Clock) -> uvia::Result<ViPair> {
    let memory = Memory::of_host().memory;
    let (a, b, domain) = memory_pair();
    let open = |adapter, name: &str| {
        let options = NicOptions {
            name: Some(name.to_owned()),
            clock: clock.clone(),
            adapter_memory: Some(memory.clone()),
            ..NicOptions::default()
        };
        Nic::with_adapter(adapter, domain.clone(), options)
    };
    let (a, b) = (open(a, "a")?, open(b, "b")?);
    let pio = a.pio()?;
    ViPair::connect(a, b, |attributes| *attributes = ViAttributes::pio(attributes.tag, &pio))
}

/// What is counted: these rounds, and not what is set up for them, some of which waits by the system's time.
#[inline(never)]
fn counted_rounds(rounds: usize, mut round: impl FnMut()) {
    (0..rounds).for_each(|_| round());
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next();
    let mut number = || arguments.next().and_then(|n| n.parse::<usize>().ok());
    match (kind.as_deref(), number().zip(number())) {
        (Some("raw"), Some((burst, rounds))) => {
            let (a, b, domain) = memory_pair();
            let mut pair = RawPair::new(a, b, domain, 64);
            counted_rounds(rounds, || pair.round(burst));
        }
        (Some("vi"), Some((burst, rounds))) => {
            // The time is ours, so that timers go off at the same message in every run. Reading the processor's counter
            // instead takes some ten instructions more.
            let time = Arc::new(AtomicU64::new(0));
            let pair = ViPair::over_memory_at(memory_pair(), Clock::manual(time.clone()));
            let mut ping = PingPong::new(pair, 64, burst);
            counted_rounds(rounds, || {
                time.fetch_add(ROUND, Ordering::Relaxed);
                ping.round();
            });
            // Without closing: that waits by the system's time, and would be counted.
            std::process::exit(0);
        }
        (Some(kind @ ("pio" | "template")), Some((burst, rounds))) => {
            let time = Arc::new(AtomicU64::new(0));
            let pair = match pio_pair(Clock::manual(time.clone())) {
                Ok(pair) => pair,
                Err(e) => {
                    eprintln!("class pio: {e}");
                    return ExitCode::FAILURE;
                }
            };
            if kind == "template" {
                let mut ping = match PingPong::of_templates(pair, 64, burst) {
                    Ok(ping) => ping,
                    Err(e) => {
                        eprintln!("templates: {e}");
                        return ExitCode::FAILURE;
                    }
                };
                counted_rounds(rounds, || {
                    time.fetch_add(ROUND, Ordering::Relaxed);
                    ping.template_round();
                });
                std::process::exit(0);
            }
            let mut ping = PingPong::new(pair, 64, burst);
            counted_rounds(rounds, || {
                time.fetch_add(ROUND, Ordering::Relaxed);
                ping.round();
            });
            // As above.
            std::process::exit(0);
        }
        (Some("crowd"), Some((connections, rounds))) => {
            let time = Arc::new(AtomicU64::new(0));
            let clock = Clock::manual(time.clone());
            let mut crowd = match Crowd::over_memory_at(memory_pair(), clock, connections) {
                Ok(crowd) => crowd,
                Err(e) => {
                    eprintln!("{connections} connections: {e}");
                    return ExitCode::FAILURE;
                }
            };
            counted_rounds(rounds, || {
                time.fetch_add(ROUND, Ordering::Relaxed);
                crowd.round();
            });
            // As above.
            std::process::exit(0);
        }
        (Some("write"), Some((size, rounds))) => {
            let time = Arc::new(AtomicU64::new(0));
            let pair = ViPair::over_memory_at(memory_pair(), Clock::manual(time.clone()));
            let written = LongWrites::new(pair, size).and_then(|mut writes| {
                for _ in 0..rounds {
                    writes.round(|| {
                        time.fetch_add(ROUND, Ordering::Relaxed);
                    })?;
                }
                let ends = [&writes.pair().a, &writes.pair().b];
                let frames = ends.map(|end| end.nic.statistics().adapter.tx_frames);
                // Without closing: that waits by the system's time, and would be counted.
                std::mem::forget(writes);
                Ok(frames)
            });
            let frames = match written {
                Ok(frames) => frames,
                Err(e) => {
                    eprintln!("writes of {size} bytes: {e}");
                    return ExitCode::FAILURE;
                }
            };
            println!("{} frames there, {} back", frames[0], frames[1]);
            std::process::exit(0);
        }
        _ => {
            eprintln!(
                "usage: uvia-count raw|vi|pio|template BURST ROUNDS, uvia-count crowd CONNECTIONS ROUNDS, or uvia-count write BYTES ROUNDS"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
