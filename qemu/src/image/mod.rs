//! Builds the guest's initramfs.

pub mod carry;
pub mod cpio;
pub mod elf;
pub mod kmod;
pub mod tree;

use std::ffi::CString;
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::nic::NicKind;
use carry::Carrier;
use kmod::Modules;
use tree::Tree;

/// The folder, in the guest, of the lists of modules.
pub const MODULE_LISTS: &str = "/etc/uvia/modules";
/// The set of modules that the control port needs.
pub const CONTROL: &str = "control";
/// The set of modules that user-space drivers need.
pub const VFIO: &str = "vfio";
/// Our tools.
pub const TOOLS: [&str; 4] = ["uvia-bind", "uvia-info", "uvia-perf", "uvia-cp"];

const AGENT: &str = "uvia-vm";
const TOOL_DIR: &str = "/usr/local/bin";
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/usr/sbin";

/// What goes into an image.
pub struct Parts<'a> {
    /// lib/modules/VERSION of the kernel.
    pub modules: &'a Path,
    /// A static busybox.
    pub busybox: &'a Path,
    /// The folder with our programs.
    pub tools: &'a Path,
    /// Host files and folders to carry.
    pub carry: &'a [PathBuf],
    /// Further modules to carry.
    pub load: &'a [String],
}

/// A finished image.
pub struct Image {
    /// The archive, in memory that QEMU can open through /proc/self/fd: so nothing is left behind on disk.
    pub file: File,
    /// PATH for commands in the guest.
    pub path: String,
}

/// Builds an image.
pub fn build(parts: &Parts) -> Result<Image> {
    let mut tree = Tree::default();
    for dir in ["/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/etc", "/var/tmp", "/mnt"] {
        tree.dir(Path::new(dir));
    }
    for (path, text) in [
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ] {
        tree.bytes(Path::new(path), text, 0o644);
    }
    add_busybox(&mut tree, parts.busybox)?;
    add_modules(&mut tree, parts)?;

    let mut carrier = Carrier::new(&mut tree);
    let agent = parts.tools.join(AGENT);
    if !agent.is_file() {
        return Err(Error::bad(
            &agent,
            "the guest's process 1 is not built; run `cargo build --release -p uvia-vm`",
        ));
    }
    carrier.program(&agent, Path::new("/init"))?;
    for tool in TOOLS {
        let from = parts.tools.join(tool);
        if from.is_file() {
            carrier.program(&from, &Path::new(TOOL_DIR).join(tool))?;
        }
    }
    for path in parts.carry {
        carrier.carry(path)?;
    }
    let dirs = carrier.finish();
    Ok(Image { file: pack(&tree)?, path: search_path(&dirs) })
}

/// Carried programs come first: whoever carries one wants it, and not busybox's of the same name.
fn search_path(dirs: &[PathBuf]) -> String {
    let carried: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let system =
        SYSTEM_PATH.split(':').filter(|dir| !carried.iter().any(|known| known == dir)).map(str::to_owned);
    carried.iter().cloned().chain(system).collect::<Vec<_>>().join(":")
}

fn add_busybox(tree: &mut Tree, busybox: &Path) -> Result<()> {
    let output = Command::new(busybox)
        .arg("--list-full")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| Error::path("start", busybox, error))?;
    let list = String::from_utf8_lossy(&output.stdout);
    if !list.lines().any(|line| line.ends_with("bin/sh")) {
        return Err(Error::bad(
            busybox,
            "this is not a busybox with a shell (`busybox --list-full` has no sh)",
        ));
    }
    let bytes = std::fs::read(busybox).map_err(|error| Error::path("read", busybox, error))?;
    if elf::parse(&bytes).is_none_or(|elf| elf.interpreter.is_some()) {
        return Err(Error::bad(
            busybox,
            "the guest's busybox must be statically linked (Debian: busybox-static)",
        ));
    }
    tree.host(Path::new("/usr/bin/busybox"), busybox)?;
    for applet in list.lines().map(str::trim).filter(|applet| !applet.is_empty() && *applet != "bin/busybox")
    {
        tree.link(&Path::new("/").join(applet), "/usr/bin/busybox");
    }
    Ok(())
}

/// Adds the modules, and for each set a list of them in the order of loading.
fn add_modules(tree: &mut Tree, parts: &Parts) -> Result<()> {
    let modules = Modules::open(parts.modules, parts.busybox)?;
    let mut add = |set: &str, names: &[&str]| -> Result<()> {
        let mut list = String::new();
        for name in names {
            for module in modules.with_dependencies(name)? {
                let path = format!("/lib/modules/{}.ko", module.name);
                if !list.lines().any(|known| known == path) {
                    list.push_str(&path);
                    list.push('\n');
                }
                tree.bytes(Path::new(&path), module.bytes, 0o644);
            }
        }
        tree.bytes(&Path::new(MODULE_LISTS).join(set), list, 0o644);
        Ok(())
    };
    add(CONTROL, &["virtio_pci", "virtio_console"])?;
    add(VFIO, &["vfio", "vfio_iommu_type1", "vfio_pci"])?;
    for kind in NicKind::ALL {
        match add(kind.module(), &[kind.module()]) {
            // A kernel need not know every card: the guest says so when that card is asked for.
            Ok(()) | Err(Error::NoModule { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for name in parts.load {
        add(name, &[name])?;
    }
    Ok(())
}

fn pack(tree: &Tree) -> Result<File> {
    let name = CString::default();
    // SAFETY: the name is a valid C string; the call has no other requirement.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::io("make memory for the guest's initramfs", std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    let file = unsafe { File::from_raw_fd(fd) };
    tree.pack(BufWriter::with_capacity(1 << 20, file))?
        .into_inner()
        .map_err(|error| Error::io("write the guest's initramfs", error.into_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_folders_come_first_and_system_folders_once() {
        let dirs = ["/opt/x/bin", "/usr/sbin"].map(PathBuf::from);
        assert_eq!(search_path(&dirs), "/opt/x/bin:/usr/sbin:/usr/local/bin:/usr/bin");
        assert_eq!(search_path(&[]), SYSTEM_PATH);
    }
}
