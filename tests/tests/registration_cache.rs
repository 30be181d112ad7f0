//! The cache of registrations: what it spares, what it keeps, and that it never believes what is no more.

use std::process::Command;
use std::sync::Arc;

use uvia::{
    CacheLimits, CacheState, ConnectionLoss, Descriptor, Error, Lease, MemoryAttributes, MemoryRegion, Nic,
    NicOptions, RegistrationCache, Status, ViAttributes,
};
use uvia_tests::{End, Pages, PinnedDomain, Sealed, ViPair, memory_pair, without_system_calls};

const PAGE: usize = 4096;

/// A pair over adapters made of memory, whose memory is mapped as by an IOMMU.
fn pair() -> (ViPair, Arc<PinnedDomain>) {
    let (a, b, _) = memory_pair();
    let domain = Arc::new(PinnedDomain::default());
    let open = |adapter, name: &str| {
        let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
        Nic::with_adapter(adapter, domain.clone(), options).unwrap()
    };
    let change = |attributes: &mut ViAttributes| attributes.rdma_read = true;
    (ViPair::connect(open(a, "a"), open(b, "b"), change).unwrap(), domain)
}

fn cache(end: &End, limits: CacheLimits) -> RegistrationCache {
    RegistrationCache::new(&end.nic, MemoryAttributes::local(end.tag), limits).unwrap()
}

fn lease(cache: &RegistrationCache, pages: &Pages, from: usize, len: usize) -> Lease {
    assert!(from + len <= pages.len);
    // SAFETY: the pages stay mapped until their leases and descriptors are back; they are reached by volatile accesses.
    unsafe { cache.lease(pages.at.add(from), len) }.unwrap()
}

/// Says that the test was left out, where memory cannot be watched.
fn is_on(cache: &RegistrationCache) -> bool {
    match cache.state() {
        CacheState::On => true,
        CacheState::Off(why) => {
            eprintln!("skipped: {why}");
            false
        }
    }
}

