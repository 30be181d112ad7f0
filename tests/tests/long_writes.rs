//! What long RDMA writes put on the wire: each frame once, few acknowledgements, few notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uvia::Clock;
use uvia_tests::{LongWrites, ViPair, memory_pair};

/// Bytes of a write, and of a frame's payload: all that its header leaves of the MTU, in whole words.
const WRITE: usize = 1 << 20;
const PAYLOAD: usize = (1500 - 34 - 16) / 8 * 8;
const WRITES: usize = 8;
/// Frames that are sent in one go and acknowledged together: the window.
const WINDOW: usize = 64;
/// What connecting takes, and what is said at the end of a stream of writes.
const FEW: u64 = 8;

#[test]
fn on_a_good_wire_each_frame_is_sent_once_and_a_window_is_acknowledged_together() {
    let time = Arc::new(AtomicU64::new(0));
    let pair = ViPair::over_memory_at(memory_pair(), Clock::manual(time.clone()));
    let mut writes = LongWrites::new(pair, WRITE).unwrap();
    let tick = || {
        time.fetch_add(1_000, Ordering::Relaxed);
    };
    // The last ones are those that each round posts, and the drain waits for.
    for _ in 0..WRITES - 1 {
        writes.round(tick).unwrap();
    }
    writes.drain(tick).unwrap();
    let [there, back] = [&writes.pair().a, &writes.pair().b].map(|end| end.nic.statistics().adapter);
    println!("{there:?}, back {back:?}");
    let frames = (WRITES * WRITE.div_ceil(PAYLOAD)) as u64;
    let windows = (WRITES * WRITE.div_ceil(PAYLOAD)).div_ceil(WINDOW) as u64;
    assert!(
        (frames..=frames + FEW).contains(&there.tx_frames),
        "{} frames, {frames} are enough",
        there.tx_frames
    );
    assert!(back.tx_frames <= windows + FEW, "{} acknowledgements of {windows} windows", back.tx_frames);
    assert!(there.doorbells <= windows + FEW, "{} notifications of {windows} windows", there.doorbells);
}

/// Who waits for the memory of a write hears of its end though no time passes, and nothing follows.
#[test]
fn the_end_of_a_write_is_acknowledged_at_once() {
    let pair = ViPair::over_memory_at(memory_pair(), Clock::manual(Arc::new(AtomicU64::new(1_000_000))));
    // What is left behind the last whole window would not be acknowledged for its number.
    let mut writes = LongWrites::new(pair, (WINDOW + 3) * PAYLOAD).unwrap();
    let mut turns = 0;
    let mut tick = || {
        turns += 1;
        assert!(turns < 100_000, "the end of the last write was not acknowledged");
    };
    writes.round(&mut tick).unwrap();
    writes.drain(&mut tick).unwrap();
}
