//! The tools, in a guest whose two NICs are back to back.

use std::time::Duration;

use serde_json::Value;
use uvia_vm::{Guest, Outcome};

use crate::report::{Failure, Report, Verdict};

const LIMIT: Duration = Duration::from_secs(120);

/// Runs a shell line.
pub fn shell(guest: &Guest, line: &str) -> Result<Outcome, Failure> {
    Ok(guest.run(["sh", "-c", line], LIMIT)?)
}

/// Runs a shell line that has to succeed; its output.
pub fn shell_ok(guest: &Guest, line: &str) -> Result<String, Failure> {
    let outcome = shell(guest, line)?;
    if outcome.status.success() {
        Ok(outcome.text())
    } else {
        let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
        Err(format!("`{line}`: {:?}\n{}{stderr}", outcome.status, outcome.text()).into())
    }
}

/// Runs a shell line that has to fail with status 1 and say one of these words.
fn shell_refused(guest: &Guest, line: &str, says: &[&str]) -> Result<Verdict, Failure> {
    let outcome = shell(guest, &format!("{line}; [ $? = 1 ] && exit 0; exit 1"))?;
    let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
    if !outcome.status.success() {
        return Err(format!("`{line}` did not end with status 1: {:?}\n{stderr}", outcome.status).into());
    }
    if !says.iter().any(|word| stderr.contains(word)) {
        return Err(format!("`{line}` said none of {says:?} but: {stderr}").into());
    }
    Ok(Verdict::Passed)
}

/// The JSON objects that a line of shell prints.
fn objects(guest: &Guest, line: &str) -> Result<Vec<Value>, Failure> {
    let text = shell_ok(guest, line)?;
    let objects = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    if objects.is_empty() { Err(format!("`{line}` printed nothing").into()) } else { Ok(objects) }
}

/// All tools' tests.
pub fn in_guest(report: &mut Report, guest: &Guest, label: &str) {
    let mut case = |name: &str, test: &dyn Fn() -> Result<Verdict, Failure>| {
        report.case(&format!("{label}: {name}"), test);
    };
    case("uvia-perf measures latency, for sends, writes and raw frames", &|| latencies(guest));
    case("uvia-perf measures bandwidth, for sends, writes and raw frames", &|| bandwidths(guest));
    case("uvia-perf reads, waits by interrupt, and uses connections in other manners", &|| manners(guest));
    case("uvia-perf measures latency and bandwidth over UDP too", &|| {
        let over = "--pair \"$UVIA_NIC_A\" \"$UVIA_NIC_B\" --encap udp --address 10.0.0.1/24 --json";
        for what in ["lat --size 64 --iterations 500", "bw --op write --size 256K --iterations 8 --integrity"]
        {
            objects(guest, &format!("uvia-perf {what} {over}"))?;
        }
        Ok(Verdict::Passed)
    });
    case("uvia-perf and uvia-info use adapter memory, in turn with the usual class", &|| {
        adapter_memory(guest)
    });
    case("windows of adapter memory come back from a program that is killed", &|| killed_owner(guest));
    case("uvia-info tells of both NICs", &|| {
        for nic in ["$UVIA_NIC_A", "$UVIA_NIC_B"] {
            let info = objects(guest, &format!("uvia-info --nic \"{nic}\" --json"))?;
            if info[0]["mac"].as_str().is_none_or(|mac| mac.len() != 17) {
                return Err(format!("no station address in {}", info[0]).into());
            }
        }
        Ok(Verdict::Passed)
    });
    case("a busy NIC is refused, and says who has it", &|| {
        shell_refused(
            guest,
            "uvia-perf lat --listen --nic $UVIA_NIC_A & holder=$!; sleep 1; \
             uvia-info --nic $UVIA_NIC_A; status=$?; kill -9 $holder; wait $holder; (exit $status)",
            &["uvia-perf"],
        )
    });
    case("after kill -9 the NIC is usable by the next program", &|| {
        shell_ok(
            guest,
            "uvia-perf lat --pair $UVIA_NIC_A $UVIA_NIC_B --size 64 --iterations 100000000 & busy=$!; sleep 3; \
             kill -9 $busy; wait $busy; \
             uvia-perf lat --pair $UVIA_NIC_A $UVIA_NIC_B --size 64 --iterations 100 --json",
        )?;
        Ok(Verdict::Passed)
    });
    // Without it a guest that lost a timer makes all that comes wait for its limit, and no test's failure tells why.
    case("the guest would tell of a lost timer", &|| {
        let text = shell_ok(guest, "cd /proc/sys/kernel; cat panic_on_rcu_stall max_rcu_stall_to_panic")?;
        if text == "1\n2\n" { Ok(Verdict::Passed) } else { Err(text.into()) }
    });
    case("unknown devices are refused", &|| {
        shell_refused(guest, "uvia-info --nic 0000:7f:1f.7", &["0000:7f:1f.7"])?;
        shell_refused(guest, "uvia-bind attach 0000:7f:1f.7", &["0000:7f:1f.7"])
    });
    case("a peer that never answers is given up", &|| {
        shell_refused(guest, "uvia-perf lat --to nobody --timeout 2 --nic $UVIA_NIC_A", &["nobody"])
    });
    case("a NIC is given back to its driver and taken again", &|| {
        shell_ok(
            guest,
            "set -e; uvia-bind detach $UVIA_NIC_A; \
             [ \"$(basename $(readlink /sys/bus/pci/devices/$UVIA_NIC_A/driver))\" != vfio-pci ]; \
             uvia-bind status; uvia-bind attach $UVIA_NIC_A; \
             [ \"$(basename $(readlink /sys/bus/pci/devices/$UVIA_NIC_A/driver))\" = vfio-pci ]",
        )?;
        Ok(Verdict::Passed)
    });
    case("a NIC on its kernel driver is refused, with what to do", &|| {
        shell_ok(guest, "uvia-bind detach $UVIA_NIC_A")?;
        let verdict = shell_refused(guest, "uvia-info --nic $UVIA_NIC_A", &["uvia-bind attach"]);
        shell_ok(guest, "uvia-bind attach $UVIA_NIC_A")?;
        verdict
    });
}

