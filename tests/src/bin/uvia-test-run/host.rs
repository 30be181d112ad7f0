//! What runs on the host: format, lints, and all tests that need no guest.

use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::process::{Command, ExitStatus, Stdio};

use crate::build::Program;
use crate::jobs::Job;
use crate::report::{Failure, Report, Verdict};
use crate::side_by_side::{self, News};
use crate::{Options, dissector};

/// What the reason of an ignored test starts with when it is run in a guest.
pub const IN_GUEST: &str = "needs a guest";

/// Cases of a property's test in a quick run, where 256 are usual.
const QUICK_CASES: &str = "16";

/// Cargo, in the workspace's folder.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(arguments).stdin(Stdio::null());
    command
}

fn passes(mut command: Command) -> Result<Verdict, Failure> {
    let status = command.status()?;
    if status.success() { Ok(Verdict::Passed) } else { Err(format!("{status}").into()) }
}

const FORMAT: &[&str] = &["fmt", "--all", "--check"];
const LINTS: &[&str] = &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];

/// What a part of cargo that may not be installed has to say.
fn component(report: &mut Report, component: &str, name: &str, arguments: &[&str]) {
    report.case(name, || {
        if !cargo(&[component, "--version"]).stdout(Stdio::null()).status()?.success() {
            return Ok(Verdict::Skipped(format!(
                "cargo has no {component}: rustup component add {component}"
            )));
        }
        passes(cargo(arguments))
    });
}

/// By which proptest is told where to begin.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// Format and lints.
pub fn lints(report: &mut Report) {
    report.heading("format and lints");
    component(report, "fmt", "format", FORMAT);
    component(report, "clippy", "lints", LINTS);
    report.case("documentation", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        passes(command)
    });
}

/// Format alone: what takes a moment.
pub fn format(report: &mut Report) {
    report.heading("format");
    component(report, "fmt", "format", FORMAT);
}

/// Those that take longest, which begin first: none of them is to be waited for when all others have ended.
const LONGEST: [&str; 12] = [
    "tests/conformance",
    "via/uvia",
    "tests/lies",
    "vipl/vipl",
    "tests/kills",
    "message/random",
    "tests/defects",
    "message/failover",
    "tests/program_kills",
    "perf/over_models",
    "models/served",
    "launch/runs",
];

/// All test programs, twice as many at a time as there are processors, since most of them wait more than they work.
pub fn tests(report: &mut Report, programs: &[Program], options: &Options) {
    report.heading("tests on the host");
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut programs: Vec<_> = programs.iter().collect();
    programs.sort_by_key(|program| {
        LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
    });
    let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
    let commands: Vec<_> = programs.into_iter().map(|program| prepared(alone(program), options)).collect();
    tell(report, &names, commands, 2 * processors);
}

/// The examples in the documentation. Each is compiled first, which takes longer than all of a quick run.
pub fn examples(options: &Options) -> Job<'_> {
    Job::new("examples in the documentation", 30, |report| {
        let command = prepared(cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]), options);
        tell(report, &["documentation"], vec![command], 1);
    })
}

/// A test program by itself, as cargo runs it.
fn alone(program: &Program) -> Command {
    let mut command = Command::new(&program.path);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder).stdin(Stdio::null());
    command
}

/// How much it is to do.
fn prepared(mut command: Command, options: &Options) -> Command {
    if options.long {
        command.env("UVIA_LONG", "1");
    } else if std::env::var_os(PROPERTY_SEED).is_none() {
        // The same cases each time: what fails is there again when it is looked for. Others come with --long.
        command.env(PROPERTY_SEED, "1");
    }
    if options.quick {
        command.env("UVIA_QUICK", "1").env("PROPTEST_CASES", QUICK_CASES);
    }
    command
}

/// Runs programs and says what they came to, each as soon as it has ended.
fn tell(report: &mut Report, names: &[&str], commands: Vec<Command>, at_once: usize) {
    side_by_side::run(commands, at_once, |place, news| {
        let name = names[place];
        let (text, status) = match news {
            News::Started => return say!("running {name}"),
            News::Ended(Err(e)) => return report.failed(name, &e.to_string()),
            News::Ended(Ok(ended)) => ended,
        };
        say!("\n{name}");
        let before = report.failures();
        for line in String::from_utf8_lossy(&text).lines() {
            say!("{line}");
            harness_line(report, &format!("{name}: "), line);
        }
        // A test that failed was counted; what else can fail is the program itself.
        if !status.success() && report.failures() == before {
            report.failed(name, &status.to_string());
        }
    });
}

fn harness_line(report: &mut Report, group: &str, line: &str) {
    report.harness_line(group, line, |why| why.starts_with(IN_GUEST) || why == dissector::NEEDS);
}

/// Runs a program of Rust's test harness and counts its tests.
pub fn count(report: &mut Report, group: &str, mut command: Command) -> Result<ExitStatus, Failure> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no output to read")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        say!("{line}");
        harness_line(report, group, &line);
    }
    Ok(child.wait()?)
}
