//! What takes two kernels: an end of a connection that is killed, over and over; a cable that is pulled; a NIC that is
//! reset under its driver, and a guest that is. What is left has an error in bounded time or goes on with all that it
//! had, and the next connection works.

use std::time::{Duration, Instant};

use uvia_vm::{Guest, Process, Task};

use crate::report::{Failure, Report, Verdict};

const LIMIT: Duration = Duration::from_secs(120);
/// In which a lost peer has to be noticed: it is taken for dead after 5 s of its guest's time.
const NOTICED: Duration = Duration::from_secs(60);
/// How often a client is killed, and a server.
const KILLS: [usize; 2] = [8, 2];
const KILLS_LONG: [usize; 2] = [80, 20];

/// Runs them on two guests, each with a NIC for us.
pub fn run(report: &mut Report, here: &Guest, there: &Guest, long: bool) {
    let [clients, servers] = if long { KILLS_LONG } else { KILLS };
    report.case(
        &format!("two guests: {clients} clients are killed in traffic, and the next one works"),
        || killed_clients(here, there, clients),
    );
    report.case(
        &format!("two guests: {servers} servers are killed in traffic, and their client notices"),
        || killed_servers(here, there, servers),
    );
    report.case("two guests: a connection survives a short outage of its link, and no long one", || {
        outages(here, there)
    });
    report.case("two guests: a NIC that is reset under its driver is noticed at both ends", || {
        reset_nic(here, there)
    });
    report.case("two guests: a guest that is reset is noticed, and works again", || reset_guest(here, there));
}

/// A command that ends with the test: one that fails leaves the NICs to the next.
struct Running(Process);

impl std::ops::Deref for Running {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.is_running() {
            // A guest that is gone has ended it, too.
            let _ = self.0.kill();
        }
    }
}

/// The end that answers, one client after the other, and has nothing to say: what is printed in the middle of a reset
/// would be half a word.
fn serve(guest: &Guest) -> Result<Running, Failure> {
    let line = "exec uvia-perf bw --listen --keep --nic $UVIA_NIC_A --name b >/dev/null 2>&1";
    Ok(Running(guest.spawn(Task::new(["sh", "-c", line]))?))
}

/// A client with more to do than any test here waits for: a row comes as often as so many messages have arrived, counted
/// at the other end.
fn talk(guest: &Guest) -> Result<Running, Failure> {
    let sizes = ["1000"; 2000].join(",");
    let line = format!(
        "exec uvia-perf bw --to b --nic $UVIA_NIC_A --name a --iterations 1000 --timeout 15 --json --sizes {sizes}"
    );
    Ok(Running(guest.spawn(Task::new(["sh", "-c", &line]))?))
}

/// How many rows a client has printed.
fn rows(client: &Process) -> usize {
    client.stdout_so_far().iter().filter(|byte| **byte == b'\n').count()
}

/// Waits until it prints more rows than it has.
fn flows(client: &Process, more: usize) -> Result<(), Failure> {
    let (start, before) = (Instant::now(), rows(client));
    while rows(client) < before + more {
        if !client.is_running() || start.elapsed() > LIMIT {
            let said = String::from_utf8_lossy(&client.stderr_so_far()).into_owned();
            return Err(format!("no traffic after {} s: {said}", start.elapsed().as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits for a client that has to fail, and to say why; what it said, and after how long.
fn fails(client: &Process) -> Result<String, Failure> {
    let start = Instant::now();
    let outcome = client.wait(Some(NOTICED))?;
    if outcome.status.success() || outcome.errors().trim().is_empty() {
        return Err(
            format!("it should have failed and said why: {:?} {}", outcome.status, outcome.errors()).into()
        );
    }
    Ok(format!("   after {:.1} s: {}", start.elapsed().as_secs_f64(), outcome.errors().trim()))
}

/// Ends what was started here.
fn end(process: &Process) -> Result<(), Failure> {
    process.signal(libc::SIGKILL)?;
    process.wait(Some(LIMIT))?;
    Ok(())
}

fn killed_clients(here: &Guest, there: &Guest, rounds: usize) -> Result<Verdict, Failure> {
    let server = serve(there)?;
    for round in 0..rounds {
        let client = talk(here)?;
        // Mostly when messages flow, at any moment between two rows; the others while it connects, or before.
        match round % 4 {
            3 => std::thread::sleep(Duration::from_millis(round as u64 * 331 % 1500)),
            more => flows(&client, 1 + more)?,
        }
        std::thread::sleep(Duration::from_millis(round as u64 * 37 % 50));
        end(&client)?;
    }
    let last = talk(here)?;
    flows(&last, 2)?;
    if !server.is_running() {
        return Err("the server is gone".into());
    }
    end(&last)?;
    end(&server)?;
    Ok(Verdict::Passed)
}

fn killed_servers(here: &Guest, there: &Guest, rounds: usize) -> Result<Verdict, Failure> {
    for round in 0..rounds {
        let server = serve(there)?;
        let client = talk(here)?;
        flows(&client, 1)?;
        std::thread::sleep(Duration::from_millis(round as u64 * 37 % 50));
        end(&server)?;
        say!("{}", fails(&client)?);
    }
    Ok(Verdict::Passed)
}

fn outages(here: &Guest, there: &Guest) -> Result<Verdict, Failure> {
    let server = serve(there)?;
    let client = talk(here)?;
    flows(&client, 1)?;
    here.set_link(0, false)?;
    // What is printed may be on its way.
    std::thread::sleep(Duration::from_millis(500));
    let before = rows(&client);
    std::thread::sleep(Duration::from_millis(1000));
    let meanwhile = rows(&client) - before;
    here.set_link(0, true)?;
    if meanwhile != 0 {
        return Err(format!("{meanwhile} rows without a link").into());
    }
    // Each row is counted at the other end: nothing was lost, or it would say so and end.
    flows(&client, 3)?;
    there.set_link(0, false)?;
    say!("{}", fails(&client)?);
    there.set_link(0, true)?;
    let next = talk(here)?;
    flows(&next, 1)?;
    end(&next)?;
    end(&server)?;
    Ok(Verdict::Passed)
}

fn reset_nic(here: &Guest, there: &Guest) -> Result<Verdict, Failure> {
    let server = serve(there)?;
    let client = talk(here)?;
    flows(&client, 1)?;
    let line = "echo 1 > /sys/bus/pci/devices/$UVIA_NIC_A/reset";
    let outcome = here.run(["sh", "-c", line], LIMIT)?;
    if !outcome.status.success() {
        return Err(format!("`{line}`: {}", outcome.errors()).into());
    }
    say!("{}", fails(&client)?);
    // The next one opens it anew, and the server goes on to that.
    let next = talk(here)?;
    flows(&next, 1)?;
    end(&next)?;
    end(&server)?;
    Ok(Verdict::Passed)
}

fn reset_guest(here: &Guest, there: &Guest) -> Result<Verdict, Failure> {
    let server = serve(there)?;
    let client = talk(here)?;
    flows(&client, 1)?;
    let said: Result<String, Failure> = std::thread::scope(|scope| {
        let noticed = scope.spawn(|| fails(&client).map_err(|why| why.to_string()));
        there.reset(LIMIT)?;
        noticed.join().map_err(|_| "the thread that waits for the client failed")?.map_err(Failure::from)
    });
    say!("{}", said?);
    if server.is_running() {
        return Err("a command lived through a reset".into());
    }
    let server = serve(there)?;
    let client = talk(here)?;
    flows(&client, 1)?;
    end(&client)?;
    end(&server)?;
    Ok(Verdict::Passed)
}
