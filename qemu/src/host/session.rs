//! Boots guests.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::child::Child;
use super::console::Console;
use super::devices::Devices;
use super::emulator::Emulator;
use super::guest::{Boot, Guest, SetUp};
use super::monitor::Monitor;
use crate::accel;
use crate::error::{Error, Result};
use crate::fetch::{self, System};
use crate::image::{self, Image, Parts};
use crate::machine::{self, Machine, Nic, Way};
use crate::paths;
use crate::settings::Settings;

/// How often a guest is booted before it is given up.
const BOOTS: usize = 3;

/// One guest, or several whose NICs are joined.
#[derive(Debug)]
pub struct Session {
    // In this order: a guest whose NIC goes away first would complain.
    guests: Vec<Guest>,
    devices: Option<Mutex<Devices>>,
}

/// What every guest of a session boots from.
pub(crate) struct Ground {
    pub(crate) qemu: Emulator,
    pub(crate) system: System,
    pub(crate) image: Image,
}

impl Session {
    /// Boots the guests and waits until all are up and set up.
    pub fn boot(settings: &Settings) -> Result<Session> {
        check(settings)?;
        let cache = settings.cache();
        fs::create_dir_all(&cache).map_err(|error| Error::path("make the folder", &cache, error))?;
        let qemu = Emulator::find(settings)?;
        if let Some(dir) = &settings.keep_log {
            fs::create_dir_all(dir).map_err(|error| Error::path("make the folder", dir, error))?;
        }
        let system = fetch::system(settings, &cache)?;
        let tools = settings.tools.clone().unwrap_or_else(paths::default_tools);
        let image = image::build(&Parts {
            modules: &system.modules,
            busybox: &system.busybox,
            tools: &tools,
            carry: &settings.carry,
            load: &settings.load,
        })?;
        let ground = Ground { qemu, system, image };
        let accel = accel::choose(settings, &ground, &cache)?;
        let mut devices = Devices::start(settings, &tools)?;
        match boot_all(settings, &ground, accel, devices.as_ref()) {
            Ok(guests) => {
                devices.iter_mut().for_each(Devices::connected);
                Ok(Session { guests, devices: devices.map(Mutex::new) })
            }
            Err(error) => Err(devices.as_mut().and_then(Devices::failure).unwrap_or(error)),
        }
    }

    /// Why a guest that failed may not be to blame: the process that serves its NICs is gone.
    pub fn devices_failure(&self) -> Option<Error> {
        let devices = self.devices.as_ref()?;
        devices.lock().unwrap_or_else(PoisonError::into_inner).failure()
    }

    /// Why guests that failed may not be to blame: a kernel panicked because its timer came no more, which is the
    /// emulator's fault.
    pub fn lost_timer(&self) -> Option<String> {
        self.guests.iter().find_map(Guest::lost_timer)
    }

    /// The guests.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// The first guest, which there always is.
    pub fn guest(&self) -> &Guest {
        &self.guests[0]
    }
}

fn check(settings: &Settings) -> Result<()> {
    let usage = |text: &str| Err(Error::Usage(text.into()));
    match settings {
        Settings { guests: 0 | 17.., .. } => usage("--guests takes 1 to 16"),
        Settings { nics_each: 0 | 3.., .. } => usage("--nics-each takes 1 or 2"),
        Settings { nics, .. } if nics.is_empty() => usage("--nic needs a kind"),
        Settings { vcpus: 0, .. } => usage("--vcpus takes at least 1"),
        Settings { memory_mib: 0..256, .. } => usage("--memory takes at least 256 (MiB)"),
        Settings { memory_mib, hugepages, .. }
            if u64::from(*hugepages) * 2 + 192 > u64::from(*memory_mib) =>
        {
            Err(Error::Usage(format!(
                "{hugepages} hugepages of 2 MiB leave too little of {memory_mib} MiB; give --memory more"
            )))
        }
        _ => Ok(()),
    }
}

fn boot_all(
    settings: &Settings,
    ground: &Ground,
    accel: [&str; 2],
    devices: Option<&Devices>,
) -> Result<Vec<Guest>> {
    let deadline = Instant::now() + settings.boot_limit;
    // Ours stay open until all are up: a guest that is booted again takes its end over.
    let links = if devices.is_none() { links(settings.guests)? } else { Vec::new() };
    let boot = |guest: usize| {
        let ways = match devices {
            Some(devices) => devices.ways(settings, guest),
            None => ends(&links, guest),
        };
        start(settings, ground, accel, guest, &ways, &Devices::nics(settings, devices, guest))
    };
    let mut guests = (0..settings.guests).map(boot).collect::<Result<Vec<_>>>()?;
    for (index, guest) in guests.iter_mut().enumerate() {
        wait_up(settings, guest, deadline, || boot(index))?;
    }
    for guest in &mut guests {
        if let Err(error) = set_up(settings, &ground.image, guest) {
            if settings.verbose && !matches!(error, Error::Died { .. }) {
                show_tail(guest);
            }
            return Err(error);
        }
    }
    Ok(guests)
}

