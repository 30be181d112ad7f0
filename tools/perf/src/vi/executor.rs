//! An executor of one task, as small as one can be: the thread sleeps while the task waits.
//!
//! What `--wait async` measures is the way of a completion to a task: noticed by the NIC's thread, passed to the thread
//! that calls wakers, and then to this one. A larger runtime would add what it costs itself.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// One for all tasks of a thread: a queue that knows it already need not keep it twice.
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Runs a task to its end, for `limit` at most; `None`: it was given up then.
pub fn block_on<T>(task: impl Future<Output = T>, limit: Duration) -> Option<T> {
    let mut task = pin!(task);
    let end = Instant::now() + limit;
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(outcome) = task.as_mut().poll(&mut context) {
                return Some(outcome);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // May end for no reason, or for a wake that was owed to an earlier task: then the task is asked in vain.
            thread::park_timeout(left);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn, ready};
    use std::sync::atomic::{AtomicBool, Ordering};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_task_that_is_ready_takes_no_time_and_one_that_never_is_ends_with_its_limit() {
        assert_eq!(block_on(ready(7), Duration::ZERO), Some(7));
        assert_eq!(block_on(pending::<()>(), Duration::from_millis(5)), None);
    }

    #[test]
    fn a_task_goes_on_when_another_thread_wakes_it() {
        let rung = Arc::new(AtomicBool::new(false));
        let task = poll_fn(|context| {
            if rung.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            let (rung, waker) = (rung.clone(), context.waker().clone());
            thread::spawn(move || {
                rung.store(true, Ordering::Release);
                waker.wake();
            });
            Poll::Pending
        });
        assert_eq!(block_on(task, LONG), Some(()));
    }
}
