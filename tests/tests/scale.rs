//! Ten thousand connections on two NICs: what each takes, and that all of them work. One test alone: it counts the
//! process's memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use uvia::Clock;
use uvia_tests::{Crowd, memory_pair};

/// Counts what is allocated and not freed.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is passed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const VIS: usize = 10_000;
/// Bytes of one connected interface with queues of two, and a receive that is posted; at most.
const BYTES: usize = 4096;

#[test]
fn ten_thousand_connections_work_and_take_what_they_say() {
    let before = LIVE.load(Ordering::Relaxed);
    let mut crowd = Crowd::over_memory_at(memory_pair(), Clock::system(), VIS).unwrap();
    let each = (LIVE.load(Ordering::Relaxed) - before) / (2 * VIS);
    let [created, connected] = crowd.times.map(|time| VIS as f64 / time.as_secs_f64());
    println!("{each} bytes an interface; {created:.0} pairs created and {connected:.0} connected a second");
    assert!(each <= BYTES, "{each} bytes an interface, where {BYTES} are said");
    for _ in 0..3 * VIS {
        crowd.round();
    }
    drop(crowd);
    let left = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    assert!(left < 1 << 20, "{left} bytes are left when all is closed");
}
