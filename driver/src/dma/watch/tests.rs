use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::dma::{DmaRegion, DomainLimits, IdentityDomain, Rights};

/// Counts; holds nothing still.
#[derive(Default)]
struct Counter {
    held: AtomicUsize,
    lost: AtomicUsize,
}

impl Keeper for Counter {
    fn hold(&self, _: Duration, act: &mut dyn FnMut()) {
        self.held.fetch_add(1, Ordering::Relaxed);
        act();
    }

    fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// As the identity, with devices that keep pages.
#[derive(Default)]
struct Pinned(IdentityDomain);

impl DmaDomain for Pinned {
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.map(address, len, rights) }
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        self.0.unmap(iova, len)
    }

    fn limits(&self) -> DomainLimits {
        self.0.limits()
    }
}

/// Pages of ours, as a program has them.
struct Pages(*mut u8);

impl Pages {
    fn new(len: usize) -> Self {
        Self::at(std::ptr::null_mut(), len, 0)
    }

    fn at(place: *mut u8, len: usize, flags: i32) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: new memory, at a place that is free.
        let at = unsafe { libc::mmap(place.cast(), len, rights, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn unmap(&self, from: usize, len: usize) {
        // SAFETY: of ours, and nobody follows it.
        assert_eq!(unsafe { libc::munmap(self.0.add(from).cast(), len) }, 0);
    }

    fn empty(&self, from: usize, len: usize) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(self.0.add(from).cast(), len, libc::MADV_DONTNEED) }, 0);
    }
}

fn region(domain: Arc<dyn DmaDomain>, at: *mut u8, len: usize, keeper: &Arc<Counter>) -> DmaRegion {
    // SAFETY: nobody follows the address.
    let region = unsafe { DmaRegion::register(domain, at, len, Rights::READ) }.unwrap();
    region.watch(keeper.clone()).unwrap();
    assert!(region.is_watched() && !region.is_gone());
    region
}

/// Skips a test where the system does not tell.
fn can_watch() -> bool {
    match availability() {
        Ok(()) => true,
        Err(e) => {
            eprintln!("skipped: {e}");
            false
        }
    }
}

/// These tests look at addresses that all of the process shares: what one unmaps, another may be given at once. So there
/// is one of them at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn what_is_unmapped_is_known_to_be_gone_when_the_call_returns() {
    let _alone = alone();
    if !can_watch() {
        return;
    }
    let keeper = Arc::new(Counter::default());
    let domain: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::default());
    for _ in 0..200 {
        let pages = Pages::new(16 * PAGE);
        let [whole, end, middle] = [(0, 16 * PAGE), (12 * PAGE + 5, 100), (4 * PAGE, PAGE)]
            .map(|(from, len)| region(domain.clone(), pages.0.wrapping_add(from), len, &keeper));
        // In one call, so that no other thread's memory comes to lie there meanwhile.
        let next = Pages::at(pages.0.wrapping_add(12 * PAGE), 4 * PAGE, libc::MAP_FIXED);
        settle();
        assert!(whole.is_gone() && end.is_gone() && !middle.is_gone());
        // What came to that place is watched by itself.
        let new = region(domain.clone(), next.0, 4 * PAGE, &keeper);
        drop((whole, end));
        assert!(!new.is_gone());
        next.unmap(0, 4 * PAGE);
        settle();
        assert!(new.is_gone() && !middle.is_gone());
        drop(new);
        pages.unmap(0, 12 * PAGE);
        settle();
        assert!(middle.is_gone());
    }
    assert_eq!(keeper.lost.load(Ordering::Relaxed), 200 * 4);
    assert!(keeper.held.load(Ordering::Relaxed) >= 200 * 3);
}

#[test]
fn what_is_moved_is_gone_from_where_it_was() {
    let _alone = alone();
    if !can_watch() {
        return;
    }
    let keeper = Arc::new(Counter::default());
    let pages = Pages::new(4 * PAGE);
    let region = region(Arc::new(IdentityDomain::default()), pages.0, 4 * PAGE, &keeper);
    // SAFETY: nobody follows the old address.
    let moved = unsafe {
        let to = Pages::new(4 * PAGE);
        libc::mremap(pages.0.cast(), 4 * PAGE, 4 * PAGE, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to.0)
    };
    assert_ne!(moved, libc::MAP_FAILED);
    settle();
    assert!(region.is_gone());
    Pages(moved.cast()).unmap(0, 4 * PAGE);
}

