//! The two ends in two processes, which may be on two hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvia::{Listener, MacAddress, MemoryRegion, NetAddress, Nic, RemoteMemory, Request};
use uvia_tools::Failure;

use super::lat::{Exchange, Messages, Reads, Writes};
use super::order::{NOWHERE, Order, Ready};
use super::side::Side;
use super::{DISCRIMINATOR, Outcome, bw, lat};
use crate::cli::Op;
use crate::load::Test;

/// Runs one test against a listening end.
pub fn ask(nic: &Nic, host: MacAddress, order: &Order, timeout: Duration) -> Result<Outcome, Failure> {
    let there = NetAddress::new(host, DISCRIMINATOR)?;
    let size = order.size as usize;
    let side = || Side::new(nic, &order.manner, order.window, timeout);
    let connect = |side: &Side, order: &Order| -> Result<RemoteMemory, Failure> {
        let peer = side.vi.connect(&there, timeout, &order.to_bytes())?;
        match Ready::parse(&peer.private_data) {
            Some(Ready(memory)) => Ok(memory),
            None => Err(Failure::failed("the other end is no uvia-perf of this version")),
        }
    };
    match (order.test, order.op) {
        (Test::Latency, Op::Send) => {
            let mut exchanges = each(order, |_| {
                let exchange = Messages::new(side()?, size)?;
                connect(exchange.side(), order)?;
                Ok(exchange)
            })?;
            lat::ask(&mut exchanges, order).map(Outcome::Latency)
        }
        (Test::Latency, Op::Write) => {
            let mut exchanges = each(order, |_| {
                let side = side()?;
                let target = side.memory(size, true)?;
                let remote = connect(&side, &Order { target: target.remote(0)?, ..*order })?;
                Writes::new(side, size, target, remote)
            })?;
            lat::ask(&mut exchanges, order).map(Outcome::Latency)
        }
        (Test::Latency, Op::Read) => {
            let mut reads = each(order, |_| {
                let side = side()?;
                let remote = connect(&side, order)?;
                Reads::new(side, size, remote)
            })?;
            lat::read(&mut reads, None, order).map(Outcome::Latency)
        }
        (Test::Bandwidth, _) => {
            let mut sources = each(order, |_| {
                let mut source = bw::Source::new(side()?, order)?;
                let remote = connect(source.side(), order)?;
                source.aim(order, remote)?;
                Ok(source)
            })?;
            bw::send(&mut sources, &mut [], order).map(Outcome::Bandwidth)
        }
    }
}

/// Makes what each connection of a test needs.
pub fn each<T>(order: &Order, make: impl FnMut(usize) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    (0..usize::from(order.manner.vis)).map(make).collect()
}

/// How long a client is waited for at a time: whether to go on is looked at in between.
const SLICE: Duration = Duration::from_millis(200);

/// The end that answers.
pub struct Server<'a> {
    nic: &'a Nic,
    listener: Listener,
    timeout: Duration,
    stop: AtomicBool,
    /// The client that is served was gone before it was accepted.
    gone: Arc<AtomicBool>,
}

impl<'a> Server<'a> {
    /// Listens from now on.
    ///
    /// # Errors
    /// Somebody of this NIC listens already.
    pub fn new(nic: &'a Nic, timeout: Duration) -> Result<Self, Failure> {
        let listener = nic.listen(DISCRIMINATOR, 4)?;
        Ok(Self { nic, listener, timeout, stop: AtomicBool::new(false), gone: Arc::default() })
    }

