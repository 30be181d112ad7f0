//! The side of the device.
//!
//! A [`Server`] has the sockets of one device, and is driven by whoever calls [`Server::poll`], which handles what
//! there is and comes back: so that the thread of a device may look after its rings in between. It serves one client
//! at a time; the next one waits in the socket's queue until the first is gone.
//!
//! Whatever a client sends is answered or refused, and does no harm: the device is asked only for what its
//! [`Description`] allows, and no access of the device's leaves what the client has mapped.

mod device;
mod dispatch;
mod dma;
mod interrupts;
mod map;
mod window;

pub use device::{Description, Device, Region, SharedAreas, WriteEvent};
pub use dma::{DmaError, DmaSpace};
pub use interrupts::Interrupts;
pub use window::Window;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::connection::{Received, Sender, split, timespec};
use crate::framing::Frame;
use crate::socket_file::{SocketFile, remove_stale};
use crate::wire::{Capabilities, command, flags};
use crate::{Error, Result};
use dispatch::Reply;
use dma::Channel;

/// Messages handled in one call of [`Server::poll`], so that a client that never stops does not starve the device.
const BURST: usize = 64;

/// How a device is served.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// How long a client may take to answer, or to read what was sent to it, before it is given up.
    pub patience: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5) }
    }
}

/// What a call of [`Server::poll`] came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// Nothing came within the time.
    Idle,
    /// So many messages were handled.
    Handled(usize),
    /// A client has connected.
    Connected,
    /// The client is gone: why, in words.
    Disconnected(String),
    /// The client is gone, and there is no listener for another one.
    Finished,
}

/// Serves one device.
pub struct Server {
    listener: Option<UnixListener>,
    /// Removed at the end.
    file: Option<SocketFile>,
    description: Description,
    space: DmaSpace,
    interrupts: Interrupts,
    session: Option<Session>,
    options: ServerOptions,
}

/// The client that is connected.
struct Session {
    sender: Sender,
    /// Known when versions were negotiated.
    client: Option<Capabilities>,
}

impl Server {
    /// Serves on a socket at `path`. One that a dead server left there is replaced.
    ///
    /// # Errors
    /// [`Error::Listen`]; somebody else serves there.
    pub fn bind(path: &Path, description: Description, options: ServerOptions) -> Result<Self> {
        let failed = |source| Error::Listen { socket: path.display().to_string(), source };
        let (listener, file) = match SocketFile::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                match UnixStream::connect(path) {
                    // Nobody listens there any more.
                    Err(dead) if dead.kind() == io::ErrorKind::ConnectionRefused => {}
                    _ => return Err(failed(e)),
                }
                remove_stale(path).map_err(failed)?;
                SocketFile::bind(path).map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
        let mut server = Self::on(listener, description, options)?;
        server.file = Some(file);
        Ok(server)
    }

