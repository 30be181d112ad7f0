//! Waiting in a call, which polls for a moment and then sleeps on the adapter's interrupt.
//!
//! `cargo run --example wait -- NIC [example]`, on two hosts, or twice on one with the NIC `shm:try`.

mod common;

use std::process::ExitCode;

use common::{End, LAST, PATIENCE, answer};
use uvia::Error;

fn run() -> uvia::Result<()> {
    let end = End::connect()?;
    if end.begins {
        end.send(0)?;
    }
    let mut number = 0;
    while number + 1 < LAST {
        let Some(completion) = end.cq.wait(PATIENCE)? else {
            return Err(Error::Timeout {
                what: "the other end".to_owned(),
                millis: PATIENCE.as_millis() as u64,
            });
        };
        if let Some(came) = end.take(completion)? {
            number = came;
            if let Some(next) = answer(number) {
                end.send(next)?;
            }
        }
    }
    end.finish()?;
    println!("counted to {number}");
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
