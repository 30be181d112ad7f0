//! Messages and RDMA writes over virtual interfaces.

mod beside;
mod bw;
mod connect;
mod executor;
mod lat;
mod order;
mod pair;
mod side;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use uvia::{AdapterMemory, Encapsulation, MacAddress, Nic, NicOptions};
use uvia_driver::nic::{NicConfig, RingPlace};
use uvia_tools::Failure;

use crate::cli::{Class, Level, Op, PairOrHost, ViArgs, Wait};
use crate::load::{Load, Test};
use crate::report::{self, Bandwidth, Latency, Subject};
use order::{Manner, Order};

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
        PairOrHost::Pair(a, b) if args.beside.is_some() => beside::run(test, args, &load, [a, b]),
        _ if args.beside.is_some() => Err(Failure::usage("--beside goes with --pair only")),
        PairOrHost::Pair(a, b) => {
            let (a, b) = open_pair(args, load.timeout, [a, b])?;
            if args.interleave {
                return interleaved(test, args, &load, &a, &b);
            }
            let counted = Counters::of(args, &[&a, &b]);
            let outcome = match args.wait {
                Wait::Poll => measure(test, args, &load, &a, |order| pair::run(&a, &b, &order, load.timeout)),
                Wait::Interrupt | Wait::Async => threads(test, args, &load, &a, &b),
            };
            counted.tell();
            outcome
        }
        PairOrHost::Listen { keep } => {
            // Which class it is, clients say.
            let nic = open_own(args, given(args).map(AdapterMemory::open).transpose()?)?;
            ready(&nic, load.timeout)?;
            let counted = Counters::of(args, &[&nic]);
            eprintln!("uvia-perf: waiting as {:?} ({})", nic.name(), nic.properties().mac);
            let outcome = connect::Server::new(&nic, load.timeout)?.run(keep);
            counted.tell();
            outcome
        }
        PairOrHost::To(peer) => {
            let nic = open_own(args, adapter_memory(args)?)?;
            ready(&nic, load.timeout)?;
            let host = match peer.parse::<MacAddress>() {
                Ok(mac) => mac,
                Err(_) => nic.resolve(peer, load.timeout)?,
            };
            let counted = Counters::of(args, &[&nic]);
            let outcome =
                measure(test, args, &load, &nic, |order| connect::ask(&nic, host, &order, load.timeout));
            counted.tell();
            outcome
        }
    }
}

/// Two NICs that are joined, opened and ready.
fn open_pair(args: &ViArgs, timeout: Duration, [a, b]: [&str; 2]) -> Result<(Nic, Nic), Failure> {
    let memory = adapter_memory(args)?;
    let a = open(a, "pair-a", 0, args, memory.clone())?;
    let b = open(b, "pair-b", 1, args, memory)?;
    ready(&a, timeout)?;
    ready(&b, timeout)?;
    Ok((a, b))
}

/// NICs whose counters are told when the test is over; none where nobody asked.
struct Counters(Vec<Nic>);

impl Counters {
    fn of(args: &ViArgs, nics: &[&Nic]) -> Self {
        Self(nics.iter().filter(|_| args.counters).map(|nic| Nic::clone(nic)).collect())
    }

    fn tell(self) {
        for nic in self.0 {
            let properties = nic.properties();
            report::tell_counters(&properties.device, properties.mac, &nic.statistics().adapter);
        }
    }
}

/// Both classes in turn: what disturbs one disturbs the other.
fn interleaved(test: Test, args: &ViArgs, load: &Load, a: &Nic, b: &Nic) -> Result<(), Failure> {
    if test != Test::Latency || args.op != Op::Send || args.class != Class::Pio || args.wait != Wait::Poll {
        return Err(Failure::usage("--interleave goes with lat --class pio --op send --wait poll"));
    }
    let mut results = [Class::Dma, Class::Pio].map(|class| (class, Vec::new()));
    let manner = Manner { class: Class::Pio, level: args.level, cq: args.cq, wait: args.wait, vis: 1 };
    measure_each(test, args, load, a, |order| {
        let ends = results.each_ref().map(|(class, _)| {
            pair::messages(a, b, &Order { manner: Manner { class: *class, ..manner }, ..order }, load.timeout)
        });
        let [dma, pio] = ends;
        let [dma, pio] = lat::in_turn([dma?, pio?], &order)?;
        results[0].1.push((order.size, dma));
        results[1].1.push((order.size, pio));
        Ok(())
    })?;
    for (class, of_sizes) in &results {
        let mut subject = subject(test, args, load, a);
        subject.class = class.name();
        for (size, latency) in of_sizes {
            subject.size = *size as usize;
            subject.print_latency(latency)?;
        }
    }
    Ok(())
}