    /// Serves on a socket that listens already.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn on(listener: UnixListener, description: Description, options: ServerOptions) -> Result<Self> {
        listener
            .set_nonblocking(true)
            .map_err(|source| Error::Io { what: "preparing a listening socket".to_owned(), source })?;
        let mut server = Self::new(description, options);
        server.listener = Some(listener);
        Ok(server)
    }

    /// Serves the one client at the other end of `socket`.
    pub fn over(socket: UnixStream, description: Description, options: ServerOptions) -> Self {
        let mut server = Self::new(description, options);
        server.connect(socket);
        server
    }

    fn new(description: Description, options: ServerOptions) -> Self {
        Self {
            listener: None,
            file: None,
            space: DmaSpace::new(options.patience),
            interrupts: Interrupts::new(&description),
            description,
            session: None,
            options,
        }
    }

    /// The way to clients' memory; the same for all clients that come and go.
    pub fn dma(&self) -> DmaSpace {
        self.space.clone()
    }

    /// The way to clients' interrupts; the same for all clients that come and go.
    pub fn interrupts(&self) -> Interrupts {
        self.interrupts.clone()
    }

    /// What is served.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether a client is connected and has negotiated.
    pub fn is_attached(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.client.is_some())
    }

    /// What becomes readable when there is something to handle: the client's socket, else the listener. It changes
    /// as clients come and go.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match (&self.session, &self.listener) {
            (Some(session), _) => Some(session.sender.fd()),
            (None, Some(listener)) => Some(listener.as_fd()),
            (None, None) => None,
        }
    }

    /// Whether messages wait that came while a reply of the client's was waited for ([`DmaSpace`] by messages). Who
    /// sleeps on [`Self::fd`] asks this before, since the socket no longer has them.
    pub fn is_pending(&self) -> bool {
        self.space.channel().as_ref().is_some_and(|channel| !channel.parked.is_empty())
    }

    /// Handles what the client has sent, and clients that come and go; waits up to `timeout` when there is nothing.
    /// What a client does wrong is its own matter, and no error here.
    ///
    /// # Errors
    /// The listening socket, or the system, fails.
    pub fn poll(&mut self, device: &mut dyn Device, timeout: Duration) -> Result<Activity> {
        let failed = |source| Error::Io { what: "waiting for a vfio-user client".to_owned(), source };
        let activity = self.handle(device).map_err(failed)?;
        if activity != Activity::Idle || timeout.is_zero() {
            return Ok(activity);
        }
        let Some(fd) = self.fd() else { return Ok(Activity::Finished) };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timespec(timeout))) {
            Ok(0) | Err(Errno::INTR) => Ok(Activity::Idle),
            Ok(_) => self.handle(device).map_err(failed),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// Ends the connection to the client, if there is one, as if it had gone.
    pub fn disconnect(&mut self, device: &mut dyn Device) {
        if self.session.is_some() {
            self.detach(device);
        }
    }

    fn handle(&mut self, device: &mut dyn Device) -> io::Result<Activity> {
        if self.session.is_none() {
            return self.accept();
        }
        let mut handled = 0;
        while handled < BURST {
            match self.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(why) = self.answer(frame, device) {
                        return Ok(self.lost(device, why));
                    }
                    handled += 1;
                }
                // What came before it was handled.
                Err(why) => return Ok(self.lost(device, why)),
            }
        }
        Ok(if handled == 0 { Activity::Idle } else { Activity::Handled(handled) })
    }

    fn accept(&mut self) -> io::Result<Activity> {
        let Some(listener) = &self.listener else { return Ok(Activity::Finished) };
        match listener.accept() {
            Ok((socket, _)) => {
                self.connect(socket);
                Ok(Activity::Connected)
            }
            Err(e) => match e.kind() {
                // A client that gave up while it waited is no concern of ours.
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {
                    Ok(Activity::Idle)
                }
                _ => Err(e),
            },
        }
    }

    fn connect(&mut self, socket: UnixStream) {
        let (sender, receiver) = split(socket);
        *self.space.channel() = Some(Channel::new(sender.clone(), receiver));
        self.session = Some(Session { sender, client: None });
    }

    /// The next message, or why there will be none. The connection is locked for this moment only, since the device
    /// uses it too.
    fn next_frame(&self) -> std::result::Result<Option<Frame>, String> {
        let mut guard = self.space.channel();
        let Some(channel) = guard.as_mut() else { return Err("it was closed".to_owned()) };
        if let Some(why) = &channel.broken {
            return Err(why.clone());
        }
        if let Some(frame) = channel.unpark() {
            return Ok(Some(frame));
        }
        match channel.receiver.receive() {
            Ok(Received::Frame(frame)) => Ok(Some(frame)),
            Ok(Received::Nothing) => Ok(None),
            Ok(Received::Closed { within: false }) => Err("it hung up".to_owned()),
            Ok(Received::Closed { within: true }) => Err("it hung up within a message".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Handles a message and answers it.
    fn answer(&mut self, frame: Frame, device: &mut dyn Device) -> std::result::Result<(), String> {
        let header = frame.header;
        if !header.is_command() {
            return Err(format!("a reply to {}, which nobody waits for", command::name(header.command)));
        }
        let result = self.dispatch(frame, device);
        if header.flags & flags::NO_REPLY != 0 {
            if let Err(errno) = result {
                tracing::debug!("a posted {} failed: {errno}", command::name(header.command));
            }
            return Ok(());
        }
        let Some(session) = &self.session else { return Ok(()) };
        let deadline = Instant::now() + self.options.patience;
        let sent = match &result {
            Ok(Reply { body, fds }) => {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                session.sender.send(&header.reply(body.len()), &[body, &[]], &fds, deadline)
            }
            Err(errno) => {
                session.sender.send(&header.error_reply(errno.raw_os_error()), &[&[], &[]], &[], deadline)
            }
        };
        sent.map_err(|e| format!("it takes no answer: {e}"))
    }

    fn lost(&mut self, device: &mut dyn Device, why: String) -> Activity {
        tracing::debug!("a vfio-user client is gone: {why}");
        self.detach(device);
        if self.listener.is_some() { Activity::Disconnected(why) } else { Activity::Finished }
    }

    fn detach(&mut self, device: &mut dyn Device) {
        let attached = self.is_attached();
        if let Some(session) = self.session.take() {
            session.sender.shut_down();
        }
        *self.space.channel() = None;
        self.space.change(true, map::DmaMap::clear);
        self.interrupts.detach();
        if attached {
            device.detached();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.sender.shut_down();
        }
    }
}