/// Sends what is leased; answers the bytes that came into `into`.
fn send(pair: &ViPair, from: &Lease, into: &MemoryRegion) -> Vec<u8> {
    pair.b.vi.post_receive(Descriptor::new(vec![into.segment(0..from.len()).unwrap()])).unwrap();
    pair.a.vi.post_send(Descriptor::new(vec![from.segment(0..from.len()).unwrap()])).unwrap();
    for end in [&pair.b, &pair.a] {
        let done = pair.drive(|_| end.cq.poll().unwrap());
        assert_eq!(done.descriptor.status(), Status::DONE);
    }
    let mut bytes = vec![0; from.len()];
    into.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_registered_is_found_again_as_a_whole_and_in_parts() {
    let (pair, domain) = pair();
    let cache = cache(&pair.a, CacheLimits::default());
    if !is_on(&cache) {
        return;
    }
    let pages = Pages::shared(16 * PAGE);
    let first = lease(&cache, &pages, 0, 16 * PAGE);
    let (handle, views) = (first.handle(), domain.views());
    let part = lease(&cache, &pages, 3 * PAGE + 7, 100);
    assert_eq!((part.handle(), part.offset(), part.len()), (handle, 3 * PAGE + 7, 100));
    assert!(part.segment(0..101).is_err() && part.segment(0..100).is_ok());
    drop((first, part));
    assert_eq!(lease(&cache, &pages, 0, 16 * PAGE).handle(), handle);
    let counted = cache.statistics();
    assert_eq!((counted.hits, counted.misses, counted.leases, counted.regions), (2, 1, 0, 1));
    assert_eq!((counted.bytes, domain.views()), (16 * PAGE as u64, views));
    cache.clear();
    assert_eq!((cache.statistics().regions, domain.views()), (0, views - 1));
    assert!(pair.a.nic.region(handle).is_err());
    pages.unmap();
}

#[test]
fn a_registration_of_memory_that_was_unmapped_is_never_used() {
    let (pair, domain) = pair();
    let cache = cache(&pair.a, CacheLimits::default());
    if !is_on(&cache) {
        return;
    }
    let rounds: u8 = if std::env::var_os("UVIA_LONG").is_some() { 250 } else { 50 };
    let into = pair.b.memory(PAGE).unwrap();
    let mut pages = Pages::shared(4 * PAGE);
    let views = domain.views();
    for round in 1..=rounds {
        pages.fill(round);
        let leased = lease(&cache, &pages, PAGE, PAGE);
        let handle = leased.handle();
        // Were the old registration used, its pages would be sent: those of the round before.
        assert!(send(&pair, &leased, &into) == [round; PAGE], "round {round} sent what was there before");
        drop(leased);
        assert_eq!(lease(&cache, &pages, PAGE, PAGE).handle(), handle);
        if round % 2 == 0 {
            pages = pages.replaced();
        } else {
            // The kernel likes to put the next memory where there was some just now.
            pages.unmap();
            pages = Pages::shared(4 * PAGE);
        }
        let counted = cache.statistics();
        assert_eq!((counted.losses, counted.regions), (u64::from(round), 0));
        assert!(pair.a.nic.region(handle).is_err());
    }
    assert_eq!(domain.views(), views);
    pages.unmap();
}

#[test]
fn a_registration_of_memory_that_was_moved_or_emptied_is_never_used() {
    let (pair, _) = pair();
    let cache = cache(&pair.a, CacheLimits::default());
    if !is_on(&cache) {
        return;
    }
    let pages = Pages::private(4 * PAGE);
    drop(lease(&cache, &pages, 0, 4 * PAGE));
    pages.empty();
    assert_eq!(cache.statistics().losses, 1);
    drop(lease(&cache, &pages, 0, 4 * PAGE));
    let pages = pages.moved();
    assert_eq!(cache.statistics().losses, 2);
    drop(lease(&cache, &pages, 0, 4 * PAGE));
    let counted = cache.statistics();
    assert_eq!((counted.hits, counted.misses, counted.losses, counted.regions), (0, 3, 2, 1));
    pages.unmap();
    assert_eq!(cache.statistics().losses, 3);
}

#[test]
fn a_hole_in_a_range_leaves_what_is_left_to_be_registered_by_itself() {
    let (pair, _) = pair();
    let cache = cache(&pair.a, CacheLimits::default());
    if !is_on(&cache) {
        return;
    }
    let pages = Pages::shared(9 * PAGE);
    drop(lease(&cache, &pages, 0, 9 * PAGE));
    Pages { at: pages.at.wrapping_add(4 * PAGE), len: PAGE }.unmap();
    let ends = [lease(&cache, &pages, 0, 4 * PAGE), lease(&cache, &pages, 5 * PAGE, 4 * PAGE)];
    assert_ne!(ends[0].handle(), ends[1].handle());
    drop(ends);
    let counted = cache.statistics();
    assert_eq!((counted.losses, counted.regions, counted.bytes), (1, 2, 8 * PAGE as u64));
    Pages { at: pages.at, len: 4 * PAGE }.unmap();
    Pages { at: pages.at.wrapping_add(5 * PAGE), len: 4 * PAGE }.unmap();
}

#[test]
fn neighbours_become_one_and_those_that_are_leased_stay_as_they_are() {
    let (pair, _) = pair();
    let cache = cache(&pair.a, CacheLimits::default());
    if !is_on(&cache) {
        return;
    }
    let pages = Pages::shared(12 * PAGE);
    drop(lease(&cache, &pages, 0, 2 * PAGE));
    drop(lease(&cache, &pages, 4 * PAGE, 2 * PAGE));
    assert_eq!((cache.statistics().regions, cache.statistics().merges), (2, 0));
    // Touches both.
    let middle = lease(&cache, &pages, 2 * PAGE, 2 * PAGE);
    assert_eq!((middle.offset(), middle.region().len()), (2 * PAGE, 6 * PAGE));
    let counted = cache.statistics();
    assert_eq!((counted.regions, counted.merges, counted.bytes), (1, 1, 6 * PAGE as u64));
    // Overlaps it while it is leased: both are registered until the lease ends.
    let over = lease(&cache, &pages, 5 * PAGE, 3 * PAGE);
    assert_eq!((over.offset(), over.region().len()), (5 * PAGE, 8 * PAGE));
    assert!(middle.handle() != over.handle() && pair.a.nic.region(middle.handle()).is_ok());
    assert_eq!(cache.statistics().bytes, 14 * PAGE as u64);
    let handle = middle.handle();
    drop(middle);
    assert!(pair.a.nic.region(handle).is_err());
    assert_eq!((cache.statistics().regions, cache.statistics().bytes), (1, 8 * PAGE as u64));
    drop(over);
    pages.unmap();
}

#[test]
fn what_was_not_leased_for_longest_goes_first_and_what_is_leased_stays() {
    let (pair, _) = pair();
    let limits = CacheLimits { bytes: 8 * PAGE as u64, regions: 3 };
    let cache = cache(&pair.a, limits);
    if !is_on(&cache) {
        return;
    }
    // Apart, so that they do not become one.
    let pages = Pages::shared(64 * PAGE);
    let handles = [0, 4, 8].map(|at| lease(&cache, &pages, at * PAGE, PAGE).handle());
    assert_eq!(lease(&cache, &pages, 0, PAGE).handle(), handles[0]);
    let kept = lease(&cache, &pages, 12 * PAGE, PAGE);
    assert!(pair.a.nic.region(handles[1]).is_err(), "the second is the oldest");
    assert!(pair.a.nic.region(handles[0]).is_ok() && pair.a.nic.region(handles[2]).is_ok());
    drop(lease(&cache, &pages, 20 * PAGE, 7 * PAGE));
    assert!(pair.a.nic.region(handles[0]).is_err() && pair.a.nic.region(handles[2]).is_err());
    let counted = cache.statistics();
    assert_eq!((counted.evictions, counted.regions, counted.bytes), (3, 2, 8 * PAGE as u64));
    // More than fits beside what is leased is registered for its lease alone.
    let large = lease(&cache, &pages, 30 * PAGE, 8 * PAGE);
    assert_eq!((cache.statistics().uncached, cache.statistics().regions), (1, 2));
    let handle = large.handle();
    drop(large);
    assert!(pair.a.nic.region(handle).is_err() && pair.a.nic.region(kept.handle()).is_ok());
    drop(kept);
    pages.unmap();
}

#[test]
fn peers_have_rights_only_while_somebody_leases() {
    let (pair, _) = pair();
    let attributes = MemoryAttributes::remote(pair.b.tag);
    let cache = RegistrationCache::new(&pair.b.nic, attributes, CacheLimits::default()).unwrap();
    if !is_on(&cache) {
        return;
    }
    let pages = Pages::shared(PAGE);
    // SAFETY: as for `lease`.
    let private = || unsafe { cache.lease_private(pages.at, PAGE) }.unwrap();
    let before = private();
    let region = before.region().clone();
    assert_eq!(region.attributes(), MemoryAttributes::local(pair.b.tag));
    let leases = [(); 2].map(|()| lease(&cache, &pages, 0, PAGE));
    assert_eq!(leases[0].handle(), region.handle());
    assert_eq!(region.attributes(), attributes);
    let [first, second] = leases;
    // Neither do private leases take away what others give.
    drop((private(), first, before));
    let still_private = private();
    assert_eq!(region.attributes(), attributes);
    let source = pair.a.memory(10).unwrap();
    source.write(0, b"by a peer!").unwrap();
    let write = |to| {
        pair.a.vi.post_send(Descriptor::rdma_write(vec![source.segment(0..10).unwrap()], to)).unwrap();
        pair.drive(|_| pair.a.cq.poll().unwrap()).descriptor.status()
    };
    let to = second.remote(5).unwrap();
    assert_eq!(write(to), Status::DONE);
    drop(second);
    assert_eq!(still_private.attributes(), MemoryAttributes::local(pair.b.tag));
    drop(still_private);
    assert_eq!(region.attributes(), MemoryAttributes::local(pair.b.tag));
    assert_eq!(write(to), Status::DONE | Status::RDMA_PROTECTION_ERROR);
    drop(region);
    pages.unmap();
}

#[test]
fn what_rests_is_at_hand_and_no_peers_until_its_memory_goes() {
    let (pair, _) = pair();
    let (shared, local) = (MemoryAttributes::remote(pair.b.tag), MemoryAttributes::local(pair.b.tag));
    let limits = CacheLimits { regions: 1, ..CacheLimits::default() };
    let cache = RegistrationCache::new(&pair.b.nic, shared, limits).unwrap();
    if !is_on(&cache) {
        return;
    }
    let pages = Pages::shared(2 * PAGE);
    let first = lease(&cache, &pages, 0, PAGE);
    let region = first.region().clone();
    assert_eq!(region.attributes(), shared);
    let resting = first.rest().expect("it is kept");
    assert_eq!((region.attributes(), cache.statistics().leases), (local, 1));
    assert!(resting.is_of(pages.at, PAGE));
    assert!(!resting.is_of(pages.at, PAGE - 1) && !resting.is_of(pages.at.wrapping_add(1), PAGE));
    // Neither does it take away what another lease gives.
    // SAFETY: as for `lease`.
    let (again, other) = (unsafe { resting.lease(true) }.expect("it is there"), lease(&cache, &pages, 0, 10));
    assert_eq!((again.handle(), region.attributes()), (region.handle(), shared));
    let resting = again.rest().expect("it is kept");
    assert_eq!(region.attributes(), shared);
    drop(other);
    assert_eq!(region.attributes(), local);
    // SAFETY: as for `lease`.
    let private = unsafe { resting.lease(false) }.expect("it is there");
    assert_eq!(region.attributes(), local);
    // There is no room for another, which does not rest then.
    assert!(lease(&cache, &pages, PAGE, PAGE).rest().is_none());
    assert_eq!(cache.statistics().leases, 1);
    let resting = private.rest().expect("it is kept");
    let pages = pages.replaced();
    assert!(resting.is_of(pages.at, PAGE));
    // SAFETY: as for `lease`.
    assert!(unsafe { resting.lease(true) }.is_none(), "other memory lies there now");
    assert_eq!(cache.statistics().leases, 0);
    drop(region);
    pages.unmap();
}

#[test]
fn the_end_of_a_lease_ends_the_reads_of_peers_that_it_allowed() {
    // In the middle of an answer the memory is its owner's again: no byte more goes out.
    const LONG: usize = 8 << 20;
    const SHORT: usize = PAGE;
    const OTHER: u8 = 0xc7;
    for len in [LONG, SHORT] {
        let (pair, _) = pair();
        let attributes = MemoryAttributes::remote(pair.b.tag);
        let cache = RegistrationCache::new(&pair.b.nic, attributes, CacheLimits::default()).unwrap();
        if !is_on(&cache) {
            return;
        }
        let pages = Pages::private(len);
        pages.fill(1);
        let leased = lease(&cache, &pages, 0, len);
        let into = pair.a.memory(len).unwrap();
        let read = Descriptor::rdma_read(vec![into.segment(0..len).unwrap()], leased.remote(0).unwrap());
        pair.a.vi.post_send(read).unwrap();
        // It is asked for, and part of it is answered; all of it, when that is one burst.
        pair.b.nic.poll().unwrap();
        drop(leased);
        pages.fill(OTHER);
        let status = pair.drive(|_| pair.a.cq.poll().unwrap()).descriptor.status();
        let mut bytes = vec![0; len];
        into.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte != OTHER), "memory was sent that is the program's again");
        if len == SHORT {
            // What was sent is only to be acknowledged.
            assert_eq!((status, bytes[len - 1]), (Status::DONE, 1));
        } else {
            assert_eq!((status, bytes[0]), (Status::DONE | Status::RDMA_PROTECTION_ERROR, 1));
            pair.drive(|_| pair.b.vi.loss().is_some().then_some(()));
            let loss = Some(ConnectionLoss::RdmaProtection);
            assert_eq!((pair.a.vi.loss(), pair.b.vi.loss()), (loss, loss));
        }
        pages.unmap();
    }
}

