//! Copies between two NICs made of memory, and between two that are modelled and served.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use uvia::{Nic, NicOptions};
use uvia_cp::{Copied, Receiver, ReceiverOptions, Room, SenderOptions, Source, send};
use uvia_models::faults::Plan;
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::{Faults, ServedModels, memory_pair_with};
use uvia_tools::Failure;

const PATIENCE: Duration = Duration::from_secs(20);

struct Copy<'a> {
    from: &'a Path,
    room: &'a Path,
    to: &'a str,
    force: bool,
    resume: bool,
    max_size: u64,
    loss: u32,
}

impl Copy<'_> {
    /// What both ends came to.
    fn run(&self) -> (Result<Copied, Failure>, Result<(), Failure>) {
        let (a, b, domain) =
            memory_pair_with(Faults { loss: self.loss, duplicates: self.loss, seed: 3, ..Faults::default() });
        let open = |adapter, name: &str| {
            let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
            Nic::with_adapter(adapter, domain.clone(), options).unwrap()
        };
        self.between(open(a, "a"), open(b, "b"))
    }

    fn between(&self, a: Nic, b: Nic) -> (Result<Copied, Failure>, Result<(), Failure>) {
        let options = ReceiverOptions { max_size: self.max_size, once: true, json: true };
        let receiver = Receiver::new(&b, Room::open(self.room).unwrap(), options).unwrap();
        thread::scope(|scope| {
            let receiving = scope.spawn(move || receiver.run());
            let host = a.resolve("b", PATIENCE).unwrap();
            let options = SenderOptions { force: self.force, resume: self.resume, timeout: PATIENCE };
            let sent = Source::open(self.from).and_then(|source| send(&a, host, self.to, source, &options));
            (sent, receiving.join().unwrap())
        })
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 131 + n / 7919) as u8).collect()
}

fn why<T: std::fmt::Debug>(outcome: Result<T, Failure>) -> String {
    match outcome {
        Err(Failure::Failed(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_arrive_whole() {
    let dir = tempfile::tempdir().unwrap();
    let room = dir.path().join("in");
    fs::create_dir_all(room.join("sub")).unwrap();
    for (n, size) in [0, 1, 262_143, 262_144, 262_145, 5_000_001, 12_582_912].into_iter().enumerate() {
        let (from, to) = (dir.path().join("file"), format!("sub/file{n}"));
        fs::write(&from, bytes(size)).unwrap();
        let loss = if n % 2 == 0 { 0 } else { 20 };
        let copy =
            Copy { from: &from, room: &room, to: &to, force: false, resume: false, max_size: u64::MAX, loss };
        let (sent, received) = copy.run();
        received.unwrap();
        assert_eq!(sent.unwrap().bytes, size as u64);
        assert!(fs::read(room.join(&to)).unwrap() == bytes(size), "{size}");
        assert_eq!(fs::read_dir(room.join("sub")).unwrap().count(), n + 1);
    }
}

#[test]
fn refusals_are_told_at_both_ends_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (from, room) = (dir.path().join("file"), dir.path().join("in"));
    fs::create_dir(&room).unwrap();
    fs::write(&from, bytes(1000)).unwrap();
    fs::write(room.join("there"), "old").unwrap();
    let copy =
        Copy { from: &from, room: &room, to: "x", force: false, resume: false, max_size: 999, loss: 0 };
    for (copy, says) in [
        (Copy { to: "../x", max_size: 9999, ..copy }, "leads out"),
        (Copy { to: "/x", max_size: 9999, ..copy }, "leads out"),
        (Copy { to: "no/x", max_size: 9999, ..copy }, "does not exist"),
        (Copy { to: "there", max_size: 9999, ..copy }, "--force"),
        (copy, "limit"),
    ] {
        let (sent, received) = copy.run();
        let (sent, received) = (why(sent), why(received));
        assert!(sent.contains(says) && received.contains(says), "{sent} / {received}");
    }
    assert_eq!(fs::read_dir(&room).unwrap().count(), 1);
    let copy =
        Copy { from: &from, room: &room, to: "there", force: true, resume: false, max_size: 9999, loss: 0 };
    copy.run().0.unwrap();
    assert_eq!(fs::read(room.join("there")).unwrap(), bytes(1000));
    assert!(why(Source::open(&room).map(|_| ())).contains("not a regular file"));
    assert!(why(Source::open(Path::new("/nonexistent")).map(|_| ())).contains("/nonexistent"));
}

#[test]
fn a_copy_goes_on_where_it_was_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (from, room) = (dir.path().join("file"), dir.path().join("in"));
    fs::create_dir(&room).unwrap();
    let data = bytes(2_000_000);
    fs::write(&from, &data).unwrap();
    let copy =
        Copy { from: &from, room: &room, to: "x", force: false, resume: true, max_size: u64::MAX, loss: 0 };
    // What an earlier copy left; then what is left of another file; then more than there is.
    for (left, resumed) in [(&data[..1_234_567], 1_234_567), (&[1, 2, 3], 0), (&[9; 3_000_000], 0)] {
        fs::write(room.join(".x.uvia-part"), left).unwrap();
        let (sent, received) = copy.run();
        received.unwrap();
        assert_eq!(sent.unwrap().resumed, resumed);
        assert!(fs::read(room.join("x")).unwrap() == data);
        assert_eq!(fs::read_dir(&room).unwrap().count(), 1);
        fs::remove_file(room.join("x")).unwrap();
    }
}

#[test]
fn files_arrive_whole_over_adapters_whose_wires_lose_and_reorder() {
    let plan = "wire loss 5%\nwire reorder 2%\nwire duplicate 1%\nwire corrupt 1%\n";
    let data = bytes(3_000_001);
    for (seed, kinds) in
        [[Kind::E1000, Kind::Virtio], [Kind::VirtioPacked, Kind::E1000]].into_iter().enumerate()
    {
        let dir = tempfile::tempdir().unwrap();
        let (from, room) = (dir.path().join("file"), dir.path().join("in"));
        fs::create_dir(&room).unwrap();
        fs::write(&from, &data).unwrap();
        let plan = Plan::parse(plan).unwrap();
        let models = ServedModels::start_with(dir.path(), &kinds, Doorbells::Polled, seed as u64, plan);
        let open = |n: usize| {
            let name = Some(["a", "b"][n].to_owned());
            let options = NicOptions { name, integrity: true, ..NicOptions::default() };
            Nic::open(&models.names()[n], options).unwrap()
        };
        let copy = Copy {
            from: &from,
            room: &room,
            to: "x",
            force: false,
            resume: false,
            max_size: u64::MAX,
            loss: 0,
        };
        let (sent, received) = copy.between(open(0), open(1));
        received.unwrap();
        assert_eq!(sent.unwrap().bytes, data.len() as u64);
        assert!(fs::read(room.join("x")).unwrap() == data, "seed {seed}");
    }
}
