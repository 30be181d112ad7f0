//! Waiting in a call, which polls for a moment and then sleeps on the adapter's interrupt.
//!
//! `cargo run --example wait -- NIC [HOST]`, on two hosts.

mod common;

use common::{End, LAST, PATIENCE, answer};
use uvia::{Error, WorkQueue};

fn main() -> uvia::Result<()> {
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
        if completion.queue == WorkQueue::Receive {
            number = end.take(completion.descriptor)?;
            if let Some(next) = answer(number) {
                end.send(next)?;
            }
        }
    }
    println!("counted to {number}");
    Ok(())
}
