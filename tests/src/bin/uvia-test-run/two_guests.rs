//! Two guests: the main job as a newcomer types it, and tools whose other end vanishes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uvia_vm::{Guest, NicKind, Settings, Task};

use crate::build::Program;
use crate::jobs::Job;
use crate::report::{Failure, Report, Verdict};
use crate::{Options, booted, guests, messages, outages};

/// The main job may take so long, after the build.
const MAIN_JOB: Duration = Duration::from_secs(180);
const LIMIT: Duration = Duration::from_secs(120);

/// The main job, with nothing beside it: how long it may take is promised.
pub fn main_job(report: &mut Report) {
    report.heading("the main job");
    report.case("the main job: qemu/run moves a file and prints the table", moves_a_file);
}

/// The tools between two guests.
pub fn job<'a>(programs: &'a [Program], options: &'a Options) -> Job<'a> {
    Job::new("two guests", 190, move |report| between_guests(report, programs, options))
}

fn between_guests(report: &mut Report, programs: &[Program], options: &Options) {
    let rank = guests::called(programs, messages::RANK).first().copied();
    let settings = Settings {
        guests: 2,
        nics_each: 2,
        // The first is what all but the message layer uses.
        nics: vec![NicKind::Virtio, NicKind::E1000],
        carry: rank.map(|program| program.path.clone()).into_iter().collect(),
        keep_log: options.keep_log.as_ref().map(|dir| dir.join("two-guests")),
        ..Settings::default()
    };
    booted::with(report, "two guests", &settings, |report, session| {
        let [there, here] = session.guests() else {
            return report.failed("two guests", "there are not two");
        };
        copies(report, there, here);
        match rank {
            Some(rank) => messages::run(report, [here, there], rank),
            None => report.failed(messages::RANK, "there is no such test program"),
        }
        outages::run(report, here, there, options.long);
    });
}

fn moves_a_file() -> Result<Verdict, Failure> {
    let start = Instant::now();
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../qemu/run"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    say!("{text}");
    if !output.status.success() {
        return Err(format!("{}", output.status).into());
    }
    for word in ["VI send", "RDMA write", "kernel UDP", "SHA-256"] {
        if !text.contains(word) {
            return Err(format!("its output does not have {word:?}").into());
        }
    }
    let took = start.elapsed();
    if took > MAIN_JOB {
        return Err(
            format!("it took {} s, over the {} s promised", took.as_secs(), MAIN_JOB.as_secs()).into()
        );
    }
    Ok(Verdict::Passed)
}

/// Copies between two guests, good and bad.
fn copies(report: &mut Report, to: &Guest, from: &Guest) {
    let sh = |line: &str| Task::new(["sh", "-c", line]);
    report.case("two guests: a copy arrives whole, and only once", || {
        to.run(sh("rm -rf /tmp/in; mkdir /tmp/in"), LIMIT)?;
        let listener = to.spawn(sh("uvia-cp --listen /tmp/in --once --nic $UVIA_NIC_A --name b"))?;
        let send = "head -c 3000001 /dev/urandom > /tmp/file; \
                    uvia-cp /tmp/file b:copy --nic $UVIA_NIC_A --name a >&2; sha256sum < /tmp/file";
        let sent = from.run(sh(send), LIMIT)?;
        let received = listener.wait(Some(LIMIT))?;
        let there = to.run(sh("sha256sum < /tmp/in/copy; ls -A /tmp/in | wc -l >&2"), LIMIT)?;
        if !received.status.success() || sent.stdout != there.stdout || there.stderr != b"1\n" {
            return Err(format!("{sent:?}\n{received:?}\n{there:?}").into());
        }
        Ok(Verdict::Passed)
    });
    report.case("two guests: a sender that is killed leaves no half file, and the next copy works", || {
        to.run(sh("rm -rf /tmp/in; mkdir /tmp/in"), LIMIT)?;
        let listener = to.spawn(sh("uvia-cp --listen /tmp/in --nic $UVIA_NIC_A --name b"))?;
        let killed = "head -c 250000000 /dev/zero > /tmp/big; \
                      uvia-cp /tmp/big b:big --nic $UVIA_NIC_A --name a & copy=$!; sleep 2; kill -9 $copy; \
                      wait $copy; sleep 8; rm /tmp/big; \
                      echo hello > /tmp/small; uvia-cp /tmp/small b:small --nic $UVIA_NIC_A --name a";
        let next = from.run(sh(killed), LIMIT)?;
        let there = to.run(sh("ls -A /tmp/in"), LIMIT)?;
        listener.signal(libc::SIGTERM)?;
        listener.wait(Some(LIMIT))?;
        if !next.status.success() || there.stdout != b"small\n" {
            return Err(format!("{next:?}\n{there:?}").into());
        }
        Ok(Verdict::Passed)
    });
    report.case("two guests: a receiver that is killed fails the sender in bounded time", || {
        to.run(sh("rm -rf /tmp/in; mkdir /tmp/in"), LIMIT)?;
        // Before the clock runs: on a busy machine this alone takes longer than the rest.
        from.run(sh("head -c 250000000 /dev/zero > /tmp/big"), LIMIT)?;
        let listener = to.spawn(sh("exec uvia-cp --listen /tmp/in --nic $UVIA_NIC_A --name b"))?;
        let sender = from.spawn(sh("exec uvia-cp /tmp/big b:big --nic $UVIA_NIC_A --name a"))?;
        // On a quick machine all of it takes five seconds.
        std::thread::sleep(Duration::from_millis(2500));
        listener.signal(libc::SIGKILL)?;
        listener.wait(Some(LIMIT))?;
        let outcome = sender.wait(Some(Duration::from_secs(30)))?;
        from.run(sh("rm /tmp/big"), LIMIT)?;
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        if outcome.status.success() || said.is_empty() {
            return Err(format!("{outcome:?}").into());
        }
        Ok(Verdict::Passed)
    });
    report.case("two guests: a full disk at the receiver fails both ends and leaves nothing", || {
        to.run(sh("rm -rf /tmp/full; mkdir /tmp/full; mount -t tmpfs -o size=1m none /tmp/full"), LIMIT)?;
        let listener = to.spawn(sh("uvia-cp --listen /tmp/full --once --nic $UVIA_NIC_A --name b"))?;
        let sent = from.run(
            sh("head -c 5000000 /dev/zero > /tmp/file; uvia-cp /tmp/file b:file --nic $UVIA_NIC_A --name a"),
            LIMIT,
        )?;
        let received = listener.wait(Some(LIMIT))?;
        let there = to.run(sh("ls -A /tmp/full; umount /tmp/full"), LIMIT)?;
        if sent.status.success() || received.status.success() || !there.stdout.is_empty() {
            return Err(format!("{sent:?}\n{received:?}\n{there:?}").into());
        }
        Ok(Verdict::Passed)
    });
}