    /// No client is waited for any more.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Serves one client after the other, or one. One that was gone when it was accepted, and has never spoken, is none.
    ///
    /// # Errors
    /// The client failed, and there is to be no other.
    pub fn run(&self, keep: bool) -> Result<(), Failure> {
        let mut begun = None;
        loop {
            let Some(request) = self.listener.wait(SLICE)? else {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                // A client that has begun has its next test ready.
                if begun.is_some_and(|begun: Instant| begun.elapsed() > self.timeout) {
                    begun = None;
                    proceed(Err(Failure::failed("the client left before it had done")), keep)?;
                }
                continue;
            };
            let Some(order) = Order::parse(&request.peer().private_data) else {
                eprintln!(
                    "uvia-perf: {:?} asked for what is no test of this version",
                    request.peer().address
                );
                request.reject(b"uvia-perf: unknown test or version")?;
                continue;
            };
            self.gone.store(false, Ordering::Relaxed);
            let outcome = self.serve(request, &order);
            if let Err(Failure::Failed(what)) = &outcome
                && self.gone.load(Ordering::Relaxed)
            {
                eprintln!("uvia-perf: {what}; waiting for the next");
                continue;
            }
            begun = (outcome.is_ok() && order.more).then(Instant::now);
            proceed(outcome, keep)?;
            if begun.is_none() && !keep {
                return Ok(());
            }
        }
    }

    fn serve(&self, request: Request, order: &Order) -> Result<(), Failure> {
        let size = order.size as usize;
        let side = || {
            let mut side = Side::new(self.nic, &order.manner, order.window, self.timeout)?;
            side.gone = self.gone.clone();
            Ok::<_, Failure>(side)
        };
        let mut arrivals =
            Arrivals { server: self, host: request.peer().address.host, first: Some(request), order };
        match (order.test, order.op) {
            (Test::Latency, Op::Send) => {
                let mut exchanges = each(order, |_| {
                    let (request, _) = arrivals.next()?;
                    let exchange = Messages::new(side()?, size)?;
                    accept(request, exchange.side(), None)?;
                    Ok(exchange)
                })?;
                lat::answer(&mut exchanges, order)
            }
            (Test::Latency, Op::Write) => {
                let mut exchanges = each(order, |_| {
                    let (request, order) = arrivals.next()?;
                    let side = side()?;
                    let target = side.memory(size, true)?;
                    accept(request, &side, Some(&target))?;
                    Writes::new(side, size, target, order.target)
                })?;
                lat::answer(&mut exchanges, order)
            }
            (Test::Latency, Op::Read) => {
                // Nobody else keeps what is read.
                let mut targets = Vec::new();
                let mut sides = each(order, |_| {
                    let (request, _) = arrivals.next()?;
                    let side = side()?;
                    let target = side.memory(size, true)?;
                    accept(request, &side, Some(&target))?;
                    targets.push(target);
                    Ok(side)
                })?;
                lat::be_read(&mut sides)
            }
            (Test::Bandwidth, _) => {
                let mut targets = Vec::new();
                let mut sinks = each(order, |n| {
                    let (request, _) = arrivals.next()?;
                    let side = side()?;
                    let target = side.memory(size, true)?;
                    let sink = bw::Sink::new(side, order, n)?;
                    accept(request, sink.side(), Some(&target))?;
                    targets.push(target);
                    Ok(sink)
                })?;
                bw::receive(&mut sinks)
            }
        }
    }
}

fn accept(request: Request, side: &Side, target: Option<&MemoryRegion>) -> Result<(), Failure> {
    let memory = target.map_or(Ok(NOWHERE), |target| target.remote(0))?;
    request.accept(&side.vi, &Ready(memory).to_bytes()).map(drop).map_err(|(_, refused)| refused.into())
}

/// The connections of one test: the first has come, and the others follow.
struct Arrivals<'a> {
    server: &'a Server<'a>,
    host: MacAddress,
    first: Option<Request>,
    order: &'a Order,
}

impl Arrivals<'_> {
    /// The next connection, with what it says.
    fn next(&mut self) -> Result<(Request, Order), Failure> {
        if let Some(first) = self.first.take() {
            return Ok((first, *self.order));
        }
        loop {
            let Some(request) = self.server.listener.wait(self.server.timeout)? else {
                return Err(Failure::failed("the client left before all of its connections were there"));
            };
            let peer = request.peer();
            let ours = |order: &Order| Order { target: self.order.target, ..*order } == *self.order;
            match Order::parse(&peer.private_data).filter(ours) {
                Some(order) if peer.address.host == self.host => return Ok((request, order)),
                _ => request.reject(b"uvia-perf: busy with another client")?,
            }
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