fn latencies(guest: &Guest) -> Result<Verdict, Failure> {
    let pair = "--pair \"$UVIA_NIC_A\" \"$UVIA_NIC_B\" --size 64 --iterations 2000 --json";
    let mut medians = Vec::new();
    for (what, test) in [("raw lat", "raw-lat"), ("lat --op send", "lat"), ("lat --op write", "lat")] {
        for object in objects(guest, &format!("uvia-perf {what} {pair}"))? {
            let of = |key: &str| {
                object[key].as_f64().filter(|us| *us > 0.0).ok_or(format!("no {key} in {object}"))
            };
            let (min, p50, p99) = (of("min_us")?, of("p50_us")?, of("p99_us")?);
            if object["test"] != test || object["size"] != 64 || !(min <= p50 && p50 <= p99) {
                return Err(format!("`{what}` printed {object}").into());
            }
            medians.push(format!("{what} {p50:.2} us"));
        }
    }
    say!("   medians: {}", medians.join(", "));
    Ok(Verdict::Passed)
}

fn bandwidths(guest: &Guest) -> Result<Verdict, Failure> {
    let pair = "--pair \"$UVIA_NIC_A\" \"$UVIA_NIC_B\" --json";
    let mut figures = Vec::new();
    for what in [
        "raw bw --size 1500",
        "raw bw --size 1500 --copy",
        "raw bw --size 8174 --copy",
        "bw --op send --size 64K --iterations 200",
        "bw --op write --size 1M --iterations 16",
    ] {
        for object in objects(guest, &format!("uvia-perf {what} {pair}"))? {
            let rate = object["mb_per_s"].as_f64().filter(|rate| *rate > 0.0);
            figures.push(format!("{what}: {:.0} MB/s", rate.ok_or(format!("no mb_per_s in {object}"))?));
        }
    }
    say!("   {}", figures.join(", "));
    Ok(Verdict::Passed)
}

