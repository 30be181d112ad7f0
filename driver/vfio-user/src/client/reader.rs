//! The thread that receives: replies, and the device's accesses to memory.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::ClientMemory;
use super::exchange::Exchange;
use crate::connection::{Received, Receiver};
use crate::framing::Frame;
use crate::wire::{DmaAccess, MAX_DATA, command};

/// Receives until the connection is over.
pub fn run(exchange: &Exchange, mut receiver: Receiver, memory: &dyn ClientMemory) {
    let why = loop {
        let handled = match receiver.receive() {
            Ok(Received::Frame(frame)) if frame.header.is_command() => answer(exchange, &frame, memory),
            Ok(Received::Frame(frame)) => exchange.deliver(frame),
            Ok(Received::Closed { within: false }) => Err("it hung up".to_owned()),
            Ok(Received::Closed { within: true }) => Err("it hung up within a message".to_owned()),
            Ok(Received::Nothing) => {
                let mut fds = [PollFd::from_borrowed_fd(receiver.fd(), PollFlags::IN)];
                match rustix::event::poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => Ok(()),
                    Err(e) => Err(format!("waiting for it failed: {e}")),
                }
            }
            Err(e) => Err(format!("receiving from it failed: {e}")),
        };
        if let Err(why) = handled {
            break why;
        }
    };
    exchange.close(&why);
    memory.closed();
}

/// Answers a command of the device's side.
fn answer(exchange: &Exchange, frame: &Frame, memory: &dyn ClientMemory) -> Result<(), String> {
    let header = frame.header;
    let result = access(frame, memory);
    if !header.wants_reply() {
        return Ok(());
    }
    let deadline = Instant::now() + exchange.patience;
    let sent = match &result {
        Ok(body) => exchange.send(&header.reply(body.len()), &[body, &[]], &[], deadline),
        Err(errno) => exchange.send(&header.error_reply(errno.raw_os_error()), &[&[], &[]], &[], deadline),
    };
    sent.map_err(|e| e.to_string())
}

fn access(frame: &Frame, memory: &dyn ClientMemory) -> Result<Vec<u8>, Errno> {
    if frame.defect.is_some() {
        return Err(Errno::MSGSIZE);
    }
    if !matches!(frame.header.command, command::DMA_READ | command::DMA_WRITE) {
        return Err(Errno::OPNOTSUPP);
    }
    let errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::FAULT);
    let (access, data) = DmaAccess::read_from_prefix(&frame.body).map_err(|_| Errno::INVAL)?;
    let count = usize::try_from(access.count).ok().filter(|count| *count <= MAX_DATA).ok_or(Errno::INVAL)?;
    let fixed = access.as_bytes();
    match frame.header.command {
        command::DMA_READ => {
            let mut reply = vec![0; fixed.len() + count];
            reply[..fixed.len()].copy_from_slice(fixed);
            memory.read(access.address, &mut reply[fixed.len()..]).map_err(errno)?;
            Ok(reply)
        }
        command::DMA_WRITE if data.len() == count => {
            memory.write(access.address, data).map_err(errno)?;
            Ok(fixed.to_vec())
        }
        _ => Err(Errno::INVAL),
    }
}
