//! Waiting in an asynchronous task: `next().await`, in any runtime. The one here is as small as a runtime can be.
//!
//! `cargo run --example tasks -- NIC [example]`, on two hosts, or twice on one with the NIC `shm:try`.

mod common;

use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use common::{End, LAST, answer};
use uvia::Result;

async fn count(end: &End) -> Result<u32> {
    if end.begins {
        end.send(0)?;
    }
    let mut number = 0;
    while number + 1 < LAST {
        let completion = end.cq.next().await?;
        if let Some(came) = end.take(completion)? {
            number = came;
            if let Some(next) = answer(number) {
                end.send(next)?;
            }
        }
    }
    end.finish()?;
    Ok(number)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs one task, asleep while it waits.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}

fn run() -> Result<()> {
    let end = End::connect()?;
    println!("counted to {}", block_on(count(&end))?);
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
