//! A port of the switch that leads to the switch of another process, by a UNIX socket.
//!
//! Both sides are given the same path: who comes first listens, the other one connects, and does so again when the
//! connection was lost. Each frame is preceded by its length, 32 bits, big-endian: as QEMU's `-netdev stream` has it,
//! so that the other end may be a NIC that QEMU emulates.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uvia_vfio_user::socket_file::{SocketFile, remove_stale};

use super::SwitchPort;
use super::outside::{Waker, send_from};
use crate::port::{LONGEST, Port};

/// Between attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a peer may keep a frame waiting before the connection is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// A link; when dropped, its socket is removed if this side made it. The connection lives as long as the process.
pub struct Link {
    made: Arc<Mutex<Option<SocketFile>>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.made.lock().take());
    }
}

/// Joins a port to the one of the process that is given the same path.
///
/// # Errors
/// The path cannot be listened at, and nobody listens there.
pub fn join(path: &Path, port: SwitchPort, waker: Waker) -> io::Result<Link> {
    let current: Arc<Mutex<Option<UnixStream>>> = Arc::default();
    let made: Arc<Mutex<Option<SocketFile>>> = Arc::default();
    let mut way = Way::find(path, &made)?;
    let writer = current.clone();
    send_from(port.clone(), "link", move |frame| {
        let Some(mut stream) = writer.lock().as_ref().map(UnixStream::try_clone).transpose()? else {
            return Ok(()); // nobody there
        };
        let length = (frame.len() as u32).to_be_bytes();
        let sent = stream.write_all(&[&length[..], frame].concat());
        if sent.is_err() {
            // Half a frame may be on its way: no more can follow it.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        sent
    })?;
    let (path, theirs) = (path.to_owned(), made.clone());
    std::thread::Builder::new().name("link-receive".to_owned()).spawn(move || {
        loop {
            match way.connect().and_then(|stream| prepare(stream, &current)) {
                Ok(stream) => {
                    let outcome = receive(stream, &port, &waker);
                    *current.lock() = None;
                    tracing::info!("the other end of the link is gone: {outcome:?}");
                }
                Err(e) => {
                    tracing::debug!("the link: {e}");
                    std::thread::sleep(PAUSE);
                    if let Ok(other) = Way::find(&path, &theirs) {
                        way = other;
                    }
                }
            }
        }
    })?;
    Ok(Link { made })
}

/// How the other end is reached.
enum Way {
    Connected(Option<UnixStream>),
    Listening(UnixListener),
}

impl Way {
    fn find(path: &Path, made: &Mutex<Option<SocketFile>>) -> io::Result<Self> {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(Self::Connected(Some(stream))),
            // Of a process that is no more.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => remove_stale(path)?,
            Err(_) => (),
        }
        let (listener, file) = SocketFile::bind(path)?;
        *made.lock() = Some(file);
        Ok(Self::Listening(listener))
    }

    fn connect(&mut self) -> io::Result<UnixStream> {
        match self {
            Self::Connected(stream) => stream.take().ok_or_else(|| io::ErrorKind::NotConnected.into()),
            Self::Listening(listener) => Ok(listener.accept()?.0),
        }
    }
}

fn prepare(stream: UnixStream, current: &Mutex<Option<UnixStream>>) -> io::Result<UnixStream> {
    stream.set_write_timeout(Some(PATIENCE))?;
    *current.lock() = Some(stream.try_clone()?);
    Ok(stream)
}

fn receive(mut stream: UnixStream, port: &SwitchPort, waker: &Waker) -> io::Result<()> {
    let mut port = port.clone();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
        }
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame)?;
        port.send(frame);
        waker();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::FaultyWire;
    use crate::random::Random;
    use crate::switch::Switch;

    struct Side {
        adapter: SwitchPort,
        link: Link,
    }

    fn side(path: &Path) -> Side {
        let switch = Switch::new();
        let add = || Switch::add(&switch, FaultyWire::new(Vec::new(), Vec::new(), Random::new(0)));
        let (adapter, port) = (add(), add());
        Side { adapter, link: join(path, port, Arc::new(|| ())).unwrap() }
    }

    fn wait(port: &mut SwitchPort) -> Vec<u8> {
        for _ in 0..5000 {
            if let Some(frame) = port.receive() {
                return frame;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no frame");
    }

    #[test]
    fn a_file_that_is_no_socket_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        let refused = Way::find(&path, &Mutex::default()).err().map(|e| e.kind());
        assert_eq!(refused, Some(io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn frames_cross_and_the_socket_goes_with_who_made_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link");
        let (mut a, mut b) = (side(&path), side(&path));
        for len in [60, 1514, 9000] {
            // Until the other end is there, frames are lost, as on a wire.
            let frame = vec![len as u8 | 1; len];
            let mut got = None;
            for _ in 0..5000 {
                a.adapter.send(frame.clone());
                std::thread::sleep(Duration::from_millis(1));
                got = b.adapter.receive();
                if got.is_some() {
                    break;
                }
            }
            assert!(got.as_ref() == Some(&frame));
            while b.adapter.receive().is_some() {}
            std::thread::sleep(Duration::from_millis(20));
            while b.adapter.receive().is_some() {}
            b.adapter.send(frame.clone());
            assert!(wait(&mut a.adapter) == frame);
        }
        drop(b.link);
        assert!(path.exists());
        drop(a.link);
        assert!(!path.exists());
    }
}