/// Waits for a guest; boots it again if it hangs or panics.
///
/// Under emulation with several processors on a busy machine, about one boot in thirty was seen to stop,
/// early in the kernel and for good. No guest talks to another before all are up, so one that is booted
/// again is not missed.
fn wait_up(
    settings: &Settings,
    guest: &mut Guest,
    deadline: Instant,
    again: impl Fn() -> Result<Guest>,
) -> Result<()> {
    let mut boots = 1;
    while let Boot::Stuck(error) = guest.wait_up(deadline, settings.boot_limit)? {
        if boots == BOOTS {
            return Err(error);
        }
        boots += 1;
        if settings.verbose {
            eprintln!("uvia-vm: guest {} got stuck while it booted; booting it again", guest.index());
        }
        guest.kill();
        *guest = again()?;
    }
    Ok(())
}

fn set_up(settings: &Settings, image: &Image, guest: &mut Guest) -> Result<()> {
    let kinds = settings.nics_of(guest.index());
    let nics: Vec<_> =
        kinds.iter().enumerate().map(|(nic, kind)| (machine::port_address(nic), kind.module())).collect();
    let served = kinds.iter().any(|kind| kind.model().is_some());
    let memory = settings.adapter_memory.map(|_| machine::port_address(nics.len()));
    let later = SetUp { load: settings.load.clone(), attach: settings.attach };
    guest.configure(&image.path, settings.hugepages, &nics, memory.as_deref(), served, later)
}

/// Shows the end of a guest's console on standard error.
pub(crate) fn show_tail(guest: &Guest) {
    let tail = guest.console_tail(30);
    let index = guest.index();
    if tail.is_empty() {
        eprintln!("uvia-vm: guest {index} wrote nothing to its console");
    } else {
        eprintln!("uvia-vm: the end of guest {index}'s console:\n{tail}");
    }
}

/// Neighbours are joined by a pair of sockets each, so that all are on one segment.
fn links(guests: usize) -> Result<Vec<(UnixStream, UnixStream)>> {
    let pair = |_| UnixStream::pair().map_err(|error| Error::io("make a pair of sockets", error));
    (1..guests).map(pair).collect()
}

/// The ends of the links that a guest holds: to its left, and to its right.
fn ends(links: &[(UnixStream, UnixStream)], guest: usize) -> Vec<Way> {
    let left = guest.checked_sub(1).and_then(|at| links.get(at)).map(|pair| pair.1.as_raw_fd());
    left.into_iter().chain(links.get(guest).map(|pair| pair.0.as_raw_fd())).map(Way::Socket).collect()
}

/// Starts one guest's QEMU.
pub(crate) fn start(
    settings: &Settings,
    ground: &Ground,
    accel: [&str; 2],
    guest: usize,
    ways: &[Way],
    nics: &[Nic],
) -> Result<Guest> {
    let pair = || UnixStream::pair().map_err(|error| Error::io("make a pair of sockets", error));
    let (console, console_end) = pair()?;
    let (control, control_end) = pair()?;
    let (monitor, monitor_end) = pair()?;
    let machine = Machine {
        guest,
        accel,
        kernel: &ground.system.kernel,
        initrd: ground.image.file.as_raw_fd(),
        console: console_end.as_raw_fd(),
        control: control_end.as_raw_fd(),
        monitor: monitor_end.as_raw_fd(),
        ways,
        nics,
    };
    let mut fds = vec![machine.initrd, machine.console, machine.control, machine.monitor];
    fds.extend(ways.iter().filter_map(|way| match way {
        Way::Socket(fd) => Some(*fd),
        Way::Path(_) => None,
    }));
    let mut command = ground.qemu.command();
    command.args(machine::arguments(settings, &machine)).stdout(Stdio::null());
    let mut qemu = Child::start(command, fds)?;
    let log = match &settings.keep_log {
        Some(dir) => {
            let path = dir.join(format!("console-{guest}.log"));
            Some(File::create(&path).map_err(|error| Error::path("make the log", &path, error))?)
        }
        None => None,
    };
    let kept = Console::default();
    let prefix = |what: &str| {
        let number = if settings.guests > 1 { guest.to_string() } else { String::new() };
        settings.verbose.then(|| format!("[{what}{number}] "))
    };
    if let Some(stderr) = qemu.stderr() {
        kept.follow_errors(stderr, prefix("qemu"));
    }
    kept.follow(console, prefix("console"), log);
    Guest::new(guest, control, Monitor::new(guest, monitor), qemu, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_with_the_option_to_change() {
        for (settings, option) in [
            (Settings { guests: 0, ..Settings::default() }, "--guests"),
            (Settings { nics_each: 3, ..Settings::default() }, "--nics-each"),
            (Settings { memory_mib: 64, ..Settings::default() }, "--memory"),
            (Settings { hugepages: 500, ..Settings::default() }, "--memory"),
            (Settings { vcpus: 0, ..Settings::default() }, "--vcpus"),
        ] {
            assert!(check(&settings).unwrap_err().to_string().contains(option));
        }
        assert!(check(&Settings::default()).is_ok());
    }
}
