//! The main job: two guests move a real file over virtual interfaces, and the latency of messages is put
//! beside that of the kernel's own stack on the same NICs.

mod file;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::host::guest::Guest;
use crate::host::process::{Outcome, Process};
use crate::host::session::{Session, show_tail};
use crate::settings::Settings;
use file::Payload;
use table::{Row, Table};
use uvia_tools::Steps;

/// The guests' addresses for the kernel's stack.
const ADDRESSES: [&str; 2] = ["10.75.76.1", "10.75.76.2"];
/// Where the kernel's test listens.
const UDP_PORT: u16 = 18515;
/// How long one step may take; a step that works takes a small part of it.
const STEP: Duration = Duration::from_secs(120);
/// How long a listening end gets to end by itself once its client is done.
const LISTENER_END: Duration = Duration::from_secs(20);
/// How long a listening end gets to come up. The client asks again anyway; this only saves its patience.
const LISTENER_START: Duration = Duration::from_secs(10);
/// Round trips for each size. The median is steady by then, whatever the other processes of the machine do.
const ITERATIONS: &str = "1000";

struct Job<'a> {
    session: &'a Session,
    deadline: Instant,
    progress: Steps,
}

/// Runs the main job: its exit status.
pub fn run(settings: &Settings, file: Option<&Path>, limit: Duration) -> Result<u8> {
    let deadline = Instant::now() + limit;
    let mut progress = Steps::start();
    let payload = Payload::open(&match file {
        Some(path) => path.to_owned(),
        None => kernel(settings)?,
    })?;
    let settings = Settings {
        guests: 2,
        // The kernel's stack is measured first.
        attach: false,
        boot_limit: settings.boot_limit.min(limit),
        memory_mib: settings.memory_mib.max(payload.memory_mib()),
        ..settings.clone()
    };
    progress.next("booting two guests, joined NIC to NIC");
    let session = Session::boot(&settings)?;
    let mut job = Job { session: &session, deadline, progress };
    let result = job.all(&settings, &payload);
    job.progress.finish();
    match result {
        Ok(report) => {
            println!("{report}");
            Ok(0)
        }
        Err(error) => {
            // The error itself holds the last that a dead guest said.
            if !matches!(error, Error::Died { .. }) {
                session.guests().iter().for_each(show_tail);
            }
            Err(error)
        }
    }
}

/// The file to move unless one is named: the guests' own kernel.
fn kernel(settings: &Settings) -> Result<PathBuf> {
    let cache = settings.cache();
    Ok(crate::fetch::system(settings, &cache)?.kernel)
}

