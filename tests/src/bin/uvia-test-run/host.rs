//! What runs on the host: format, lints, and all tests that need no guest.

use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::process::{Command, ExitStatus, Stdio};

use crate::build::Program;
use crate::report::{Failure, Report, Verdict};
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

/// All test programs, one after the other, and the examples in the documentation.
pub fn tests(report: &mut Report, programs: &[Program], options: &Options) {
    report.heading("tests on the host");
    let run = |report: &mut Report, name: &str, mut command: Command| {
        if options.long {
            command.env("UVIA_LONG", "1");
        } else if std::env::var_os(PROPERTY_SEED).is_none() {
            // The same cases each time: what fails is there again when it is looked for. Others come with --long.
            command.env(PROPERTY_SEED, "1");
        }
        if options.quick {
            command.env("UVIA_QUICK", "1").env("PROPTEST_CASES", QUICK_CASES);
            // Many of them wait more than they work.
            let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
            command.env("RUST_TEST_THREADS", (2 * processors).to_string());
        }
        println!("\n{name}");
        let before = report.failures();
        match count(report, &format!("{name}: "), command) {
            // A test that failed was counted; what else can fail is the program itself.
            Ok(status) if !status.success() && report.failures() == before => {
                report.failed(name, &status.to_string());
            }
            Ok(_) => {}
            Err(e) => report.failed(name, &e.to_string()),
        }
    };
    for program in programs {
        let mut command = Command::new(&program.path);
        // As cargo does.
        command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder).stdin(Stdio::null());
        run(report, &program.name, command);
    }
    // Each of these is compiled first, which takes longer than all of a quick run.
    if !options.quick {
        run(report, "documentation", cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]));
    }
}

/// Runs a program of Rust's test harness and counts its tests.
pub fn count(report: &mut Report, group: &str, mut command: Command) -> Result<ExitStatus, Failure> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no output to read")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        report.harness_line(group, &line, |why| why.starts_with(IN_GUEST) || why == dissector::NEEDS);
    }
    Ok(child.wait()?)
}
