//! The examples in Rust, over every port, started as `uvia-launch` does it. (`cargo test` builds them beside this.)

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use uvia_message::description::variable;
use uvia_message::directory;

/// Rails of a session, as they are written down; `NAME` is its name.
const VI: &str = "[[rail]]\nname = \"vi\"\nport = \"vi\"\ndevice = \"shm:NAME\"\n";
const TCP: &str = "[[rail]]\nname = \"tcp\"\nport = \"tcp\"\ndevice = \"127.0.0.1:0\"\n";
const SHARED: &str = "[[rail]]\nname = \"shared\"\nport = \"shared\"\n";

fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("this program");
    let path = tests.ancestors().nth(2).expect("a folder").join("examples").join(name);
    assert!(path.exists(), "{} is built by `cargo test --package uvia-message`", path.display());
    path
}

/// A session, as it is written down.
fn described(ranks: usize, rails: &[&str]) -> String {
    static SESSIONS: AtomicU32 = AtomicU32::new(0);
    let name = format!("examples-{}-{}", std::process::id(), SESSIONS.fetch_add(1, Ordering::Relaxed));
    let session = format!("name = \"{name}\"\nranks = {ranks}\npatience = 120\n{}", rails.concat());
    session.replace("NAME", &name)
}

/// Runs ranks of a program to their end, which has to be a good one; answers what they printed.
fn run(program: &str, ranks: usize, rails: &[&str], words: &[&str]) -> String {
    let session = described(ranks, rails);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let launcher = listener.local_addr().expect("an address").to_string();
    let children: Vec<_> = (0..ranks)
        .map(|rank| {
            let mut command = Command::new(example(program));
            command.args(words).env(variable::RANK, rank.to_string());
            command.env(variable::SESSION, &session).env(variable::LAUNCHER, &launcher);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a rank starts")
        })
        .collect();
    directory::serve(&listener, ranks).expect("all ranks ask");
    finish(program, children)
}

fn finish(program: &str, children: Vec<Child>) -> String {
    let mut said = String::new();
    for (rank, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().expect("a rank ends");
        assert!(output.status.success(), "{program}, rank {rank}: {}", output.status);
        said += &String::from_utf8_lossy(&output.stdout);
    }
    said
}

#[test]
fn what_is_wrong_is_told_in_words() {
    for program in ["broadcast", "pingpong", "ring", "stencil"] {
        let mut command = Command::new(example(program));
        if program == "broadcast" {
            command.args(["from", "to"]);
        }
        let output = command.env_remove(variable::RANK).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        let lacking = format!("session: {} is not set: start the program by uvia-launch\n", variable::RANK);
        assert_eq!((output.status.code(), &*errors), (Some(1), &*lacking), "{program}");
    }
}

#[test]
fn a_ping_pong_goes_on_every_port() {
    for rails in [&[VI][..], &[TCP], &[SHARED], &[VI, TCP]] {
        for size in ["64", "300000"] {
            let said = run("pingpong", 2, rails, &[size, "20"]);
            assert!(said.starts_with(&format!("{size} bytes: ")), "{said}");
        }
    }
}

#[test]
fn a_token_goes_round_on_every_port() {
    for rails in [[VI], [TCP], [SHARED]] {
        assert_eq!(run("ring", 3, &rails, &["4"]), "token 12, expected 12\n");
    }
}

#[test]
fn a_plate_is_computed_as_by_one_alone_on_every_port() {
    for rails in [[VI], [TCP], [SHARED]] {
        assert_eq!(run("stencil", 6, &rails, &["12"]), "3 by 2 tiles, 12 steps: as one alone\n");
    }
}

#[test]
fn a_file_is_broadcast_on_every_port() {
    let bytes: Vec<u8> = (0..1_000_001u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    for rails in [[VI], [TCP], [SHARED]] {
        let folder = tempfile::tempdir().expect("a folder");
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        std::fs::write(&from, &bytes).expect("a file");
        let text = |path: &Path| path.to_str().expect("a name of text").to_owned();
        run("broadcast", 4, &rails, &[&text(&from), &text(&to)]);
        for rank in 1..4 {
            let copy = std::fs::read(folder.path().join(format!("to.{rank}"))).expect("a copy");
            assert!(copy == bytes, "rank {rank}");
        }
    }
}

/// Nobody tells them where the others are: the network is asked for their NICs' names.
#[test]
fn ranks_that_nobody_has_started_find_each_other_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("session.toml");
    // Names differ by rails too: several may be on one network.
    let other = VI.replace("\"vi\"\nport", "\"other\"\nport").replace("NAME", "NAME-other");
    std::fs::write(&file, described(3, &[VI, &other])).expect("a file");
    let start = |rank: usize| {
        let mut command = Command::new(example("ring"));
        command.env(variable::RANK, rank.to_string()).env(variable::FILE, &file);
        command.env_remove(variable::SESSION).env_remove(variable::LAUNCHER);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a rank starts")
    };
    // Whichever comes first waits for the others.
    let children = vec![start(1), start(2), start(0)];
    assert_eq!(finish("ring", children), "token 9, expected 9\n");
}
