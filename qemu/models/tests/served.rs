//! Our drivers over vfio-user on a uvia-device process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia_driver::dma::{DmaMemory, Rights};
use uvia_driver::nic::{self, MacAddress, Nic, NicConfig, TxFrame};
use uvia_driver::pci::{self, PciDevice};

/// A uvia-device, killed when dropped.
struct Process {
    child: Child,
    folder: tempfile::TempDir,
}

impl Process {
    fn start(kinds: &[&str], options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, kinds, options)
    }

    fn start_in(folder: tempfile::TempDir, kinds: &[&str], options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uvia-device"));
        for (n, kind) in kinds.iter().enumerate() {
            let socket = folder.path().join(n.to_string());
            command.arg("--nic").arg(format!("{kind},socket={},mac={}", socket.display(), mac(n)));
        }
        let mut child = command.args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, folder }
    }

    fn socket(&self, n: usize) -> PathBuf {
        self.folder.path().join(n.to_string())
    }

    fn open(&self, n: usize) -> End {
        let device = pci::open(&format!("vfio-user:{}", self.socket(n).display())).unwrap();
        let nic = nic::open(device.clone(), &NicConfig::default()).unwrap();
        let memory = DmaMemory::allocate(device.domain().clone(), 64 * 2048, Rights::READ).unwrap();
        End { nic, memory, _device: device }
    }

    /// Ends it as a service manager would; answers its exit code.
    fn terminate(mut self) -> (Option<i32>, tempfile::TempDir) {
        // SAFETY: a signal to our own child, which was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let status = self.child.wait().unwrap();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        (status.code(), folder)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct End {
    nic: Box<dyn Nic>,
    memory: DmaMemory,
    _device: Arc<dyn PciDevice>,
}

fn mac(n: usize) -> MacAddress {
    MacAddress([0x52, 0x54, 0, 0x12, 0x34, n as u8 + 1])
}

const PATIENCE: Duration = Duration::from_secs(10);

impl End {
    fn send(&mut self, to: MacAddress, seed: usize, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len).map(|n| (n * 3 + seed) as u8).collect();
        bytes[..6].copy_from_slice(&to.0);
        bytes[6..12].copy_from_slice(&self.nic.properties().mac.0);
        let at = seed % 64 * 2048;
        self.memory.write_bytes(at, &bytes);
        let parts =
            [self.memory.segment(at..at + 14).unwrap(), self.memory.segment(at + 14..at + len).unwrap()];
        assert!(self.nic.transmit(&TxFrame { segments: &parts, token: seed as u64 }).unwrap());
        self.nic.flush().unwrap();
        bytes
    }

    fn reclaim(&mut self, token: u64) {
        let start = Instant::now();
        let mut got = None;
        while got.is_none() {
            self.nic.reclaim(&mut |token| got = Some(token)).unwrap();
            assert!(start.elapsed() < PATIENCE, "token {token} does not come back");
        }
        assert_eq!(got, Some(token));
    }

    fn receive(&mut self) -> Vec<u8> {
        let start = Instant::now();
        let mut got = Vec::new();
        while got.is_empty() {
            self.nic
                .receive(1, &mut |frame| {
                    got.resize(frame.len(), 0);
                    assert!(frame.read(0, &mut got));
                })
                .unwrap();
            assert!(start.elapsed() < PATIENCE, "no frame");
        }
        got
    }
}

fn exchange(a: &mut End, b: &mut End, frames: usize) {
    for n in 0..frames {
        let len = 60 + n * 7 % 1455;
        let sent = a.send(mac(1), n, len);
        assert!(b.receive() == sent, "{n}");
        a.reclaim(n as u64);
        let back = b.send(mac(0), n, len);
        assert!(a.receive() == back, "{n}");
        b.reclaim(n as u64);
    }
}

#[test]
fn frames_both_ways_polled_and_trapped() {
    for kinds in [["e1000", "e1000"], ["virtio", "virtio"], ["e1000", "virtio"]] {
        for way in ["--poll", "--trap"] {
            let process = Process::start(&kinds, &[way]);
            let (mut a, mut b) = (process.open(0), process.open(1));
            exchange(&mut a, &mut b, 1000);
        }
    }
}

