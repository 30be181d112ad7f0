//! The command line.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use uvia_tools::{Failure, NicArgs};

use crate::load::LoadArgs;

const UDP_PAIR: &str = "\
With --pair, A and B are PCI addresses or interface names. The kernel's interfaces are moved into two network namespaces of their own for the test (as root), and given back at its end.";

const RAW_COPY: &str = "\
Examples:
  As fast as frames go, and as fast as they go when the receiver keeps what they carry:
    uvia-perf raw bw --pair 0000:01:00.0 0000:02:00.0 --size 1486
    uvia-perf raw bw --pair 0000:01:00.0 0000:02:00.0 --size 1486 --copy
  The longest frames that e1000 and virtio have, where the network carries them:
    uvia-perf raw bw --pair 0000:01:00.0 0000:02:00.0 --size 8174 --copy
  RDMA writes, which have to do with each byte what the latter does:
    uvia-perf bw --pair 0000:01:00.0 0000:02:00.0 --op write --size 1M";

const EXAMPLES: &str = "\
Examples:
  Latency of 64-byte messages, both ends in one process on two NICs:
    uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --size 64
  The same with no adapter, over memory, between two processes:
    uvia-perf lat --listen --nic shm:try --name b
    uvia-perf lat --to b --nic shm:try --name a
  RDMA write bandwidth over all sizes between two hosts:
    uvia-perf bw --listen --nic 0000:01:00.0 --name b
    uvia-perf bw --to b --nic 0000:01:00.0 --op write --sizes all
  RDMA reads, 16 connections in turn, at the highest level of reliability:
    uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --op read --vis 16 --level reception
  What it costs to sleep on the adapter's interrupt in place of polling, and to await in a task:
    uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --wait interrupt
    uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --wait async
  Through routers, over UDP:
    uvia-perf lat --listen --nic 0000:01:00.0 --encap udp --address 10.2.0.2/24 --gateway 10.2.0.1
    uvia-perf lat --to 10.2.0.2 --nic 0000:01:00.0 --encap udp --address 10.1.0.2/24 \\
        --gateway 10.1.0.1
  From memory of an adapter, stored into by the processor; beside it the usual class:
    uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --class pio --adapter-memory 0000:03:00.0
    uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --class dma
  How much the virtual interface costs over frames, both in turn:
    uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --beside raw
    uvia-perf bw --pair 0000:01:00.0 0000:02:00.0 --op write --size 1M --beside raw
  The same at the level of Ethernet frames, and of the kernel's UDP:
    uvia-perf raw lat --pair 0000:01:00.0 0000:02:00.0
    uvia-perf raw bw --pair 0000:01:00.0 0000:02:00.0 --size 1486 --copy
    uvia-perf udp lat --pair 0000:01:00.0 0000:02:00.0     (NICs on their kernel drivers)

Every latency is half of a round trip, but that of a read, which is all of it, from the post to the completion. MB are 10^6 bytes. A listening end does whatever test its client asks for.

Exit codes: 0 success, 1 failure (the reason is on standard error), 2 wrong usage.";

/// Measures latency and bandwidth of virtual interfaces, and of what lies below and beside them
#[derive(Debug, Parser)]
#[command(name = "uvia-perf", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Latency of messages over a virtual interface
    #[command(after_help = EXAMPLES)]
    Lat(ViArgs),
    /// Bandwidth of messages over a virtual interface
    #[command(after_help = EXAMPLES)]
    Bw(ViArgs),
    /// Ethernet frames through the NIC's driver, with no virtual interface
    #[command(subcommand)]
    Raw(RawTest),
    /// UDP through the kernel's own stack and drivers
    #[command(subcommand)]
    Udp(UdpTest),
}

#[derive(Debug, Subcommand)]
pub enum RawTest {
    /// Latency of frames; --size is the payload after the 14 bytes of header, padded to 46
    Lat(RawArgs),
    /// Bandwidth of frames, in bursts of --window, with the loss reported; beyond the MTU, as far as the NICs go, they
    /// arrive where the network carries them
    #[command(after_help = RAW_COPY)]
    Bw(RawBwArgs),
}

#[derive(Debug, Subcommand)]
pub enum UdpTest {
    /// Latency of datagrams
    #[command(after_help = UDP_PAIR)]
    Lat(UdpArgs),
    /// Bandwidth of datagrams, as fast as they can be sent, with the loss reported
    #[command(after_help = UDP_PAIR)]
    Bw(UdpArgs),
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// A send into the peer's posted receive
    Send,
    /// An RDMA write into the peer's memory, which the peer watches
    Write,
    /// An RDMA read of the peer's memory, in which the peer's program has no part but to drive its NIC
    Read,
}

/// What a connection promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// At most once: what is lost is lost
    Unreliable,
    /// Exactly once and in order
    Delivery,
    /// The same, and what has completed is in the peer's memory
    Reception,
}

/// Where completions are reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cq {
    /// From one completion queue for both work queues of a connection
    On,
    /// From the work queues themselves
    Off,
}

