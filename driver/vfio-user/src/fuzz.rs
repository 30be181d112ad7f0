//! Entry points for fuzzing: bytes in, and nothing may panic, hang, or leave what was given.
//!
//! Plain functions, so that property tests, a corpus and any fuzzer can call them. An input is a script of steps,
//! each an opcode and arguments of a byte each; so most inputs mean something, and none is refused.

use std::io;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use zerocopy::IntoBytes;

use crate::client::{Client, ClientOptions, NoMemory};
use crate::connection::split;
use crate::memory::{SharedMemory, sealed_memfd};
use crate::server::{Description, Device, DmaSpace, Interrupts, Region, Server, ServerOptions, Window};
use crate::wire::{Header, Proposal, command, flags, irq};
use crate::{Rights, wire};

/// Nobody answers for longer than this, so that an input takes no longer than that a step.
const PATIENCE: Duration = Duration::from_millis(1);

/// Most steps of an input.
const STEPS: usize = 200;

const BAR: u64 = 0x2000;

/// The arguments of a script.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number that is small, a power of two, or next to one: what bounds are at.
    fn word(&mut self) -> Option<u32> {
        let (value, shape) = (self.byte()?, self.byte()?);
        let word = u32::from(value) << (shape & 31);
        Some(if shape & 0x80 == 0 { word } else { word.wrapping_sub(1) })
    }
}

/// A device that does as it is told, and checks what it was promised.
struct Obedient {
    dma: DmaSpace,
    interrupts: Interrupts,
    window: Option<Window>,
}

impl Device for Obedient {
    fn region_read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        check(region, offset, into.len());
        into.fill(1);
        if region == 0 && offset & 0xff == 8 {
            // Fails where nothing is mapped, and that is all it may do.
            self.dma.read(offset << 4, into).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, from: &[u8]) -> io::Result<()> {
        check(region, offset, from.len());
        let value = u64::from(from[0]) << (offset & 63);
        match (region, offset & 3) {
            (0, 0) => {
                self.interrupts.trigger(irq::MSIX, value as u32);
                self.interrupts.set_intx(value & 1 != 0);
            }
            (0, 1) => self.dma.write(value, from).map_err(io::Error::other)?,
            (0, 2) => self.window = self.dma.window(value, from.len(), Rights::all()).ok(),
            (0, 3) => {
                if let Some(window) = &mut self.window {
                    let stored = window.store_u16(value as usize, 7).and_then(|()| window.load_u64(0));
                    stored.map_err(io::Error::other)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.window = None;
    }

    fn detached(&mut self) {
        assert_eq!(self.dma.mappings(), 0, "a client that is gone has nothing mapped");
    }
}

fn check(region: u32, offset: u64, len: usize) {
    let size = if region == 0 { BAR } else { 256 };
    assert!(len > 0 && (region == 0 || region == wire::region::CONFIG) && offset + len as u64 <= size);
}

/// A client of a server of ours, that sends what `script` says.
pub fn server(script: &[u8]) {
    let mut script = Script(script);
    let (Ok((ours, theirs)), Ok(shared)) = (UnixStream::pair(), SharedMemory::create("fuzz", BAR as usize))
    else {
        return;
    };
    let bar = Region::registers(BAR).with_shared(shared, Some(0x1000..0x2000));
    let described =
        Description::pci(256).with_bar(0, bar).with_vectors(irq::INTX, 1).with_vectors(irq::MSIX, 4);
    let mut server = Server::over(theirs, described, ServerOptions { patience: PATIENCE });
    let mut device = Obedient { dma: server.dma(), interrupts: server.interrupts(), window: None };
    let mut drain = ours.try_clone().ok();
    if ours.set_nonblocking(true).is_err() {
        return;
    }
    let (sender, _receiver) = split(ours);
    let deadline = || Instant::now() + PATIENCE;
    if script.byte().is_some_and(|first| first & 1 == 0) {
        let version = Proposal::ours().to_bytes();
        let header = Header::command(0, command::VERSION, version.len());
        let _ = sender.send(&header, &[&version, &[]], &[], deadline());
    }
    for _ in 0..STEPS {
        let Some(opcode) = script.byte() else { break };
        let sent = match opcode {
            // Anything at all.
            0xff => {
                let count = usize::from(script.byte().unwrap_or(0)).min(script.0.len());
                let (now, rest) = script.0.split_at(count);
                script.0 = rest;
                drain.as_mut().is_some_and(|socket| socket.write_all(now).is_ok())
            }
            _ => send_command(&mut script, opcode, &sender).unwrap_or(false),
        };
        let _ = server.poll(&mut device, Duration::ZERO);
        if let Some(socket) = &mut drain {
            // What it answered, so that there is room for more.
            while socket.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
        }
        if !sent {
            break;
        }
    }
    server.disconnect(&mut device);
}

/// A message with a header that is mostly right.
fn send_command(script: &mut Script<'_>, opcode: u8, sender: &crate::connection::Sender) -> Option<bool> {
    let mut header = Header::command(opcode.into(), u16::from(opcode & 31), 0);
    let shape = script.byte()?;
    let words = shape & 15;
    let mut body = Vec::new();
    for _ in 0..words {
        body.extend_from_slice(script.word()?.as_bytes());
    }
    header.size += body.len() as u32;
    if shape & 16 != 0 {
        header.flags |= flags::NO_REPLY;
    }
    let mut fds: Vec<OwnedFd> = Vec::new();
    match shape >> 5 {
        1 => fds.extend(sealed_memfd("fuzz", 0x4000).ok()),
        2 => fds.extend(eventfd(0, EventfdFlags::CLOEXEC).ok()),
        3 => fds.extend((0..4).filter_map(|_| eventfd(0, EventfdFlags::CLOEXEC).ok())),
        4 => fds.extend(rustix::pipe::pipe().ok().map(|(reader, _)| reader)),
        5 => fds.extend(rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).ok()),
        _ => {}
    }
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    Some(sender.send(&header, &[&body, &[]], &fds, Instant::now() + PATIENCE).is_ok())
}

/// A server of a client of ours, that negotiates and then sends `bytes`, whatever it is asked.
pub fn client(bytes: &[u8]) {
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    let version = Proposal::ours().to_bytes();
    // The client's first id is 1.
    let header = Header::command(1, command::VERSION, version.len()).reply(version.len());
    if theirs.write_all(&[header.as_bytes(), &version].concat()).is_err()
        || theirs.set_nonblocking(true).is_err()
    {
        return;
    }
    let _ = theirs.write(bytes);
    let options = ClientOptions { patience: PATIENCE };
    let Ok(client) = Client::over(ours, "fuzz", Arc::new(NoMemory), options) else { return };
    let _ = client.device_info();
    let _ = client.region_info(0);
    let _ = client.irq_info(irq::MSIX);
    let _ = client.region_events(0);
    let _ = client.region_read(0, 0, &mut [0; 8]);
    let _ = client.dma_unmap(0x1000, 0x1000);
}
