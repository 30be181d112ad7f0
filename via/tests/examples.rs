//! The examples do what they say: each is run as two programs, which count together over a wire made of memory.
//!
//! `cargo test -p uvia` builds them; a run of this test alone does not, and takes those that are there.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// All of `via/examples`.
const EXAMPLES: [&str; 6] = ["event", "notify", "poll", "tasks", "tokio", "wait"];

/// Where cargo puts them: beside the folder that this test lies in.
fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("the system knows");
    let target = here.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
    let path = target.join("examples").join(name);
    assert!(path.is_file(), "{} is not built; `cargo test -p uvia` builds the examples", path.display());
    path
}

fn start(name: &str, arguments: &[&str]) -> std::process::Child {
    let mut command = Command::new(program(name));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("a process")
}

/// What it said; an end that fails takes the other with it, in the examples' own time.
fn said(name: &str, output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {:?} {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the example at both ends of a connection.
fn count_together(name: &str) {
    // A wire of its own: tests run at the same time.
    let nic = format!("shm:example-{name}-{}", std::process::id());
    let waits = start(name, &[&nic]);
    let begins = start(name, &[&nic, "example"]);
    let outputs = [begins, waits].map(|child| child.wait_with_output().expect("its end"));
    let [begins, waits] = outputs.each_ref().map(|output| said(name, output));
    // It begins with 0, and so has the odd numbers.
    assert_eq!((begins.as_str(), waits.as_str()), ("counted to 999\n", "counted to 1000\n"), "{name}");
}

#[test]
fn poll() {
    count_together("poll");
}

#[test]
fn wait() {
    count_together("wait");
}

#[test]
fn notify() {
    count_together("notify");
}

#[test]
fn event() {
    count_together("event");
}

#[test]
fn tasks() {
    count_together("tasks");
}

#[test]
fn tokio() {
    count_together("tokio");
}

#[test]
fn none_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXAMPLES);
}

#[test]
fn what_is_wrong_is_told_in_words() {
    for name in EXAMPLES {
        let output = start(name, &[]).wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(1), "usage: EXAMPLE NIC [HOST]\n"), "{name}");
    }
}
