//! Runs every test, on the host and in guests, and counts them all: what `tests/run` starts once all is installed.

mod guests;
mod host;
mod instructions;
mod models;
mod report;
mod tools;
mod two_guests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use report::Report;

/// Runs every test, on the host and in guests; the last line counts them.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  tests/run                 all tests, within 40 minutes on two cores without KVM
  tests/run --long          these and those that take longer
  tests/run --only guests   those in guests
Exit status: 0 all passed, 1 some failed, 2 usage.")]
pub struct Options {
    /// Also what takes longer than the time that all tests together may take.
    #[arg(long)]
    long: bool,
    /// Only these parts; may be given several times.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Where guests' consoles are kept.
    #[arg(long, value_name = "DIR")]
    keep_log: Option<PathBuf>,
}

/// The parts of the run, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Format and lints.
    Lints,
    /// Unit tests, simulations, documentation.
    Host,
    /// Instructions of the data path.
    Instructions,
    /// Drivers, interfaces and tools on QEMU's NICs, in one guest for each kind.
    Guests,
    /// The main job, and tools between two guests.
    TwoGuests,
    /// Our models as NICs of guests: under Linux's drivers, and under ours.
    ModelsInGuests,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::default();
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Lints) {
        host::lints(&mut report);
    }
    if wanted(Part::Host) {
        host::tests(&mut report, options.long);
    }
    if wanted(Part::Instructions) {
        instructions::run(&mut report);
    }
    if wanted(Part::Guests) {
        guests::run(&mut report, &options, guests::EMULATED);
    }
    if wanted(Part::TwoGuests) {
        two_guests::run(&mut report, &options);
    }
    if wanted(Part::ModelsInGuests) {
        models::run(&mut report, &options);
    }
    if report.close() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
