//! Copies files between hosts by RDMA write.
//!
//! The receiver registers a ring of buffers and names it to the sender, which writes chunks of the file into it, each
//! with immediate data that says how long it is; what the receiver has put away it grants again. The file appears
//! under its name when its SHA-256 is right, and not before.

pub mod cli;
mod line;
mod progress;
mod receiver;
mod room;
mod sender;
mod wire;

use std::time::Duration;

pub use receiver::{Receiver, ReceiverOptions};
pub use room::Room;
pub use sender::{Copied, SenderOptions, Source, send};
use uvia::Nic;
use uvia_tools::{Failure, NicArgs};

use cli::Cli;

/// Where receivers wait.
pub const DISCRIMINATOR: &[u8] = b"uvia-cp";

/// Does what the command line says.
///
/// # Errors
/// What could not be done, in words for a person.
pub fn run(cli: &Cli) -> Result<(), Failure> {
    let timeout = cli.timeout;
    match (&cli.listen, &cli.file, &cli.target) {
        (Some(dir), None, None) => {
            let room = Room::open(dir)?;
            let nic = open(&cli.nic, timeout)?;
            let options = ReceiverOptions {
                max_size: cli.max_size.map_or(u64::MAX, |size| size.0),
                once: cli.once,
                json: cli.json,
            };
            Receiver::new(&nic, room, options)?.run()
        }
        (None, Some(file), Some(target)) => {
            let Some((host, path)) =
                target.split_once(':').filter(|(host, path)| !host.is_empty() && !path.is_empty())
            else {
                return Err(Failure::usage(format!("{target:?} is not NAME:PATH, a host and a path there")));
            };
            // An unreadable file is told before a NIC is looked for.
            let source = sender::Source::open(file)?;
            let nic = open(&cli.nic, timeout)?;
            let host = nic.resolve(host, timeout)?;
            let options = SenderOptions { force: cli.force, resume: cli.resume, timeout };
            let copied = send(&nic, host, path, source, &options)?;
            copied.print(cli.json)
        }
        _ => Err(Failure::usage("give FILE NAME:PATH to send, or --listen DIR to receive")),
    }
}

fn open(args: &NicArgs, timeout: Duration) -> Result<Nic, Failure> {
    let nic = Nic::open(args.device()?, args.options()?)?;
    nic.wait_ready(timeout)?;
    Ok(nic)
}
