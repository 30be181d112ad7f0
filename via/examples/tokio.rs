//! Waiting in a task of tokio's, by the file descriptor of a completion queue: tokio's own poller watches it, beside the
//! sockets that a program has, and only the NIC's thread has work while all tasks sleep.
//!
//! `cargo run --example tokio -- NIC [example]`, on two hosts, or twice on one with the NIC `shm:try`.

mod common;

use std::process::ExitCode;

use common::{End, LAST, answer};
use tokio::io::unix::AsyncFd;
use uvia::{Completion, CompletionEvent, CompletionQueue};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The queue's next completion.
async fn next(queue: &CompletionQueue, event: &AsyncFd<CompletionEvent>) -> Outcome<Completion> {
    loop {
        if let Some(completion) = queue.poll()? {
            return Ok(completion);
        }
        // Nothing is there: a signal is asked for, unless something has come just now.
        if event.get_ref().arm()? {
            let mut ready = event.readable().await?;
            event.get_ref().consume()?;
            // Only what was consumed: a signal that came since would make it readable again.
            ready.clear_ready();
        }
    }
}

async fn count() -> Outcome<u32> {
    let end = End::connect()?;
    // SAFETY: an event has one file descriptor, which is open as long as it lives, and it lives in what watches it.
    let event = unsafe { AsyncFd::register(end.cq.event()?) }?;
    if end.begins {
        end.send(0)?;
    }
    let mut number = 0;
    while number + 1 < LAST {
        let completion = next(&end.cq, &event).await?;
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

fn run() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    println!("counted to {}", runtime.block_on(count())?);
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