/// How completions are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// By polling
    Poll,
    /// By a completion queue's wait: polls for a moment, then sleeps on the adapter's interrupt
    Interrupt,
    /// By a task that awaits the queue's next completion and sleeps until a thread of the NIC's wakes it
    Async,
}

/// How sends reach the adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// The adapter fetches from memory
    Dma,
    /// The processor stores into adapter memory
    Pio,
}

/// What is measured for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// Ethernet frames through the NIC's driver
    Raw,
}

impl Op {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Op::Send => "send",
            Op::Write => "write",
            Op::Read => "read",
        }
    }
}

impl Level {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Level::Unreliable => "unreliable",
            Level::Delivery => "delivery",
            Level::Reception => "reception",
        }
    }
}

impl Cq {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Cq::On => "on",
            Cq::Off => "off",
        }
    }
}

impl Wait {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Poll => "poll",
            Wait::Interrupt => "interrupt",
            Wait::Async => "async",
        }
    }
}

impl Class {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Class::Dma => "dma",
            Class::Pio => "pio",
        }
    }
}

#[derive(Debug, Args)]
#[group(id = "where", required = true, multiple = false)]
pub struct Ends {
    /// Run both ends in this process, from one thread, on two NICs that are joined
    #[arg(long, num_args = 2, value_names = ["A", "B"], group = "where")]
    pair: Option<Vec<String>>,

    /// Be the end that answers: serve one client, then exit
    #[arg(long, group = "where")]
    listen: bool,

    /// Be the end that asks; the other end listens there: a host's name, station address, or IPv4 address with
    /// --encap udp (udp: ADDR:PORT)
    #[arg(long, value_name = "WHERE", group = "where")]
    to: Option<String>,
}

/// Which end, or ends, this process is.
#[derive(Debug, Clone, Copy)]
pub enum PairOrHost<'a> {
    Pair(&'a str, &'a str),
    Listen { keep: bool },
    To(&'a str),
}

#[derive(Debug, Args)]
pub struct Where {
    #[command(flatten)]
    ends: Ends,

    /// With --listen: serve one client after the other
    #[arg(long)]
    keep: bool,
}

impl Where {
    /// # Errors
    /// One NIC given twice; --keep without --listen.
    pub fn choice(&self) -> Result<PairOrHost<'_>, Failure> {
        // Not left to clap, which does not ask for what would be in conflict with something given.
        if self.keep && !self.ends.listen {
            return Err(Failure::usage("--keep goes with --listen only"));
        }
        if let Some([a, b]) = self.ends.pair.as_deref() {
            match (a.strip_prefix("shm:"), b.strip_prefix("shm:")) {
                (Some(one), Some(other)) if one != other => {
                    return Err(Failure::usage(format!(
                        "--pair {a} {b}: two names are two networks, which nothing joins; give one of them to two processes, one with --listen and one with --to"
                    )));
                }
                // A process has one NIC of a name.
                (Some(_), _) if a == b => {
                    return Err(Failure::usage(format!(
                        "--pair needs two NICs, and a process has one of {a}: measure between two, with --listen and with --to"
                    )));
                }
                (None, _) if a == b => {
                    return Err(Failure::usage(format!("--pair needs two NICs, and {a} was given twice")));
                }
                _ => {}
            }
            return Ok(PairOrHost::Pair(a, b));
        }
        match &self.ends.to {
            Some(peer) => Ok(PairOrHost::To(peer)),
            None => Ok(PairOrHost::Listen { keep: self.keep }),
        }
    }
}

#[derive(Debug, Args)]
pub struct ViArgs {
    #[command(flatten)]
    pub ends: Where,

    #[command(flatten)]
    pub nic: NicArgs,

    /// What a message is
    #[arg(long, value_enum, default_value_t = Op::Send)]
    pub op: Op,

    /// How sends reach the adapter; what is asked for is used, or the test fails
    #[arg(long, value_enum, default_value_t = Class::Dma)]
    pub class: Class,

    /// Memory of an adapter for --class pio: the PCI address of a function that has some (QEMU's ivshmem-plain), or
    /// vfio-user:PATH where one is served. A listening end needs one of its own
    #[arg(long, value_name = "ADDR", env = "UVIA_ADAPTER_MEMORY", hide_env_values = true)]
    pub adapter_memory: Option<String>,

    /// The NIC's transmit ring lies in the adapter memory too
    #[arg(long)]
    pub ring_in_adapter_memory: bool,

    /// With lat --pair --class pio: measure class dma too, message by message in turn with it, for comparison
    #[arg(long)]
    pub interleave: bool,

    /// With --pair: measure raw frames too, in turn with it, and tell the ratio. Both open the NICs anew each round, since
    /// they cannot share them. Beside a bandwidth they are frames of the MTU, copied once at the receiver, and plain ones
    #[arg(long, value_enum, conflicts_with = "interleave")]
    pub beside: Option<Beside>,

    /// With --beside: rounds of each
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// What the connections promise; the bandwidth of sends that may be lost comes with how many were, a latency's test
    /// ends with the first that is
    #[arg(long, value_enum, default_value_t = Level::Delivery)]
    pub level: Level,

