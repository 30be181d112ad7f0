//! Waiting for another thread, which may need this processor to do what is waited for.

use std::time::Duration;

/// Looks in a row that only offer the processor: who is waited for mostly answers within a few microseconds.
const OFFERS: u32 = 64;
/// Sleep between looks after that.
const NAP: Duration = Duration::from_micros(50);

/// Looks in vain, in a row.
#[derive(Debug, Default)]
pub struct Idle(u32);

impl Idle {
    /// After a look in vain: offers the processor, and after many of them sleeps for a moment. A loop that only looks
    /// keeps busy processors from those that it waits for, for a whole slice of time at each turn.
    pub fn pause(&mut self) {
        if self.0 < OFFERS {
            self.0 += 1;
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}
