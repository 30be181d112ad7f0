//! A UDP socket as a [`Link`].

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use uvia_tools::Failure;

use super::SLICE;
use crate::datagram::{Body, HEAD, Head, LEAST_CONTROL, Link, Packet};

/// Longest payload of a datagram over IPv4.
const LONGEST: usize = 65_507;

/// A socket, and the peer that it talks to.
pub struct UdpLink {
    socket: UdpSocket,
    connected: bool,
    peer: Option<SocketAddr>,
    last_source: Option<SocketAddr>,
    patience: Duration,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl UdpLink {
    /// Waits for whoever comes, at a local address.
    pub fn bind(local: SocketAddr) -> Result<Self, Failure> {
        let socket =
            UdpSocket::bind(local).map_err(|e| Failure::failed(format!("binding to {local}: {e}")))?;
        Self::new(socket, None)
    }

    /// Talks to one peer.
    pub fn connect(peer: SocketAddr) -> Result<Self, Failure> {
        let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).map_err(|e| Failure::failed(format!("a UDP socket: {e}")))?;
        socket.connect(peer).map_err(|e| Failure::failed(format!("connecting to {peer}: {e}")))?;
        Self::new(socket, Some(peer))
    }

    fn new(socket: UdpSocket, peer: Option<SocketAddr>) -> Result<Self, Failure> {
        socket.set_read_timeout(Some(SLICE))?;
        widen(&socket);
        Ok(Self {
            socket,
            connected: peer.is_some(),
            peer,
            last_source: None,
            patience: SLICE,
            outgoing: vec![0; LONGEST],
            incoming: vec![0; LONGEST],
        })
    }

    /// Where it waits.
    pub fn local(&self) -> Result<SocketAddr, Failure> {
        Ok(self.socket.local_addr()?)
    }

    fn put(&mut self, size: usize) -> Result<(), Failure> {
        let bytes = &self.outgoing[..size];
        let outcome = match (self.connected, self.peer) {
            (true, _) => self.socket.send(bytes),
            (false, Some(peer)) => self.socket.send_to(bytes, peer),
            (false, None) => return Ok(()),
        };
        match outcome {
            Ok(_) => Ok(()),
            Err(e) if is_loss(&e) => Ok(()),
            Err(e) => Err(Failure::failed(format!("sending {size} bytes by UDP: {e}"))),
        }
    }
}

/// Asks for room for a good burst in the receive queue: the default holds three of the largest datagrams. How
/// much the system grants is its own affair.
fn widen(socket: &UdpSocket) {
    static ROOM: libc::c_int = 8 << 20;
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // SAFETY: the option's value is an integer that outlives the call.
        let _ = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const ROOM).cast(),
                size_of_val(&ROOM) as libc::socklen_t,
            )
        };
    }
}

/// What the other end's host, the way to it or a full queue says: no reason to stop, the packet was lost.
fn is_loss(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

impl Link for UdpLink {
    const LEAST: usize = HEAD;
    const LIMIT: &'static str = "the head of a test packet, and the longest UDP datagram";

    fn max_payload(&self) -> usize {
        LONGEST
    }

    fn send(&mut self, head: Head, size: usize) -> Result<(), Failure> {
        self.outgoing[..HEAD].copy_from_slice(&head.to_bytes());
        self.put(size)
    }

    fn send_control(&mut self, head: Head, body: Body) -> Result<(), Failure> {
        self.outgoing[..HEAD].copy_from_slice(&head.to_bytes());
        self.outgoing[HEAD..LEAST_CONTROL].copy_from_slice(&body.to_bytes());
        self.put(LEAST_CONTROL)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn receive(&mut self, patience: Duration, sink: &mut dyn FnMut(Packet)) -> Result<(), Failure> {
        // A socket cannot wait for no time at all.
        let patience = patience.max(Duration::from_millis(1));
        if patience != self.patience {
            self.socket.set_read_timeout(Some(patience))?;
            self.patience = patience;
        }
        let (len, source) = if self.connected {
            match self.socket.recv(&mut self.incoming) {
                Ok(len) => (len, None),
                Err(e) => return nothing(e),
            }
        } else {
            match self.socket.recv_from(&mut self.incoming) {
                Ok((len, source)) => (len, Some(source)),
                Err(e) => return nothing(e),
            }
        };
        if !self.connected && self.peer.is_some() && self.peer != source {
            return Ok(());
        }
        if let Some(packet) = parse(&self.incoming[..len]) {
            self.last_source = source.or(self.last_source);
            sink(packet);
        }
        Ok(())
    }

    fn settle(&mut self, on: bool) {
        if !self.connected {
            self.peer = if on { self.last_source } else { None };
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Packet> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let head = Head::parse(*head)?;
    let body = match head.kind.is_control() {
        true => Body::parse(*rest.first_chunk()?),
        false => Body::default(),
    };
    Some(Packet { head, body })
}

/// Nothing came, or somebody said that the peer is not there (yet): the caller counts the time.
fn nothing(error: io::Error) -> Result<(), Failure> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        _ if is_loss(&error) => {
            std::thread::sleep(Duration::from_millis(10));
            Ok(())
        }
        _ => Err(Failure::failed(format!("receiving by UDP: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Stop;
    use crate::datagram::{run_client, serve};
    use crate::load::{Load, Test};
    use crate::udp::subject;

    /// Client and server over the loopback interface, all the way.
    fn run(test: Test) {
        let args = ["t", "--sizes", "8,64,60000", "--iterations", "50", "--timeout", "3", "--json"];
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            load: crate::load::LoadArgs,
        }
        let only = <Only as clap::Parser>::parse_from(args);
        let load = Load::from(&only.load);
        let mut server = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.local().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || serve(&mut server, Duration::from_secs(3), &Stop::new(false)));
            let mut client = UdpLink::connect(address).unwrap();
            run_client(&mut client, test, &load, false, subject(test, &load, "loopback".to_owned())).unwrap();
            thread.join().unwrap().unwrap();
        });
    }

    #[test]
    fn latency_over_loopback() {
        run(Test::Latency);
    }

    #[test]
    fn bandwidth_over_loopback() {
        run(Test::Bandwidth);
    }

    #[test]
    fn a_client_that_vanishes_is_noticed() {
        let mut server = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = UdpLink::connect(server.local().unwrap()).unwrap();
        let hello = crate::datagram::Kind::Hello;
        client.send_control(Head { kind: hello, session: 1, sequence: 0 }, Body([64, 0, 0])).unwrap();
        let outcome = serve(&mut server, Duration::from_millis(200), &Stop::new(false));
        assert!(matches!(outcome, Err(Failure::Failed(_))), "{outcome:?}");
    }

    #[test]
    fn garbage_is_not_a_packet() {
        for bytes in [&[][..], &[1, 0xb1], &[0xff; 64], &[4, 0xb1, 0, 0, 0, 0, 0, 0, 1]] {
            assert_eq!(parse(bytes), None);
        }
    }
}
