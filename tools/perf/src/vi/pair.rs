//! Both ends in this process, from one thread, which polls.

use std::time::{Duration, Instant};

use uvia::{NetAddress, Nic, Peer};
use uvia_tools::Failure;

use super::lat::{Exchange, Messages, Reads, Writes};
use super::order::{Order, Ready};
use super::side::Side;
use super::{DISCRIMINATOR, Outcome, bw, connect, lat};
use crate::cli::Op;
use crate::load::Test;

/// A connection for messages, both ends.
pub fn messages(a: &Nic, b: &Nic, order: &Order, timeout: Duration) -> Result<(Messages, Messages), Failure> {
    let end =
        |nic: &Nic| Messages::new(Side::new(nic, &order.manner, order.window, timeout)?, order.size as usize);
    let (at_a, at_b) = (end(a)?, end(b)?);
    join(at_a.side(), at_b.side(), timeout)?;
    Ok((at_a, at_b))
}

/// Runs one test between two NICs that are joined.
pub fn run(a: &Nic, b: &Nic, order: &Order, timeout: Duration) -> Result<Outcome, Failure> {
    let side = |nic: &Nic| Side::new(nic, &order.manner, order.window, timeout);
    let size = order.size as usize;
    match (order.test, order.op) {
        (Test::Latency, Op::Send) => {
            let (mut at_a, mut at_b) = both(order, || {
                let (a, b) = (Messages::new(side(a)?, size)?, Messages::new(side(b)?, size)?);
                join(a.side(), b.side(), timeout)?;
                Ok((a, b))
            })?;
            lat::pair(&mut at_a, &mut at_b, order).map(Outcome::Latency)
        }
        (Test::Latency, Op::Write) => {
            let (mut at_a, mut at_b) = both(order, || {
                let (a, b) = (side(a)?, side(b)?);
                let (target_a, target_b) = (a.memory(size, true)?, b.memory(size, true)?);
                join(&a, &b, timeout)?;
                let (remote_a, remote_b) = (target_a.remote(0)?, target_b.remote(0)?);
                Ok((Writes::new(a, size, target_a, remote_b)?, Writes::new(b, size, target_b, remote_a)?))
            })?;
            lat::pair(&mut at_a, &mut at_b, order).map(Outcome::Latency)
        }
        (Test::Latency, Op::Read) => {
            let (mut reads, _read) = both(order, || {
                let (a, b) = (side(a)?, side(b)?);
                let target = b.memory(size, true)?;
                join(&a, &b, timeout)?;
                Ok((Reads::new(a, size, target.remote(0)?)?, (b, target)))
            })?;
            lat::read(&mut reads, Some(b), order).map(Outcome::Latency)
        }
        (Test::Bandwidth, _) => {
            let mut n = 0;
            let mut targets = Vec::new();
            let (mut sources, mut sinks) = both(order, || {
                let (side_a, side_b) = (side(a)?, side(b)?);
                let target = side_b.memory(size, true)?;
                let mut source = bw::Source::new(side_a, order)?;
                let sink = bw::Sink::new(side_b, order, n)?;
                join(source.side(), sink.side(), timeout)?;
                source.aim(order, target.remote(0)?)?;
                targets.push(target);
                n += 1;
                Ok((source, sink))
            })?;
            bw::send(&mut sources, &mut sinks, order).map(Outcome::Bandwidth)
        }
    }
}

/// Makes both ends of each connection.
fn both<A, B>(
    order: &Order,
    mut make: impl FnMut() -> Result<(A, B), Failure>,
) -> Result<(Vec<A>, Vec<B>), Failure> {
    Ok(connect::each(order, |_| make())?.into_iter().unzip())
}

/// Connects two interfaces, each as far as it can be without waiting.
fn join(a: &Side, b: &Side, timeout: Duration) -> Result<Peer, Failure> {
    let listener = b.nic.listen(DISCRIMINATOR, 1)?;
    let there = NetAddress::new(b.nic.properties().mac, DISCRIMINATOR)?;
    a.vi.connect_start(&there, timeout, &[])?;
    let start = Instant::now();
    loop {
        if let Some(request) = listener.poll()? {
            let ready = Ready(super::order::NOWHERE).to_bytes();
            request.accept(&b.vi, &ready).map_err(|(_, refused)| refused)?;
        }
        if let Some(peer) = a.vi.connect_done()? {
            return Ok(peer);
        }
        // The request ends by itself; this is for an answer that never comes through.
        if start.elapsed() > timeout + Duration::from_secs(1) {
            return Err(Failure::failed("the two NICs could not be connected; are they joined?"));
        }
    }
}
