//! Who carries changes out.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::patience;

/// The machine that is changed; tests put one of their own in its place.
pub trait Host {
    /// Writes to a file of the kernel, in one piece.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Writes a function's address to its driver's `unbind`. A driver that waits for the function's users gets
    /// `limit`, and then [`io::ErrorKind::TimedOut`] is the answer: the kernel finishes it by itself.
    fn unbind(&self, path: &Path, address: &str, limit: Duration) -> io::Result<()>;

    /// Whether something has an IOMMU group, or a device of it, open or mapped.
    fn group_is_busy(&self, group: u32) -> bool;

    /// Loads a kernel module, by name or alias.
    fn load_module(&self, name: &str) -> io::Result<()>;

    /// Whether the module is built in, loaded or can be loaded, as far as can be told.
    fn has_module(&self, name: &str) -> bool;

    /// Whether we may change drivers.
    fn is_privileged(&self) -> bool;
}

/// The running kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Host for Linux {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn unbind(&self, path: &Path, address: &str, limit: Duration) -> io::Result<()> {
        patience::write_within(path, address, limit)
    }

    fn group_is_busy(&self, group: u32) -> bool {
        // The kernel lets a group be opened once, and its devices keep it open.
        let opened = fs::OpenOptions::new().read(true).write(true).open(format!("/dev/vfio/{group}"));
        opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
    }

    fn load_module(&self, name: &str) -> io::Result<()> {
        // Users' PATH often lacks the folders of system programs.
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("modprobe")
            .arg(name)
            .env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin"))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| io::Error::new(e.kind(), format!("modprobe: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(io::Error::other(if said.is_empty() { format!("modprobe: {}", output.status) } else { said }))
    }

    fn has_module(&self, name: &str) -> bool {
        let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease") else { return true };
        // The second is NixOS's. Without either, modprobe has nothing to load from.
        let lists = ["/lib/modules", "/run/booted-system/kernel-modules/lib/modules"].map(|folder| {
            let folder = Path::new(folder).join(release.trim());
            ["modules.dep", "modules.builtin"].map(|list| fs::read_to_string(folder.join(list)).ok())
        });
        let same = |c: char| if c == '_' { '-' } else { c };
        let wanted: String = name.chars().map(same).collect();
        let names_it = |line: &str| {
            let file = line.split(':').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            file.split(".ko").next().unwrap_or_default().chars().map(same).eq(wanted.chars())
        };
        lists.iter().flatten().flatten().any(|list| list.lines().any(names_it))
    }

    fn is_privileged(&self) -> bool {
        // SAFETY: takes nothing, changes nothing, cannot fail.
        unsafe { libc::geteuid() == 0 }
    }
}
