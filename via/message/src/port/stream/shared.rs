//! Pipes of shared memory, between processes of one host or within one.
//!
//! Who dials makes the memory, a file without a name that is sealed against shrinking, and hands it over by a UNIX socket
//! whose name goes with its owner. The socket then says only whether the other end is there.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::ring::{Ring, SIZE};
use super::{Pipe, Transport};

/// Reads in vain between two looks at whether the other end is there; each look is a system call.
const LOOK: u32 = 128;

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Listens for pipes, and dials them.
pub(crate) struct SharedMemory {
    name: String,
    listener: OwnedFd,
}

impl SharedMemory {
    /// Listens at a name, which nobody else on this host may have.
    pub(crate) fn new(name: String) -> io::Result<Self> {
        let listener = socket()?;
        rustix::net::bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&listener, 64)?;
        Ok(Self { name, listener })
    }
}

impl Transport for SharedMemory {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn accept(&mut self) -> io::Result<Option<Box<dyn Pipe>>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.listener, flags) {
            Ok(socket) => {
                Ok(Some(Box::new(SharedPipe { socket: Some(socket), memory: None, idle: LOOK, gone: false })))
            }
            Err(e) if is_passing(e) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn dial(&mut self, address: &str) -> io::Result<Box<dyn Pipe>> {
        let socket = socket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(address.as_bytes())?)?;
        let file = rustix::fs::memfd_create("uvia-message", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, 2 * SIZE as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let memory = Memory::map(&file, true)?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut room);
        let files = [std::os::fd::AsFd::as_fd(&file)];
        message.push(SendAncillaryMessage::ScmRights(&files));
        rustix::net::sendmsg(&socket, &[IoSlice::new(&[1])], &mut message, SendFlags::NOSIGNAL)?;
        Ok(Box::new(SharedPipe { socket: Some(socket), memory: Some(memory), idle: 0, gone: false }))
    }

    fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

fn is_passing(e: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(e, Errno::AGAIN | Errno::INTR | Errno::CONNABORTED)
}

/// Two rings, mapped.
struct Memory {
    out: Ring,
    back: Ring,
    /// Last: what they lie in.
    _map: MmapRaw,
}

impl Memory {
    /// Maps the file; the dialling end writes into the first ring.
    fn map(file: &OwnedFd, dialled: bool) -> io::Result<Self> {
        if !rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK)
            || rustix::fs::fstat(file)?.st_size != 2 * SIZE as i64
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the other end's shared memory is not of the kind that is shared",
            ));
        }
        let map = MmapOptions::new().len(2 * SIZE).map_raw(file)?;
        let base = NonNull::new(map.as_mut_ptr()).ok_or_else(|| io::Error::other("mapped at no address"))?;
        // SAFETY: both rings lie within the mapping, at multiples of 64 from a page's beginning. It is kept with them,
        // and the file cannot shrink under it.
        let [first, second] = unsafe { [Ring::at(base), Ring::at(base.add(SIZE))] };
        let (out, back) = if dialled { (first, second) } else { (second, first) };
        Ok(Self { out, back, _map: map })
    }
}

struct SharedPipe {
    socket: Option<OwnedFd>,
    /// `None` until it was handed over.
    memory: Option<Memory>,
    idle: u32,
    gone: bool,
}

impl SharedPipe {
    /// Looks at the socket: for the memory, and for the other end's going.
    fn look(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let mut byte = [0];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut messages = RecvAncillaryBuffer::new(&mut room);
        let received = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut messages,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        );
        match received {
            Err(e) if is_passing(e) => return Ok(()),
            Err(_) => self.gone = true,
            Ok(received) => self.gone = received.bytes == 0,
        }
        for message in messages.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                for file in files {
                    if self.memory.is_none() {
                        self.memory = Some(Memory::map(&file, false)?);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Pipe for SharedPipe {
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(memory) = &mut self.memory else { return Ok(0) };
        let mut sum = 0;
        for part in parts {
            let written = memory.out.write(part)?;
            sum += written;
            if written < part.len() {
                break;
            }
        }
        Ok(sum)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(memory) = &mut self.memory {
            let got = memory.back.read(into)?;
            if got > 0 || into.is_empty() {
                self.idle = 0;
                return Ok(got);
            }
        }
        if self.gone {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer disconnected"));
        }
        self.idle += 1;
        if self.idle >= LOOK {
            self.idle = 0;
            self.look()?;
            // What it wrote before it went is read first.
        }
        Ok(0)
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn close(&mut self) {
        self.socket = None;
    }
}
