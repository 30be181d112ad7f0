//! How ranks are started on other hosts, and how they end.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use uvia_message::Session;

/// Far beyond what anything needs.
const PATIENCE: Duration = Duration::from_secs(120);

fn launcher() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvia-launch"));
    command.stdin(Stdio::null());
    command
}

fn launch(options: &[&str], command: &[&str]) -> Output {
    launcher().args(options).args(command).output().unwrap()
}

/// In place of ssh: says which host, and has a shell of this host run the line, as the other one's would.
fn remote_shell(folder: &Path) -> PathBuf {
    let path = folder.join("remote");
    let log = folder.join("hosts");
    let text = format!(
        "#!/bin/sh\n[ $# = 3 ] && [ \"$1\" = -q ] || exit 9\necho \"$2\" >> '{}'\nexec sh -c \"$3\"\n",
        log.display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Waits until a file has so many lines; what they are.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.matches('\n').count() >= count {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(start.elapsed() < PATIENCE, "{}: {text}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until none of these processes is there.
fn all_gone(pids: &[String]) {
    let start = Instant::now();
    let runs = |pid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        // One that nobody has waited for yet has ended.
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while pids.iter().any(runs) {
        assert!(start.elapsed() < PATIENCE, "{pids:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// This test program as a rank: the one test of it that is a rank's part.
fn as_rank() -> [String; 4] {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    ["--exact", "a_rank", "--nocapture"]
        .into_iter()
        .fold(vec![own], |mut words, word| {
            words.push(word.to_owned());
            words
        })
        .try_into()
        .unwrap()
}

/// What a rank does, where this program was started as one: passes a number round.
#[test]
fn a_rank() {
    if std::env::var_os("UVIA_RANK").is_none() {
        return;
    }
    let session = Session::from_environment().unwrap();
    let channel = session.channel(0, &[]).unwrap();
    let (rank, size) = (session.rank(), session.size());
    let pass = |number: u32| channel.send((rank + 1) % size, |message| message.put(&number)).unwrap();
    let take = || channel.receive((rank + size - 1) % size, |message| message.get::<u32>()).unwrap();
    if rank == 0 {
        pass(1);
        println!("all {} were there", take());
    } else {
        pass(take() + 1);
    }
}

#[test]
fn ranks_on_other_hosts_are_started_by_a_remote_shell() {
    let folder = tempfile::tempdir().unwrap();
    let shell = format!("{} -q", remote_shell(folder.path()).display());
    let options = ["-n", "4", "--hosts", "localhost,b,c", "--address", "127.0.0.1", "--remote-shell", &shell];
    let rank = as_rank();
    let words: Vec<&str> = ["--rail", "tcp=0.0.0.0:0", "--rail", "shared"]
        .into_iter()
        .chain(rank.iter().map(String::as_str))
        .collect();
    let output = launch(&options, &words);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all 4 were there"), "{said}\n{errors}");
    let mut hosts = lines(&folder.path().join("hosts"), 2);
    hosts.sort_unstable();
    assert_eq!(hosts, ["b", "c"]);
}

#[test]
fn a_rank_that_is_killed_ends_the_others_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let shell = format!("{} -q", remote_shell(folder.path()).display());
    let pids = folder.path().join("pids");
    // Rank 2 is killed when all are there. Rank 0 does not listen to SIGTERM.
    let script = format!(
        "trap '' TERM; [ $UVIA_RANK = 0 ] || trap - TERM; echo $$ >> {0}; \
         while [ $(wc -l < {0}) -lt 4 ]; do sleep 0.02; done; [ $UVIA_RANK = 2 ] && kill -9 $$; sleep 1000",
        pids.display()
    );
    let options =
        ["-n", "4", "--json", "--hosts", "localhost,b", "--address", "127.0.0.1", "--remote-shell", &shell];
    let output = launch(&options, &["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("rank 2 ended with signal: 9"), "{errors}");
    let mut ends: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    ends.sort_by_key(|end| end["rank"].as_u64());
    assert_eq!(ends.len(), 4, "{ends:?}");
    for (rank, end) in ends.iter().enumerate() {
        let host = ["localhost", "b"][rank % 2];
        assert!(end["rank"] == rank && end["host"] == host && end["ended"] == (rank != 2), "{end}");
        assert!(end["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{end}");
    }
    assert!(ends[2]["signal"] == 9 && ends[2]["status"].is_null(), "{}", ends[2]);
    assert!(ends[0]["signal"] == 9, "it was asked first, and did not listen: {}", ends[0]);
    all_gone(&lines(&pids, 4));
}

#[test]
fn a_launcher_that_is_killed_takes_its_ranks_along() {
    for (signal, status) in [("-KILL", None), ("-TERM", Some(1))] {
        let folder = tempfile::tempdir().unwrap();
        let shell = format!("{} -q", remote_shell(folder.path()).display());
        let pids = folder.path().join("pids");
        let script = format!("echo $$ >> {}; exec sleep 1000", pids.display());
        let mut command = launcher();
        command.args([
            "-n",
            "2",
            "--hosts",
            "localhost,b",
            "--address",
            "127.0.0.1",
            "--remote-shell",
            &shell,
        ]);
        let mut child = command.args(["sh", "-c", &script]).stderr(Stdio::null()).spawn().unwrap();
        let ranks = lines(&pids, 2);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), status);
        all_gone(&ranks);
    }
}

#[test]
fn the_command_line_is_explained_and_checked() {
    let help = launch(&["--help"], &[]);
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success() && text.contains("Examples:") && text.contains("Exit codes:"), "{text}");
    for (words, says) in [
        (&["-n", "2"][..], "COMMAND"),
        (&["true"], "--ranks"),
        (&["-n", "2", "--hosts", "a,b", "true"], "--address"),
        (&["-n", "2", "--rail", "ib=mlx5", "true"], "vi=NIC"),
        (&["-n", "2", "--rail", "vi=a\"b", "true"], "vi=NIC"),
        (&["-n", "0", "true"], "ranks"),
        (&["-n", "65", "true"], "--rail shared"),
        (&["-n", "100000", "--rail", "shared", "true"], "65,536"),
        (&["-n", "2", "--rail", "vi=eth0", "true"], "device name"),
        (&["-n", "2", "--rail", "vi", "true"], "NIC's name"),
        (&["-n", "2", "--rail", "tcp=1:2:3", "true"], "10.0.0.1:7000"),
        (&["-n", "2", "--rail", "shared=x", "true"], "on no device"),
        (&["-n", "2", "--policy", "hope", "true"], "adaptive"),
        (
            &["-n", "2", "--hosts", "b", "--address", "127.0.0.1", "--remote-shell", " ", "true"],
            "--remote-shell",
        ),
    ] {
        let output = launch(words, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(says), "{words:?}: {errors}");
    }
    for (words, says) in [
        (&["-n", "2", "/nonexistent/program"][..], "/nonexistent/program"),
        (
            &[
                "-n",
                "1",
                "--hosts",
                "b",
                "--address",
                "127.0.0.1",
                "--remote-shell",
                "/nonexistent/shell",
                "true",
            ],
            "/nonexistent/shell",
        ),
        (&["-n", "2", "false"], "rank"),
        (&["--session", "/dev/zero", "true"], "/dev/zero"),
    ] {
        let output = launch(words, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(says), "{words:?}: {errors}");
        // Not once for each rank, and not by the way of how it was tried.
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
