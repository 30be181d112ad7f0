//! A NIC that nobody uses: its thread sleeps, and wakes when there is something to wait for.

use std::time::{Duration, Instant};

use uvia::{Awaited, MacAddress, NetAddress, Nic, NicOptions, Progress, Sleeper, ViAttributes};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the thread of this name has gone to sleep, of those of this process that have it.
fn sleeps(name: &str) -> Vec<u64> {
    let mut counts = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // One may end meanwhile.
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("Name:") == Some(name) {
            counts.push(field("voluntary_ctxt_switches:").unwrap().parse().unwrap());
        }
    }
    counts
}

/// In a process of its own, where there is one such thread.
#[test]
#[ignore = "run by an_idle_nic_s_thread_sleeps_and_wakes_for_its_timers"]
fn idle_alone() {
    let options = NicOptions { progress: Progress::Thread, ..NicOptions::default() };
    let nic = Nic::open(&format!("shm:idle-{}", std::process::id()), options).unwrap();
    let vi = nic.create_vi(&ViAttributes::new(nic.create_tag().unwrap()), None, None).unwrap();
    let sleeper = Sleeper::new().unwrap();
    sleeper.arm(Awaited::News(&nic)).unwrap();
    // It has come to rest when it has not looked for half a second; it used to ten times a second.
    let start = Instant::now();
    let mut before = Vec::new();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = sleeps("uvia-progress");
        assert_eq!(now.len(), 1);
        if now == before {
            break;
        }
        before = now;
        assert!(start.elapsed() < PATIENCE, "an idle NIC's thread looks again and again");
    }
    // Asking sets a timer, which is the thread's business from here on: nobody answers, and no interrupt comes.
    let nobody = MacAddress([2, 0, 0, 0, 0xee, 0xee]);
    vi.connect_start(&NetAddress::new(nobody, b"x").unwrap(), Duration::from_millis(100), b"").unwrap();
    let asked = Instant::now();
    sleeper.sleep(4 * PATIENCE).unwrap();
    assert!(asked.elapsed() < 2 * PATIENCE, "the request's end was not seen");
    assert!(vi.connect_done().is_err());
}

#[test]
fn an_idle_nic_s_thread_sleeps_and_wakes_for_its_timers() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let status = child.args(["--exact", "--ignored", "idle_alone"]).status().unwrap();
    assert!(status.success(), "{status}");
}