/// Both ends in this process, in a thread each: one that sleeps cannot do the other's part.
fn threads(test: Test, args: &ViArgs, load: &Load, a: &Nic, b: &Nic) -> Result<(), Failure> {
    let server = connect::Server::new(b, load.timeout)?;
    let host = b.properties().mac;
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| server.run(false));
        let asked = measure(test, args, load, a, |order| connect::ask(a, host, &order, load.timeout));
        if asked.is_err() {
            server.stop();
        }
        let answered =
            answers.join().unwrap_or_else(|_| Err(Failure::failed("the thread that answers failed")));
        asked.and(answered)
    })
}

/// Runs the test for each size, and prints a row for each.
fn measure(
    test: Test,
    args: &ViArgs,
    load: &Load,
    nic: &Nic,
    mut run: impl FnMut(Order) -> Result<Outcome, Failure>,
) -> Result<(), Failure> {
    let mut subject = subject(test, args, load, nic);
    measure_each(test, args, load, nic, |order| {
        subject.size = order.size as usize;
        match run(order)? {
            Outcome::Latency(result) => subject.print_latency(&result),
            Outcome::Bandwidth(result) => subject.print_bandwidth(&result),
        }
    })
}

/// What rows are of.
fn subject(test: Test, args: &ViArgs, load: &Load, nic: &Nic) -> Subject {
    Subject {
        test: match test {
            Test::Latency => "lat",
            Test::Bandwidth => "bw",
        },
        op: args.op.name(),
        class: args.class.name(),
        nic: nic.properties().driver.to_owned(),
        size: 0,
        manner: Some(report::Manner {
            level: args.level.name(),
            cq: args.cq.name(),
            wait: args.wait.name(),
            vis: args.vis,
        }),
        // Of what is written nobody counts how much arrives.
        lossy: test == Test::Bandwidth && args.level == Level::Unreliable && args.op == Op::Send,
        json: load.json,
        headed: false,
    }
}

/// Runs the test for each size.
fn measure_each(
    test: Test,
    args: &ViArgs,
    load: &Load,
    nic: &Nic,
    mut run: impl FnMut(Order) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let manner = Manner { class: args.class, level: args.level, cq: args.cq, wait: args.wait, vis: args.vis };
    // A write is noticed by its last byte.
    let least = if args.op == Op::Write { 1 } else { 0 };
    let most = LARGEST.min(nic.properties().max_transfer_size as usize);
    // Of a window of slots, half is for what is not measured.
    let (most, what, window) = match args.class {
        Class::Dma => (most, "the interface's maximum transfer size", load.window),
        Class::Pio => {
            let pio = nic.pio()?;
            (pio.mtu as usize, "the longest message of class pio", load.window.min(pio.slots / 2))
        }
    };
    let sizes = load.sizes_up_to(least, most, most, what)?;
    let count = sizes.len();
    for (n, size) in sizes.into_iter().enumerate() {
        let iterations = match test {
            Test::Latency => load.latency_iterations(size),
            Test::Bandwidth => load.bandwidth_iterations(size),
        };
        let order = Order {
            test,
            op: args.op,
            manner,
            more: n + 1 < count,
            window: window as u16,
            size: size as u64,
            warmup: load.warmup(iterations),
            iterations,
            target: order::NOWHERE,
        };
        if let Some(why) = order.refusal() {
            return Err(Failure::usage(why));
        }
        run(order)?;
    }
    Ok(())
}

/// The adapter memory that was named; an empty UVIA_ADAPTER_MEMORY counts as none.
fn given(args: &ViArgs) -> Option<&str> {
    args.adapter_memory.as_deref().filter(|name| !name.is_empty())
}

