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
struct Program {
    name: String,
    path: PathBuf,
}

/// Boots a guest for each kind of NIC and runs all that is for guests in it.
pub fn run(report: &mut Report, options: &Options) {
    report.heading("building what guests run");
    let programs = match programs() {
        Ok(programs) => programs,
        Err(e) => return report.failed("building the guest tests", &e.to_string()),
    };
    for (label, nics) in [
        ("e1000", vec![NicKind::E1000]),
        ("virtio", vec![NicKind::Virtio]),
        ("e1000 to virtio", vec![NicKind::E1000, NicKind::Virtio]),
    ] {
        report.heading(&format!("in a guest: {label}"));
        let settings = Settings {
            nics,
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
            }
            Err(e) => report.failed(&format!("{label}: booting a guest"), &e.to_string()),
        }
    }
}

fn run_program(report: &mut Report, guest: &Guest, label: &str, program: &Program) {
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

/// Builds the test programs called `guest_*`, whose ignored tests are for guests.
fn programs() -> Result<Vec<Program>, Failure> {
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
            let name =
                message["target"]["name"].as_str().filter(|name| name.starts_with("guest_"))?.to_owned();
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
