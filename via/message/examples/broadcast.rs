//! Rank 0 reads a file, and all others write copies of it: the file goes down a tree.
//! `uvia-launch -n 8 broadcast FROM TO`, where TO gets the rank's number appended.

mod common;

use std::error::Error;
use std::process::ExitCode;

use uvia_message::{Channel, ReceiveMode, Result, SendMode, Session};

fn receive(channel: &Channel, parent: usize) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let room = &mut data;
    channel.receive(parent, |message| {
        // The length steers what is unpacked next.
        room.resize(message.get::<u64>()? as usize, 0);
        message.cheaper(room, SendMode::Cheaper)
    })?;
    Ok(data)
}

fn send(channel: &Channel, child: usize, data: &[u8]) -> Result<()> {
    channel.send(child, |message| {
        message.put(&(data.len() as u64))?;
        message.cheaper(data, ReceiveMode::Cheaper)
    })
}

fn run() -> std::result::Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &words[..] else { return Err("usage: broadcast FROM TO".into()) };
    let session = Session::from_environment()?;
    let channel = session.channel(0, &[])?;
    let rank = session.rank();
    let data = match rank {
        0 => std::fs::read(from).map_err(|e| format!("{from}: {e}"))?,
        _ => receive(&channel, (rank - 1) / 2)?,
    };
    for child in (2 * rank + 1..2 * rank + 3).filter(|child| *child < session.size()) {
        send(&channel, child, &data)?;
    }
    if rank > 0 {
        let name = format!("{to}.{rank}");
        std::fs::write(&name, &data).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
