//! The program, on shared memory.

use std::process::Command;

fn run(cache: &std::path::Path, arguments: &[&str]) -> (bool, String, String) {
    let device = format!("shm:calibrate-{}", std::process::id());
    let output = Command::new(env!("CARGO_BIN_EXE_uvia-calibrate"))
        .args(["--nic", &device, "--rounds", "3"])
        .args(arguments)
        .env("XDG_CACHE_HOME", cache)
        .output()
        .expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_it_finds_is_kept_and_a_dry_run_keeps_nothing() {
    let cache = tempfile::tempdir().expect("a folder");
    let kept = || std::fs::read_dir(cache.path().join("uvia/calibration")).map(Iterator::count).unwrap_or(0);
    let (success, shown, errors) = run(cache.path(), &["--dry-run", "--json"]);
    assert!(success, "{errors}");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("an object");
    assert_eq!(shown["samples"].as_array().map(Vec::len), Some(11));
    for name in ["gather", "long", "read"] {
        let threshold = shown["thresholds"][name].as_u64();
        assert!(threshold.is_some_and(|threshold| threshold >= 1024), "{name}: {shown}");
    }
    assert_eq!(shown["thresholds"]["inline"].as_u64(), Some(128), "is not measured");
    assert_eq!(kept(), 0);
    let (success, shown, errors) = run(cache.path(), &[]);
    assert!(success && shown.contains("kept in"), "{shown}{errors}");
    assert_eq!(kept(), 1);
}
