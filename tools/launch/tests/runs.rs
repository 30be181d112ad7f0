//! The launcher, and the examples in C under it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

// What is linked is its static library, which is built with it.
use madeleine as _;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../via/message/c")
}

/// The newest static library of the interface.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = std::fs::read_dir(program.parent().unwrap()).unwrap().flatten().filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("libmadeleine") && name.ends_with(".a")
    });
    found.max_by_key(|entry| entry.metadata().and_then(|about| about.modified()).unwrap()).unwrap().path()
}

/// Builds an example, with every warning an error.
fn example(name: &str, to: &Path) -> PathBuf {
    let program = to.join(name);
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg("-I").arg(folder().join("include"));
    command.arg(folder().join("examples").join(name).with_extension("c")).arg("-o").arg(&program);
    command.arg(library()).args(["-lpthread", "-ldl", "-lm"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

fn launch(options: &[&str], program: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvia-launch"));
    command.args(options).arg(program).args(words).stdin(Stdio::null());
    command.output().unwrap()
}

fn good(options: &[&str], program: &Path, words: &[&str]) -> String {
    let output = launch(options, program, words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?} {program:?}: {}\n{text}\n{errors}", output.status);
    text
}

#[test]
fn the_examples_run_on_every_port() {
    let folder = tempfile::tempdir().unwrap();
    let [pingpong, ring, stencil] = ["pingpong", "ring", "stencil"].map(|name| example(name, folder.path()));
    for rails in [
        &[][..],
        &["--rail", "shared"],
        &["--rail", "tcp=127.0.0.1:0"],
        &["--rail", "shared", "--rail", "tcp=127.0.0.1:0"],
    ] {
        let with = |ranks| [&["-n", ranks], rails].concat();
        for size in ["64", "200000"] {
            assert!(good(&with("2"), &pingpong, &[size, "20"]).contains(" us"));
        }
        assert!(good(&with("3"), &ring, &[]).contains("token 9, expected 9"));
        assert!(good(&with("3"), &stencil, &[]).contains("as one alone"));
    }
}

#[test]
fn a_file_is_broadcast() {
    let folder = tempfile::tempdir().unwrap();
    let broadcast = example("broadcast", folder.path());
    let from = folder.path().join("from");
    let bytes: Vec<u8> = (0..3_000_001u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    let to = folder.path().join("to");
    good(&["-n", "4", "--describe"], &broadcast, &[from.to_str().unwrap(), to.to_str().unwrap()]);
    for rank in 1..4 {
        assert!(std::fs::read(folder.path().join(format!("to.{rank}"))).unwrap() == bytes, "rank {rank}");
    }
}

#[test]
fn a_rank_that_fails_ends_the_others_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let broadcast = example("broadcast", folder.path());
    let output = launch(&["-n", "3"], &broadcast, &["/nonexistent/file", "/nonexistent/to"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("rank 0 ended with") && errors.contains("/nonexistent/file"), "{errors}");
}

#[test]
fn a_session_may_be_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let ring = example("ring", folder.path());
    let file = folder.path().join("job.toml");
    let name = format!("written-{}", std::process::id());
    let text = format!(
        "name = \"{name}\"\nranks = 3\n[[rail]]\nname = \"a\"\nport = \"vi\"\ndevice = \"shm:{name}\"\n\
         [[rail]]\nname = \"b\"\nport = \"shared\"\n[rank.2]\ndevices = {{ a = \"none\" }}\n"
    );
    std::fs::write(&file, text).unwrap();
    assert!(good(&["--session", file.to_str().unwrap()], &ring, &[]).contains("token 9, expected 9"));
    let output = launch(&["--session", "/nonexistent/job.toml"], &ring, &[]);
    assert_eq!(output.status.code(), Some(1));
}
