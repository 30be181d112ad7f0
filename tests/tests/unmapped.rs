//! Memory that the program unmaps while it is registered: nothing faults, what is mapped there later stays as it is, and
//! what needed it fails by its name. Over every kind of NIC that needs no guest.

use std::path::Path;

use uvia::{
    ConnectionLoss, Descriptor, Error, MemoryAttributes, MemoryRegion, Nic, NicOptions, ReliabilityLevel,
    Status, ViAttributes, ViState,
};
use uvia_driver::dma::watch;
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::{End, Pages, ServedModels, ViPair, memory_pair};

const PAGE: usize = 4096;
/// More than three times what may be in flight, so that some of it is still to be sent when the other end was not driven
/// more often.
const LONG: usize = 8 << 20;
/// What lies in other memory that came to the same place.
const OTHER: u8 = 0xc7;

/// A pair of interfaces over some kind of NIC, and what serves it.
struct Bed {
    pair: ViPair,
    _served: Option<(ServedModels, tempfile::TempDir)>,
}

/// Opens a pair over a kind of NIC.
type Open = fn(&str, fn(&mut ViAttributes)) -> Bed;

fn open(device: &str, name: &str) -> Nic {
    let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
    let (adapter, domain) =
        uvia_driver::nic::open_named(device, &options.adapter).unwrap_or_else(|e| panic!("{e}"));
    Nic::with_adapter(adapter, domain, options).unwrap_or_else(|e| panic!("{e}"))
}

fn over_memory(_: &str, change: fn(&mut ViAttributes)) -> Bed {
    let (a, b, domain) = memory_pair();
    let named = |name: &str| NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
    let a = Nic::with_adapter(a, domain.clone(), named("a")).unwrap();
    let b = Nic::with_adapter(b, domain, named("b")).unwrap();
    Bed { pair: ViPair::connect(a, b, change).unwrap(), _served: None }
}

fn over_shared_memory(what: &str, change: fn(&mut ViAttributes)) -> Bed {
    let device = format!("shm:gone-{what}-{}", std::process::id());
    let pair = ViPair::connect(open(&device, "a"), open(&device, "b"), change).unwrap();
    Bed { pair, _served: None }
}

fn over_itself(what: &str, change: fn(&mut ViAttributes)) -> Bed {
    let nic = open(&format!("shm:gone-self-{what}-{}", std::process::id()), "a");
    Bed { pair: ViPair::connect(nic.clone(), nic, change).unwrap(), _served: None }
}

fn over_models(kind: Kind, change: fn(&mut ViAttributes)) -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let models = ServedModels::start(folder.path(), &[kind; 2], Doorbells::Polled);
    let name = |n| ServedModels::name(Path::new(folder.path()), n);
    let pair = ViPair::connect(open(&name(0), "a"), open(&name(1), "b"), change).unwrap();
    Bed { pair, _served: Some((models, folder)) }
}

fn over_virtio(_: &str, change: fn(&mut ViAttributes)) -> Bed {
    over_models(Kind::Virtio, change)
}

fn over_e1000(_: &str, change: fn(&mut ViAttributes)) -> Bed {
    over_models(Kind::E1000, change)
}

const KINDS: [Open; 5] = [over_memory, over_shared_memory, over_itself, over_virtio, over_e1000];

/// Runs a case over each kind.
fn each(what: &str, change: fn(&mut ViAttributes), case: impl Fn(&ViPair)) {
    if let Err(e) = watch::availability() {
        return eprintln!("skipped: {e}");
    }
    for open in KINDS {
        case(&open(what, change).pair);
    }
}

fn readable(attributes: &mut ViAttributes) {
    attributes.rdma_read = true;
}

/// The program's own memory, registered.
fn registered(end: &End, len: usize) -> (Pages, MemoryRegion) {
    let pages = Pages::private(len);
    pages.fill(1);
    // SAFETY: reached by volatile accesses only; that it does not stay mapped is what this is about.
    let region = unsafe { end.nic.register(pages.at, len, MemoryAttributes::remote(end.tag)) }.unwrap();
    assert!(region.is_watched() && !region.is_gone());
    (pages, region)
}

/// Other memory takes its place.
fn replace(pages: Pages, region: &MemoryRegion) -> Pages {
    let other = pages.replaced();
    other.fill(OTHER);
    watch::settle();
    assert!(region.is_gone());
    other
}

