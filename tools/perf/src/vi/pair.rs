//! Both ends in this process, from one thread.

use std::time::{Duration, Instant};

use uvia::{NetAddress, Nic, Peer};
use uvia_tools::Failure;

use super::lat::{Exchange, Messages, Writes};
use super::order::{Order, Ready};
use super::side::Side;
use super::{DISCRIMINATOR, Outcome, bw, lat};
use crate::cli::Op;
use crate::load::Test;

/// Runs one test between two NICs that are joined.
pub fn run(a: &Nic, b: &Nic, order: &Order, timeout: Duration) -> Result<Outcome, Failure> {
    let window = usize::from(order.window);
    let side = |nic: &Nic| Side::new(nic, order.class, window, timeout);
    let (side_a, side_b) = (side(a)?, side(b)?);
    let size = order.size as usize;
    match (order.test, order.op) {
        (Test::Latency, Op::Send) => {
            let (mut a, mut b) = (Messages::new(side_a, size)?, Messages::new(side_b, size)?);
            join(a.side(), b.side(), timeout)?;
            lat::pair(&mut a, &mut b, order).map(Outcome::Latency)
        }
        (Test::Latency, Op::Write) => {
            let (target_a, target_b) = (side_a.memory(size, true)?, side_b.memory(size, true)?);
            join(&side_a, &side_b, timeout)?;
            let (remote_a, remote_b) = (target_a.remote(0)?, target_b.remote(0)?);
            let mut a = Writes::new(side_a, size, target_a, remote_b)?;
            let mut b = Writes::new(side_b, size, target_b, remote_a)?;
            lat::pair(&mut a, &mut b, order).map(Outcome::Latency)
        }
        (Test::Bandwidth, _) => {
            let target = side_b.memory(size, true)?;
            let mut source = bw::Source::new(side_a, order)?;
            let mut sink = bw::Sink::new(side_b, order)?;
            join(source.side(), sink.side(), timeout)?;
            source.aim(order, target.remote(0)?)?;
            bw::send(&mut source, Some(&mut sink), order).map(Outcome::Bandwidth)
        }
    }
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
