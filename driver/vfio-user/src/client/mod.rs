//! The side of the driver.
//!
//! A [`Client`] is a connection to one device. Requests may come from any thread, and each waits for its own reply; a
//! thread of the client's receives them, and answers the device's accesses to memory that has no file to be mapped
//! ([`ClientMemory`]). Each reply is held against its request, each wait has its end, and once anything about the
//! connection is wrong it is over: a device that was out of step once cannot be trusted to be in step again.

mod exchange;
mod reader;
mod requests;

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use requests::{IrqDetails, RegionDetails, WriteEventFd};

use crate::connection::split;
use crate::wire::Capabilities;
use crate::{Error, Result};
use exchange::Exchange;

/// Memory that a client has mapped without a file: the device asks for it.
pub trait ClientMemory: Send + Sync {
    /// Reads what is mapped at `iova`, for the device.
    ///
    /// # Errors
    /// It is not mapped, or not for reading: the device gets the errno.
    fn read(&self, iova: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes what is mapped at `iova`, for the device.
    ///
    /// # Errors
    /// It is not mapped, or not for writing: the device gets the errno.
    fn write(&self, iova: u64, from: &[u8]) -> io::Result<()>;

    /// The connection is over, for whatever reason; called once, last of all.
    fn closed(&self) {}
}

/// No memory: for clients all of whose memory has files.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMemory;

impl ClientMemory for NoMemory {
    fn read(&self, _iova: u64, _into: &mut [u8]) -> io::Result<()> {
        Err(rustix::io::Errno::FAULT.into())
    }

    fn write(&self, _iova: u64, _from: &[u8]) -> io::Result<()> {
        Err(rustix::io::Errno::FAULT.into())
    }
}

/// How a device is talked to.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How long a reply may take. Longer than any device should: the connection is over then.
    pub patience: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5) }
    }
}

/// A connection to a device.
pub struct Client {
    exchange: Arc<Exchange>,
    capabilities: Capabilities,
    reader: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects to the device that is served at `path`.
    ///
    /// # Errors
    /// [`Error::Connect`], and what [`Self::over`] answers.
    pub fn connect(path: &Path, memory: Arc<dyn ClientMemory>, options: ClientOptions) -> Result<Self> {
        let peer = path.display().to_string();
        match UnixStream::connect(path) {
            Ok(socket) => Self::over(socket, &peer, memory, options),
            Err(source) => Err(Error::Connect { peer, source }),
        }
    }

    /// Talks to the device at the other end of `socket`, which is called `peer` in errors.
    ///
    /// # Errors
    /// It does not answer, answers nonsense, or speaks another version.
    pub fn over(
        socket: UnixStream,
        peer: &str,
        memory: Arc<dyn ClientMemory>,
        options: ClientOptions,
    ) -> Result<Self> {
        let (sender, receiver) = split(socket);
        let exchange = Arc::new(Exchange::new(peer.to_owned(), sender, options.patience));
        let reader = {
            let exchange = exchange.clone();
            thread::Builder::new()
                .name("vfio-user".to_owned())
                .spawn(move || reader::run(&exchange, receiver, &*memory))
                .map_err(|source| Error::Io { what: format!("{peer}: starting a thread"), source })?
        };
        let mut client = Self { exchange, capabilities: Capabilities::ours(), reader: Some(reader) };
        client.capabilities = client.negotiate()?;
        Ok(client)
    }

    /// What the device's side can take.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What it is called in errors: its socket.
    pub fn peer(&self) -> &str {
        &self.exchange.peer
    }

    /// Whether the connection is over: a load, and no lock.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.exchange.is_over()
    }

    /// Why the connection is over, if it is.
    pub fn closed(&self) -> Option<String> {
        self.exchange.closed()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.exchange.close("it was closed here");
        if let Some(reader) = self.reader.take()
            && reader.thread().id() != thread::current().id()
        {
            // It ends with the connection; were it to panic, that has been told by then.
            let _ = reader.join();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("peer", &self.peer()).field("closed", &self.closed()).finish()
    }
}