    /// Where both ends reap completions
    #[arg(long, value_enum, default_value_t = Cq::On)]
    pub cq: Cq,

    /// How both ends wait for completions; with --pair, each end then has a thread of its own
    #[arg(long, value_enum, default_value_t = Wait::Poll)]
    pub wait: Wait,

    /// Connections, used in turn, each with interfaces of its own; bandwidth: with a window of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub vis: u16,

    /// Tell at the end, on standard error, what the NICs have counted
    #[arg(long)]
    pub counters: bool,

    #[command(flatten)]
    pub load: LoadArgs,
}

#[derive(Debug, Args)]
pub struct RawArgs {
    #[command(flatten)]
    pub ends: Where,

    /// NIC to use without --pair: a PCI address such as 0000:01:00.0, on vfio-pci (see `uvia-bind`), or vfio-user:PATH
    /// of a socket at which one is served
    #[arg(long, value_name = "DEV", env = "UVIA_NIC", hide_env_values = true)]
    pub nic: Option<String>,

    /// Packed virtqueues, on virtio devices that offer them; the NIC's name in the output is then virtio-packed
    #[arg(long)]
    pub packed_rings: bool,

    /// Tell at the end, on standard error, what the NICs have counted
    #[arg(long)]
    pub counters: bool,

    #[command(flatten)]
    pub load: LoadArgs,
}

#[derive(Debug, Args)]
pub struct RawBwArgs {
    #[command(flatten)]
    pub raw: RawArgs,

    /// The receiver copies each frame's payload once, into memory of 1 MiB round and round, as an RDMA write is copied
    #[arg(long)]
    pub copy: bool,
}

#[derive(Debug, Args)]
pub struct UdpArgs {
    #[command(flatten)]
    pub ends: Where,

    /// With --listen: local address and port
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:18515")]
    pub bind: SocketAddr,

    #[command(flatten)]
    pub load: LoadArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["uvia-perf"]),
            [""; 0]
        );
    }
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_pair_is_of_two_nics_that_are_joined() {
        for (pair, good) in [
            ("a b", true),
            ("a a", false),
            ("shm:x shm:x", false),
            ("shm:x shm:y", false),
            ("shm:x vfio-user:/a", true),
        ] {
            let Command::Lat(args) = parse(&format!("uvia-perf lat --pair {pair}")).unwrap().command else {
                panic!("{pair}");
            };
            assert_eq!(args.ends.choice().is_ok(), good, "{pair}");
        }
    }

    #[test]
    fn what_is_documented_is_accepted() {
        for line in [
            "uvia-perf lat --pair 0000:01:00.0 0000:02:00.0 --size 64 --json",
            "uvia-perf bw --listen --nic 0000:01:00.0 --name b --keep",
            "uvia-perf bw --to b --op write --sizes all",
            "uvia-perf lat --pair a b --op read --level reception --vis 16",
            "uvia-perf lat --pair a b --level unreliable --cq off --packed-rings",
            "uvia-perf bw --listen --wait interrupt",
            "uvia-perf lat --pair a b --wait async --op read",
            "uvia-perf bw --pair a b --op write --size 1M --beside raw --rounds 3",
            "uvia-perf raw bw --pair a b --size 1486 --copy",
            "uvia-perf raw bw --pair a b --size 8174 --copy",
            "uvia-perf raw lat --pair a b --size 64 --json",
            "uvia-perf raw bw --to 52:54:00:00:00:02 --nic x --window 16",
            "uvia-perf udp lat --listen --bind 127.0.0.1:0",
            "uvia-perf udp lat --to 10.0.0.1:18515 --sizes 64,1K,16K",
            "uvia-perf lat --pair a b --class pio --iterations 10 --warmup 0",
            "uvia-perf bw --listen --adapter-memory vfio-user:/tmp/m.sock",
            "uvia-perf lat --to 10.2.0.2 --nic x --encap udp --address 10.1.0.2/24 --gateway 10.1.0.1",
            "uvia-perf bw --pair a b --encap udp --address 10.0.0.1/24 --port 4000 --integrity",
        ] {
            assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
        }
    }

    #[test]
    fn ends_are_chosen_exactly_once() {
        for line in [
            "uvia-perf lat",
            "uvia-perf lat --pair a",
            "uvia-perf lat --listen --to b",
            "uvia-perf lat --listen --size 0x",
            "uvia-perf lat --listen --size 64 --sizes all",
            "uvia-perf lat --listen --iterations 0",
            "uvia-perf lat --listen --vis 0",
            "uvia-perf lat --listen --wait never",
            "uvia-perf raw lat --listen --copy",
            "uvia-perf lat --listen --encap udp --address 10.0.0.1",
            "uvia-perf lat --listen --encap tcp",
            "uvia-perf raw",
            "uvia-perf udp lat --listen --bind here",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["uvia-perf lat --pair a a", "uvia-perf lat --to b --keep"] {
            let Command::Lat(args) = parse(line).unwrap().command else { panic!() };
            assert!(matches!(args.ends.choice(), Err(Failure::Usage(_))), "{line}");
        }
    }
}
