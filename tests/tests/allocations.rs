//! The polled data path allocates nothing.

use uvia::{CacheLimits, CacheState, MemoryAttributes, RegistrationCache};
use uvia_tests::{Counting, Pages, PingPong, ViPair, memory_pair};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_message_allocates_nothing() {
    for size in [0, 64, 1000, 20_000] {
        let mut ping = PingPong::new(ViPair::over_memory(memory_pair()), size, 1);
        // What grows on first use has grown after a few rounds.
        (0..200).for_each(|_| ping.round());
        let before = Counting::count();
        assert!(before > 0, "the counter counts");
        (0..10_000).for_each(|_| ping.round());
        assert_eq!(Counting::count() - before, 0, "messages of {size} bytes");
    }
}

#[test]
fn a_lease_of_memory_that_is_registered_allocates_nothing() {
    let pair = ViPair::over_memory(memory_pair());
    let attributes = MemoryAttributes::remote(pair.a.tag);
    let cache = RegistrationCache::new(&pair.a.nic, attributes, CacheLimits::default()).unwrap();
    if let CacheState::Off(why) = cache.state() {
        return eprintln!("skipped: {why}");
    }
    let pages = Pages::private(1 << 16);
    // SAFETY: the pages stay mapped, and nothing touches them.
    let lease = || unsafe { cache.lease(pages.at.add(100), 1 << 15) }.unwrap();
    drop(lease());
    let before = Counting::count();
    (0..1000).for_each(|_| drop(lease()));
    assert_eq!(Counting::count() - before, 0);
    assert_eq!(cache.statistics().hits, 1000);
    pages.unmap();
}
