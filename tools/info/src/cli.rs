//! The command line.

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  What can be shown: the functions on vfio-pci that have a driver here
    uvia-info
  What one of them can do
    uvia-info --nic 0000:01:00.0
  Its station address, for a script
    uvia-info --nic 0000:01:00.0 --json | jq -r .mac

The NIC is opened, and so reset, for a moment: it must not be in use by another program.

Exit codes: 0 success, 1 failure (the reason is on standard error), 2 wrong usage.";

/// Shows what a NIC can do
#[derive(Debug, Parser)]
#[command(name = "uvia-info", version, after_help = EXAMPLES)]
pub struct Cli {
    /// NIC to show: a PCI address such as 0000:01:00.0, on vfio-pci (see `uvia-bind`), vfio-user:PATH of a socket at
    /// which one is served, or shm:NAME; without one, those of this machine that could be shown are listed
    #[arg(long, visible_alias = "device", value_name = "DEV", env = "UVIA_NIC", hide_env_values = true)]
    pub nic: Option<String>,

    /// Memory of an adapter that class pio is to be shown with: the PCI address of a function that has some, or
    /// vfio-user:PATH where one is served
    #[arg(long, value_name = "ADDR", env = "UVIA_ADAPTER_MEMORY", hide_env_values = true)]
    pub adapter_memory: Option<String>,

    /// Open the NIC with its transmit ring in the adapter memory
    #[arg(long)]
    pub ring_in_adapter_memory: bool,

    /// Print JSON: one object a NIC, on a line of its own
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["uvia-info"]),
            [""; 0]
        );
    }
}