/// Where one thread has memory unmapped, another's may come to lie before the kernel has told of it: that is not gone.
#[test]
fn memory_that_lies_where_another_thread_has_just_unmapped_some_is_not_taken_for_that() {
    let (pair, _) = pair();
    let ends = [cache(&pair.a, CacheLimits::default()), cache(&pair.b, CacheLimits::default())];
    if !is_on(&ends[0]) {
        return;
    }
    let rounds = if std::env::var_os("UVIA_LONG").is_some() { 40_000 } else { 4000 };
    std::thread::scope(|scope| {
        for cache in &ends {
            scope.spawn(move || {
                for round in 0..rounds {
                    let pages = Pages::private(4 * PAGE);
                    let leased = lease(cache, &pages, 0, 4 * PAGE);
                    let uses = [(); 50].map(|()| leased.segment(0..PAGE).is_ok());
                    assert!(uses.iter().all(|use_| *use_), "round {round}: it is mapped");
                    drop(leased);
                    pages.unmap();
                }
            });
        }
    });
}

#[test]
fn wrong_ranges_tags_and_limits_are_refused() {
    let (pair, _) = pair();
    let cache = cache(&pair.a, CacheLimits::default());
    for (address, len) in [(0x1000, 0), (usize::MAX - 10, 11), (0x1000, usize::MAX)] {
        // SAFETY: refused.
        let refused = unsafe { cache.lease(std::ptr::without_provenance_mut(address), len) };
        assert!(matches!(refused, Err(Error::Parameter(_))), "{refused:?}");
    }
    let other = MemoryAttributes::local(pair.b.tag);
    assert!(RegistrationCache::new(&pair.a.nic, other, CacheLimits::default()).is_err());
    let own = MemoryAttributes::local(pair.a.tag);
    for limits in [CacheLimits { bytes: 0, regions: 1 }, CacheLimits { bytes: 1, regions: 0 }] {
        assert!(RegistrationCache::new(&pair.a.nic, own, limits).is_err());
    }
}