#[test]
fn what_is_emptied_is_gone_for_devices_that_keep_pages() {
    let _alone = alone();
    if !can_watch() {
        return;
    }
    let keeper = Arc::new(Counter::default());
    let pages = Pages::new(4 * PAGE);
    let followed = region(Arc::new(IdentityDomain::default()), pages.0, 4 * PAGE, &keeper);
    let kept = region(Arc::new(Pinned::default()), pages.0, 4 * PAGE, &keeper);
    pages.empty(PAGE, PAGE);
    settle();
    assert!(kept.is_gone() && !followed.is_gone());
    drop((followed, kept));
    pages.unmap(0, 4 * PAGE);
}

#[test]
fn memory_that_is_watched_no_more_is_unmapped_without_a_reader() {
    let _alone = alone();
    if !can_watch() {
        return;
    }
    let keeper = Arc::new(Counter::default());
    let pages = Pages::new(4 * PAGE);
    drop(region(Arc::new(IdentityDomain::default()), pages.0, 4 * PAGE, &keeper));
    // Another test's memory may have lain there before, and been unmapped without its reader having done with it yet.
    settle();
    // Before it is unmapped: what lies there afterwards may be another test's, which watches it.
    assert!(!covers(pages.0 as usize, 4 * PAGE));
    pages.unmap(0, 4 * PAGE);
    settle();
    assert_eq!(keeper.lost.load(Ordering::Relaxed), 0);
}

#[test]
fn holes_cannot_be_watched() {
    let _alone = alone();
    if !can_watch() {
        return;
    }
    // Another test's memory may come to lie in the hole, which then is none.
    assert!((0..20).any(|_| a_hole_is_refused()), "memory with a hole can be watched");
}

/// Whether ranges that reach into a hole cannot be watched.
fn a_hole_is_refused() -> bool {
    let keeper = Arc::new(Counter::default());
    let pages = Pages::new(4 * PAGE);
    pages.unmap(PAGE, PAGE);
    let domain: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::default());
    let refused = [(0, 4 * PAGE), (PAGE, PAGE), (0, PAGE + 1)].into_iter().all(|(from, len)| {
        // SAFETY: nobody follows the address.
        let region =
            unsafe { DmaRegion::register(domain.clone(), pages.0.add(from), len, Rights::READ) }.unwrap();
        let refused = matches!(region.watch(keeper.clone()), Err(Error::Unwatchable { .. }));
        assert_ne!(refused, region.is_watched());
        refused
    });
    pages.unmap(0, PAGE);
    pages.unmap(2 * PAGE, 2 * PAGE);
    refused
}

#[test]
fn a_forked_child_neither_waits_nor_watches() {
    let _alone = alone();
    if !can_watch() {
        return;
    }
    let keeper = Arc::new(Counter::default());
    let pages = Pages::new(4 * PAGE);
    let region = region(Arc::new(IdentityDomain::default()), pages.0, 4 * PAGE, &keeper);
    // SAFETY: the child calls what is safe after a fork of a process with threads, and ends itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Were it watched here too, this would wait for ever.
        // SAFETY: of the child's, and nobody follows it.
        let unmapped = unsafe { libc::munmap(pages.0.cast(), 4 * PAGE) } == 0;
        let code =
            if unmapped && !region.is_gone() && known().is_some_and(Reader::is_forked) { 0 } else { 1 };
        // SAFETY: ends the child and runs nothing of the parent's.
        unsafe { libc::_exit(code) };
    }
    assert!(child > 0 && !known().is_some_and(Reader::is_forked));
    let mut status = 0;
    // SAFETY: our child; the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    settle();
    assert!(!region.is_gone(), "what the child does is nothing to the parent");
    pages.unmap(0, 4 * PAGE);
    settle();
    assert!(region.is_gone());
}
