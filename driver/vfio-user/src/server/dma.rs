//! The device's way to the client's memory.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::Window;
use super::map::{Backing, DmaMap, Fault};
use crate::Rights;
use crate::connection::{Received, Receiver, Sender, wait_for};
use crate::framing::Frame;
use crate::wire::{DmaAccess, HEADER, Header, command, flags};

/// Messages that a client may send while it is asked for memory; one that sends more is given up.
const MOST_PARKED: usize = 4096;
/// And their bytes.
const MOST_PARKED_BYTES: usize = 8 << 20;

/// Why an access to the client's memory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmaError {
    /// Nothing is mapped there: an IOMMU would have blocked it.
    #[error("I/O address {0:#x} is not mapped")]
    Unmapped(u64),
    /// It is mapped, and not for this.
    #[error("I/O address {address:#x} is not mapped for {rights:?}")]
    Denied {
        /// The address.
        address: u64,
        /// What was wanted.
        rights: Rights,
    },
    /// The client did not give or take the bytes.
    #[error("{len} bytes at I/O address {address:#x}: {source}")]
    Failed {
        /// The address.
        address: u64,
        /// Bytes.
        len: usize,
        /// Why.
        source: io::Error,
    },
}

/// The I/O address space of a device: what its client has mapped, and nothing else. Clones are the same space. Made
/// by [`super::Server::dma`].
///
/// Reads and writes go straight to memory where the client gave a file that may be mapped, and are messages to the
/// client otherwise. An unmapping waits until those that have begun are done.
#[derive(Clone)]
pub struct DmaSpace(pub(super) Arc<Space>);

pub(super) struct Space {
    map: RwLock<DmaMap>,
    /// Goes up whenever something is unmapped.
    generation: AtomicU64,
    channel: Mutex<Option<Channel>>,
    patience: Duration,
}

/// The connection to a client.
pub(super) struct Channel {
    pub sender: Sender,
    pub receiver: Receiver,
    /// Commands that came while a reply was waited for.
    pub parked: VecDeque<Frame>,
    parked_bytes: usize,
    next_id: u16,
    /// Most data in a message to this client.
    pub max_data: usize,
    /// Why it is of no further use.
    pub broken: Option<String>,
}

impl Channel {
    pub fn new(sender: Sender, receiver: Receiver) -> Self {
        Self {
            sender,
            receiver,
            parked: VecDeque::new(),
            parked_bytes: 0,
            next_id: 0,
            max_data: crate::wire::MAX_DATA,
            broken: None,
        }
    }

    /// The next command that waits.
    pub fn unpark(&mut self) -> Option<Frame> {
        let frame = self.parked.pop_front()?;
        self.parked_bytes -= frame.body.len();
        Some(frame)
    }

    /// Asks the client, and waits for its answer; commands that come meanwhile are for later.
    fn ask(
        &mut self,
        command: u16,
        fixed: DmaAccess,
        data: &[u8],
        patience: Duration,
    ) -> io::Result<Vec<u8>> {
        if let Some(why) = &self.broken {
            return Err(io::Error::new(io::ErrorKind::NotConnected, why.clone()));
        }
        let deadline = Instant::now() + patience;
        self.next_id = self.next_id.wrapping_add(1);
        let header = Header::command(self.next_id, command, size_of::<DmaAccess>() + data.len());
        let result = self
            .sender
            .send(&header, &[fixed.as_bytes(), data], &[], deadline)
            .and_then(|()| self.await_reply(&header, deadline));
        match result {
            Ok(frame) if frame.header.flags & flags::ERROR != 0 => {
                Err(io::Error::from_raw_os_error(i32::try_from(frame.header.error).unwrap_or(libc_eio())))
            }
            Ok(frame) => Ok(frame.body),
            // A reply may still come, to what nobody waits for any more: that is the end of it.
            Err(e) => {
                self.broken = Some(format!("{}: {e}", command::name(command)));
                self.sender.shut_down();
                Err(e)
            }
        }
    }

