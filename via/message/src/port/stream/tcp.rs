//! Pipes of TCP.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::{Pipe, Transport};

/// How long dialling may take.
const DIAL: Duration = Duration::from_secs(3);
/// How long one who leaves waits for the other end to leave too: a socket that is closed with unread bytes takes back
/// what it has sent.
const FAREWELL: Duration = Duration::from_millis(500);

/// Listens for pipes, and dials them.
pub(crate) struct Tcp {
    listener: TcpListener,
    address: SocketAddr,
}

impl Tcp {
    /// Listens at an address.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }
}

impl Transport for Tcp {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&mut self) -> io::Result<Option<Box<dyn Pipe>>> {
        match self.listener.accept() {
            Ok((stream, _)) => Ok(Some(Box::new(TcpPipe::new(stream)?))),
            Err(e) if is_passing(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn dial(&mut self, address: &str) -> io::Result<Box<dyn Pipe>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address:?} is no address"));
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, DIAL) {
                Ok(stream) => return Ok(Box::new(TcpPipe::new(stream)?)),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

/// Whether it is nothing but that there is nothing now.
fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

struct TcpPipe(TcpStream);

impl TcpPipe {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self(stream))
    }
}

impl Pipe for TcpPipe {
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.write_vectored(parts) {
            Err(e) if is_passing(&e) => Ok(0),
            outcome => outcome,
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        match self.0.read(into) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer disconnected")),
            Err(e) if is_passing(&e) => Ok(0),
            outcome => outcome,
        }
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.0.as_raw_fd())
    }

    fn close(&mut self) {
        let start = Instant::now();
        let mut bytes = [0; 4096];
        if self.0.shutdown(Shutdown::Write).is_err() || self.0.set_nonblocking(false).is_err() {
            return;
        }
        if self.0.set_read_timeout(Some(FAREWELL)).is_err() {
            return;
        }
        while start.elapsed() < FAREWELL && self.0.read(&mut bytes).is_ok_and(|got| got > 0) {}
    }
}
