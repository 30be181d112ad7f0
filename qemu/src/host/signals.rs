//! What happens when the launcher is told to end.

use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{child, devices};
use crate::error::{Error, Result};

/// Ends the guests, and then the process, at an interrupt or a request to end.
///
/// There is little else to clean up: images and sockets have no names on disk, but those of served NICs while
/// guests boot. A killed launcher (SIGKILL) takes its guests along by itself.
pub fn install() -> Result<()> {
    let failed = |error| Error::io("listen for signals", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                child::kill_all();
                devices::remove_folders();
                std::process::exit(128 + signal);
            }
        })
        .map(drop)
        .map_err(failed)
}
