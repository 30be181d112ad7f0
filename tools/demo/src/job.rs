//! What is done, one step after the other.

use std::ffi::OsStr;
use std::time::Duration;

use uvia_tools::{Failure, Steps, print_json, print_line};

use crate::cli::{Cli, Kind};
use crate::copy::Payload;
use crate::device::Devices;
use crate::latency::{self, Op};
use crate::machine::Machine;
use crate::pingpong;
use crate::process::Programs;
use crate::report::Report;

/// How long the end that answers may take to be there, and to end once it has answered all.
const ANSWERING: Duration = Duration::from_secs(20);

/// Both ends of what follows: programs that run, one on each adapter.
pub struct Ends<'a> {
    programs: &'a Programs,
    nics: [String; 2],
}

impl Ends<'_> {
    /// Runs a program in two processes: one that answers, on the second adapter, and one that asks, on the first.
    /// Answers what the latter said.
    ///
    /// # Errors
    /// Either fails; of two failures, that of the end that answers is told too.
    pub fn run(
        &self,
        program: &str,
        answers: &[&OsStr],
        asks: &[&OsStr],
        patience: Duration,
    ) -> Result<String, Failure> {
        let start = |arguments: &[&OsStr], end: usize| {
            let own = ["--nic", &self.nics[end], "--name", ["a", "b"][end]].map(OsStr::new);
            self.programs.start(program, arguments.iter().chain(&own))
        };
        let mut answering = start(answers, 1)?;
        // What comes first on its standard error is that it waits.
        answering.wait_for(ANSWERING, |_, errors| errors.contains('\n'))?;
        let asked = start(asks, 0)?.finish(patience);
        let answered = answering.finish(if asked.is_ok() { ANSWERING } else { Duration::from_secs(1) });
        match (asked, answered) {
            (Ok(said), Ok(_)) => Ok(said),
            (Err(Failure::Failed(asked)), Err(Failure::Failed(answered))) if asked != answered => {
                Err(Failure::failed(format!("{asked}\nthe end that answers: {answered}")))
            }
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        }
    }
}

/// Runs the demonstration.
///
/// # Errors
/// What failed, in words for a person. All that was started has ended, and all that was written is gone.
pub fn run(cli: &Cli) -> Result<(), Failure> {
    let kinds =
        cli.kinds().ok_or_else(|| Failure::usage("--nic takes one kind for both adapters, or two"))?;
    if cli.compare {
        pingpong::find()?;
    }
    let payload = Payload::find(cli.file.as_deref())?;
    let programs = Programs::new()?;
    // Private to us; gone when this function ends, whatever the reason.
    let folder = tempfile::Builder::new().prefix("uvia-demo-").tempdir()?;

    let mut steps = Steps::start();
    steps.next(&starting(kinds, cli.apart));
    let devices = Devices::start(&programs, folder.path(), kinds, cli.apart)?;
    let ends = Ends { programs: &programs, nics: devices.names() };
    steps.next(&format!("moving {} over a virtual interface", payload.describe()));
    let copy = payload.copy(&ends, folder.path())?;
    steps.next("measuring VI sends");
    let mut latency = latency::measure(&ends, Op::Send, cli.iterations)?;
    steps.next("measuring VI RDMA writes");
    latency.extend(latency::measure(&ends, Op::Write, cli.iterations)?);
    devices.end()?;
    let fi_pingpong = if cli.compare {
        steps.next("measuring with fi_pingpong");
        pingpong::measure(&programs, cli.iterations)?
    } else {
        Vec::new()
    };
    steps.finish();
    folder.close()?;

    let nics = kinds.map(Kind::name);
    let report = Report { machine: Machine::this(), nics, apart: cli.apart, copy, latency, fi_pingpong };
    if cli.json { print_json(&report) } else { print_line(report) }
}

fn starting([a, b]: [Kind; 2], apart: bool) -> String {
    let (a, b) = (a.name(), b.name());
    match apart {
        false => format!("starting uvia-device, which serves two adapters over vfio-user: {a} and {b}"),
        true => format!("starting two uvia-device, joined by a link: {a} in one, {b} in the other"),
    }
}
