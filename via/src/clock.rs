//! The time that a NIC's engine is told: monotonic, in nanoseconds, and read without a system call.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where a NIC has its time from.
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    /// The processor's time stamp counter, where the kernel keeps its own time by it.
    Counter(Counter),
    /// The system's monotonic clock.
    System(Instant),
    /// A program's.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The system's time: by the processor's counter where the kernel itself trusts it, which takes a tenth of the
    /// instructions of asking the kernel's library, else by that.
    pub fn system() -> Self {
        match Counter::get() {
            Some(counter) => Self(Kind::Counter(counter)),
            None => Self(Kind::System(Instant::now())),
        }
    }

    /// A time that the program sets, in nanoseconds, never back: for simulations, and for counting instructions.
    pub fn manual(time: Arc<AtomicU64>) -> Self {
        Self(Kind::Manual(time))
    }

    /// Nanoseconds since some moment.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        match &self.0 {
            Kind::Counter(counter) => counter.nanoseconds(),
            Kind::System(origin) => origin.elapsed().as_nanos() as u64,
            Kind::Manual(time) => time.load(Ordering::Relaxed),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Counter(_) => "Clock(time stamp counter)",
            Kind::System(_) => "Clock(system)",
            Kind::Manual(_) => "Clock(manual)",
        })
    }
}

/// The time stamp counter and its rate.
#[derive(Debug, Clone, Copy)]
struct Counter {
    origin: u64,
    /// Nanoseconds a tick, times 2^32.
    rate: u64,
}

/// How long the counter is held against the system's clock. An error of a microsecond in it is 0.05 %, which
/// time-outs do not notice.
const CALIBRATION: Duration = Duration::from_millis(2);

impl Counter {
    /// The counter, if the kernel's own clock is made of it: then it runs evenly, and alike on all processors.
    fn get() -> Option<Self> {
        static COUNTER: OnceLock<Option<Counter>> = OnceLock::new();
        *COUNTER.get_or_init(|| {
            let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            if std::fs::read_to_string(source).ok()?.trim() != "tsc" {
                return None;
            }
            let (start, origin) = both()?;
            while start.elapsed() < CALIBRATION {
                std::hint::spin_loop();
            }
            let (end, last) = both()?;
            let (time, ticks) = (end.duration_since(start).as_nanos(), last.checked_sub(origin)?);
            let rate = u64::try_from((time << 32).checked_div(u128::from(ticks))?).ok()?;
            Some(Self { origin, rate })
        })
    }

    #[inline]
    fn nanoseconds(&self) -> u64 {
        let ticks = ticks().unwrap_or(self.origin).saturating_sub(self.origin);
        ((u128::from(ticks) * u128::from(self.rate)) >> 32) as u64
    }
}

/// The system's clock and the counter at one moment: of some looks the one that took least. Were the processor taken away
/// between the two, the rate would be wrong by as much as that is longer than the calibration, and time-outs with it.
fn both() -> Option<(Instant, u64)> {
    const LOOKS: usize = 16;
    let look = || {
        let time = Instant::now();
        let ticks = ticks()?;
        Some((time.elapsed(), time, ticks))
    };
    let looks = std::iter::repeat_with(look).take(LOOKS).collect::<Option<Vec<_>>>()?;
    looks.into_iter().min_by_key(|(took, ..)| *took).map(|(_, time, ticks)| (time, ticks))
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> Option<u64> {
    // SAFETY: reading the counter has no effect; systems that forbid it do not make their clock of it.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_as_fast_as_the_systems() {
        for clock in [Clock::system(), Clock(Kind::System(Instant::now()))] {
            let (start, before) = (Instant::now(), clock.now());
            std::thread::sleep(Duration::from_millis(50));
            let (passed, counted) = (start.elapsed().as_nanos() as f64, (clock.now() - before) as f64);
            assert!((counted / passed - 1.0).abs() < 0.1, "{clock:?}: {counted} ns of {passed}");
        }
    }

    #[test]
    fn a_manual_clock_says_what_it_is_told() {
        let time = Arc::new(AtomicU64::new(7));
        let clock = Clock::manual(time.clone());
        time.store(9, Ordering::Relaxed);
        assert_eq!(clock.now(), 9);
    }
}
