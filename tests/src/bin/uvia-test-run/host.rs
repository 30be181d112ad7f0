//! What runs on the host: format, lints, and all tests that need no guest.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::report::{Failure, Report, Verdict};

/// What the reason of an ignored test starts with when it is run in a guest.
pub const IN_GUEST: &str = "needs a guest";

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

/// Format and lints.
pub fn lints(report: &mut Report) {
    report.heading("format and lints");
    for (component, name, arguments) in [
        ("fmt", "format", &["fmt", "--all", "--check"][..]),
        (
            "clippy",
            "lints",
            &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"][..],
        ),
    ] {
        report.case(name, || {
            if !cargo(&[component, "--version"]).stdout(Stdio::null()).status()?.success() {
                return Ok(Verdict::Skipped(format!(
                    "cargo has no {component}: rustup component add {component}"
                )));
            }
            passes(cargo(arguments))
        });
    }
    report.case("documentation", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        passes(command)
    });
}

/// All that `cargo test` knows.
pub fn tests(report: &mut Report, long: bool) {
    report.heading("tests on the host");
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    if long {
        command.env("UVIA_LONG", "1");
    }
    let before = report.failures();
    let outcome = (|| -> Result<_, Failure> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output to read")?;
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            report.harness_line("", &line, |why| why.starts_with(IN_GUEST));
        }
        Ok(child.wait()?)
    })();
    match outcome {
        Ok(status) if status.success() => {}
        // A test that failed was counted; what else can fail is the build.
        Ok(status) if report.failures() == before => report.failed("cargo test", &status.to_string()),
        Ok(_) => {}
        Err(e) => report.failed("cargo test", &e.to_string()),
    }
}
