//! The Wireshark dissector, against frames that the encoder made: tests of `uvia` that are ignored elsewhere, since they
//! need tshark.

use std::process::{Command, Stdio};

use crate::Options;
use crate::build::Program;
use crate::host::count;
use crate::report::Report;

/// The reason for which they are ignored.
pub const NEEDS: &str = "needs tshark";

/// Runs them where there is a tshark.
pub fn run(report: &mut Report, programs: &[Program], options: &Options) {
    report.heading("the Wireshark dissector");
    let asked = Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        return report.skipped("the Wireshark dissector", "tshark is not installed (Debian: tshark)");
    }
    let before = (report.failures(), report.passes());
    for program in programs.iter().filter(|program| program.target == "uvia") {
        let mut command = Command::new(&program.path);
        command.args(["--ignored", "dissected"]).current_dir(&program.folder).stdin(Stdio::null());
        if options.long {
            command.env("UVIA_LONG", "1");
        }
        match count(report, "dissector: ", command) {
            Ok(status) if !status.success() && report.failures() == before.0 => {
                report.failed("the Wireshark dissector", &status.to_string());
            }
            Ok(_) => {}
            Err(e) => report.failed("the Wireshark dissector", &e.to_string()),
        }
    }
    if (report.failures(), report.passes()) == before {
        report.failed("the Wireshark dissector", "there are no tests of it");
    }
}
