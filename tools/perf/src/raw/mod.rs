//! Ethernet frames straight through a NIC's driver, with no virtual interface.

mod link;

pub use link::RawLink;

use std::time::Duration;

use uvia_driver::nic::{MacAddress, NicConfig};
use uvia_tools::{Failure, given_device};

use crate::cli::{PairOrHost, RawArgs};
use crate::datagram::{Link as _, Stop, run_client, run_pair, serve};
use crate::load::{Load, Test};
use crate::report::Subject;

/// Runs `uvia-perf raw`; `copies`: the receiver keeps what frames carry.
pub fn run(test: Test, args: &RawArgs, copies: bool) -> Result<(), Failure> {
    let load = Load::from(&args.load);
    let open = |device: &str, peer| open(device, args.packed_rings, peer);
    let subject = |link: &RawLink| subject(link, test, copies, load.json);
    match args.ends.choice()? {
        PairOrHost::Pair(a, b) => {
            let (mut a, mut b) = pair(a, b, args.packed_rings, copies, load.timeout)?;
            let subject = subject(&a);
            let outcome = run_pair(&mut a, &mut b, test, &load, subject);
            // On which side frames were lost is told by what the adapters counted.
            if args.counters || outcome.is_err() {
                a.tell_counters();
                b.tell_counters();
            }
            outcome
        }
        PairOrHost::Listen { keep } => {
            let mut link = open(given_device(args.nic.as_deref())?, None)?;
            link.wait_ready(load.timeout)?;
            eprintln!("uvia-perf: waiting for frames; `--to {}` reaches this end", link.mac());
            loop {
                match serve(&mut link, load.timeout, &Stop::new(false)) {
                    Err(Failure::Failed(what)) if keep => eprintln!("uvia-perf: {what}"),
                    outcome if !keep => {
                        if args.counters {
                            link.tell_counters();
                        }
                        return outcome;
                    }
                    _ => {}
                }
            }
        }
        PairOrHost::To(peer) => {
            let peer: MacAddress = peer.parse().map_err(|e: uvia_driver::Error| {
                Failure::usage(format!("{e}; without virtual interfaces there are no names"))
            })?;
            let mut link = open(given_device(args.nic.as_deref())?, Some(peer))?;
            link.wait_ready(load.timeout)?;
            let subject = subject(&link);
            let outcome = run_client(&mut link, test, &load, copies, subject);
            if args.counters {
                link.tell_counters();
            }
            outcome
        }
    }
}

/// What rows are of.
pub fn subject(link: &RawLink, test: Test, copies: bool, json: bool) -> Subject {
    Subject {
        test: match test {
            Test::Latency => "raw-lat",
            Test::Bandwidth => "raw-bw",
        },
        op: if copies { "copy" } else { "send" },
        class: "dma",
        nic: link.driver().to_owned(),
        manner: None,
        size: 0,
        lossy: true,
        json,
        headed: false,
    }
}

/// Two NICs that are joined, opened and ready; the second keeps what frames carry if it `copies`.
pub fn pair(
    a: &str,
    b: &str,
    packed_rings: bool,
    copies: bool,
    timeout: Duration,
) -> Result<(RawLink, RawLink), Failure> {
    let (mut a, mut b) = (open(a, packed_rings, None)?, open(b, packed_rings, None)?);
    a.wait_ready(timeout)?;
    b.wait_ready(timeout)?;
    let (mac_a, mac_b) = (a.mac(), b.mac());
    a.join(mac_b);
    b.join(mac_a);
    b.keep(copies)?;
    Ok((a, b))
}

fn open(device: &str, packed_rings: bool, peer: Option<MacAddress>) -> Result<RawLink, Failure> {
    // Polled only: there is nobody to interrupt.
    let config = NicConfig { interrupts: false, packed_rings, ..NicConfig::default() };
    let (nic, domain) = uvia_driver::nic::open_named(device, &config)?;
    RawLink::new(nic, domain, peer)
}
