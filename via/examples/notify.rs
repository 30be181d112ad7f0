//! Waiting by a handler that the NIC calls, once a registration; it registers itself again.
//!
//! `cargo run --example notify -- NIC [example]`, on two hosts, or twice on one with the NIC `shm:try`.

mod common;

use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};

use common::{End, LAST, answer};
use uvia::Result;

/// Handles the next completion. The handler does not own the queue: it would keep it in being.
fn listen(end: &Weak<End>, outcome: Sender<Result<u32>>) {
    let Some(here) = end.upgrade() else { return };
    let end = end.clone();
    let tell = outcome.clone();
    let registered = here.cq.notify(move |completion| {
        let Some(here) = end.upgrade() else { return };
        let step = || -> Result<Option<u32>> {
            let Some(number) = here.take(completion)? else { return Ok(None) };
            answer(number).map_or(Ok(()), |next| here.send(next))?;
            Ok((number + 1 >= LAST).then_some(number))
        };
        // Whoever is told may be gone; then nobody wants to know.
        match step() {
            Ok(None) => listen(&end, outcome),
            Ok(Some(number)) => drop(outcome.send(Ok(number))),
            Err(e) => drop(outcome.send(Err(e))),
        }
    });
    if let Err(e) = registered {
        drop(tell.send(Err(e)));
    }
}

fn run() -> Result<()> {
    let end = Arc::new(End::connect()?);
    let (tell, told) = channel();
    listen(&Arc::downgrade(&end), tell);
    if end.begins {
        end.send(0)?;
    }
    // This thread is free for something else.
    if let Ok(outcome) = told.recv() {
        let number = outcome?;
        end.finish()?;
        println!("counted to {number}");
    }
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