    fn await_reply(&mut self, sent: &Header, deadline: Instant) -> io::Result<Frame> {
        loop {
            match self.receiver.receive()? {
                Received::Frame(frame) if frame.header.is_command() => {
                    self.parked_bytes += frame.body.len();
                    self.parked.push_back(frame);
                    if self.parked.len() > MOST_PARKED || self.parked_bytes > MOST_PARKED_BYTES {
                        return Err(io::Error::other("the client sends and does not answer"));
                    }
                }
                Received::Frame(frame) => {
                    let header = frame.header;
                    if !header.is_reply() || header.id != sent.id || header.command != sent.command {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            format!("a reply to {} {}", command::name(header.command), header.id),
                        ));
                    }
                    return Ok(frame);
                }
                Received::Closed { .. } => return Err(io::ErrorKind::ConnectionReset.into()),
                Received::Nothing => {
                    if !wait_for(self.receiver.fd(), PollFlags::IN, deadline)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
    }
}

/// EIO, for peers that say that something failed and not why.
fn libc_eio() -> i32 {
    Errno::IO.raw_os_error()
}

impl DmaSpace {
    pub(super) fn new(patience: Duration) -> Self {
        Self(Arc::new(Space {
            map: RwLock::default(),
            generation: AtomicU64::new(1),
            channel: Mutex::new(None),
            patience,
        }))
    }

    /// Reads the client's memory.
    ///
    /// # Errors
    /// The whole range must be mapped for reading; what comes before the part that is not has been read.
    pub fn read(&self, iova: u64, into: &mut [u8]) -> Result<(), DmaError> {
        let mut done = 0;
        let map = self.0.map.read().unwrap_or_else(PoisonError::into_inner);
        while done < into.len() {
            let at = address(iova, done)?;
            let piece = lookup(&map, at, into.len() - done, Rights::READ)?;
            let part = &mut into[done..done + piece.1];
            match piece.0 {
                Backing::Mapped(memory, offset) => memory.read(offset as usize, part),
                Backing::File(file, offset) => {
                    read_file(&file, offset, part).map_err(|e| failed(at, part.len(), e))?;
                }
                Backing::Messages => self.0.ask_read(at, part).map_err(|e| failed(at, part.len(), e))?,
            }
            done += piece.1;
        }
        Ok(())
    }

    /// Writes the client's memory.
    ///
    /// # Errors
    /// The whole range must be mapped for writing; what comes before the part that is not has been written.
    pub fn write(&self, iova: u64, from: &[u8]) -> Result<(), DmaError> {
        let mut done = 0;
        let map = self.0.map.read().unwrap_or_else(PoisonError::into_inner);
        while done < from.len() {
            let at = address(iova, done)?;
            let piece = lookup(&map, at, from.len() - done, Rights::WRITE)?;
            let part = &from[done..done + piece.1];
            match piece.0 {
                Backing::Mapped(memory, offset) => memory.write(offset as usize, part),
                Backing::File(file, offset) => {
                    write_file(&file, offset, part).map_err(|e| failed(at, part.len(), e))?;
                }
                Backing::Messages => self.0.ask_write(at, part).map_err(|e| failed(at, part.len(), e))?,
            }
            done += piece.1;
        }
        Ok(())
    }

    /// A range that is accessed again and again, such as a ring: looked up once, and again when something was
    /// unmapped.
    ///
    /// # Errors
    /// The whole range must be mapped with these rights.
    pub fn window(&self, iova: u64, len: usize, rights: Rights) -> Result<Window, DmaError> {
        Window::new(self.clone(), iova, len, rights)
    }

    /// Whether all of a range is mapped with these rights.
    ///
    /// # Errors
    /// The first address that is not.
    pub fn check(&self, iova: u64, len: usize, rights: Rights) -> Result<(), DmaError> {
        let map = self.0.map.read().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < len {
            done += lookup(&map, address(iova, done)?, len - done, rights)?.1;
        }
        Ok(())
    }

