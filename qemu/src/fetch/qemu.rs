//! A QEMU that knows vfio-user, on hosts whose own is older: Debian's backport, unpacked into the cache and
//! never installed. It brings all its libraries along, down to the C library and its loader.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::apt::{Apt, archives};
use super::bar::Bar;
use super::once;
use crate::error::{Error, Result};
use crate::host::emulator::Emulator;

const NAME: &str = "qemu-vfio-user";
const PACKAGE: &str = "qemu-system-x86";
const RELEASE: &str = "trixie-backports";
const BASE: &str = "trixie";
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const REMEDY: &str = "give --qemu PATH, a QEMU of version 10.1 or later";

/// Finds it in the cache, or fetches it.
pub fn private(cache: &Path, verbose: bool) -> Result<Emulator> {
    let root = once::folder(cache, NAME, verbose, |work| fill(work, verbose))?;
    emulator(&root)
}

fn fill(work: &Path, verbose: bool) -> Result<()> {
    if !Path::new(KEYRING).is_file() {
        return Err(Error::Usage(format!(
            "there is no {KEYRING} to check Debian's packages by: install the package debian-archive-keyring, or {REMEDY}"
        )));
    }
    let apt = Apt::of_its_own(&work.join("apt"), &sources(), REMEDY)?;
    let steps = Bar::new(&format!("fetching lists for a QEMU with vfio-user ({RELEASE})"), 1, verbose);
    apt.update()?;
    drop(steps);
    let bar = Bar::new(&format!("fetching {PACKAGE} and its libraries (some 40 MB)"), 100, verbose);
    apt.download_all(PACKAGE, RELEASE, |percent| bar.at(percent as u64))?;
    drop(bar);
    let archives = archives(&work.join("apt/cache/archives"))?;
    let bar = Bar::new("unpacking them", archives.len() as u64, verbose);
    for (archive, number) in archives.iter().zip(1..) {
        apt.unpack(archive, &work.join("root"))?;
        bar.at(number);
    }
    // What cannot be started shall not become the cache's.
    emulator(&work.join("root"))?.check_vfio_user()
}

fn sources() -> String {
    [BASE, RELEASE].map(|suite| format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n")).concat()
}

/// The unpacked QEMU: started by its own loader, with its own libraries, modules and firmware.
fn emulator(root: &Path) -> Result<Emulator> {
    let binary = root.join("usr/bin/qemu-system-x86_64");
    let libraries = libraries(root)?;
    let loader = first(&libraries, "ld-linux").or_else(|_| first(&root.join("usr/lib64"), "ld-linux"))?;
    // The host's cache of libraries would lead to the host's own, which are older.
    let mut arguments: Vec<OsString> = vec!["--inhibit-cache".into(), "--library-path".into()];
    arguments.extend([libraries.clone().into(), binary.clone().into()]);
    for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
        arguments.extend(["-L".into(), root.join(firmware).into()]);
    }
    let environment = vec![("QEMU_MODULE_DIR".into(), libraries.join("qemu").into())];
    if !binary.is_file() {
        return Err(Error::bad(root, "the unpacked package has no QEMU; remove the folder"));
    }
    Ok(Emulator { binary, program: loader, arguments, environment })
}

/// usr/lib/x86_64-linux-gnu, whatever the architecture is called.
fn libraries(root: &Path) -> Result<PathBuf> {
    let dir = root.join("usr/lib");
    let entries = fs::read_dir(&dir).map_err(|error| Error::path("look into", &dir, error))?;
    let found = entries.flatten().map(|entry| entry.path()).find(|path| path.join("libc.so.6").exists());
    found.ok_or_else(|| Error::bad(root, "the unpacked packages have no C library; remove the folder"))
}

fn first(dir: &Path, start: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).map_err(|error| Error::path("look into", dir, error))?;
    let mut found = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    found
        .next()
        .map(|entry| entry.path())
        .ok_or_else(|| Error::bad(dir, format!("there is no {start}*; remove the folder")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_started_by_its_own_loader_with_its_own_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let lib = dir.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&lib).unwrap();
        fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
        for file in ["libc.so.6", "ld-linux-x86-64.so.2"] {
            fs::write(lib.join(file), "").unwrap();
        }
        assert!(emulator(dir.path()).is_err());
        fs::write(dir.path().join("usr/bin/qemu-system-x86_64"), "").unwrap();
        let emulator = emulator(dir.path()).unwrap();
        assert_eq!(emulator.program, lib.join("ld-linux-x86-64.so.2"));
        assert_eq!(emulator.arguments[1..3], [OsString::from("--library-path"), lib.clone().into()]);
        assert_eq!(emulator.environment[0].1, lib.join("qemu"));
    }

    #[test]
    fn sources_are_signed() {
        assert_eq!(sources().lines().filter(|line| line.contains("[signed-by=")).count(), 2);
    }
}
