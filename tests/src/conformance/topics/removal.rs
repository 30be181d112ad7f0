//! Devices that go away. For benches that can take them.

use std::time::{Duration, Instant};

use uvia_driver::{Error, Result};

use super::super::frame::SHORTEST;
use super::super::{Bench, End, Pair};

/// Within this time everything has to come to an error: waiting for a device that is gone is not for ever.
const BOUND: Duration = Duration::from_secs(5);

/// What a driver may say of a device that is gone.
fn says_so(error: &Error) {
    let right = matches!(error, Error::Device { .. } | Error::Timeout { .. } | Error::VfioUser(_));
    assert!(right, "{error:?}");
}

fn use_it(end: &mut End) -> Result<()> {
    end.try_put(SHORTEST, 1)?;
    end.nic.flush()?;
    end.try_reclaim()?;
    end.try_take(16)?;
    end.nic.arm(true)?;
    end.nic.link()?;
    Ok(())
}

/// Every way to use it ends in an error soon, so does a reset, nothing panics, and the other end does not mind.
pub fn ends_in_errors_and_harms_nothing(bench: &dyn Bench) {
    let mut pair = Pair::usual(bench);
    for n in 0..10 {
        pair.a.put(SHORTEST + n, 2);
        pair.b.send_one(SHORTEST + n, 1);
    }
    bench.remove(0);
    let start = Instant::now();
    let error = loop {
        if let Err(error) = use_it(&mut pair.a) {
            break error;
        }
        assert!(start.elapsed() < BOUND, "nobody noticed that it is gone");
    };
    println!("after {:?}: {error}", start.elapsed());
    says_so(&error);
    for _ in 0..3 {
        says_so(&pair.a.nic.reset().unwrap_err());
        says_so(&use_it(&mut pair.a).unwrap_err());
        says_so(&pair.a.nic.ready().unwrap_err());
        says_so(&pair.a.nic.set_filter(Default::default()).unwrap_err());
        pair.a.nic.statistics();
    }
    for n in 0..300 {
        pair.b.send_one(SHORTEST + n, 1);
        pair.b.take(64);
        pair.b.reclaim();
    }
    pair.b.settle();
    drop(pair);
    assert!(start.elapsed() < BOUND * 2, "it took {:?}", start.elapsed());
}
