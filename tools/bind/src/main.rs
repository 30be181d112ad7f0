//! Attaches network functions to vfio-pci and gives them back.

mod names;
mod report;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use uvia_driver::pci::bind::{Attached, Binder, Detached, Linux, Result};
use uvia_driver::pci::{PciAddress, Sysfs};

use names::Names;

const AFTER_HELP: &str = "\
Examples:
  uvia-bind status                     every network function, and what would stop an attach
  uvia-bind attach 0000:01:00.0        give one to programs in user space
  uvia-bind attach eth1 eth2           the same by interface, two at once
  uvia-bind detach 0000:01:00.0        back to the driver that it had

Exit codes:
  0  all is done, or was so before
  1  it failed for at least one device; all others were tried
  2  the command line is wrong";

/// Attaches network functions to vfio-pci, so that programs can drive them from user space, and gives them
/// back to the kernel.
#[derive(Parser)]
#[command(name = "uvia-bind", version, after_help = AFTER_HELP)]
struct Cli {
    /// A folder with sys/, proc/ and run/ in it, in place of this machine's; for tests.
    #[arg(long, hide = true, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows every network function: address, ids, driver, interface, IOMMU group, name, and what would stop
    /// an attach.
    Status {
        /// One JSON object a function and line.
        #[arg(long)]
        json: bool,
    },
    /// Gives functions to vfio-pci. One that carries the default route is refused.
    Attach {
        #[command(flatten)]
        devices: Devices,
        /// Attach a function that carries the default route, too.
        #[arg(long)]
        force: bool,
    },
    /// Gives functions back to the driver that they had; where that is not known, the kernel chooses.
    Detach(Devices),
}

#[derive(Args)]
struct Devices {
    /// A PCI address (0000:01:00.0, 01:00.0) or a network interface (eth1).
    #[arg(required = true, value_name = "DEV")]
    names: Vec<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let binder = match &cli.root {
        None => Binder::system(),
        Some(root) => Binder::new(
            Sysfs::at(root.join("sys")),
            root.join("proc"),
            root.join("run/uvia/bind"),
            Box::new(Linux),
        ),
    };
    match cli.command {
        Command::Status { json } => status(&binder, json),
        Command::Attach { devices, force } => {
            each(&binder, &devices, |address| binder.attach(address, force).map(attached))
        }
        Command::Detach(devices) => each(&binder, &devices, |address| binder.detach(address).map(detached)),
    }
}

fn status(binder: &Binder, json: bool) -> ExitCode {
    let all = match binder.status() {
        Ok(all) => all,
        Err(e) => {
            eprintln!("uvia-bind: {e}");
            return ExitCode::FAILURE;
        }
    };
    let names = Names::load();
    let text = if json { report::json(&all, &names) } else { report::table(&all, &names) };
    // Whoever reads may have seen enough (`| head`).
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Tries all devices; says for each what came of it.
fn each(
    binder: &Binder,
    devices: &Devices,
    change: impl Fn(PciAddress) -> Result<(String, Vec<String>)>,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for name in &devices.names {
        match binder.resolve(name).and_then(|address| Ok((address, change(address)?))) {
            Ok((address, (outcome, warnings))) => {
                // Whoever reads may be gone; the device is what matters.
                let _ = writeln!(io::stdout(), "{address}: {outcome}");
                for warning in warnings {
                    eprintln!("uvia-bind: warning: {warning}");
                }
            }
            Err(e) => {
                eprintln!("uvia-bind: {e}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn attached(outcome: Attached) -> (String, Vec<String>) {
    match outcome {
        Attached::Already => ("is attached already".to_owned(), Vec::new()),
        Attached::Done { former, warnings } => {
            (format!("attached to vfio-pci (was on {})", or_none(former)), warnings)
        }
    }
}

fn detached(outcome: Detached) -> (String, Vec<String>) {
    let text = match outcome {
        Detached::Already(driver) => format!("is not attached (it is on {})", or_none(driver)),
        Detached::Done(driver) => format!("detached (is on {})", or_none(driver)),
    };
    (text, Vec::new())
}

fn or_none(driver: Option<String>) -> String {
    driver.unwrap_or_else(|| "no driver".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["uvia-bind"]),
            [""; 0]
        );
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["uvia-bind", "attach"]).is_err(), "attach what?");
        assert!(Cli::try_parse_from(["uvia-bind", "attach", "--force", "eth0", "eth1"]).is_ok());
    }
}
