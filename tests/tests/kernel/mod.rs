//! What the tests of the kernel's drivers share.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod ethtool;
pub mod pair;
pub mod stalled;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long anything may take: a link comes up within 3 s, and emulation on a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a program that has to succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&said));
}

/// Looks until there is something, for as long as anything may take.
pub fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The PCI addresses of both NICs.
pub fn nic_addresses() -> [String; 2] {
    ["UVIA_NIC_A", "UVIA_NIC_B"]
        .map(|name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set")))
}

/// The folders of a function that may hold its interface: virtio has it one level down.
fn homes(address: &str) -> Vec<PathBuf> {
    let device = Path::new("/sys/bus/pci/devices").join(address);
    let below = fs::read_dir(&device).into_iter().flatten().flatten().map(|entry| entry.path());
    let below: Vec<_> = below
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("virtio")))
        .collect();
    std::iter::once(device).chain(below).collect()
}

/// The name of a function's network interface, once it has one.
pub fn interface(address: &str) -> String {
    let look = || {
        let mut nets = homes(address).into_iter().filter_map(|home| fs::read_dir(home.join("net")).ok());
        let entry = nets.find_map(|mut names| names.next())?.ok()?;
        entry.file_name().into_string().ok()
    };
    eventually(look).unwrap_or_else(|| panic!("{address} becomes no interface"))
}

/// The modules that drive the NICs.
pub fn nic_modules() -> Vec<String> {
    let module = |address: &String| {
        let name = interface(address);
        let link = fs::read_link(format!("/sys/class/net/{name}/device/driver/module")).unwrap();
        link.file_name().unwrap().to_string_lossy().into_owned()
    };
    let mut modules: Vec<_> = nic_addresses().iter().map(module).collect();
    modules.sort();
    modules.dedup();
    modules
}