impl Job<'_> {
    /// The guest that asks, and the one that answers.
    fn guests(&self) -> (&Guest, &Guest) {
        (&self.session.guests()[0], &self.session.guests()[1])
    }

    fn all(&mut self, settings: &Settings, payload: &Payload) -> Result<String> {
        let kernel = self.kernel_udp()?;
        self.progress.next("giving the NICs to vfio-pci");
        let (from, to) = self.guests();
        from.attach()?;
        to.attach()?;
        let copied = self.copy(payload)?;
        let send = self.vi("send")?;
        let write = self.vi("write")?;
        let kinds: Vec<_> = (0..2).flat_map(|guest| settings.nics_of(guest)).collect();
        let table = Table { kinds: [kinds[0], kinds[1]], send, write, kernel };
        Ok(format!("{copied}\n\n{table}"))
    }

    /// What is left for a step.
    fn limit(&self) -> Duration {
        STEP.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// Runs a command that has to succeed.
    fn must(&self, guest: &Guest, argv: &[&str]) -> Result<Outcome> {
        let outcome = guest.run(argv, self.limit())?;
        succeeded(guest, &argv.join(" "), outcome)
    }

    /// Starts the listening end in guest 1, and waits until it says something or has had time to start.
    fn listen(&self, argv: &[&str]) -> Result<Process> {
        let (_, to) = self.guests();
        let process = to.spawn(argv)?;
        process.wait_for_output("\n", LISTENER_START.min(self.limit()) / 4);
        Ok(process)
    }

    /// Runs the asking end in guest 0 and then takes the listening end down.
    fn ask(&self, listener: &Process, argv: &[&str]) -> Result<Outcome> {
        let (from, to) = self.guests();
        let asked = from.run(argv, self.limit());
        // If both failed, the listener's reason is often the first one.
        let failed = !matches!(&asked, Ok(outcome) if outcome.status.success());
        let listened = listener.wait(Some(if failed { Duration::from_secs(1) } else { LISTENER_END }));
        let listened = match listened {
            Err(Error::TimedOut { .. }) => listener.kill()?,
            other => other?,
        };
        let asked = asked.map_err(|error| self.with_listener(error, &listened))?;
        let asked =
            succeeded(from, &argv.join(" "), asked).map_err(|error| self.with_listener(error, &listened))?;
        succeeded(to, listener.describe(), listened)?;
        Ok(asked)
    }

    fn with_listener(&self, error: Error, listened: &Outcome) -> Error {
        match listened.errors().trim() {
            "" => error,
            text => {
                Error::Job(format!("{error}\nthe listening end in guest 1 ({}): {text}", listened.status))
            }
        }
    }

    fn kernel_udp(&mut self) -> Result<Row> {
        self.progress.next("measuring UDP through the guests' kernels");
        for (guest, address) in self.session.guests().iter().zip(ADDRESSES) {
            let interface = guest.detach()?.into_iter().next().unwrap_or_default();
            self.must(guest, &["ip", "addr", "add", &format!("{address}/24"), "dev", &interface])?;
            self.must(guest, &["ip", "link", "set", &interface, "up"])?;
        }
        let (from, _) = self.guests();
        // The link takes a while to come up; the first answer tells that it is, and fills the neighbour table.
        self.must(
            from,
            &[
                "sh",
                "-c",
                &format!("for i in $(seq 60); do ping -c1 -W1 {} && exit; done; exit 1", ADDRESSES[1]),
            ],
        )?;
        let bind = format!("{}:{UDP_PORT}", ADDRESSES[1]);
        let listener = self.listen(&["uvia-perf", "udp", "lat", "--listen", "--bind", &bind])?;
        let sizes = table::sizes_argument();
        let outcome = self.ask(
            &listener,
            &[
                "uvia-perf",
                "udp",
                "lat",
                "--to",
                &bind,
                "--sizes",
                &sizes,
                "--iterations",
                ITERATIONS,
                "--json",
            ],
        )?;
        for (guest, address) in self.session.guests().iter().zip(ADDRESSES) {
            self.must(guest, &["sh", "-c", &format!("ip -o addr show to {address} | while read -r _ dev _; do ip link set \"$dev\" down; done")])?;
        }
        table::row("udp-lat", "send", &outcome.text())
    }

    fn vi(&mut self, op: &str) -> Result<Row> {
        let what = if op == "send" { "VI sends" } else { "VI RDMA writes" };
        self.progress.next(&format!("measuring {what}"));
        let (from, to) = self.guests();
        let [nic_from, nic_to] = [from, to].map(|guest| guest.nics()[0].as_str());
        let listener = self.listen(&["uvia-perf", "lat", "--listen", "--name", "b", "--nic", nic_to])?;
        let mut argv = vec!["uvia-perf", "lat", "--to", "b", "--name", "a", "--nic", nic_from, "--op", op];
        let sizes = table::sizes_argument();
        argv.extend(["--sizes", &sizes, "--iterations", ITERATIONS, "--json"]);
        let outcome = self.ask(&listener, &argv)?;
        table::row("lat", op, &outcome.text())
    }

    fn copy(&mut self, payload: &Payload) -> Result<String> {
        let (name, size) = (payload.name(), payload.size());
        self.progress.next(&format!("moving {name} ({:.1} MB) over a virtual interface", size as f64 / 1e6));
        let (from, to) = self.guests();
        let [nic_from, nic_to] = [from, to].map(|guest| guest.nics()[0].as_str());
        let sum = payload.put(from, "/tmp/source")?;
        self.must(to, &["mkdir", "-p", "/tmp/arrived"])?;
        let listener =
            self.listen(&["uvia-cp", "--listen", "/tmp/arrived", "--once", "--name", "b", "--nic", nic_to])?;
        let start = Instant::now();
        self.ask(&listener, &["uvia-cp", "/tmp/source", "b:file", "--name", "a", "--nic", nic_from])?;
        let took = start.elapsed().as_secs_f64();
        // Not by the copying tool's own word: by another program, at the place where it arrived.
        let arrived = self.must(to, &["sha256sum", "/tmp/arrived/file"])?.text();
        if arrived.split_whitespace().next() != Some(sum.as_str()) {
            return Err(Error::Job(format!(
                "{name} arrived changed: SHA-256 is {} and not {sum}",
                arrived.trim()
            )));
        }
        let speed = size as f64 / 1e6 / took;
        Ok(format!(
            "{name}: {size} bytes moved from guest 0 to guest 1 in {took:.1} s ({speed:.1} MB/s, start and end \
             included)\nSHA-256 {sum}: the same on arrival"
        ))
    }
}

fn succeeded(guest: &Guest, what: &str, outcome: Outcome) -> Result<Outcome> {
    if outcome.status.success() {
        return Ok(outcome);
    }
    let said = format!("{}{}", outcome.errors(), outcome.text());
    Err(Error::Job(format!(
        "guest {}: `{what}` ended with {}: {}",
        guest.index(),
        outcome.status,
        said.trim()
    )))
}
