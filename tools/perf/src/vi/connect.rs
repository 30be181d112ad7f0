//! The two ends in two processes, which may be on two hosts.

use std::time::Duration;

use uvia::{MacAddress, MemoryRegion, NetAddress, Nic, RemoteMemory, Request};
use uvia_tools::Failure;

use super::lat::{Exchange, Messages, Writes};
use super::order::{Order, Ready};
use super::side::Side;
use super::{DISCRIMINATOR, Outcome, bw, lat};
use crate::cli::Op;
use crate::load::Test;

/// Runs one test against a listening end.
pub fn ask(nic: &Nic, host: MacAddress, order: &Order, timeout: Duration) -> Result<Outcome, Failure> {
    let side = Side::new(nic, order.class, usize::from(order.window), timeout)?;
    let size = order.size as usize;
    let target = side.memory(size, true)?;
    let order = Order { target: target.remote(0)?, ..*order };
    let there = NetAddress::new(host, DISCRIMINATOR)?;
    let connect = |side: &Side| -> Result<RemoteMemory, Failure> {
        let peer = side.vi.connect(&there, timeout, &order.to_bytes())?;
        match Ready::parse(&peer.private_data) {
            Some(Ready(memory)) => Ok(memory),
            None => Err(Failure::failed("the other end is no uvia-perf of this version")),
        }
    };
    match (order.test, order.op) {
        (Test::Latency, Op::Send) => {
            let mut exchange = Messages::new(side, size)?;
            connect(exchange.side())?;
            lat::ask(&mut exchange, &order).map(Outcome::Latency)
        }
        (Test::Latency, Op::Write) => {
            let remote = connect(&side)?;
            let mut exchange = Writes::new(side, size, target, remote)?;
            lat::ask(&mut exchange, &order).map(Outcome::Latency)
        }
        (Test::Bandwidth, _) => {
            let mut source = bw::Source::new(side, &order)?;
            let remote = connect(source.side())?;
            source.aim(&order, remote)?;
            bw::send(&mut source, None, &order).map(Outcome::Bandwidth)
        }
    }
}

/// Serves one client after the other, or one.
pub fn listen(nic: &Nic, keep: bool, timeout: Duration) -> Result<(), Failure> {
    /// How often the wait for a client is renewed; it has no end by itself.
    const SLICE: Duration = Duration::from_secs(3600);
    let listener = nic.listen(DISCRIMINATOR, 4)?;
    let mut begun = false;
    loop {
        // A client that has begun has its next test ready.
        let patience = if begun { timeout } else { SLICE };
        let Some(request) = listener.wait(patience)? else {
            if begun {
                let failure = Failure::failed("the client left before it had done");
                begun = false;
                proceed(Err(failure), keep)?;
            }
            continue;
        };
        let Some(order) = Order::parse(&request.peer().private_data) else {
            eprintln!("uvia-perf: {:?} asked for what is no test of this version", request.peer().address);
            request.reject(b"uvia-perf: unknown test or version")?;
            continue;
        };
        let outcome = serve(nic, request, &order, timeout);
        begun = outcome.is_ok() && order.more;
        proceed(outcome, keep)?;
        if !begun && !keep {
            return Ok(());
        }
    }
}

/// Whether to go on after a client: with `keep` its failure is told, and forgotten.
fn proceed(outcome: Result<(), Failure>, keep: bool) -> Result<(), Failure> {
    match outcome {
        Err(Failure::Failed(what)) if keep => {
            eprintln!("uvia-perf: {what}");
            Ok(())
        }
        outcome => outcome,
    }
}

fn serve(nic: &Nic, request: Request, order: &Order, timeout: Duration) -> Result<(), Failure> {
    let side = Side::new(nic, order.class, usize::from(order.window), timeout)?;
    let size = order.size as usize;
    let target = side.memory(size, true)?;
    let accept = |side: &Side, target: &MemoryRegion| -> Result<(), Failure> {
        let ready = Ready(target.remote(0)?).to_bytes();
        request.accept(&side.vi, &ready).map(drop).map_err(|(_, refused)| refused.into())
    };
    match (order.test, order.op) {
        (Test::Latency, Op::Send) => {
            let mut exchange = Messages::new(side, size)?;
            accept(exchange.side(), &target)?;
            lat::answer(&mut exchange, order)
        }
        (Test::Latency, Op::Write) => {
            accept(&side, &target)?;
            let mut exchange = Writes::new(side, size, target, order.target)?;
            lat::answer(&mut exchange, order)
        }
        (Test::Bandwidth, _) => {
            let mut sink = bw::Sink::new(side, order)?;
            accept(sink.side(), &target)?;
            sink.run()
        }
    }
}