#[test]
fn interrupts_reach_the_client() {
    for kind in ["e1000", "virtio"] {
        for way in ["--poll", "--trap"] {
            let process = Process::start(&[kind, kind], &[way]);
            let (mut a, mut b) = (process.open(0), process.open(1));
            for n in 0..50 {
                b.nic.arm(true).unwrap();
                a.send(mac(1), n, 60);
                use std::os::fd::AsRawFd;
                let fd = b.nic.interrupt().unwrap().as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one descriptor in a local.
                let ready = unsafe { libc::poll(&raw mut poll, 1, 5000) };
                assert_eq!(ready, 1, "{kind} {way} {n}");
                b.receive();
                a.reclaim(n as u64);
            }
        }
    }
}

#[test]
fn client_after_client_finds_a_fresh_device() {
    for kind in ["e1000", "virtio"] {
        let process = Process::start(&[kind, kind], &[]);
        for _ in 0..20 {
            let (mut a, mut b) = (process.open(0), process.open(1));
            exchange(&mut a, &mut b, 5);
        }
    }
}

#[test]
fn it_ends_in_order_and_takes_over_a_dead_ones_socket() {
    let process = Process::start(&["e1000"], &[]);
    let _client = process.open(0);
    let path = process.socket(0);
    let (code, folder) = process.terminate();
    assert_eq!((code, path.exists()), (Some(0), false));
    // Killed, it leaves its socket behind.
    let mut process = Process::start_in(folder, &["e1000"], &[]);
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    assert!(process.socket(0).exists());
    let folder = std::mem::replace(&mut process.folder, tempfile::tempdir().unwrap());
    let process = Process::start_in(folder, &["e1000"], &[]);
    // But not that of one that lives.
    let second = run(&["--nic", &format!("e1000,socket={}", process.socket(0).display())]);
    assert_eq!(second.0, Some(1), "{}", second.1);
    process.open(0);
}

#[test]
fn a_killed_device_is_an_error_in_bounded_time() {
    for kind in ["e1000", "virtio"] {
        for round in 0..10 {
            let mut process = Process::start(&[kind, kind], &[]);
            let (mut a, mut b) = (process.open(0), process.open(1));
            exchange(&mut a, &mut b, round);
            process.child.kill().unwrap();
            let start = Instant::now();
            while a.nic.link().is_ok_and(|link| link.up) {
                assert!(start.elapsed() < PATIENCE, "{kind}");
            }
            drop((a, b));
            assert!(start.elapsed() < PATIENCE, "{kind}");
        }
    }
}

#[test]
fn a_bad_wire_changes_frames_only_as_it_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("faults");
    std::fs::write(&file, "nic 0 wire loss at 3\nnic 0 wire duplicate at 5\nnic 0 wire corrupt at 7\n")
        .unwrap();
    let process = Process::start(&["e1000", "virtio"], &["--faults", &file.display().to_string()]);
    let (mut a, mut b) = (process.open(0), process.open(1));
    for n in 1..=8 {
        let sent = a.send(mac(1), n, 100);
        a.reclaim(n as u64);
        match n {
            3 => (),
            5 => assert!(b.receive() == sent && b.receive() == sent),
            // Its address may be what was changed.
            7 => continue,
            8 => {
                let first = b.receive();
                assert!(first == sent || b.receive() == sent);
            }
            _ => assert!(b.receive() == sent, "{n}"),
        }
    }
}

#[test]
fn two_processes_on_one_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wire").display().to_string();
    let first = Process::start(&["e1000"], &["--link", &path]);
    // Addresses go by number in a process: the second one gets its own below.
    let second = Process::start(&["virtio", "virtio"], &["--link", &path]);
    let (mut a, mut b) = (first.open(0), second.open(1));
    exchange(&mut a, &mut b, 200);
    let (code, _folder) = first.terminate();
    assert_eq!((code, Path::new(&path).exists()), (Some(0), false));
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_uvia-device")).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_arguments_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("faults");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let nic = format!("e1000,socket={}", Path::new(folder.path()).join("s").display());
    assert_eq!(run(&[]).0, Some(2));
    assert_eq!(run(&["--nic", "e1000"]).0, Some(2));
    for (text, named) in [("wire loss", "line 1"), ("nic 3 wire loss 1%", "adapter 3")] {
        let (code, said) = run(&["--nic", &nic, "--faults", &file(text)]);
        assert_eq!(code, Some(1));
        assert!(said.contains(named), "{said}");
    }
    // What has no end is no file of faults.
    let (code, said) = run(&["--nic", &nic, "--faults", "/dev/zero"]);
    assert_eq!((code, said.contains("/dev/zero")), (Some(1), true), "{said}");
    let (code, said) = run(&["--nic", "e1000,socket=/nonexistent/s"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("/nonexistent/s"), "{said}");
}
