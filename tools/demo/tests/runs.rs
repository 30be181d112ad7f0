//! The demonstration, as it is started: what it moves arrives, what it measures has all its lines, and nothing of it is
//! left behind. Figures are not judged.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Programs that it starts, which have to lie beside it.
const PROGRAMS: [&str; 3] = ["uvia-device", "uvia-cp", "uvia-perf"];

/// Runs it with an empty folder for what it writes: what it printed.
fn run(arguments: &[&str]) -> Value {
    let demo = Path::new(env!("CARGO_BIN_EXE_uvia-demo"));
    for program in PROGRAMS {
        let path = demo.with_file_name(program);
        assert!(path.is_file(), "{} is not built: cargo build --workspace --bins", path.display());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(demo);
    command.args(arguments).args(["--json", "--iterations", "100"]).env("TMPDIR", folder.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "files are left behind");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it says of a file that was moved, and of latencies.
fn check(report: &Value, nics: [&str; 2]) {
    assert_eq!(report["nics"], Value::from(nics.to_vec()));
    let rows = report["latency"].as_array().unwrap();
    let named: Vec<_> =
        rows.iter().map(|row| (row["op"].as_str().unwrap(), row["size"].as_u64().unwrap())).collect();
    let sizes = [64, 1024, 16384];
    let wanted: Vec<_> = ["send", "write"].iter().flat_map(|op| sizes.map(|size| (*op, size))).collect();
    assert_eq!(named, wanted);
    for row in rows {
        let figure = |name: &str| row[name].as_f64().unwrap();
        assert!(figure("min_us") > 0.0 && figure("min_us") <= figure("p50_us"), "{row}");
        assert!(figure("p50_us") <= figure("p99_us") && figure("min_us") <= figure("mean_us"), "{row}");
    }
}

#[test]
fn a_file_is_moved_and_latencies_are_measured() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "abc".repeat(100_000)).unwrap();
    let path = file.path().to_str().unwrap();
    let report = run(&["--nic", "e1000,virtio", "--file", path]);
    check(&report, ["e1000", "virtio"]);
    assert_eq!(report["copy"]["bytes"], 300_000);
    assert_eq!(report["copy"]["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn adapters_may_be_served_apart() {
    // Any small file will do.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/run");
    let report = run(&["--apart", "--file", file, "--nic", "virtio-packed"]);
    check(&report, ["virtio-packed", "virtio-packed"]);
    assert_eq!(report["apart"], true);
}
