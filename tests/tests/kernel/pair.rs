//! Both interfaces, each in a network of its own, so that the kernel has to use the wire between them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;

use super::{ethtool, eventually, interface, nic_addresses, run};

/// Addresses of both ends.
pub const A: &str = "10.75.0.1";
/// See [`A`].
pub const B: &str = "10.75.0.2";
/// The first port of tests.
pub const PORT: u16 = 7500;

/// Both interfaces; B is in another network namespace, which goes away with this.
pub struct Pair {
    /// A's name.
    pub a: String,
    /// B's name, in its namespace.
    pub b: String,
    namespace: File,
}

impl Pair {
    /// Gives them addresses, and waits until frames pass.
    pub fn up() -> Self {
        let [a, b] = nic_addresses().map(|address| interface(&address));
        let namespace = new_namespace(&b);
        let pair = Self { a, b, namespace };
        set_up(&pair.a, A);
        let name = pair.b.clone();
        pair.in_b(move || set_up(&name, B));
        eventually(|| (pair.links() == [true; 2]).then_some(()))
            .expect("the kernel sees a link at both ends");
        // A switch may take a moment to open its port.
        let answered = || {
            let status = std::process::Command::new("ping").args(["-c", "1", "-W", "1", B]).output().unwrap();
            status.status.success().then_some(())
        };
        eventually(answered).expect("B answers");
        pair
    }

    /// Runs something in B's network.
    pub fn in_b<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                // SAFETY: the descriptor is open, and the call changes nothing but this thread's network.
                let result = unsafe { libc::setns(self.namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
                what()
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A few answers from B.
    pub fn ping(&self) {
        run("ping", &["-c", "3", "-i", "0.1", "-W", "10", B]);
    }

    /// Sets both ends' longest payload; whether both drivers allow it.
    pub fn set_mtu(&self, bytes: u32) -> bool {
        let set = |name: String| {
            let arguments = ["link", "set", &name, "mtu", &bytes.to_string()];
            std::process::Command::new("ip").args(arguments).output().unwrap().status.success()
        };
        let (a, b) = (self.a.clone(), self.b.clone());
        set(a) && self.in_b(move || set(b))
    }

    /// Whether the kernel sees a link, at A and at B.
    pub fn links(&self) -> [bool; 2] {
        let b = self.b.clone();
        [has_link(&self.a), self.in_b(move || has_link(&b))]
    }

    /// What both ends count, by the names of sysfs.
    pub fn counters(&self) -> [BTreeMap<&'static str, u64>; 2] {
        let b = self.b.clone();
        [device_counters(&self.a), self.in_b(move || device_counters(&b))]
    }

    /// All that may tell why nothing arrives: what both ends count, the kernel's interrupts, twice, and what it said.
    pub fn state(&self) -> String {
        let b = self.b.clone();
        let look = move || {
            let counters = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
            let neighbours = fs::read_to_string("/proc/thread-self/net/arp").unwrap_or_default();
            format!("{counters}{neighbours}")
        };
        let interrupts = || {
            let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
            let lines = text
                .lines()
                .filter(|line| line.contains("eth") || line.contains("virtio") || line.contains("fasteoi"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let [before, after] = [false, true].map(|later| {
            if later {
                thread::sleep(std::time::Duration::from_secs(5));
            }
            interrupts()
        });
        let (links, a, there) = (self.links(), look(), self.in_b(look));
        let statistics = [ethtool::statistics(&self.a), self.in_b(move || ethtool::statistics(&b))];
        let said =
            std::process::Command::new("dmesg").output().map(|output| output.stdout).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let said: Vec<_> = said.lines().rev().take(30).collect();
        format!("links {links:?}\n{a}{there}{statistics:?}\n{before}\n{after}\n{said:#?}")
    }

    /// Frames that either end's TCP or UDP threw away since their sums were wrong.
    pub fn checksum_errors(&self) -> u64 {
        checksum_errors() + self.in_b(checksum_errors)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The kernel gives B back by itself, in its own time, when its network is gone; going by hand is sooner.
        let (name, home) = (self.b.clone(), std::process::id().to_string());
        self.in_b(move || {
            let _ = std::process::Command::new("ip").args(["link", "set", &name, "netns", &home]).status();
        });
        for name in [&self.a, &self.b] {
            for arguments in [["addr", "flush", "dev", name], ["link", "set", name, "down"]] {
                let _ = std::process::Command::new("ip").args(arguments).output();
            }
        }
    }
}

/// Makes a network and moves an interface there.
fn new_namespace(interface: &str) -> File {
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        scope.spawn(move || {
            // SAFETY: the call takes plain numbers, and changes nothing but this thread's network.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            // SAFETY: as above.
            let id = unsafe { libc::gettid() };
            tell.send((File::open("/proc/thread-self/ns/net").unwrap(), id)).unwrap();
            // The thread stands for its network until the interface is there.
            let _ = finished.recv();
        });
        let (namespace, id) = told.recv().unwrap();
        run("ip", &["link", "set", interface, "netns", &id.to_string()]);
        drop(finish);
        namespace
    })
}

fn set_up(name: &str, address: &str) {
    // IPv6 sends to groups that the other end is not in, and does not receive: counters would not add up. A kernel
    // without it has no such file.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    run("ip", &["addr", "add", &format!("{address}/24"), "dev", name]);
    run("ip", &["link", "set", name, "up"]);
}

/// sysfs shows what belongs to the network in which it was mounted, so a program of the network is asked.
fn has_link(name: &str) -> bool {
    let output = std::process::Command::new("ip").args(["link", "show", name]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("LOWER_UP")
}

fn device_counters(name: &str) -> BTreeMap<&'static str, u64> {
    // The thread's own: /proc/net is that of the process.
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:"))).unwrap();
    let values: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    [
        ("rx_packets", values[1]),
        ("rx_errors", values[2]),
        // Wrong lengths, wrong check sequences.
        ("rx_frame_errors", values[5]),
        ("tx_packets", values[9]),
        ("tx_errors", values[10]),
    ]
    .into()
}

fn checksum_errors() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines();
    let mut errors = 0;
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        errors += pairs
            .filter(|(name, _)| *name == "InCsumErrors")
            .map(|(_, value)| value.parse::<u64>().unwrap())
            .sum::<u64>();
    }
    errors
}
