//! Runs every test, on the host and in guests, and counts them all: what `tests/run` starts once all is installed.

#[macro_use]
mod output;

mod booted;
mod build;
mod dissector;
mod guests;
mod host;
mod instructions;
mod interleavings;
mod jobs;
mod messages;
mod models;
mod outages;
mod report;
mod routed;
mod side_by_side;
mod tools;
mod two_guests;
mod vipl;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use jobs::Job;
use report::Report;

/// Runs every test, on the host and in guests; the last line counts them.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  tests/run                     all tests, within 40 minutes on two cores without KVM
  tests/run --native            all that need no guest: neither QEMU nor root
  tests/run --native --quick    a sample of these, in less than two minutes after the build
  tests/run --long              all tests, and those that take longer
  tests/run --only guests       those in guests
Exit status: 0 all passed, 1 some failed, 2 usage.")]
pub struct Options {
    /// Only what needs no guest; QEMU is not installed for it.
    #[arg(long, conflicts_with = "only")]
    native: bool,
    /// Fewer seeds and rounds of each test, no lints, and no examples of the documentation.
    #[arg(long)]
    quick: bool,
    /// Also what takes longer than the time that all tests together may take.
    #[arg(long, conflicts_with = "quick")]
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
    /// UDP between two guests with a router, a third one, between them.
    Routed,
    /// Our models as NICs of guests: under Linux's drivers, and under ours.
    ModelsInGuests,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        if self.native {
            return match part {
                Part::Lints | Part::Host => true,
                // Valgrind is not for those who are in a hurry.
                Part::Instructions => !self.quick,
                Part::Guests | Part::TwoGuests | Part::Routed | Part::ModelsInGuests => false,
            };
        }
        self.only.is_empty() || self.only.contains(&part)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::default();
    if options.wants(Part::Lints) {
        if options.quick { host::format(&mut report) } else { host::lints(&mut report) }
    }
    let programs = programs(&mut report, &options);
    if let Some(programs) = programs.as_ref().filter(|_| options.wants(Part::Host)) {
        host::tests(&mut report, programs, &options);
        dissector::run(&mut report, programs, &options);
    }
    if options.wants(Part::TwoGuests) {
        two_guests::main_job(&mut report);
    }
    let jobs = beside_each_other(&mut report, programs.as_deref(), &options);
    if !jobs.is_empty() {
        report.heading("what goes on beside each other");
        jobs::run(&mut report, jobs);
    }
    if report.close() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Examples in the documentation, interleavings, what counts instructions, and what runs in guests; `programs` are there where a part needs them and they were built.
fn beside_each_other<'a>(
    report: &mut Report,
    programs: Option<&'a [build::Program]>,
    options: &'a Options,
) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    if options.wants(Part::Host) && !options.quick {
        jobs.push(host::examples(options));
        jobs.push(interleavings::job());
    }
    if options.wants(Part::Instructions) {
        jobs.extend(instructions::jobs());
    }
    if let Some(programs) = programs.filter(|_| options.wants(Part::Guests)) {
        jobs.extend(guests::jobs(report, programs, options, guests::EMULATED));
    }
    if options.wants(Part::TwoGuests) {
        jobs.push(two_guests::job(programs.unwrap_or_default(), options));
    }
    if options.wants(Part::Routed) {
        jobs.push(routed::job(options));
    }
    if let Some(programs) = programs.filter(|_| options.wants(Part::ModelsInGuests)) {
        jobs.extend(models::jobs(report, programs, options));
    }
    jobs
}

/// The test programs, where a part needs them and they can be built.
fn programs(report: &mut Report, options: &Options) -> Option<Vec<build::Program>> {
    if ![Part::Host, Part::Guests, Part::TwoGuests, Part::ModelsInGuests]
        .into_iter()
        .any(|part| options.wants(part))
    {
        return None;
    }
    report.heading("building the test programs");
    build::programs().map_err(|e| report.failed("building the test programs", &e.to_string())).ok()
}
