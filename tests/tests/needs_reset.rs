//! A virtio device that asks to be reset leaves its rings as they are: who polls has to hear of it nevertheless, and long
//! before its peer would be taken for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uvia::{Clock, Descriptor, Error, Nic, NicOptions};
use uvia_driver::nic::NicConfig;
use uvia_driver::{DeviceFault, Error as DriverError};
use uvia_models::faults::{Lie, Lies, When};
use uvia_models::machine::Kind;
use uvia_models::random::Random;
use uvia_tests::ViPair;
use uvia_tests::bench::InProcess;
use uvia_tests::conformance::{Bench, Opened};

/// By the engine's clock; a peer is taken for dead after 5 s.
const BOUND: Duration = Duration::from_secs(2);
/// What passes with each poll.
const STEP: Duration = Duration::from_micros(100);

fn is_reset_wanted(error: &Error) -> bool {
    matches!(error, Error::Driver(DriverError::Device { fault: DeviceFault::NeedsReset { .. }, .. }))
}

/// Two NICs in virtual time, both by the clock.
fn nics(bench: &InProcess, now: &Arc<AtomicU64>) -> [Nic; 2] {
    bench.open(&NicConfig::default()).unwrap().map(|Opened { nic, domain }| {
        let name = nic.properties().mac.to_string().replace(':', "-");
        let clock = Clock::manual(now.clone());
        Nic::with_adapter(nic, domain, NicOptions { name: Some(name), clock, ..NicOptions::default() })
            .unwrap()
    })
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
        let [a, b] = nics(&bench, &now);
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
    let [a, _b] = nics(&bench, &now);
    let listener = a.listen(b"nobody comes", 1).unwrap();
    assert!(listener.poll().unwrap().is_none());
    bench.set_lies(0, Lies::new(&[(Lie::NeedsReset, When::At(1))], Random::new(1)));
    // Models here do something when a register is read: which the first look does, and the second one then sees.
    let (error, after) = fails(&now, || listener.poll().map(drop));
    assert!(is_reset_wanted(&error), "{error} after {after:?}");
}