    /// Goes up whenever something is unmapped.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Mappings, neighbours taken together.
    pub fn mappings(&self) -> usize {
        self.0.map.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The memory behind a range that is mapped in one piece, with the offset in it; `None` where it takes messages
    /// or several pieces.
    pub(super) fn direct(
        &self,
        iova: u64,
        len: usize,
        rights: Rights,
    ) -> Option<(crate::memory::SharedMemory, usize)> {
        let map = self.0.map.read().unwrap_or_else(PoisonError::into_inner);
        match map.lookup(iova, len as u64, rights) {
            Ok(piece) if piece.len == len as u64 => match piece.backing {
                Backing::Mapped(memory, offset) => Some((memory, offset as usize)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Changes the books. Waits for accesses that have begun.
    pub(super) fn change<T>(&self, removes: bool, change: impl FnOnce(&mut DmaMap) -> T) -> T {
        let mut map = self.0.map.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut map);
        if removes {
            self.0.generation.fetch_add(1, Ordering::AcqRel);
        }
        result
    }

    pub(super) fn channel(&self) -> MutexGuard<'_, Option<Channel>> {
        self.0.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space {
    fn with_channel<T>(&self, f: impl FnOnce(&mut Channel) -> io::Result<T>) -> io::Result<T> {
        match &mut *self.channel.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(channel) => f(channel),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn ask_read(&self, iova: u64, into: &mut [u8]) -> io::Result<()> {
        self.with_channel(|channel| {
            let mut at = iova;
            for part in into.chunks_mut(channel.max_data) {
                let fixed = DmaAccess { address: at, count: part.len() as u64 };
                let reply = channel.ask(command::DMA_READ, fixed, &[], self.patience)?;
                match DmaAccess::read_from_prefix(&reply) {
                    Ok((echo, data)) if echo == fixed && data.len() == part.len() => {
                        part.copy_from_slice(data)
                    }
                    _ => return Err(channel.bad_reply(command::DMA_READ, reply.len())),
                }
                at = at.wrapping_add(part.len() as u64);
            }
            Ok(())
        })
    }

    fn ask_write(&self, iova: u64, from: &[u8]) -> io::Result<()> {
        self.with_channel(|channel| {
            let mut at = iova;
            for part in from.chunks(channel.max_data) {
                let fixed = DmaAccess { address: at, count: part.len() as u64 };
                let reply = channel.ask(command::DMA_WRITE, fixed, part, self.patience)?;
                // The specification gives the count 4 bytes in its text and 8 in implementations.
                let echo = fixed.as_bytes();
                if reply.len() < 12 || !echo.starts_with(&reply[..reply.len().min(echo.len())]) {
                    return Err(channel.bad_reply(command::DMA_WRITE, reply.len()));
                }
                at = at.wrapping_add(part.len() as u64);
            }
            Ok(())
        })
    }
}

impl Channel {
    fn bad_reply(&mut self, command: u16, len: usize) -> io::Error {
        let why = format!("its reply to {} ({} bytes) is not one", command::name(command), len + HEADER);
        self.broken = Some(why.clone());
        self.sender.shut_down();
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

fn address(iova: u64, done: usize) -> Result<u64, DmaError> {
    iova.checked_add(done as u64).ok_or(DmaError::Unmapped(u64::MAX))
}

fn lookup(map: &DmaMap, at: u64, len: usize, rights: Rights) -> Result<(Backing, usize), DmaError> {
    match map.lookup(at, len as u64, rights) {
        Ok(piece) => Ok((piece.backing, piece.len as usize)),
        Err(Fault::Unmapped(address)) => Err(DmaError::Unmapped(address)),
        Err(Fault::Denied(address)) => Err(DmaError::Denied { address, rights }),
    }
}

fn failed(address: u64, len: usize, source: io::Error) -> DmaError {
    DmaError::Failed { address, len, source }
}

fn read_file(file: &std::os::fd::OwnedFd, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match rustix::io::pread(file, &mut *into, offset) {
            // Cut short.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                into = &mut into[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn write_file(file: &std::os::fd::OwnedFd, mut offset: u64, mut from: &[u8]) -> io::Result<()> {
    while !from.is_empty() {
        match rustix::io::pwrite(file, from, offset) {
            Ok(n) => {
                from = &from[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