/// Opens the adapter memory, where the class needs it.
fn adapter_memory(args: &ViArgs) -> Result<Option<Arc<AdapterMemory>>, Failure> {
    match (args.class, given(args)) {
        (Class::Dma, _) if !args.ring_in_adapter_memory => Ok(None),
        (_, Some(name)) => Ok(Some(AdapterMemory::open(name)?)),
        (_, None) => Err(Failure::usage(
            "--class pio and --ring-in-adapter-memory need an adapter's memory: give --adapter-memory ADDR or set UVIA_ADAPTER_MEMORY",
        )),
    }
}

fn open_own(args: &ViArgs, memory: Option<Arc<AdapterMemory>>) -> Result<Nic, Failure> {
    open_as(args.nic.device()?, with_memory(args, args.nic.options()?, memory))
}

/// Options with adapter memory, in which the transmit ring may lie too.
fn with_memory(args: &ViArgs, mut options: NicOptions, memory: Option<Arc<AdapterMemory>>) -> NicOptions {
    if let Some(memory) = memory.clone().filter(|_| args.ring_in_adapter_memory) {
        options.adapter.tx_ring_place = RingPlace::Adapter(memory);
    }
    NicOptions { adapter_memory: memory, ..options }
}

/// The two ends of a pair need names of their own, if only so that neither takes a query for the other's, and over UDP
/// addresses: the one given, and the next.
fn open(
    device: &str,
    name: &str,
    number: u32,
    args: &ViArgs,
    memory: Option<Arc<AdapterMemory>>,
) -> Result<Nic, Failure> {
    let options = NicOptions { name: Some(name.to_owned()), ..args.nic.options()? };
    let mut options = with_memory(args, options, memory);
    if let Encapsulation::Udp(udp) = &mut options.encapsulation {
        udp.address = Ipv4Addr::from_bits(udp.address.to_bits().wrapping_add(number));
    }
    open_as(device, options)
}

fn open_as(device: &str, options: NicOptions) -> Result<Nic, Failure> {
    let adapter = NicConfig { tx_ring: 256, rx_ring: 512, ..options.adapter.clone() };
    Ok(Nic::open(device, NicOptions { adapter, ..options })?)
}

