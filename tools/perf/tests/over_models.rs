//! The program, as it is typed, over models of adapters that this process serves: both ends in one process, and in two.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::ServedModels;

fn perf(line: &str, names: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvia-perf"));
    command.args(line.split_whitespace()).args(names).env_remove("UVIA_NIC").stdin(Stdio::null());
    // A machine may be slow.
    command.args(["--timeout", "60"]);
    command
}

/// The rows that a run prints.
fn rows(line: &str, output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{line}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|row| serde_json::from_str(row).unwrap()).collect()
}

fn serve(folder: &Path) -> ServedModels {
    ServedModels::start(folder, &[Kind::Virtio, Kind::E1000], Doorbells::Polled)
}

/// Two tests with all that is not usual, but for what needs another place.
const LINES: [&str; 11] = [
    "lat --op read --level reception --vis 3",
    "lat --cq off --vis 2",
    "lat --level unreliable",
    "lat --wait interrupt",
    "lat --wait async --vis 2",
    "lat --wait async --op read",
    "bw --op read --sizes 64,20000",
    "bw --level unreliable",
    "bw --wait interrupt --sizes 64,20000",
    "bw --wait async --sizes 64,20000",
    "bw --op write --level reception --vis 3 --size 20000",
];

/// That the row is of what the line asks for.
fn check(line: &str, row: &Value) {
    let words: Vec<_> = line.split_whitespace().collect();
    let given = |option: &str, usual: &str| {
        let at = words.iter().position(|word| *word == option);
        at.map_or(usual.to_owned(), |at| words[at + 1].to_owned())
    };
    for (option, field, usual) in [
        ("--op", "op", "send"),
        ("--level", "level", "delivery"),
        ("--cq", "cq", "on"),
        ("--wait", "wait", "poll"),
    ] {
        assert_eq!(row[field], given(option, usual), "{line}: {row}");
    }
    assert_eq!(
        (row["test"].as_str(), &row["vis"]),
        (Some(words[0]), &given("--vis", "1").parse::<u64>().unwrap().into())
    );
    assert_eq!(row["iterations"], 300);
    let figure = if words[0] == "lat" { &row["p50_us"] } else { &row["mb_per_s"] };
    assert!(figure.as_f64().is_some_and(|figure| figure > 0.0), "{line}: {row}");
}

#[test]
fn both_ends_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let models = serve(folder.path());
    for line in LINES {
        let output =
            perf(&format!("{line} --iterations 300 --json --pair"), models.names()).output().unwrap();
        let rows = rows(line, &output);
        assert_eq!(rows.len(), if line.contains("--sizes") { 2 } else { 1 }, "{line}");
        rows.iter().for_each(|row| check(line, row));
    }
    for size in [1400, 8174] {
        let line = format!("raw bw --size {size} --iterations 300 --json --copy --pair");
        let rows = rows(&line, &perf(&line, models.names()).output().unwrap());
        assert_eq!((rows[0]["test"].as_str(), rows[0]["op"].as_str()), (Some("raw-bw"), Some("copy")));
        assert_eq!((&rows[0]["size"], &rows[0]["lost"]), (&size.into(), &0.into()), "{}", rows[0]);
    }
    // Of all sizes, those that a network of the MTU carries.
    let line = "raw lat --sizes all --iterations 30 --json --pair";
    let rows = rows(line, &perf(line, models.names()).output().unwrap());
    assert_eq!(rows.last().unwrap()["size"], 1024);
}

#[test]
fn interfaces_beside_raw_frames_are_told_with_their_ratio() {
    let folder = tempfile::tempdir().unwrap();
    let models = serve(folder.path());
    for (line, frames) in [
        ("lat --size 100", &[("raw-lat", "send", 100)][..]),
        (
            "bw --op write --size 20000",
            &[("raw-bw", "copy", 1500), ("raw-bw", "send", 1500), ("raw-bw", "copy", 8174)],
        ),
    ] {
        let line = format!("{line} --iterations 50 --rounds 2 --beside raw --json --pair");
        let rows = rows(&line, &perf(&line, models.names()).output().unwrap());
        // Rows of the frames, one of the interfaces, and how that compares with each of the others.
        let (measured, ratios) = rows.split_at(frames.len() + 1);
        assert_eq!(
            (measured[frames.len()]["op"].as_str(), ratios.len()),
            (line.contains("bw").then_some("write").or(Some("send")), frames.len())
        );
        for (n, (test, op, size)) in frames.iter().enumerate() {
            let (row, ratio) = (&measured[n], &ratios[n]);
            assert_eq!(
                (&row["test"], &row["op"], &row["size"]),
                (&(*test).into(), &(*op).into(), &(*size).into()),
                "{row}"
            );
            assert_eq!(
                (&ratio["beside"], &ratio["beside_op"], &ratio["beside_size"], &ratio["rounds"]),
                (&(*test).into(), &(*op).into(), &(*size).into(), &2.into()),
                "{ratio}"
            );
            let [ratio, least, greatest] =
                ["ratio", "least", "greatest"].map(|field| ratio[field].as_f64().unwrap());
            assert!(0.0 < least && least <= greatest && ratio > 0.0, "{least} {ratio} {greatest}");
        }
        // Each round is measured, and all are in the row.
        assert_eq!(measured[frames.len()]["iterations"], 100);
    }
}