#[test]
fn after_a_fork_the_parent_goes_on_and_the_child_is_refused() {
    let (pair, _) = pair();
    let cache = cache(&pair.a, CacheLimits::default());
    if !is_on(&cache) {
        return;
    }
    let pages = Pages::private(2 * PAGE);
    pages.fill(1);
    let leased = lease(&cache, &pages, 0, 2 * PAGE);
    let handle = leased.handle();
    // SAFETY: the child works on its own copy of this thread, and ends itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        pages.fill(3);
        // SAFETY: the pages are mapped in the child too.
        let refused = unsafe { cache.lease(pages.at, PAGE) }.is_err();
        pages.unmap();
        // SAFETY: ends the child and runs nothing of the parent's.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child; the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    pages.fill(2);
    let into = pair.b.memory(2 * PAGE).unwrap();
    assert!(send(&pair, &leased, &into) == [2; 2 * PAGE]);
    drop(leased);
    assert_eq!(lease(&cache, &pages, 0, PAGE).handle(), handle);
    pages.unmap();
    assert_eq!(cache.statistics().losses, 1);
}

/// Set where a test runs in a process of its own, since a forked child cannot watch what its parent does.
const ALONE: &str = "UVIA_TEST_ALONE";

#[test]
fn a_mebibyte_from_a_buffer_that_is_kept_takes_no_system_call() {
    let name = "a_mebibyte_from_a_buffer_that_is_kept_takes_no_system_call";
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let status = command.args(["--exact", name, "--nocapture"]).env(ALONE, "1").status().unwrap();
        assert!(status.success());
        return;
    }
    const LEN: usize = 1 << 20;
    struct Bed {
        pair: ViPair,
        cache: RegistrationCache,
        pages: Pages,
        sends: Option<Box<Descriptor>>,
        receives: Option<Box<Descriptor>>,
    }
    let round = |bed: &mut Bed| {
        let leased = lease(&bed.cache, &bed.pages, 0, LEN);
        let (mut send, receive) = (bed.sends.take().unwrap(), bed.receives.take().unwrap());
        send.segments.clear();
        send.segments.push(leased.segment(0..LEN).unwrap());
        bed.pair.b.vi.post_receive(receive).unwrap();
        bed.pair.a.vi.post_send(send).unwrap();
        while bed.sends.is_none() || bed.receives.is_none() {
            bed.pair.a.nic.poll().unwrap();
            bed.pair.b.nic.poll().unwrap();
            if let Some(done) = bed.pair.a.cq.poll().unwrap() {
                bed.sends = Some(done.descriptor);
            }
            if let Some(done) = bed.pair.b.cq.poll().unwrap() {
                bed.receives = Some(done.descriptor);
            }
        }
        let done = bed.sends.as_ref().unwrap().status();
        assert!(done.is_success());
    };
    let setup = || {
        let (pair, _) = pair();
        let cache = cache(&pair.a, CacheLimits::default());
        let (pages, into) = (Pages::shared(LEN), pair.b.memory(LEN).unwrap());
        let sends = Some(Descriptor::new(Vec::with_capacity(1)));
        let receives = Some(Descriptor::new(vec![into.whole()]));
        let mut bed = Bed { pair, cache, pages, sends, receives };
        (0..4).for_each(|_| round(&mut bed));
        bed
    };
    let (other, _) = pair();
    if is_on(&cache(&other.a, CacheLimits::default())) {
        let outcome = without_system_calls(setup, |bed| (0..20).for_each(|_| round(bed)));
        assert_eq!(outcome.unwrap(), Sealed::Clean);
    }
}
