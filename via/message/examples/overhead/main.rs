//! What the layer adds to the virtual interfaces below it, in one run over shared memory: `overhead [ROUNDS [alone|short|long]]`.
//!
//! Messages of 64 bytes and of 1 MiB (by RDMA write, with word of it) go to and fro, in batches of both kinds in turn.
//! Those of 64 bytes once with both ends in one thread, which shows what the two cost without what a change of
//! processors takes, and once with a thread for each end.
//!
//! `overhead --count vi|message BYTES ROUNDS` does one kind only, for counting instructions.

mod bare;
#[path = "../common/mod.rs"]
mod common;
mod layer;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bare::Bare;
use layer::Layer;
use uvia::{Clock, Nic, NicOptions, Progress};

const LONG: usize = 1 << 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A NIC on shared memory.
fn nic(what: &str, name: &str, clock: &Clock, progress: Progress) -> Outcome<Nic> {
    let device = format!("shm:overhead-{what}-{}", std::process::id());
    let options =
        NicOptions { name: Some(name.to_owned()), clock: clock.clone(), progress, ..NicOptions::default() };
    let (adapter, domain) = uvia_driver::nic::open_named(&device, &options.adapter)?;
    Ok(Nic::with_adapter(adapter, domain, options)?)
}

fn bare_pair(clock: &Clock, progress: Progress) -> Outcome<(Bare, Bare)> {
    let mut a = Bare::new(nic("bare", "a", clock, progress)?, LONG)?;
    let mut b = Bare::new(nic("bare", "b", clock, progress)?, LONG)?;
    a.join(&mut b)?;
    Ok((a, b))
}

fn layer_pair(clock: &Clock, progress: Progress) -> Outcome<(Layer, Layer)> {
    Ok(Layer::pair(nic("layer", "a", clock, progress)?, nic("layer", "b", clock, progress)?, LONG)?)
}

/// Half round trips, in nanoseconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn percentile(&mut self, of_hundred: usize) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[(self.0.len() * of_hundred / 100).min(self.0.len() - 1)]
    }

    fn line(&mut self, what: &str) {
        let [p10, p50, p90, p99] = [10, 50, 90, 99].map(|n| self.percentile(n));
        println!("  {what:<10} p10 {p10:>9.0}  p50 {p50:>9.0}  p90 {p90:>9.0}  p99 {p99:>9.0} ns");
    }
}

/// Runs round trips of both kinds in turn, and prints what came of it.
fn compare(
    what: &str,
    (batches, batch): (usize, usize),
    mut bare: impl FnMut() -> Outcome<()>,
    mut layer: impl FnMut() -> Outcome<()>,
) -> Outcome<()> {
    let mut times = [Times::default(), Times::default()];
    for n in 0..batches {
        for (which, times) in times.iter_mut().enumerate() {
            let mut last = Instant::now();
            for _ in 0..batch {
                if which == 0 {
                    bare()?
                } else {
                    layer()?
                }
                let now = Instant::now();
                if n > 2 {
                    times.0.push((now - last).as_nanos() as f64 / 2.0);
                }
                last = now;
            }
        }
    }
    println!("{what}: half a round trip");
    let [bare, layer] = &mut times;
    bare.line("VI");
    layer.line("messages");
    let (bare, layer) = (bare.percentile(50), layer.percentile(50));
    println!("  p50: {:+.0} ns, {:+.1} %", layer - bare, (layer / bare - 1.0) * 100.0);
    Ok(())
}

/// Both ends in one thread.
fn alone(rounds: usize) -> Outcome<()> {
    let clock = Clock::system();
    let ((mut a, mut b), (mut c, mut d)) =
        (bare_pair(&clock, Progress::Caller)?, layer_pair(&clock, Progress::Caller)?);
    let bare = || {
        a.send(64);
        b.wait();
        b.send(64);
        a.wait();
        Ok(())
    };
    let layer = || {
        c.send(64)?;
        d.receive(64)?;
        d.send(64)?;
        Ok(c.receive(64)?)
    };
    compare("64 B, both ends in one thread", (rounds / 200, 200), bare, layer)?;
    std::mem::forget(((a, b), (c, d)));
    Ok(())
}

/// A thread for each end.
fn apart(rounds: usize, len: usize) -> Outcome<()> {
    let clock = Clock::system();
    let ((mut a, mut b), (mut c, mut d)) =
        (bare_pair(&clock, Progress::Thread)?, layer_pair(&clock, Progress::Thread)?);
    let batch = if len < LONG { 200 } else { 10 };
    let batches = rounds / batch;
    let short = len < LONG;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..batches {
                for _ in 0..batch {
                    b.wait();
                    if short { b.send(len) } else { b.write() }
                }
                for _ in 0..batch {
                    d.receive(len).and_then(|()| d.send(len)).expect("the messages come");
                }
            }
            // The last answer is acknowledged, and so on: the other end is not left alone with it.
            std::mem::forget((b, d));
        });
        let bare = || {
            if short {
                a.send(len)
            } else {
                a.write()
            }
            a.wait();
            Ok(())
        };
        let layer = || {
            c.send(len)?;
            Ok(c.receive(len)?)
        };
        let outcome = compare(&format!("{len} B, a thread for each end"), (batches, batch), bare, layer);
        std::mem::forget((a, c));
        outcome
    })
}

/// Rounds of one kind only, with both ends in one thread, by a clock that they set: so that counts repeat.
fn count(kind: &str, len: usize, rounds: usize) -> Outcome<()> {
    let time = Arc::new(AtomicU64::new(0));
    let clock = Clock::manual(time.clone());
    match kind {
        "vi" => {
            let (mut a, mut b) = bare_pair(&clock, Progress::Caller)?;
            counted_rounds(rounds, &time, || {
                a.send(len);
                b.wait();
                b.send(len);
                a.wait();
                Ok(())
            })?;
            std::mem::forget((a, b));
        }
        "message" => {
            let (mut a, mut b) = layer_pair(&clock, Progress::Caller)?;
            counted_rounds(rounds, &time, || {
                a.send(len)?;
                b.receive(len)?;
                b.send(len)?;
                Ok(a.receive(len)?)
            })?;
            // One thread cannot take leave of itself.
            std::mem::forget((a, b));
        }
        _ => return Err(format!("{kind:?}: give vi or message").into()),
    }
    Ok(())
}

/// What is counted: `callgrind --toggle-collect='*counted_rounds*'`.
#[inline(never)]
fn counted_rounds(rounds: usize, time: &AtomicU64, mut round: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    for _ in 0..rounds {
        time.fetch_add(1000, Ordering::Relaxed);
        round()?;
    }
    Ok(())
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--count", kind, len, rounds] => count(kind, len.parse()?, rounds.parse()?)?,
        [] | [_] | [_, "alone" | "short" | "long"] => {
            let rounds = words.first().map_or(Ok(20_000), |word| word.parse())?;
            let wanted = |kind| words.get(1).is_none_or(|word| *word == kind);
            if wanted("alone") {
                alone(rounds)?;
            }
            if wanted("short") {
                apart(rounds, 64)?;
            }
            if wanted("long") {
                apart((rounds / 50).max(100), LONG)?;
            }
        }
        _ => {
            let usage = "overhead [ROUNDS [alone|short|long]], or overhead --count vi|message BYTES ROUNDS";
            return Err(format!("usage: {usage}").into());
        }
    }
    // Without the farewell: one thread cannot take leave of itself.
    std::process::exit(0)
}

fn main() -> ExitCode {
    common::tell(run())
}
