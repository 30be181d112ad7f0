//! The process that serves the models which guests get as NICs.
//!
//! There is one for all guests: its switch then joins whatever NICs they have. A NIC of QEMU's own hangs on it by a
//! socket, in the format of QEMU's `stream`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tempfile::TempDir;

use super::child::Child;
use super::console::Console;
use crate::error::{Error, Result};
use crate::machine::{self, Nic, Way};
use crate::settings::Settings;

const PROGRAM: &str = "uvia-device";

/// Folders of sockets, for the signal handler.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The models, served; ended when dropped.
#[derive(Debug)]
pub struct Devices {
    child: Child,
    said: Console,
    /// Until all guests are connected: then no name on disk is needed any more.
    folder: Option<TempDir>,
}

impl Devices {
    /// Starts the process if the settings name a model.
    pub fn start(settings: &Settings, tools: &Path) -> Result<Option<Self>> {
        if !settings.has_models() {
            return Ok(None);
        }
        let program = tools.join(PROGRAM);
        if !program.is_file() {
            return Err(Error::bad(
                &program,
                "the program that serves models is not built; run `cargo build --release -p uvia-models`",
            ));
        }
        let folder = tempfile::Builder::new()
            .prefix("uvia-vm-")
            .tempdir()
            .map_err(|error| Error::io("make a folder for sockets", error))?;
        FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).push(folder.path().to_owned());
        let mut command = Command::new(&program);
        command.args(arguments(settings, folder.path())).stdout(Stdio::piped());
        let mut child = Child::start(command, Vec::new())?;
        let said = Console::default();
        if let Some(stderr) = child.stderr() {
            said.follow_errors(stderr, settings.verbose.then(|| "[device] ".to_owned()));
        }
        let mut devices = Devices { child, said, folder: Some(folder) };
        devices.wait_ready()?;
        Ok(Some(devices))
    }

    fn wait_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        let Some(stdout) = self.child.stdout() else { return Ok(()) };
        let mut stdout = BufReader::new(stdout);
        // It ends, and so does its output, when a socket cannot be made.
        match stdout.read_line(&mut line) {
            Ok(_) if line.trim() == "ready" => {
                // Read on: whoever writes into a pipe that nobody reads gets a signal.
                thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
                Ok(())
            }
            _ => {
                self.said.settle();
                Err(Error::Devices(self.said.tail(20)))
            }
        }
    }

    /// The NICs of a guest.
    pub fn nics(settings: &Settings, devices: Option<&Self>, guest: usize) -> Vec<Nic> {
        let folder = devices.and_then(|devices| devices.folder.as_ref()).map(TempDir::path);
        let nics = settings.nics_of(guest).into_iter().enumerate();
        nics.map(|(nic, kind)| {
            let socket = kind.model().and(folder).map(|folder| socket(folder, guest, nic));
            Nic { kind, socket }
        })
        .collect()
    }

    /// The ways from a guest's own NICs to the switch.
    pub fn ways(&self, settings: &Settings, guest: usize) -> Vec<Way> {
        let link = self.folder.as_ref().map(|folder| link(folder.path(), guest));
        link.filter(|_| settings.nics_of(guest).iter().any(|kind| kind.model().is_none()))
            .map(Way::Path)
            .into_iter()
            .collect()
    }

    /// All guests are connected: the sockets lose their names.
    pub fn connected(&mut self) {
        if let Some(folder) = self.folder.take() {
            forget(folder.path());
        }
    }

    /// Why the process is gone, if it is.
    pub fn failure(&mut self) -> Option<Error> {
        let status = self.child.ended()?;
        self.said.settle();
        Some(Error::Devices(format!("{status}\n{}", self.said.tail(20)).trim_end().to_owned()))
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.connected();
    }
}

fn forget(folder: &Path) {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known != folder);
}

/// Removes the folders of sockets; for when we end by a signal.
pub fn remove_folders() {
    for folder in FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // They are in the system's folder for what is temporary: one that stays there does no harm.
        let _ = fs::remove_dir_all(folder);
    }
}

fn socket(folder: &Path, guest: usize, nic: usize) -> PathBuf {
    folder.join(format!("nic-{guest}-{nic}"))
}

fn link(folder: &Path, guest: usize) -> PathBuf {
    folder.join(format!("link-{guest}"))
}

fn arguments(settings: &Settings, folder: &Path) -> Vec<String> {
    let mut arguments = Vec::new();
    for guest in 0..settings.guests {
        let kinds = settings.nics_of(guest);
        for (nic, kind) in kinds.iter().enumerate() {
            if let Some(model) = kind.model() {
                let (socket, mac) = (socket(folder, guest, nic), machine::mac(guest, nic));
                arguments.extend(["--nic".into(), format!("{model},socket={},mac={mac}", socket.display())]);
            }
        }
        if kinds.iter().any(|kind| kind.model().is_none()) {
            arguments.extend(["--link".into(), link(folder, guest).display().to_string()]);
        }
    }
    arguments.extend(settings.device_args.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(guests: usize, nics: &[&str]) -> Settings {
        let nics = nics.iter().map(|name| name.parse().unwrap()).collect();
        Settings { guests, nics, ..Settings::default() }
    }

    #[test]
    fn each_model_has_a_socket_and_each_guest_with_another_nic_a_link() {
        let line = |settings: &Settings| arguments(settings, Path::new("/d")).join(" ");
        assert_eq!(
            line(&settings(1, &["model-e1000"])),
            "--nic e1000,socket=/d/nic-0-0,mac=02:75:76:69:00:0a --nic e1000,socket=/d/nic-0-1,mac=02:75:76:69:00:0b"
        );
        let mixed = line(&settings(2, &["model-virtio", "e1000"]));
        assert_eq!(mixed, "--nic virtio,socket=/d/nic-0-0,mac=02:75:76:69:00:0a --link /d/link-1");
    }

    #[test]
    fn without_models_nothing_is_started() {
        assert!(Devices::start(&settings(1, &["e1000"]), Path::new("/nowhere")).unwrap().is_none());
        let error = Devices::start(&settings(1, &["model-e1000"]), Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("cargo build"), "{error}");
    }
}
