//! One device, opened many times in a process.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use uvia::{Error, MemoryAttributes, NetAddress, Nic, NicOptions, Progress, ViAttributes};
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::{PATIENCE, ServedModels, memory_pair};

fn options() -> NicOptions {
    NicOptions { name: Some("here".to_owned()), ..NicOptions::default() }
}

#[test]
fn each_opening_is_a_handle_to_the_same_nic_and_the_last_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    let models = ServedModels::start(folder.path(), &[Kind::ALL[0]], Doorbells::Polled);
    let name = &models.names()[0];
    for round in 0..3 {
        // By several threads at a time: one opens, the others get what it opened.
        let barrier = Barrier::new(4);
        let nics: Vec<Nic> = thread::scope(|scope| {
            let open = || {
                barrier.wait();
                Nic::open(name, options()).unwrap()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // What one made, the others use: it is one NIC.
        let tag = nics[0].create_tag().unwrap();
        let region = nics[1].allocate(10, MemoryAttributes::local(tag)).unwrap();
        assert_eq!(nics[2].region(region.handle()).unwrap().as_ptr(), region.as_ptr());
        // By another spelling of the name, too.
        let dotted = name.replacen("vfio-user:/", "vfio-user:/./", 1);
        let again = Nic::open(&dotted, NicOptions::default()).unwrap();
        assert_eq!((again.name(), again.create_tag().unwrap() != tag), ("here", true));
        // The first may go, the rest works on; an object alone keeps it open.
        let vi = nics[3].create_vi(&ViAttributes::new(tag), None, None).unwrap();
        drop((nics, region));
        assert!(again.poll().is_ok(), "round {round}");
        drop(again);
        assert!(vi.connect(&nobody(), Duration::from_millis(10), &[]).is_err());
        let other = NicOptions { name: Some("there".to_owned()), ..NicOptions::default() };
        assert!(Nic::open(name, other).is_err(), "it is open still");
        // The next round opens it anew, by the name that it has then: the last one closes before its drop returns.
    }
    let other = NicOptions { name: Some("there".to_owned()), ..NicOptions::default() };
    assert_eq!(Nic::open(name, other).unwrap().name(), "there");
}

fn nobody() -> NetAddress {
    NetAddress::new(uvia::MacAddress([2, 9, 9, 9, 9, 9]), b"x").unwrap()
}

#[test]
fn options_that_are_not_those_of_the_first_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let models = ServedModels::start(folder.path(), &[Kind::ALL[0]], Doorbells::Polled);
    let name = &models.names()[0];
    let first = Nic::open(name, options()).unwrap();
    type Spoil = fn(&mut NicOptions);
    let spoils: [(&str, Spoil); 4] = [
        ("host name", |options| options.name = Some("other".to_owned())),
        ("hosts file", |options| options.hosts = Some("/dev/null".into())),
        ("set-up of the adapter", |options| options.adapter.rx_ring = 64),
        ("end-to-end checks", |options| options.integrity = true),
    ];
    for (what, spoil) in spoils {
        let mut options = options();
        spoil(&mut options);
        match Nic::open(name, options) {
            Err(Error::Parameter(why)) => assert!(why.contains(what), "{why}"),
            other => panic!("{what}: {:?}", other.map(|nic| nic.name().to_owned())),
        }
    }
    // A thread is started for the first that wants one.
    let second = Nic::open(name, NicOptions { progress: Progress::Thread, ..options() }).unwrap();
    drop(first);
    assert!(matches!(second.resolve("nobody", Duration::from_millis(10)), Err(Error::UnknownHost { .. })));
}

#[test]
fn what_does_not_open_can_be_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let name = ServedModels::name(folder.path(), 0);
    for _ in 0..3 {
        assert!(matches!(Nic::open(&name, options()), Err(Error::Driver(_))));
    }
    let _models = ServedModels::start(folder.path(), &[Kind::ALL[0]], Doorbells::Polled);
    let nic = Nic::open(&name, options()).unwrap();
    nic.wait_ready(PATIENCE).unwrap();
}

#[test]
fn a_nic_that_was_given_its_adapter_is_opened_again_by_its_handle() {
    let (a, _b, domain) = memory_pair();
    let nic = Nic::with_adapter(a, domain.clone(), options()).unwrap();
    let again = nic.open_again();
    let tag = nic.create_tag().unwrap();
    drop(nic);
    let region = again.allocate(1, MemoryAttributes::local(tag)).unwrap();
    drop((again, region));
    assert_eq!(domain.mapped(), 0);
}