/// Messages from adapter memory, and both classes in one run.
fn adapter_memory(guest: &Guest) -> Result<Verdict, Failure> {
    let pair = "--class pio --pair \"$UVIA_NIC_A\" \"$UVIA_NIC_B\" --json --iterations 2000";
    let mut figures = Vec::new();
    for what in [
        "lat --size 64",
        "lat --size 448 --interleave",
        "bw --size 448",
        "lat --level reception --vis 3",
        "lat --size 64 --ring-in-adapter-memory",
    ] {
        for object in objects(guest, &format!("uvia-perf {what} {pair}"))? {
            let figure = object["p50_us"].as_f64().or(object["mb_per_s"].as_f64());
            let figure = figure.filter(|figure| *figure > 0.0).ok_or(format!("no figure in {object}"))?;
            figures.push(format!("{what}: {} {figure:.2}", object["class"]));
        }
    }
    say!("   p50 in us, or MB/s: {}", figures.join(", "));
    let info = objects(guest, "uvia-info --nic \"$UVIA_NIC_A\" --ring-in-adapter-memory --json")?;
    if info[0]["rings"]["tx_memory"] != info[0]["classes"]["pio"]["memory"] {
        return Err(format!("the transmit ring does not lie in adapter memory: {}", info[0]).into());
    }
    let beyond = "uvia-perf lat --class pio --pair \"$UVIA_NIC_A\" \"$UVIA_NIC_B\" --size 449; [ $? != 0 ]";
    shell_ok(guest, beyond)?;
    shell_refused(
        guest,
        "uvia-perf lat --class pio --adapter-memory 0000:7f:1f.7 --pair \"$UVIA_NIC_A\" \"$UVIA_NIC_B\"",
        &["no such PCI function"],
    )?;
    let info = objects(guest, LOOK)?;
    match left(&info[0])? {
        (left, windows) if left == windows && windows > 0 => Ok(Verdict::Passed),
        (left, windows) => Err(format!("{left} of {windows} windows are left, and nobody has one").into()),
    }
}

/// By a NIC that anybody can have.
const LOOK: &str = "uvia-info --nic shm:look --json";

/// How many windows are left, and how many there are.
fn left(info: &Value) -> Result<(u64, u64), Failure> {
    let pio = &info["classes"]["pio"];
    let of = |key: &str| pio[key].as_u64().ok_or(format!("no {key} in {pio}"));
    Ok((of("windows_left")?, of("windows")?))
}

fn killed_owner(guest: &Guest) -> Result<Verdict, Failure> {
    let pair = "--class pio --pair $UVIA_NIC_A $UVIA_NIC_B";
    let said = objects(
        guest,
        &format!(
            "uvia-perf lat {pair} --vis 5 --iterations 100000000 >/dev/null 2>&1 & busy=$!; sleep 4; {LOOK}; \
             kill -9 $busy; wait $busy; {LOOK}; uvia-perf lat {pair} --size 64 --iterations 100 --json"
        ),
    )?;
    let [during, after, _] = &said[..] else { return Err(format!("not three lines: {said:?}").into()) };
    let ((during, windows), (after, _)) = (left(during)?, left(after)?);
    if (during + 10, after) != (windows, windows) {
        return Err(format!("of {windows} windows, {during} were left, and {after} after the kill").into());
    }
    Ok(Verdict::Passed)
}

/// One short run of each.
fn manners(guest: &Guest) -> Result<Verdict, Failure> {
    let pair = "--pair \"$UVIA_NIC_A\" \"$UVIA_NIC_B\" --json --iterations 200";
    let mut figures = Vec::new();
    for (what, field, value) in [
        ("lat --op read --level reception", "level", Value::from("reception")),
        ("lat --wait interrupt", "wait", "interrupt".into()),
        ("lat --wait async", "wait", "async".into()),
        ("lat --cq off --vis 4", "vis", 4.into()),
        ("lat --level unreliable", "level", "unreliable".into()),
        ("bw --op read --size 64K", "op", "read".into()),
        ("bw --wait interrupt --size 4K", "wait", "interrupt".into()),
    ] {
        for object in objects(guest, &format!("uvia-perf {what} {pair}"))? {
            let figure =
                object["p50_us"].as_f64().or(object["mb_per_s"].as_f64()).filter(|figure| *figure > 0.0);
            if object[field] != value || object["iterations"] != 200 {
                return Err(format!("`{what}` printed {object}").into());
            }
            figures.push(format!("{what}: {:.2}", figure.ok_or(format!("no figure in {object}"))?));
        }
    }
    say!("   p50 in us, or MB/s: {}", figures.join(", "));
    Ok(Verdict::Passed)
}