fn ready(nic: &Nic, timeout: Duration) -> Result<(), Failure> {
    Ok(nic.wait_ready(timeout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cq;
    use uvia_tests::{Faults, memory_pair_with};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn nics(loss: u32) -> (Nic, Nic) {
        let (a, b, domain) =
            memory_pair_with(Faults { loss, duplicates: loss, seed: 7, ..Faults::default() });
        let options = |name: &str| NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
        let a = Nic::with_adapter(a, domain.clone(), options("a")).unwrap();
        let b = Nic::with_adapter(b, domain, options("b")).unwrap();
        (a, b)
    }

    const USUAL: Manner =
        Manner { class: Class::Dma, level: Level::Delivery, cq: Cq::On, wait: Wait::Poll, vis: 1 };

    /// Every test, for a message within a frame and one over many.
    fn orders(manner: Manner, iterations: u64) -> Vec<Order> {
        let mut orders = Vec::new();
        for test in [Test::Latency, Test::Bandwidth] {
            for op in [Op::Send, Op::Write, Op::Read] {
                for size in [1, 64, 20_000] {
                    orders.push(Order {
                        test,
                        op,
                        manner,
                        more: true,
                        window: 8,
                        size,
                        warmup: 10,
                        iterations,
                        target: order::NOWHERE,
                    });
                }
            }
        }
        orders.retain(|order| order.refusal().is_none());
        orders
    }

    /// Each way to use connections that is not the usual one.
    fn manners() -> [Manner; 5] {
        [
            USUAL,
            Manner { vis: 5, ..USUAL },
            Manner { cq: Cq::Off, vis: 2, ..USUAL },
            Manner { level: Level::Reception, ..USUAL },
            Manner { level: Level::Unreliable, ..USUAL },
        ]
    }

    #[test]
    fn a_pair_runs_every_test_in_every_manner() {
        let (a, b) = nics(0);
        for order in manners().into_iter().flat_map(|manner| orders(manner, 203)) {
            match pair::run(&a, &b, &order, PATIENCE) {
                Ok(Outcome::Bandwidth(result)) => assert_eq!(result.messages, 203, "{order:?}"),
                Ok(Outcome::Latency(_)) => {}
                Err(e) => panic!("{order:?}: {e:?}"),
            }
        }
    }

    #[test]
    fn a_pair_runs_every_test_also_over_a_wire_that_loses_frames() {
        let (a, b) = nics(10);
        for order in orders(USUAL, 200) {
            if let Err(e) = pair::run(&a, &b, &order, PATIENCE) {
                panic!("{order:?}: {e:?}");
            }
        }
    }

    #[test]
    fn what_is_lost_at_the_unreliable_level_is_counted_and_the_test_ends() {
        let (a, b) = nics(50);
        let manner = Manner { level: Level::Unreliable, ..USUAL };
        let mut lost = 0;
        for order in orders(manner, 300).into_iter().filter(|order| order.test == Test::Bandwidth) {
            match pair::run(&a, &b, &order, PATIENCE) {
                Ok(Outcome::Bandwidth(result)) => lost += result.sent - result.messages,
                Ok(Outcome::Latency(_)) => unreachable!("bandwidth was asked for"),
                Err(e) => panic!("{order:?}: {e:?}"),
            }
        }
        assert!(lost > 0, "one frame of twenty was lost");
    }

    #[test]
    fn two_hosts_run_every_test_and_the_listening_end_ends_with_the_last() {
        let (a, b) = nics(0);
        let host = b.properties().mac;
        let sleeping = [Wait::Interrupt, Wait::Async].map(|wait| Manner { wait, ..USUAL });
        let server = connect::Server::new(&b, PATIENCE).unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| server.run(false));
            let all = manners().into_iter().chain(sleeping).flat_map(|manner| orders(manner, 100));
            let orders: Vec<_> = all.collect();
            let count = orders.len();
            for (n, order) in orders.into_iter().enumerate() {
                let order = Order { more: n + 1 < count, ..order };
                if let Err(e) = connect::ask(&a, host, &order, PATIENCE) {
                    panic!("{order:?}: {e:?}");
                }
            }
            server.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_pair_runs_what_there_is_of_class_pio() {
        let memory = uvia_tests::conformance::Memory::of_host().memory;
        for loss in [0, 10] {
            let (a, b, domain) =
                memory_pair_with(Faults { loss, duplicates: loss, seed: 7, ..Faults::default() });
            let options = |name: &str| NicOptions {
                name: Some(name.to_owned()),
                adapter_memory: Some(memory.clone()),
                ..NicOptions::default()
            };
            let a = Nic::with_adapter(a, domain.clone(), options("a")).unwrap();
            let b = Nic::with_adapter(b, domain, options("b")).unwrap();
            let manner = Manner { class: Class::Pio, vis: 2, ..USUAL };
            for test in [Test::Latency, Test::Bandwidth] {
                for size in [0, 64, 448] {
                    let order = Order { test, op: Op::Send, size, ..orders(manner, 200)[0] };
                    if let Err(e) = pair::run(&a, &b, &order, PATIENCE) {
                        panic!("{order:?}: {e:?}");
                    }
                }
            }
            let write = Order { op: Op::Write, ..orders(manner, 10)[0] };
            assert!(matches!(pair::run(&a, &b, &write, PATIENCE), Err(Failure::Failed(_))), "no RDMA");
        }
    }

    #[test]
    fn a_class_that_is_not_there_is_an_error() {
        let (a, b) = nics(0);
        let order = orders(Manner { class: Class::Pio, ..USUAL }, 1)[0];
        assert!(matches!(pair::run(&a, &b, &order, PATIENCE), Err(Failure::Failed(_))));
    }

    #[test]
    fn an_end_that_is_not_there_is_an_error() {
        let (a, b) = nics(0);
        let host = b.properties().mac;
        let outcome = connect::ask(&a, host, &orders(USUAL, 1)[0], Duration::from_millis(300));
        assert!(matches!(outcome, Err(Failure::Failed(_))));
    }
}
