//! A virtio device that asks to be reset leaves its rings as they are: who polls has to hear of it nevertheless, and long
//! before its peer would be taken for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uvia::{Descriptor, Error};
use uvia_driver::{DeviceFault, Error as DriverError};
use uvia_models::faults::{Lie, Lies, When};
use uvia_models::machine::Kind;
use uvia_models::random::Random;
use uvia_tests::ViPair;
use uvia_tests::bench::InProcess;

/// By the engine's clock; a peer is taken for dead after 5 s.
const BOUND: Duration = Duration::from_secs(2);
/// What passes with each poll.
const STEP: Duration = Duration::from_micros(100);

fn is_reset_wanted(error: &Error) -> bool {
    matches!(error, Error::Driver(DriverError::Device { fault: DeviceFault::NeedsReset { .. }, .. }))
}

/// Polls until that fails, for the bound at most: why, and after how long.
fn fails(now: &AtomicU64, mut poll: impl FnMut() -> uvia::Result<()>) -> (Error, Duration) {
    let start = now.load(Ordering::Relaxed);
    loop {
        let passed = Duration::from_nanos(now.fetch_add(STEP.as_nanos() as u64, Ordering::Relaxed) - start);
        if let Err(e) = poll() {
            return (e, passed);
        }
        assert!(passed < BOUND, "nobody noticed in {passed:?}");
    }
}

#[test]
fn who_polls_a_connection_hears_that_the_device_asks_for_a_reset() {
    for kind in [Kind::Virtio, Kind::VirtioPacked] {
        let bench = InProcess::new([kind; 2]);
        let now = Arc::new(AtomicU64::new(0));
        let [a, b] = bench.nics(&now);
        let pair = ViPair::connect(a, b, |_| ()).unwrap();
        pair.a.vi.post_receive(Descriptor::new(Vec::new())).unwrap();
        bench.set_lies(0, Lies::new(&[(Lie::NeedsReset, When::At(1))], Random::new(1)));
        let (error, after) = fails(&now, || {
            pair.b.nic.poll().unwrap();
            pair.a.cq.poll().map(drop)
        });
        assert!(is_reset_wanted(&error), "{error} after {after:?}");
    }
}

#[test]
fn and_so_does_who_asks_for_requests_without_a_connection() {
    let bench = InProcess::new([Kind::Virtio; 2]);
    let now = Arc::new(AtomicU64::new(0));
    let [a, _b] = bench.nics(&now);
    let listener = a.listen(b"nobody comes", 1).unwrap();
    assert!(listener.poll().unwrap().is_none());
    bench.set_lies(0, Lies::new(&[(Lie::NeedsReset, When::At(1))], Random::new(1)));
    // Models here do something when a register is read: which the first look does, and the second one then sees.
    let (error, after) = fails(&now, || listener.poll().map(drop));
    assert!(is_reset_wanted(&error), "{error} after {after:?}");
}
