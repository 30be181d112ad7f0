//! Virtual interfaces over UDP, between guests on two subnets with a Linux router between them.

use std::time::Duration;

use uvia_vm::{Guest, NicKind, Settings, Task};

use crate::jobs::Job;
use crate::report::{Failure, Report, Verdict};
use crate::{Options, booted};

const LABEL: &str = "guests with a router between them";
const LIMIT: Duration = Duration::from_secs(120);

/// Datagrams that the kernel has forwarded: the sixth of its counters of IP.
const FORWARDED: &str = "grep ^Ip: /proc/net/snmp | tail -n 1 | cut -d ' ' -f 7";
const NEAR: &str = "--nic $UVIA_NIC_A --encap udp --address 10.1.0.2/24 --gateway 10.1.0.1";
const FAR: &str = "--nic $UVIA_NIC_A --encap udp --address 10.2.0.2/24 --gateway 10.2.0.1";

/// All of them.
pub fn job(options: &Options) -> Job<'_> {
    Job::new(LABEL, 38, |report| run(report, options))
}

fn run(report: &mut Report, options: &Options) {
    let settings = Settings {
        guests: 3,
        nics: vec![NicKind::Virtio],
        keep_log: options.keep_log.as_ref().map(|dir| dir.join("routed")),
        ..Settings::default()
    };
    booted::with(report, LABEL, &settings, |report, session| match session.guests() {
        [near, router, far] => routed(report, near, router, far),
        _ => report.failed(LABEL, "there are not three"),
    });
}

fn sh(line: &str) -> Task {
    Task::new(["sh", "-c", line])
}

/// Runs a line that has to succeed; its output.
fn output(guest: &Guest, line: &str) -> Result<String, Failure> {
    let outcome = guest.run(sh(line), LIMIT)?;
    if outcome.status.success() {
        Ok(outcome.text())
    } else {
        Err(format!("`{line}`: {:?}\n{}{}", outcome.status, outcome.text(), outcome.errors()).into())
    }
}

fn forwarded(router: &Guest) -> Result<u64, Failure> {
    Ok(output(router, FORWARDED)?.trim().parse()?)
}

/// Gives the NIC to the kernel and makes it a router between the two subnets, which share a wire: what goes from one to
/// the other goes through it all the same, since hosts hand to their router what is not in their subnet.
fn route(router: &Guest) -> Result<(), Failure> {
    let names = router.detach()?;
    let name = names.first().ok_or("the router has no network interface")?;
    let line = format!(
        "set -e; ip link set {name} up; ip addr add 10.1.0.1/24 dev {name}; ip addr add 10.2.0.1/24 dev {name}; \
         echo 1 > /proc/sys/net/ipv4/ip_forward"
    );
    output(router, &line)?;
    Ok(())
}

fn routed(report: &mut Report, near: &Guest, router: &Guest, far: &Guest) {
    report.case("a router: messages pass it over UDP", || {
        route(router)?;
        // It goes on after a client that is gone: one that found nobody yet may have asked twice, and the second request
        // come when somebody listens.
        let server = far.spawn(sh(&format!("exec uvia-perf lat --listen --keep {FAR}")))?;
        let before = forwarded(router)?;
        // Until the other end listens, nobody is there.
        let ask = format!(
            "for n in 1 2 3 4 5 6 7 8 9 10; do \
             uvia-perf lat --to 10.2.0.2 {NEAR} --size 64 --iterations 500 --json && exit 0; sleep 1; done; exit 1"
        );
        let asked = output(near, &ask);
        server.signal(libc::SIGTERM)?;
        let served = server.wait(Some(LIMIT))?;
        let text = asked.map_err(|why| format!("{why}; the other end: {}", served.errors()))?;
        let count = forwarded(router)? - before;
        say!("   {count} datagrams forwarded; {}", text.trim());
        if !text.contains("p50_us") {
            return Err(format!("{text}\n{served:?}").into());
        }
        // A message each way, each its own datagram.
        if count < 1000 { Err(format!("the router forwarded {count} datagrams only").into()) } else { Ok(Verdict::Passed) }
    });
    report.case("a router: a copy arrives whole, and the other host answers a ping", || {
        output(far, "rm -rf /tmp/in; mkdir /tmp/in")?;
        let listener = far.spawn(sh(&format!("exec uvia-cp --listen /tmp/in --once {FAR}")))?;
        let before = forwarded(router)?;
        let send = format!(
            "head -c 3000001 /dev/urandom > /tmp/file; for n in 1 2 3 4 5 6 7 8 9 10; do \
             uvia-cp /tmp/file 10.2.0.2:copy {NEAR} --integrity >&2 && break; sleep 1; done; sha256sum < /tmp/file"
        );
        let sent = output(near, &send)?;
        let received = listener.wait(Some(LIMIT))?;
        let there = output(far, "sha256sum < /tmp/in/copy")?;
        let count = forwarded(router)? - before;
        say!("   {count} datagrams forwarded");
        if !received.status.success() || sent != there || count < 2000 {
            return Err(format!("{sent}{there}{count} datagrams\n{received:?}").into());
        }
        let server = far.spawn(sh(&format!("exec uvia-perf lat --listen {FAR}")))?;
        output(router, "for n in 1 2 3 4 5 6 7 8 9 10; do ping -c 1 -W 1 10.2.0.2 >&2 && exit 0; done; exit 1")?;
        server.signal(libc::SIGTERM)?;
        server.wait(Some(LIMIT))?;
        Ok(Verdict::Passed)
    });
}
