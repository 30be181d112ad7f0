//! What needs a kernel and NICs: the guest tests of all crates, and the tools, one boot for each kind of NIC.

use std::path::{Path, PathBuf};
use std::time::Duration;

use uvia_vm::{Guest, NicKind, Settings};

use crate::build::Program;
use crate::jobs::Job;
use crate::report::Report;
use crate::{Options, booted, messages, tools, vipl};

/// How long one test program may take in a guest.
const LIMIT: Duration = Duration::from_secs(420);

/// QEMU's NICs.
pub const EMULATED: &[&[NicKind]] =
    &[&[NicKind::E1000], &[NicKind::Virtio], &[NicKind::E1000, NicKind::Virtio]];

/// A guest for each of these kinds of NICs, with all that is for guests in it.
pub fn jobs<'a>(
    report: &mut Report,
    programs: &'a [Program],
    options: &'a Options,
    all: &[&'static [NicKind]],
) -> Vec<Job<'a>> {
    // Over models it runs without guests.
    let wanted = all.iter().any(|nics| is_emulated(nics));
    let suite = wanted
        .then(|| vipl::build(programs))
        .and_then(|built| built.map_err(|e| report.failed("building VIPL's suite", &e.to_string())).ok());
    let overhead = called(programs, messages::OVERHEAD).first().copied().filter(|_| wanted);
    // They have tests that are ignored elsewhere.
    let programs = called(programs, "guest_");
    if programs.is_empty() {
        report.failed("guests", "there is no test program called guest_*");
        return Vec::new();
    }
    let job = |&nics: &&'static [NicKind]| {
        let (programs, suite) = (programs.clone(), suite.clone());
        let seconds = match nics {
            [NicKind::E1000] => 228,
            [NicKind::Virtio] => 178,
            _ => 150,
        };
        Job::new(&format!("in a guest: {}", label(nics)), seconds, move |report| {
            in_guest(report, options, nics, &programs, overhead, suite.as_deref());
        })
    };
    all.iter().map(job).collect()
}

fn in_guest(
    report: &mut Report,
    options: &Options,
    nics: &[NicKind],
    programs: &[&Program],
    overhead: Option<&Program>,
    suite: Option<&Path>,
) {
    let label = &label(nics);
    let settings = Settings {
        nics: nics.to_vec(),
        hugepages: 32,
        adapter_memory: Some(1 << 20),
        carry: programs
            .iter()
            .copied()
            .chain(overhead)
            .map(|program| program.path.clone())
            .chain(suite.map(PathBuf::from))
            .collect(),
        keep_log: options.keep_log.as_ref().map(|dir| dir.join(label.replace(' ', "-"))),
        ..Settings::default()
    };
    booted::with(report, label, &settings, |report, session| {
        let guest = session.guest();
        for program in programs.iter().filter(|program| options.long || suits(program, nics)) {
            run_program(report, guest, label, program);
        }
        if let Some(program) = overhead {
            messages::overhead(report, guest, label, program);
        }
        tools::in_guest(report, guest, label);
        if let Some(suite) = suite.filter(|_| is_emulated(nics)) {
            vipl::in_guest(report, guest, label, suite);
        }
    });
}

/// What a driver has to do, each shows in a guest with two NICs of its own kind: those of two kinds are there for what
/// stands on drivers. Messages go over QEMU's own: what a model shows of them its tests on the host have shown.
fn suits(program: &Program, nics: &[NicKind]) -> bool {
    match program.target.as_str() {
        "guest_interfaces" => true,
        "guest_messages" => is_emulated(nics),
        _ => nics.len() == 1,
    }
}

/// Whether all of these are QEMU's own.
fn is_emulated(nics: &[NicKind]) -> bool {
    nics.iter().all(|kind| kind.model().is_none())
}

/// The programs whose names start so.
pub fn called<'a>(programs: &'a [Program], start: &str) -> Vec<&'a Program> {
    programs.iter().filter(|program| program.target.starts_with(start)).collect()
}

/// What a guest with these NICs is called.
pub fn label(nics: &[NicKind]) -> String {
    let names: Vec<_> = nics.iter().map(|kind| kind.name()).collect();
    names.join(" to ")
}

/// Runs a test program's tests for guests.
pub fn run_program(report: &mut Report, guest: &Guest, label: &str, program: &Program) {
    let group = format!("{label}: {}: ", program.target);
    let before = report.failures();
    let path = program.path.to_string_lossy();
    let outcome = guest.run([&*path, "--ignored", "--test-threads=1"], LIMIT);
    match outcome {
        Ok(outcome) => {
            let text = outcome.text();
            for line in text.lines() {
                if line.starts_with("test ") {
                    say!("{group}{line}");
                }
                report.harness_line(&group, line, |_| false);
            }
            if !outcome.status.success() {
                say!("{text}\n{}", String::from_utf8_lossy(&outcome.stderr));
                if report.failures() == before {
                    report.failed(&group, &format!("{:?}\n{}", outcome.status, guest.console_tail(20)));
                }
            }
        }
        Err(e) => report.failed(&group, &format!("{e}\n{}", guest.console_tail(20))),
    }
}
