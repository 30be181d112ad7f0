//! Processes are killed at any moment: the one that serves adapters, or one of the two that use them. Who is left has
//! an error in bounded time, nothing of it is left behind, and the next pair works.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uvia::{
    Clock, Completion, Descriptor, Error, MemoryAttributes, MemoryRegion, NetAddress, Nic, NicOptions, Vi,
    ViState, WorkQueue,
};
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::{End, PATIENCE, ServedModels};

/// Tells a child where the sockets are.
const FOLDER: &str = "UVIA_TEST_FOLDER";
/// Tells a child which kinds of adapters to serve.
const KINDS: &str = "UVIA_TEST_KINDS";
/// In which it then ends.
const FAILED: i32 = 3;
/// What is noticed has to be so within this; most is at once.
const BOUND: Duration = Duration::from_secs(5);
/// When a peer that does not say goodbye is taken for dead, by the engine's clock; and what may come on top.
const SILENCE: Duration = Duration::from_secs(5);
/// A sleep of 100 ms lasts 2 s by the hasty clock, and other processes run too.
const SLACK: Duration = Duration::from_secs(6);
/// How much faster that clock runs once the peer is dead.
const HASTE: u64 = 20;
/// How long a wait lasts. A peer is taken for dead after several probes: a long sleep is too long for them in haste.
const NAP: Duration = Duration::from_millis(2);
/// Bytes of a message.
const SIZE: usize = 64;
const PLACE: &[u8] = b"kills";

/// How often: seeds are 0, 1, ...
fn rounds() -> u64 {
    let set = |name| std::env::var(name).is_ok_and(|value| value == "1");
    match (set("UVIA_LONG"), set("UVIA_QUICK")) {
        (true, _) => 1000,
        (_, true) => 30,
        _ => 300,
    }
}

/// A sequence of numbers for a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// The engine's time of this process, which a thread makes pass: as the system's does, or in haste.
struct Time {
    now: Arc<AtomicU64>,
    hasty: Arc<AtomicBool>,
}

impl Time {
    fn start() -> Self {
        let time = Self { now: Arc::default(), hasty: Arc::default() };
        let (now, hasty) = (time.now.clone(), time.hasty.clone());
        std::thread::spawn(move || {
            let mut last = Instant::now();
            // Until the test's end, when nobody else has it any more.
            while Arc::strong_count(&now) > 1 {
                std::thread::sleep(Duration::from_micros(200));
                let passed = last.elapsed();
                last += passed;
                let rate = if hasty.load(Ordering::Relaxed) { HASTE } else { 1 };
                now.fetch_add(passed.as_nanos() as u64 * rate, Ordering::Relaxed);
            }
        });
        time
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }
}

/// A child of this test, killed when dropped.
struct Process {
    child: Child,
}

