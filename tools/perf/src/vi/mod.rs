//! Messages and RDMA writes over virtual interfaces.

mod bw;
mod connect;
mod lat;
mod order;
mod pair;
mod side;

use std::time::Duration;

use uvia::{MacAddress, Nic, NicOptions};
use uvia_driver::nic::NicConfig;
use uvia_tools::{Failure, NicArgs};

use crate::cli::{Op, PairOrHost, ViArgs};
use crate::load::{Load, Test};
use crate::report::{Bandwidth, Latency, Subject};
use order::Order;

/// Longest message of a test.
const LARGEST: usize = 16 << 20;
/// Where a listening end waits.
const DISCRIMINATOR: &[u8] = b"uvia-perf";

/// What a test came to.
enum Outcome {
    Latency(Latency),
    Bandwidth(Bandwidth),
}

/// Runs `uvia-perf lat` and `uvia-perf bw`.
pub fn run(test: Test, args: &ViArgs) -> Result<(), Failure> {
    let load = Load::from(&args.load);
    match args.ends.choice()? {
        PairOrHost::Pair(a, b) => {
            let a = open(a, "pair-a", &args.nic)?;
            let b = open(b, "pair-b", &args.nic)?;
            ready(&a, load.timeout)?;
            ready(&b, load.timeout)?;
            measure(test, args, &load, &a, |order| pair::run(&a, &b, &order, load.timeout))
        }
        PairOrHost::Listen { keep } => {
            let nic = open_own(&args.nic)?;
            ready(&nic, load.timeout)?;
            eprintln!("uvia-perf: waiting as {:?} ({})", nic.name(), nic.properties().mac);
            connect::listen(&nic, keep, load.timeout)
        }
        PairOrHost::To(peer) => {
            let nic = open_own(&args.nic)?;
            ready(&nic, load.timeout)?;
            let host = match peer.parse::<MacAddress>() {
                Ok(mac) => mac,
                Err(_) => nic.resolve(peer, load.timeout)?,
            };
            measure(test, args, &load, &nic, |order| connect::ask(&nic, host, &order, load.timeout))
        }
    }
}

/// Runs the test for each size, and prints a row for each.
fn measure(
    test: Test,
    args: &ViArgs,
    load: &Load,
    nic: &Nic,
    mut run: impl FnMut(Order) -> Result<Outcome, Failure>,
) -> Result<(), Failure> {
    // A write is noticed by its last byte.
    let least = if args.op == Op::Write { 1 } else { 0 };
    let most = LARGEST.min(nic.properties().max_transfer_size as usize);
    let sizes = load.sizes_up_to(least, most, "the interface's maximum transfer size")?;
    let mut subject = Subject {
        test: match test {
            Test::Latency => "lat",
            Test::Bandwidth => "bw",
        },
        op: args.op.name(),
        class: args.class.name(),
        nic: nic.properties().driver.to_owned(),
        size: 0,
        lossy: false,
        json: load.json,
        headed: false,
    };
    let count = sizes.len();
    for (n, size) in sizes.into_iter().enumerate() {
        let iterations = match test {
            Test::Latency => load.latency_iterations(size),
            Test::Bandwidth => load.bandwidth_iterations(size),
        };
        let order = Order {
            test,
            op: args.op,
            class: args.class,
            more: n + 1 < count,
            window: load.window as u16,
            size: size as u64,
            warmup: load.warmup(iterations),
            iterations,
            target: order::NOWHERE,
        };
        subject.size = size;
        match run(order)? {
            Outcome::Latency(result) => subject.print_latency(&result)?,
            Outcome::Bandwidth(result) => subject.print_bandwidth(&result)?,
        }
    }
    Ok(())
}

fn open_own(args: &NicArgs) -> Result<Nic, Failure> {
    let device = args.device()?;
    open_as(device, args.name.clone(), args)
}

/// The two ends of a pair need names of their own, if only so that neither takes a query for the other's.
fn open(device: &str, suffix: &str, args: &NicArgs) -> Result<Nic, Failure> {
    open_as(device, Some(suffix.to_owned()), args)
}

fn open_as(device: &str, name: Option<String>, args: &NicArgs) -> Result<Nic, Failure> {
    let options = NicOptions {
        name,
        hosts: args.hosts.clone(),
        adapter: NicConfig { tx_ring: 256, rx_ring: 512, ..NicConfig::default() },
        ..NicOptions::default()
    };
    Ok(Nic::open(device, options)?)
}

fn ready(nic: &Nic, timeout: Duration) -> Result<(), Failure> {
    Ok(nic.wait_ready(timeout)?)
}