/// The other memory was let alone, and the registration can be ended.
fn check(end: &End, other: Pages, region: MemoryRegion) {
    assert!(other.are(other.len, OTHER), "memory that is nobody's to touch was written");
    assert!(region.read(0, &mut [0]).is_err() && region.write(0, &[0]).is_err());
    assert!(matches!(region.segment(0..1), Err(Error::Protection { .. })));
    let attributes = MemoryAttributes::local(end.tag);
    assert!(end.nic.set_memory_attributes(&region, attributes).is_err());
    let handle = region.handle();
    end.nic.deregister(region).map_err(|(_, e)| e).unwrap();
    assert!(end.nic.region(handle).is_err());
    assert!(other.are(other.len, OTHER), "the end of a registration has changed what lies there");
    other.unmap();
}

fn next(pair: &ViPair, end: &End) -> Status {
    pair.drive(|_| end.cq.poll().unwrap()).descriptor.status()
}

fn both_lost(pair: &ViPair, at: &End, loss: ConnectionLoss, peer: &End, peers: ConnectionLoss) {
    pair.drive(|_| (at.vi.loss().is_some() && peer.vi.loss().is_some()).then_some(()));
    assert_eq!((at.vi.loss(), peer.vi.loss()), (Some(loss), Some(peers)));
}

#[test]
fn an_rdma_write_into_memory_that_was_unmapped_is_refused() {
    each(
        "write",
        |_| (),
        |pair| {
            let (pages, region) = registered(&pair.b, 4 * PAGE);
            let source = pair.a.memory(4 * PAGE).unwrap();
            source.write(0, &[2; 4 * PAGE]).unwrap();
            let to = region.remote(0).unwrap();
            let write = || {
                pair.a
                    .vi
                    .post_send(Descriptor::rdma_write(vec![source.segment(0..4 * PAGE).unwrap()], to))
                    .unwrap();
                next(pair, &pair.a)
            };
            assert_eq!(write(), Status::DONE);
            assert!(pages.are(4 * PAGE, 2));
            let other = replace(pages, &region);
            assert_eq!(write(), Status::DONE | Status::RDMA_PROTECTION_ERROR);
            let loss = ConnectionLoss::RdmaProtection;
            both_lost(pair, &pair.b, loss, &pair.a, loss);
            check(&pair.b, other, region);
        },
    );
}

#[test]
fn a_receive_into_memory_that_was_unmapped_fails_by_its_name() {
    // On the short way, of one frame, and of many.
    for len in [64, 1000, 3 * PAGE] {
        each(
            "receive",
            |_| (),
            |pair| {
                let (pages, region) = registered(&pair.b, 4 * PAGE);
                let source = pair.a.memory(4 * PAGE).unwrap();
                let (mine, theirs) = (|| source.segment(0..len).unwrap(), || region.segment(0..len).unwrap());
                for _ in 0..3 {
                    pair.b.vi.post_receive(Descriptor::new(vec![theirs()])).unwrap();
                }
                pair.a.vi.post_send(Descriptor::new(vec![mine()])).unwrap();
                assert_eq!((next(pair, &pair.b), next(pair, &pair.a)), (Status::DONE, Status::DONE));
                let kept = theirs();
                let other = replace(pages, &region);
                // What names it is not taken any more, once the NIC was driven.
                pair.b.nic.poll().unwrap();
                let refused = pair.b.vi.post_receive(Descriptor::new(vec![kept])).unwrap_err();
                assert!(matches!(refused.error, Error::Protection { .. }), "{}", refused.error);
                drop(refused);
                pair.a.vi.post_send(Descriptor::new(vec![mine()])).unwrap();
                assert_eq!(next(pair, &pair.b), Status::DONE | Status::PROTECTION_ERROR);
                assert_eq!(next(pair, &pair.b), Status::DONE | Status::FLUSHED);
                assert_eq!(next(pair, &pair.a), Status::DONE | Status::REMOTE_DESCRIPTOR_ERROR);
                both_lost(pair, &pair.b, ConnectionLoss::MemoryGone, &pair.a, ConnectionLoss::PeerMemoryGone);
                check(&pair.b, other, region);
            },
        );
    }
}

#[test]
fn a_send_from_memory_that_was_unmapped_fails_by_its_name() {
    each(
        "send",
        |_| (),
        |pair| {
            let (pages, region) = registered(&pair.a, LONG);
            let into = pair.b.memory(LONG).unwrap();
            pair.b.vi.post_receive(Descriptor::new(vec![into.whole()])).unwrap();
            let (first, late) = (region.segment(0..LONG).unwrap(), region.segment(0..64).unwrap());
            pair.a.vi.post_send(Descriptor::new(vec![first])).unwrap();
            let other = replace(pages, &region);
            pair.a.nic.poll().unwrap();
            let refused = pair.a.vi.post_send(Descriptor::new(vec![late])).unwrap_err();
            assert!(matches!(refused.error, Error::Protection { .. }), "{}", refused.error);
            drop(refused);
            assert_eq!(next(pair, &pair.a), Status::DONE | Status::PROTECTION_ERROR);
            both_lost(pair, &pair.a, ConnectionLoss::MemoryGone, &pair.b, ConnectionLoss::PeerMemoryGone);
            assert_eq!(next(pair, &pair.b), Status::DONE | Status::FLUSHED);
            // Nothing of what lies there now went out.
            let mut bytes = vec![0; LONG];
            into.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte != OTHER));
            check(&pair.a, other, region);
        },
    );
}

