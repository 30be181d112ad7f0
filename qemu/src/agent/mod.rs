//! Process 1 of the guest: sets it up, runs the commands that the launcher asks for, reaps orphans.

mod modules;
mod mounts;
mod nics;
mod port;
mod processes;
mod requests;

use std::io;
use std::time::Duration;

use crate::wire::{Frame, Kind};

/// Runs as process 1; never returns.
pub fn main() -> ! {
    if let Err(error) = serve() {
        // The console is all there is: the launcher shows its tail.
        eprintln!("uvia-vm: the guest's process 1 failed: {error}");
    }
    // Process 1 must not end by itself: that would be a panic, which hides the message above.
    std::thread::sleep(Duration::from_millis(200));
    // SAFETY: the call takes plain numbers and ends the machine.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    loop {
        std::thread::park();
    }
}

fn serve() -> io::Result<()> {
    mounts::early()?;
    modules::load_set(crate::image::CONTROL)?;
    let (mut from, to) = port::open(crate::machine::PORT)?;
    mounts::late()?;
    let processes = processes::Processes::start(to.clone())?;
    to.send(&Frame::new(Kind::Hello, 0, []))?;
    let mut requests = requests::Requests::new(processes, to);
    while let Some(frame) = Frame::read(&mut from)? {
        requests.handle(frame)?;
    }
    Ok(())
}

/// An error with a text.
fn failed(what: impl std::fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