#[test]
fn packed_rings_are_used_when_asked_for_and_the_row_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let models = ServedModels::start(folder.path(), &[Kind::VirtioPacked; 2], Doorbells::Polled);
    for test in ["lat", "bw", "raw lat", "raw bw"] {
        for (option, driver) in [("", "virtio"), ("--packed-rings", "virtio-packed")] {
            let line = format!("{test} {option} --iterations 300 --json --pair");
            let rows = rows(&line, &perf(&line, models.names()).output().unwrap());
            assert_eq!(rows[0]["nic"], driver, "{line}");
        }
    }
}

/// The end that answers, until it is dropped.
struct Answers(Child);

impl Drop for Answers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_listening_end_answers_all_that_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let models = serve(folder.path());
    let [a, b] = models.names() else { panic!("two models") };
    let mut listen = perf("lat --listen --keep --name b --nic", std::slice::from_ref(b));
    let mut answers = Answers(listen.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(answers.0.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("waiting"));
    for line in LINES {
        let line = format!("{line} --iterations 300");
        let asked =
            perf(&format!("{line} --json --to b --name a --nic"), std::slice::from_ref(a)).output().unwrap();
        rows(&line, &asked).iter().for_each(|row| check(&line, row));
    }
    assert!(answers.0.try_wait().unwrap().is_none(), "it listens on");
}

#[test]
fn a_client_that_was_gone_before_it_was_accepted_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let models = serve(folder.path());
    let [a, b] = models.names() else { panic!("two models") };
    let mut listen = perf("lat --listen --name b --nic", std::slice::from_ref(b));
    let mut answers = Answers(listen.stderr(Stdio::piped()).spawn().unwrap());
    let (heard, said) = mpsc::channel();
    let errors = BufReader::new(answers.0.stderr.take().unwrap());
    std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| heard.send(line)));
    let waiting = said.recv().unwrap();
    let mac = waiting.rsplit_once('(').and_then(|(_, mac)| mac.strip_suffix(')')).unwrap();
    let ask = |line: &str| {
        let mut ask = perf(&format!("{line} --json --to {mac} --name a --nic"), std::slice::from_ref(a));
        ask.stdout(Stdio::piped());
        ask
    };
    let signal = |which: &str| {
        let outcome = Command::new("kill").args([which, &answers.0.id().to_string()]).status().unwrap();
        assert!(outcome.success());
    };
    // Who asks is killed before the other end looks. How long it takes to ask, nobody tells.
    let gone = [1, 3, 9].into_iter().any(|seconds| {
        signal("-STOP");
        let mut ghost = ask("lat").spawn().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        ghost.kill().unwrap();
        ghost.wait().unwrap();
        signal("-CONT");
        said.recv_timeout(Duration::from_secs(20)).is_ok_and(|line| {
            assert!(line.contains("was gone") && line.ends_with("waiting for the next"), "{line}");
            true
        })
    });
    assert!(gone, "no request of the client that was killed has come");
    let line = "lat --iterations 300";
    rows(line, &ask(line).output().unwrap()).iter().for_each(|row| check(line, row));
    // One was served, which is all.
    assert!(answers.0.wait().unwrap().success());
}

#[test]
fn what_does_not_go_together_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let models = serve(folder.path());
    for (line, why) in [
        ("lat --op read --level unreliable --pair", "reads need a reliable connection"),
        ("lat --wait interrupt --cq off --pair", "--cq off"),
        ("lat --wait interrupt --op write --pair", "can only poll"),
        ("bw --wait interrupt --vis 2 --pair", "--vis 1"),
        ("bw --wait async --vis 2 --pair", "--vis 1"),
        ("lat --op read --beside raw --pair", "no frame is like it"),
        ("lat --size 8175 --beside raw --pair", "cannot be measured here"),
        ("raw bw --size 8175 --pair", "the NIC's longest frame"),
    ] {
        let output = perf(line, models.names()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{line}: {:?} {said}", output.status);
    }
}
