//! What happens when the launcher is told to end.

use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::qemu;
use crate::error::{Error, Result};

/// Ends the guests, and then the process, at an interrupt or a request to end.
///
/// There is nothing else to clean up: images and sockets have no names on disk. A killed launcher
/// (SIGKILL) takes its guests along by itself.
pub fn install() -> Result<()> {
    let failed = |error| Error::io("listen for signals", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                qemu::kill_all();
                std::process::exit(128 + signal);
            }
        })
        .map(drop)
        .map_err(failed)
}