impl Process {
    fn start(test: &str, folder: &Path, kinds: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .env(KINDS, kinds)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")), "{test} does not come up");
        Self { child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How it ended by itself, if it did in time.
    fn ended(&mut self) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < BOUND {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
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

fn folder_of_child() -> Option<PathBuf> {
    // Nobody's child when all ignored tests are run.
    std::env::var_os(FOLDER).map(PathBuf::from)
}

#[test]
#[ignore = "is a child of the test here"]
fn child_that_serves() {
    let Some(folder) = folder_of_child() else { return };
    let names = std::env::var(KINDS).unwrap();
    let kind = |name| *Kind::ALL.iter().find(|kind| kind.name() == name).unwrap();
    let kinds: Vec<_> = names.split(',').map(kind).collect();
    let _models = ServedModels::start(&folder, &kinds, Doorbells::Polled);
    println!("ready");
    // Longer than any test here takes; its parent kills it.
    std::thread::sleep(Duration::from_secs(3600));
}

#[test]
#[ignore = "is a child of the test here"]
fn child_that_answers() {
    let Some(folder) = folder_of_child() else { return };
    let error = answer(&folder).unwrap_err();
    eprintln!("{error}");
    std::process::exit(FAILED);
}

/// Sends back what comes, for one peer after the other, until the adapter fails.
fn answer(folder: &Path) -> uvia::Result<()> {
    let options = NicOptions { name: Some("b".to_owned()), ..NicOptions::default() };
    let nic = Nic::open(&ServedModels::name(folder, 1), options)?;
    let listener = nic.listen(PLACE, 4)?;
    println!("ready");
    loop {
        let Some(request) = listener.wait(Duration::from_millis(100))? else { continue };
        let mut hand = Hand::new(nic.clone())?;
        if request.accept(&hand.end.vi, &[]).is_err() {
            continue;
        }
        while hand.goes_on() {
            if hand.receive(true)? {
                hand.send()?;
            }
        }
    }
}

/// An end with a message to send and one to receive.
struct Hand {
    end: End,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    idle: Vec<Box<Descriptor>>,
    lost: bool,
}

impl Hand {
    fn new(nic: Nic) -> uvia::Result<Self> {
        let end = End::new(nic, |_| ())?;
        let memory: MemoryRegion = end.nic.allocate(5 * SIZE, MemoryAttributes::local(end.tag))?;
        for n in 0..4 {
            end.vi
                .post_receive(Descriptor::new(vec![memory.segment(n * SIZE..(n + 1) * SIZE)?]))
                .map_err(|e| e.error)?;
        }
        let idle = (0..4)
            .map(|_| Ok(Descriptor::new(vec![memory.segment(4 * SIZE..5 * SIZE)?])))
            .collect::<uvia::Result<_>>()?;
        Ok(Self { end, idle, lost: false })
    }

    fn vi(&self) -> &Vi {
        &self.end.vi
    }

    fn goes_on(&self) -> bool {
        !self.lost && matches!(self.vi().state(), ViState::Connected)
    }

    /// Takes the next completion, waiting for it a little: whether a message came.
    fn receive(&mut self, waits: bool) -> uvia::Result<bool> {
        let next = if waits { self.end.cq.wait(NAP)? } else { self.end.cq.poll()? };
        let Some(Completion { queue, descriptor, .. }) = next else { return Ok(false) };
        if !descriptor.status().is_success() {
            self.lost = true;
            return Ok(false);
        }
        if queue == WorkQueue::Send {
            self.idle.push(descriptor);
            return Ok(false);
        }
        // Refused when the connection is gone, which shows next time.
        self.lost |= self.vi().post_receive(descriptor).is_err();
        Ok(true)
    }

    fn send(&mut self) -> uvia::Result<()> {
        while self.idle.is_empty() && self.goes_on() {
            self.receive(false)?;
        }
        if let Some(descriptor) = self.idle.pop() {
            self.lost |= self.vi().post_send(descriptor).is_err();
        }
        Ok(())
    }
}

/// Why asking ended.
#[derive(Debug)]
#[expect(dead_code, reason = "what was lost is for the messages of failures")]
enum Outcome {
    Adapter(Error),
    Connection(String),
}

/// Asks, and counts the answers, until that fails: why, and when that was noticed by the engine's time. What closing
/// takes is not in it.
fn ask(folder: &Path, time: &Time, waits: bool, answers: &AtomicU64) -> (Outcome, Duration) {
    let noticed = Cell::new(None);
    let once = || -> uvia::Result<String> {
        let clock = Clock::manual(time.now.clone());
        let options = NicOptions { name: Some("a".to_owned()), clock, ..NicOptions::default() };
        let nic = Nic::open(&ServedModels::name(folder, 0), options)?;
        let mut hand = Hand::new(nic)?;
        let address = NetAddress::new(ServedModels::station(1), PLACE)?;
        hand.vi().connect(&address, SILENCE, b"").inspect_err(|_| noticed.set(Some(time.now())))?;
        while hand.goes_on() {
            hand.send()?;
            let start = time.now();
            while hand.goes_on() && !hand.receive(waits)? {
                if !waits {
                    std::thread::yield_now();
                }
                assert!(time.now() - start < SILENCE + SLACK, "neither an answer nor an error");
            }
            if hand.goes_on() {
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }
        noticed.set(Some(time.now()));
        Ok(format!("{:?}", hand.vi().loss()))
    };
    let outcome = match once() {
        Ok(loss) => Outcome::Connection(loss),
        Err(error) => Outcome::Adapter(error),
    };
    (outcome, noticed.get().unwrap_or_else(|| time.now()))
}

/// What this process has that could leak.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    shared_mappings: usize,
}

impl Holdings {
    fn now() -> Self {
        let count = |folder| fs::read_dir(folder).unwrap().count();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            shared_mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
        }
    }

    /// Waits until this is all again that there is.
    fn expect(&self, when: &str) {
        let start = Instant::now();
        while *self != Self::now() {
            assert!(start.elapsed() < BOUND, "{when}: {:?} is left where there was {self:?}", Self::now());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Both other processes.
struct Others {
    serves: Process,
    answers: Process,
    /// Descriptors of the one that serves while nobody asks.
    descriptors: usize,
}

impl Others {
    fn start(folder: &Path, random: &mut Random) -> Self {
        let mut kind = || Kind::ALL[random.below(Kind::ALL.len() as u64) as usize].name();
        let kinds = format!("{},{}", kind(), kind());
        let serves = Process::start("child_that_serves", folder, &kinds);
        let answers = Process::start("child_that_answers", folder, "");
        let descriptors = serves.descriptors();
        Self { serves, answers, descriptors }
    }
}

#[test]
fn whoever_is_killed_the_others_notice_and_the_next_pair_works() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let time = Time::start();
    let mut others = Others::start(folder, &mut Random(u64::MAX));
    let mut before: Option<(Holdings, u64)> = None;
    for seed in 0..rounds() {
        let mut random = Random(seed);
        let (server_dies, waits) = (random.below(2) == 0, random.below(2) == 0);
        // Mostly once messages flow: that they do is proof that what came before left nothing behind.
        let wanted = if random.below(4) == 0 { 0 } else { 1 + random.below(30) };
        let delay = Duration::from_micros(random.below(if wanted == 0 { 30_000 } else { 2_000 }));
        let answers = AtomicU64::new(0);
        let victim = if server_dies { &mut others.serves } else { &mut others.answers };
        let (outcome, noticed, killed, at) = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                let start = Instant::now();
                while answers.load(Ordering::Relaxed) < wanted {
                    assert!(start.elapsed() < PATIENCE, "seed {seed}: the pair does not work");
                    std::thread::sleep(Duration::from_micros(100));
                }
                std::thread::sleep(delay);
                victim.kill();
                let at = time.now();
                time.hasty.store(true, Ordering::Relaxed);
                (Instant::now(), at)
            });
            let (outcome, noticed) = ask(folder, &time, waits, &answers);
            let (killed, at) = killer.join().unwrap();
            (outcome, noticed, killed, at)
        });
        let noticed = noticed.saturating_sub(at);
        time.hasty.store(false, Ordering::Relaxed);
        let said = format!("seed {seed}: {outcome:?} after {:?}", killed.elapsed());
        assert!(answers.load(Ordering::Relaxed) >= wanted, "before the kill, {said}");
        match (&outcome, server_dies) {
            // Its socket tells at once.
            (Outcome::Adapter(_), true) => assert!(killed.elapsed() < BOUND, "{said}"),
            (Outcome::Connection(_), true) => panic!("a dead adapter is no lost peer: {said}"),
            (Outcome::Connection(_) | Outcome::Adapter(Error::Timeout { .. } | Error::NoMatch(_)), false) => {
                assert!(noticed < SILENCE + SLACK, "{noticed:?} of the engine's time, {said}");
            }
            (Outcome::Adapter(error), false) => panic!("the adapter works, {error}: {said}"),
        }
        if server_dies {
            let status = others.answers.ended().unwrap_or_else(|| panic!("who answers hangs, {said}"));
            assert_eq!(status.code(), Some(FAILED), "{said}");
            others = Others::start(folder, &mut random);
        } else {
            others.answers = Process::start("child_that_answers", folder, "");
            let start = Instant::now();
            while others.serves.descriptors() != others.descriptors {
                let now = others.serves.descriptors();
                assert!(start.elapsed() < BOUND, "{now} descriptors and not {}, {said}", others.descriptors);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        match &before {
            None => before = Some((Holdings::now(), resident())),
            Some((holdings, _)) => holdings.expect(&said),
        }
    }
    let grown = resident().saturating_sub(before.unwrap().1);
    assert!(grown < 32 << 20, "{grown} bytes more are in use");
}
