//! Waiting by a file descriptor, with poll(2): together with sockets, timers and what else a program waits for. Event
//! loops and runtimes take it the same way; the documentation of `CompletionEvent` shows it with tokio.
//!
//! `cargo run --example event -- NIC [example]`, on two hosts, or twice on one with the NIC `shm:try`.

mod common;

use std::os::fd::AsRawFd;
use std::process::ExitCode;

use common::{End, LAST, PATIENCE, answer};
use uvia::Error;

fn run() -> uvia::Result<()> {
    let end = End::connect()?;
    let event = end.cq.event()?;
    if end.begins {
        end.send(0)?;
    }
    let mut number = 0;
    while number + 1 < LAST {
        // Once it is over, the other end leaves, and what is posted comes back flushed.
        while number + 1 < LAST
            && let Some(completion) = end.cq.poll()?
        {
            if let Some(came) = end.take(completion)? {
                number = came;
                if let Some(next) = answer(number) {
                    end.send(next)?;
                }
            }
        }
        // Nothing is there: a signal is asked for, unless something has come just now.
        if number + 1 < LAST && event.arm()? {
            let mut entry = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry of ours, with a file descriptor that is open.
            let ready = unsafe { libc::poll(&raw mut entry, 1, PATIENCE.as_millis() as i32) };
            if ready == 0 {
                return Err(Error::Timeout {
                    what: "the other end".to_owned(),
                    millis: PATIENCE.as_millis() as u64,
                });
            }
            event.consume()?;
        }
    }
    end.finish()?;
    println!("counted to {number}");
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
