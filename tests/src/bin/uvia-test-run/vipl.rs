//! VIPL's suite in C: built here, and run in guests over their NICs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use uvia_vm::Guest;

use crate::build::Program;
use crate::report::{Failure, Report, Verdict};

/// How long all of it may take in a guest.
const LIMIT: Duration = Duration::from_secs(420);
/// So many cases it has at least.
const CASES: usize = 156;

/// Builds the suite against the static library that was built with the test programs; answers where it lies.
///
/// # Errors
/// The library is not there, or the compiler fails.
pub fn build(programs: &[Program]) -> Result<PathBuf, Failure> {
    let program = programs
        .iter()
        .find(|program| program.name == "vipl/vipl")
        .ok_or("there is no test program of VIPL")?;
    let folder = program.path.parent().ok_or("a test program in no folder")?;
    let library = newest_library(folder)?;
    let suite = folder.join("vipl-suite");
    let sources = std::fs::read_dir(program.folder.join("tests/c"))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("c")));
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_GNU_SOURCE", "-O1", "-Wno-unused-function", "-I"]);
    command.arg(program.folder.join("include")).args(sources).arg(library);
    command.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-o"]).arg(&suite).stdin(Stdio::null());
    let status = command.status()?;
    if status.success() { Ok(suite) } else { Err(format!("building VIPL's suite: {status}").into()) }
}

fn newest_library(folder: &Path) -> Result<PathBuf, Failure> {
    let found = std::fs::read_dir(folder)?.flatten().filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("libvipl-") && name.ends_with(".a")
    });
    // Others may be left from before.
    let newest = found.max_by_key(|entry| entry.metadata().and_then(|about| about.modified()).ok());
    Ok(newest.ok_or("there is no static library of VIPL")?.path())
}

/// Runs it between the guest's two NICs.
pub fn in_guest(report: &mut Report, guest: &Guest, label: &str, suite: &Path) {
    report.case(&format!("{label}: VIPL's suite in C"), || {
        let line = format!(
            "UVIA_CONF=/dev/null {} --a \"$UVIA_NIC_A\" --b \"$UVIA_NIC_B\"",
            suite.to_string_lossy()
        );
        let outcome = guest.run(["sh", "-c", &line], LIMIT)?;
        let text = outcome.text();
        let passed =
            text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ... ok")).count();
        if !outcome.status.success() || passed < CASES {
            let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
            return Err(format!("{passed} cases, {:?}\n{text}\n{stderr}", outcome.status).into());
        }
        say!("   {passed} cases");
        Ok(Verdict::Passed)
    });
}
