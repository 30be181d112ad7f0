//! The command line.

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  Measure a NIC, and keep what comes of it for sessions on this host
    uvia-calibrate --nic 0000:01:00.0
  See what it would be
    uvia-calibrate --nic 0000:01:00.0 --dry-run
  For a script
    uvia-calibrate --nic shm:job --json | jq .thresholds.long

Messages go from the NIC to itself: what is weighed against each other is what the processor has to do for either way. It is kept in $XDG_CACHE_HOME/uvia/calibration (or ~/.cache/uvia/calibration), where sessions that are written down, and do not say thresholds themselves, find it by the NIC's name. Remove the file to have the defaults again.

Exit codes: 0 success, 1 failure (the reason is on standard error), 2 wrong usage.";

/// Finds out from how many bytes on which way of a piece is the cheapest for the message layer
#[derive(Debug, Parser)]
#[command(name = "uvia-calibrate", version, after_help = EXAMPLES)]
pub struct Cli {
    /// NIC to measure: a PCI address such as 0000:01:00.0, on vfio-pci (see `uvia-bind`), vfio-user:PATH, or shm:NAME
    #[arg(long, value_name = "DEV", env = "UVIA_NIC", hide_env_values = true)]
    pub nic: String,

    /// Round trips for each size and way
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,

    /// Only show it, and keep nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["uvia-calibrate"]),
            [""; 0]
        );
    }
}
