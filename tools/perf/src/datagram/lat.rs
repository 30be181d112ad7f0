//! Ping-pong with one packet under way.

use std::time::{Duration, Instant};

use super::link::{Link, expect};
use super::wire::{Head, Kind};
use crate::load::Load;
use crate::report::Latency;
use uvia_tools::Failure;

/// A ping that has not come back by then is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many lost in a row: the other end is gone.
const GIVE_UP: u32 = 5;

/// Both ends in this thread.
pub fn pair<L: Link>(
    a: &mut L,
    b: &mut L,
    session: u16,
    size: usize,
    load: &Load,
) -> Result<Latency, Failure> {
    measure(load, size, |sequence| {
        let ping = Head { kind: Kind::Ping, session, sequence };
        a.send(ping, size)?;
        a.flush()?;
        if expect(b, ping, PATIENCE)?.is_none() {
            return Ok(false);
        }
        let pong = Head { kind: Kind::Pong, ..ping };
        b.send(pong, size)?;
        b.flush()?;
        Ok(expect(a, pong, PATIENCE)?.is_some())
    })
}

/// Against [`super::serve`].
pub fn client<L: Link>(link: &mut L, session: u16, size: usize, load: &Load) -> Result<Latency, Failure> {
    measure(load, size, |sequence| {
        let ping = Head { kind: Kind::Ping, session, sequence };
        link.send(ping, size)?;
        link.flush()?;
        Ok(expect(link, Head { kind: Kind::Pong, ..ping }, PATIENCE)?.is_some())
    })
}

/// Times round trips; `round` answers whether the packet came back.
fn measure(
    load: &Load,
    size: usize,
    mut round: impl FnMut(u32) -> Result<bool, Failure>,
) -> Result<Latency, Failure> {
    let iterations = load.latency_iterations(size);
    let warmup = load.warmup(iterations);
    let mut result = Latency::new()?;
    let mut lost_in_a_row = 0;
    let mut sequence = 0u32;
    let mut done = 0;
    while done < warmup + iterations {
        sequence = sequence.wrapping_add(1);
        let start = Instant::now();
        let answered = round(sequence)?;
        let elapsed = start.elapsed();
        if answered {
            lost_in_a_row = 0;
            if done >= warmup {
                result.record_round_trip(elapsed);
            }
            done += 1;
            continue;
        }
        // Asked again under a new number, so that a late answer is not taken for the new one's.
        result.lost += 1;
        lost_in_a_row += 1;
        if lost_in_a_row == GIVE_UP {
            return Err(Failure::failed(format!(
                "the other end does not answer any more: {GIVE_UP} packets of {size} bytes in a row were lost after {done} round trips"
            )));
        }
    }
    Ok(result)
}