#[test]
fn an_rdma_read_of_memory_that_was_unmapped_ends_the_connection() {
    // Before it is asked for, and in the middle of the answer.
    for turns in [0, 1, 3] {
        each("read", readable, |pair| {
            let (pages, region) = registered(&pair.b, LONG);
            let into = pair.a.memory(LONG).unwrap();
            let from = region.remote(0).unwrap();
            pair.a.vi.post_send(Descriptor::rdma_read(vec![into.whole()], from)).unwrap();
            for _ in 0..turns {
                pair.b.nic.poll().unwrap();
                pair.a.nic.poll().unwrap();
            }
            let other = replace(pages, &region);
            let status = next(pair, &pair.a);
            let refused = [Status::RDMA_PROTECTION_ERROR, Status::REMOTE_DESCRIPTOR_ERROR];
            assert!(refused.iter().any(|error| status == Status::DONE | *error), "{status:?}");
            pair.drive(|pair| (pair.b.vi.state() == ViState::Error).then_some(()));
            let mut bytes = vec![0; LONG];
            into.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte != OTHER));
            check(&pair.b, other, region);
        });
    }
}

#[test]
fn an_rdma_read_into_memory_that_was_unmapped_fails_by_its_name() {
    each("into", readable, |pair| {
        let (pages, region) = registered(&pair.a, LONG);
        let from = pair.b.nic.allocate(LONG, MemoryAttributes::remote(pair.b.tag)).unwrap();
        let to = region.whole();
        pair.a.vi.post_send(Descriptor::rdma_read(vec![to], from.remote(0).unwrap())).unwrap();
        let other = replace(pages, &region);
        assert_eq!(next(pair, &pair.a), Status::DONE | Status::PROTECTION_ERROR);
        both_lost(pair, &pair.a, ConnectionLoss::MemoryGone, &pair.b, ConnectionLoss::PeerMemoryGone);
        check(&pair.a, other, region);
    });
}

#[test]
fn an_unreliable_connection_survives_it() {
    let unreliable = |attributes: &mut ViAttributes| attributes.reliability = ReliabilityLevel::Unreliable;
    each("unreliable", unreliable, |pair| {
        let (pages, region) = registered(&pair.b, PAGE);
        let (source, good) = (pair.a.memory(64).unwrap(), pair.b.memory(64).unwrap());
        pair.b.vi.post_receive(Descriptor::new(vec![region.segment(0..64).unwrap()])).unwrap();
        pair.b.vi.post_receive(Descriptor::new(vec![good.segment(0..64).unwrap()])).unwrap();
        let other = replace(pages, &region);
        let expected = [Status::DONE | Status::PROTECTION_ERROR, Status::DONE];
        for status in expected {
            pair.a.vi.post_send(Descriptor::new(vec![source.segment(0..64).unwrap()])).unwrap();
            assert_eq!(next(pair, &pair.a), Status::DONE);
            assert_eq!(next(pair, &pair.b), status);
        }
        assert_eq!(pair.b.vi.state(), ViState::Connected);
        check(&pair.b, other, region);
    });
}

#[test]
fn other_interfaces_go_on() {
    each(
        "others",
        |_| (),
        |pair| {
            let (pages, region) = registered(&pair.b, PAGE);
            pair.b.vi.post_receive(Descriptor::new(vec![region.segment(0..64).unwrap()])).unwrap();
            let others = [&pair.a, &pair.b].map(|end| End::new(end.nic.clone(), |_| ()).unwrap());
            let [one, two] = &others;
            uvia_tests::join(one, two, b"others").unwrap();
            let other = replace(pages, &region);
            let (source, target) = (one.memory(2000).unwrap(), two.memory(2000).unwrap());
            for len in [10, 1999] {
                for _ in 0..20 {
                    two.vi.post_receive(Descriptor::new(vec![target.segment(0..len).unwrap()])).unwrap();
                    one.vi.post_send(Descriptor::new(vec![source.segment(0..len).unwrap()])).unwrap();
                    assert_eq!((next(pair, two), next(pair, one)), (Status::DONE, Status::DONE));
                }
            }
            pair.b.vi.disconnect().unwrap();
            assert_eq!(next(pair, &pair.b), Status::DONE | Status::FLUSHED);
            check(&pair.b, other, region);
        },
    );
}
