//! Packets in bursts, counted where they arrive.

use std::time::{Duration, Instant};

use super::link::{Link, Packet, ask};
use super::wire::{Body, Head, Kind};
use crate::load::Load;
use crate::report::Bandwidth;
use uvia_tools::Failure;

/// So long without a packet: the rest of a burst is lost.
const PATIENCE: Duration = Duration::from_millis(50);

/// Both ends in this thread: send a burst, drain it.
pub fn pair<L: Link>(
    a: &mut L,
    b: &mut L,
    session: u16,
    size: usize,
    load: &Load,
) -> Result<Bandwidth, Failure> {
    let iterations = load.bandwidth_iterations(size);
    let window = load.window as u64;
    let mut sequence = 0u32;
    let mut rounds = |messages: u64| -> Result<(u64, Duration), Failure> {
        let (mut sent, mut received) = (0, 0);
        // The time from each burst's begin to its last arrival: waiting for what was lost is not counted.
        let mut elapsed = Duration::ZERO;
        while sent < messages {
            let burst = window.min(messages - sent);
            let start = Instant::now();
            let mut last = start;
            for _ in 0..burst {
                a.send(Head { kind: Kind::Data, session, sequence }, size)?;
                sequence = sequence.wrapping_add(1);
            }
            a.flush()?;
            sent += burst;
            while received < sent {
                let mut came = 0;
                b.receive(PATIENCE, &mut |packet: Packet| {
                    came += u64::from(packet.head.kind == Kind::Data && packet.head.session == session);
                })?;
                if came == 0 {
                    break;
                }
                received += came;
                last = Instant::now();
            }
            elapsed += last - start;
            if received == 0 {
                return Err(Failure::failed(format!(
                    "nothing arrives: a burst of {burst} packets of {size} bytes was lost; are the two NICs joined?"
                )));
            }
        }
        Ok((received, elapsed))
    };
    rounds(load.warmup(iterations))?;
    let (received, elapsed) = rounds(iterations)?;
    Ok(Bandwidth { messages: received, elapsed, sent: iterations, iterations, frame: 0 })
}

/// Against [`super::serve`], which counts and takes the time.
pub fn client<L: Link>(link: &mut L, session: u16, size: usize, load: &Load) -> Result<Bandwidth, Failure> {
    let iterations = load.bandwidth_iterations(size);
    let window = load.window as u64;
    let mut sent = 0;
    while sent < iterations {
        let burst = window.min(iterations - sent);
        for n in 0..burst {
            link.send(Head { kind: Kind::Data, session, sequence: (sent + n) as u32 }, size)?;
        }
        link.flush()?;
        sent += burst;
    }
    let finish = Head { kind: Kind::Finish, session, sequence: 0 };
    let tally = ask(link, finish, Body::default(), Kind::Tally, load.timeout)?;
    let [received, nanos, _] = tally.body.0;
    if received == 0 || received > iterations || nanos == 0 {
        return Err(Failure::failed(format!(
            "of {iterations} packets of {size} bytes the other end counted {received} in {nanos} ns: no bandwidth can be told"
        )));
    }
    Ok(Bandwidth {
        messages: received,
        elapsed: Duration::from_nanos(nanos),
        sent: iterations,
        iterations,
        frame: 0,
    })
}
