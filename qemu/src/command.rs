//! Runs one command in every guest, with its output and its exit status passed through.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::host::guest::Guest;
use crate::host::process::{Process, Task};
use crate::host::session::{Session, show_tail};
use crate::host::sink::{PassThrough, Prefixed, Sink};
use crate::settings::Settings;

/// Boots the guests and runs the command; its exit status.
pub fn run(settings: &Settings, command: &[OsString], limit: Duration) -> Result<u8> {
    let deadline = Instant::now() + limit;
    let settings = &Settings { boot_limit: settings.boot_limit.min(limit), ..settings.clone() };
    let session = Session::boot(settings)?;
    let result = run_in(&session, settings, command, deadline, limit);
    match session.devices_failure() {
        // Whatever the guests made of it.
        Some(failure) => Err(failure),
        None => result,
    }
}

fn run_in(
    session: &Session,
    settings: &Settings,
    command: &[OsString],
    deadline: Instant,
    limit: Duration,
) -> Result<u8> {
    // All are up before the first starts: none finds the other end missing.
    let start = |guest: &Guest| {
        let sink: Box<dyn Sink> = match settings.guests {
            1 => Box::new(PassThrough),
            _ => Box::new(Prefixed::new(&format!("{}: ", guest.index()))),
        };
        guest.spawn_to(Task::new(command), sink)
    };
    let processes = session.guests().iter().map(start).collect::<Result<Vec<Process>>>()?;
    let mut status = 0;
    for (guest, process) in session.guests().iter().zip(&processes) {
        match process.wait(Some(deadline.saturating_duration_since(Instant::now()))) {
            Ok(outcome) if status == 0 => status = outcome.status.code(),
            Ok(_) => {}
            Err(Error::TimedOut { .. }) => {
                show_tail(guest);
                let seconds = limit.as_secs_f64();
                return Err(Error::TimedOut { guest: guest.index(), what: "the command".into(), seconds });
            }
            // The error itself holds the last that a dead guest said.
            Err(error) => return Err(error),
        }
    }
    Ok(status)
}
