//! Guests for tests: booted, and once more if the emulator failed them.

use uvia_vm::{Session, Settings};

use crate::report::Report;

/// Boots guests, and runs tests with them. A guest whose kernel lost its timer, which is the emulator's fault, says nothing
/// of what was tested: then all is done once more, in new guests, and only that counts.
pub fn with(
    report: &mut Report,
    label: &str,
    settings: &Settings,
    mut tests: impl FnMut(&mut Report, &Session),
) {
    once_or_twice(report, label, |part| match Session::boot(settings) {
        Ok(session) => {
            tests(part, &session);
            session.lost_timer()
        }
        Err(e) => {
            not_booted(part, label, &e);
            None
        }
    });
}

/// Runs tests, which answer why they are to be done over; twice at most.
fn once_or_twice(report: &mut Report, label: &str, mut tests: impl FnMut(&mut Report) -> Option<String>) {
    let mut part = report.part();
    if let Some(panic) = tests(&mut part) {
        say!("{label}: the emulator lost a timer ({panic}): once more, in new guests");
        part = report.part();
        tests(&mut part);
    }
    report.add(part);
}

/// A guest that did not boot; that there is no QEMU for its NICs is no failure of ours.
fn not_booted(report: &mut Report, label: &str, error: &uvia_vm::Error) {
    let name = format!("{label}: booting a guest");
    match error {
        uvia_vm::Error::NoVfioUser { .. } => report.skipped(&name, &error.to_string()),
        _ => report.failed(&name, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is counted of guests that lose their timer so often, with a test that fails when they do.
    fn counted(losses: usize) -> (usize, usize) {
        let (mut report, mut runs) = (Report::default(), 0);
        once_or_twice(&mut report, "guests", |part| {
            part.passed("a test");
            runs += 1;
            (runs <= losses).then(|| {
                part.failed("another", "its guest died");
                "Kernel panic - not syncing: RCU Stall".to_owned()
            })
        });
        (report.passes(), report.failures())
    }

    #[test]
    fn guests_that_lose_their_timer_get_one_more_chance() {
        assert_eq!([counted(0), counted(1), counted(2)], [(1, 0), (1, 0), (1, 1)]);
    }
}
