//! Messages over a UNIX stream socket, with file descriptors, without ever blocking beyond a deadline.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use zerocopy::IntoBytes;

use crate::framing::{Frame, Framer};
use crate::wire::{Header, MAX_BODY, MAX_FDS};

/// How much is read at a time of a body.
const PIECE: usize = 64 << 10;

/// The kernel passes no more descriptors than this in one message (SCM_MAX_FD).
const KERNEL_FDS: usize = 253;

/// Both halves of a connection.
pub fn split(socket: UnixStream) -> (Sender, Receiver) {
    let socket = Arc::new(socket);
    (
        Sender { socket: socket.clone() },
        Receiver { socket, framer: Framer::new(MAX_BODY, MAX_FDS), piece: Vec::new() },
    )
}

/// The half that sends.
#[derive(Debug, Clone)]
pub struct Sender {
    socket: Arc<UnixStream>,
}

impl Sender {
    /// Sends a whole message, or fails: then the connection is of no further use.
    pub fn send(
        &self,
        header: &Header,
        body: &[&[u8]; 2],
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> io::Result<()> {
        let head = header.as_bytes();
        let total = head.len() + body[0].len() + body[1].len();
        debug_assert_eq!(total, header.size as usize);
        let mut sent = 0;
        while sent < total {
            // What is left of each part; a message mostly goes in one piece.
            let mut skip = sent;
            let parts = [head, body[0], body[1]].map(|part| {
                let skipped = skip.min(part.len());
                skip -= skipped;
                IoSlice::new(&part[skipped..])
            });
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            // Descriptors go with the first byte, and so once.
            if sent == 0 && !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many file descriptors"));
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(&self.socket, &parts, &mut control, flags) {
                Ok(now) => sent += now,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    if !wait_for(self.socket.as_fd(), PollFlags::OUT, deadline)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Ends the connection for both sides and both halves.
    pub fn shut_down(&self) {
        // Fails when it has ended already, which is what was wanted.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// The socket, to poll it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The half that receives.
#[derive(Debug)]
pub struct Receiver {
    socket: Arc<UnixStream>,
    framer: Framer<OwnedFd>,
    piece: Vec<u8>,
}

/// What there is to receive.
#[derive(Debug)]
pub enum Received {
    /// A message.
    Frame(Frame),
    /// Nothing now.
    Nothing,
    /// The other side has closed the connection; `within` a message or between two.
    Closed {
        /// Whether a message had begun.
        within: bool,
    },
}

impl Receiver {
    /// The next message, if all of it is there. Does not block.
    ///
    /// # Errors
    /// What the system answers, and [`io::ErrorKind::InvalidData`] when the peer's next message cannot be found.
    pub fn receive(&mut self) -> io::Result<Received> {
        loop {
            // No further than this message, so that descriptors belong to it.
            let wanted = self.framer.wanted().min(PIECE);
            if self.piece.len() < wanted {
                self.piece.resize(wanted, 0);
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(KERNEL_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut self.piece[..wanted])];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let got = match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Ok(got) => got,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return Ok(Received::Nothing),
                Err(rustix::io::Errno::CONNRESET) => {
                    return Ok(Received::Closed { within: self.framer.is_within() });
                }
                Err(e) => return Err(e.into()),
            };
            let complete = !got.flags.contains(ReturnFlags::CTRUNC);
            let fds: Vec<OwnedFd> = control
                .drain()
                .filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                    _ => None,
                })
                .flatten()
                .collect();
            if got.bytes == 0 {
                return Ok(Received::Closed { within: self.framer.is_within() });
            }
            if !fds.is_empty() || !complete {
                self.framer.attach(fds, complete);
            }
            let mut bytes = &self.piece[..got.bytes];
            match self.framer.push(&mut bytes) {
                Ok(Some(frame)) => return Ok(Received::Frame(frame)),
                Ok(None) => {}
                Err(e) => return Err(io::Error::new(io::ErrorKind::InvalidData, e)),
            }
        }
    }

    /// The socket, to poll it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until `fd` is ready for `what` (or has failed); false at the deadline.
pub fn wait_for(fd: BorrowedFd<'_>, what: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::from_borrowed_fd(fd, what)];
        match rustix::event::poll(&mut fds, Some(&timespec(left))) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
    }
}

/// A duration as the kernel takes it.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
