//! What needs a kernel and NICs: the guest tests of all crates, and the tools, one boot for each kind of NIC.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use uvia_vm::{Guest, NicKind, Session, Settings};

use crate::host::{IN_GUEST, cargo};
use crate::report::{Failure, Report};
use crate::{Options, tools};

/// How long one test program may take in a guest.
const LIMIT: Duration = Duration::from_secs(420);

/// A test program that has tests for guests.
pub struct Program {
    name: String,
    /// Where it is, here and in guests.
    pub path: PathBuf,
}

/// QEMU's NICs.
pub const EMULATED: &[&[NicKind]] =
    &[&[NicKind::E1000], &[NicKind::Virtio], &[NicKind::E1000, NicKind::Virtio]];

/// Boots a guest for each of these kinds of NICs and runs all that is for guests in it.
pub fn run(report: &mut Report, options: &Options, all: &[&[NicKind]]) {
    report.heading("building what guests run");
    let programs = match programs("guest_") {
        Ok(programs) => programs,
        Err(e) => return report.failed("building the guest tests", &e.to_string()),
    };
    for nics in all {
        let label = &label(nics);
        report.heading(&format!("in a guest: {label}"));
        let settings = Settings {
            nics: nics.to_vec(),
            hugepages: 32,
            carry: programs.iter().map(|program| program.path.clone()).collect(),
            keep_log: options.keep_log.as_ref().map(|dir| dir.join(label.replace(' ', "-"))),
            ..Settings::default()
        };
        match Session::boot(&settings) {
            Ok(session) => {
                let guest = session.guest();
                for program in &programs {
                    run_program(report, guest, label, program);
                }
                tools::in_guest(report, guest, label);
                if let Some(why) = session.devices_failure() {
                    report.failed(label, &why.to_string());
                }
            }
            Err(e) => not_booted(report, label, &e),
        }
    }
}

/// What a guest with these NICs is called.
pub fn label(nics: &[NicKind]) -> String {
    let names: Vec<_> = nics.iter().map(|kind| kind.name()).collect();
    names.join(" to ")
}

/// A guest that did not boot; that there is no QEMU for its NICs is no failure of ours.
pub fn not_booted(report: &mut Report, label: &str, error: &uvia_vm::Error) {
    let name = format!("{label}: booting a guest");
    match error {
        uvia_vm::Error::NoVfioUser { .. } => report.skipped(&name, &error.to_string()),
        _ => report.failed(&name, &error.to_string()),
    }
}

/// Runs a test program's tests for guests.
pub fn run_program(report: &mut Report, guest: &Guest, label: &str, program: &Program) {
    let group = format!("{label}: {}: ", program.name);
    let before = report.failures();
    let path = program.path.to_string_lossy();
    let outcome = guest.run([&*path, "--ignored", "--test-threads=1"], LIMIT);
    match outcome {
        Ok(outcome) => {
            let text = outcome.text();
            for line in text.lines() {
                if line.starts_with("test ") {
                    println!("{group}{line}");
                }
                report.harness_line(&group, line, |_| false);
            }
            if !outcome.status.success() {
                println!("{text}\n{}", String::from_utf8_lossy(&outcome.stderr));
                if report.failures() == before {
                    report.failed(&group, &format!("{:?}\n{}", outcome.status, guest.console_tail(20)));
                }
            }
        }
        Err(e) => report.failed(&group, &format!("{e}\n{}", guest.console_tail(20))),
    }
}

/// Builds the test programs whose names start so, and whose ignored tests are for guests.
pub fn programs(start: &str) -> Result<Vec<Program>, Failure> {
    let output = cargo(&["test", "--workspace", "--tests", "--no-run", "--quiet", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo test --no-run: {}", output.status).into());
    }
    let programs: Vec<_> = String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| {
            let name = message["target"]["name"].as_str().filter(|name| name.starts_with(start))?.to_owned();
            Some(Program { name, path: message["executable"].as_str()?.into() })
        })
        .collect();
    if programs.is_empty() {
        return Err(
            format!("there is no test program whose tests are ignored with \"{IN_GUEST} ...\"").into()
        );
    }
    Ok(programs)
}
