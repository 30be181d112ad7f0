//! What has no lock, in all interleavings: a build of its own, with loom's atomics in place of the system's.

use crate::host;
use crate::jobs::Job;
use crate::report::Report;

/// Builds and runs the checks.
pub fn job() -> Job<'static> {
    Job::new("interleavings of lock-free code", 25, run)
}

fn run(report: &mut Report) {
    let arguments = ["test", "--manifest-path", "tests/loom/Cargo.toml", "--target-dir", "target/loom"];
    match host::count(report, "interleavings: ", host::cargo(&arguments)) {
        Ok(status) if status.success() => {}
        Ok(status) => report.failed("interleavings", &status.to_string()),
        Err(e) => report.failed("interleavings", &e.to_string()),
    }
}
