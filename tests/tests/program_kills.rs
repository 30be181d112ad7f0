//! Programs of ours are killed as a user's would be: `uvia-device`, which serves the adapters, or `uvia-perf`, which uses
//! one. Who is left ends with the reason, or goes on with the next one, in bounded time. (`kills.rs` does so far more
//! often, with processes that are made for it.)

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use uvia_models::machine::Kind;
use uvia_models::random::Random;
use uvia_tests::PATIENCE;

/// How often: seeds are 0, 1, ...
fn rounds() -> u64 {
    let set = |name| std::env::var(name).is_ok_and(|value| value == "1");
    match (set("UVIA_LONG"), set("UVIA_QUICK")) {
        (true, _) => 100,
        (_, true) => 2,
        _ => 8,
    }
}

/// A program that is built together with this one.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join(name);
    assert!(path.is_file(), "{} is not built: cargo build --workspace --bins", path.display());
    path
}

/// A process, killed when dropped.
struct Process {
    child: Child,
    errors: PathBuf,
}

impl Process {
    /// Starts a program whose standard output and error go to files in `folder`.
    fn start(name: &str, arguments: &[&str], folder: &Path, log: &str) -> Self {
        let errors = folder.join(log);
        let file = fs::File::create(&errors).unwrap();
        let child = Command::new(program(name))
            .args(arguments)
            .env_remove("UVIA_NIC")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, errors }
    }

    /// What it has said.
    fn said(&self) -> String {
        let mut text = String::new();
        fs::File::open(&self.errors).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Waits until it has said something.
    fn expect(&mut self, word: &str) {
        wait(&format!("{word:?} from {}", self.errors.display()), || {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended: {}", self.said());
            self.said().contains(word).then_some(())
        });
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How it ended by itself.
    fn ended(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.errors.display());
        wait(&what, || self.child.try_wait().unwrap())
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until there is an answer.
fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{what} was waited for in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All programs of a round.
struct Scene {
    device: Process,
    answers: Process,
    /// Descriptors of the process that serves while nobody asks.
    descriptors: usize,
    names: [String; 2],
}

impl Scene {
    fn start(folder: &Path, random: &mut Random) -> Self {
        let sockets = ["a", "b"].map(|name| folder.join(name).display().to_string());
        let mut nic = |n: usize| {
            // An e1000 is deaf for a second after each start; it is killed elsewhere.
            let kind = if random.below(2) == 0 { Kind::Virtio } else { Kind::VirtioPacked }.name();
            format!("{kind},socket={},mac=02:75:76:00:00:0{}", sockets[n], n + 1)
        };
        let (first, second) = (nic(0), nic(1));
        let mut device =
            Process::start("uvia-device", &["--nic", &first, "--nic", &second], folder, "device");
        device.expect("ready");
        let names = sockets.map(|socket| format!("vfio-user:{socket}"));
        let listen = ["lat", "--listen", "--keep", "--name", "b", "--timeout", "2", "--nic", &names[1]];
        let mut answers = Process::start("uvia-perf", &listen, folder, "answers");
        answers.expect("waiting");
        let descriptors = device.descriptors();
        Self { device, answers, descriptors, names }
    }

    fn ask(&self, folder: &Path, iterations: &str) -> Process {
        let ask = ["lat", "--to", "02:75:76:00:00:02", "--name", "a", "--nic", &self.names[0]];
        Process::start("uvia-perf", &[&ask[..], &["--iterations", iterations]].concat(), folder, "asks")
    }
}

#[test]
fn programs_that_are_killed_fail_nobody_but_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut scene = Scene::start(folder, &mut Random::new(0));
    for seed in 0..rounds() {
        let mut random = Random::new(1 + seed);
        let mut asks = scene.ask(folder, "1000000000");
        // Anywhere from before it is connected to when messages flow.
        std::thread::sleep(Duration::from_millis(random.below(60)));
        if seed % 2 == 0 {
            scene.device.kill();
            for (who, process) in [("asks", &mut asks), ("answers", &mut scene.answers)] {
                let status = process.ended();
                let said = process.said();
                assert_eq!(status.code(), Some(1), "seed {seed}: who {who} says {said}");
                assert!(
                    said.contains("vfio-user:"),
                    "seed {seed}: who {who} does not name the device: {said}"
                );
            }
            scene = Scene::start(folder, &mut random);
        } else {
            asks.kill();
            wait(&format!("seed {seed}: the adapter of who was killed"), || {
                (scene.device.descriptors() == scene.descriptors).then_some(())
            });
        }
        // The next one is served: by the one that was left, after it has missed the dead one for two seconds.
        wait(&format!("seed {seed}: the next client"), || {
            let mut next = scene.ask(folder, "50");
            next.ended().success().then_some(())
        });
        let listens = scene.answers.child.try_wait().unwrap();
        assert!(listens.is_none(), "seed {seed}: {listens:?} {}", scene.answers.said());
    }
}
