//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use uvia_tools::EXIT_CODES;

/// Two processes, each with a network adapter of its own, move a file over a virtual interface and measure latency
///
/// The adapters are models, served over vfio-user by uvia-device. It takes neither QEMU nor root, and all that is
/// started or written goes again, however it ends.
#[derive(Debug, Parser)]
#[command(name = "uvia-demo", version, after_help = format!("\
Examples:
  tools/demo/run                     build, move a file, print the latencies
  tools/demo/run --compare           and what fi_pingpong measures (package libfabric-bin)
  tools/demo/run --nic e1000,virtio  other adapters
  tools/demo/run --apart             each adapter served by a process of its own, joined by a link
  tools/demo/run --file big.iso      move a file of yours
  tools/demo/run --json              all of it as one JSON object

Latencies are half of a round trip between the two processes, which poll.
{EXIT_CODES}"))]
pub struct Cli {
    /// The adapters' kind, or KIND,KIND for the one that asks and the one that answers
    #[arg(
        long,
        value_enum,
        value_name = "KIND[,KIND]",
        value_delimiter = ',',
        num_args = 1,
        default_value = "virtio"
    )]
    pub nic: Vec<Kind>,

    /// The file to move [default: this program]
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,

    /// Serve each adapter by a process of its own, and join them by a link: slower, since each frame then goes through
    /// the kernel
    #[arg(long)]
    pub apart: bool,

    /// Round trips for each line of the table
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub iterations: u64,

    /// Also run libfabric's fi_pingpong (providers tcp and shm) between two processes
    #[arg(long)]
    pub compare: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Kinds of adapters that are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Intel 82540EM
    E1000,
    /// virtio-net with split queues
    Virtio,
    /// virtio-net that offers packed queues too
    VirtioPacked,
}

impl Kind {
    /// As `uvia-device` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::E1000 => "e1000",
            Self::Virtio => "virtio",
            Self::VirtioPacked => "virtio-packed",
        }
    }
}

impl Cli {
    /// The kinds of both adapters; none when there are more than two.
    pub fn kinds(&self) -> Option<[Kind; 2]> {
        match self.nic[..] {
            [both] => Some([both; 2]),
            [asks, answers] => Some([asks, answers]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["tools/demo/run"]),
            [""; 0]
        );
    }
    use clap::CommandFactory;

    fn kinds(line: &str) -> Option<[Kind; 2]> {
        Cli::try_parse_from(line.split(' ')).ok()?.kinds()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn one_kind_is_for_both() {
        assert_eq!(kinds("uvia-demo"), Some([Kind::Virtio; 2]));
        assert_eq!(kinds("uvia-demo --nic e1000"), Some([Kind::E1000; 2]));
        assert_eq!(kinds("uvia-demo --nic e1000,virtio-packed"), Some([Kind::E1000, Kind::VirtioPacked]));
        assert_eq!(kinds("uvia-demo --nic e1000,e1000,e1000"), None);
        assert_eq!(kinds("uvia-demo --nic ne2000"), None);
    }
}
