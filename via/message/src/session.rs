//! Sessions: a set of ranked processes, and how to be one of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uvia::Nic;

use crate::channel::Channel;
use crate::core::{CONTROL, Carrier, Core, MAX_RAILS, Options, RESERVE, Rail};
use crate::directory::Directory;
use crate::modules::{ModuleCounts, Thresholds};
use crate::policy::{Policy, WaitCounts};
use crate::port::absent::Absent;
use crate::port::stream::{SharedMemory, StreamPort, Tcp};
use crate::port::vi::ViPort;
use crate::port::{Depth, Port};
use crate::shared::Shared;
use crate::{Error, MAX_CHANNELS, Result};

/// How a session is opened. All ranks have the same name, size and rails, in the same order.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Tells it apart from others on the same rails.
    pub name: String,
    /// Ours.
    pub rank: usize,
    /// Ranks.
    pub size: usize,
    /// Bytes of a packet, its header of 24 included: 128 to 65,536. What is short goes in packets, and is copied once at
    /// each end.
    pub packet_bytes: usize,
    /// Packets that a rank may have sent and another not taken, on each channel: 2 to 1024.
    pub window: usize,
    /// From how many bytes on which way is taken.
    pub thresholds: Thresholds,
    /// Whether messages carry a description, by which the first piece that is unpacked otherwise than it was packed is
    /// named. For debugging; the same at all ranks.
    pub describe: bool,
    /// How to wait.
    pub policy: Policy,
    /// For how long a call waits before it fails. `None`: for ever, which is the way of programs that wait for each other;
    /// only then does who waits for a long piece tell its sender ahead where that goes, which spares both ends a packet.
    pub patience: Option<Duration>,
}

impl SessionOptions {
    /// The usual ones.
    pub fn new(name: impl Into<String>, rank: usize, size: usize) -> Self {
        Self {
            name: name.into(),
            rank,
            size,
            packet_bytes: 8192,
            window: 32,
            thresholds: Thresholds::default(),
            describe: false,
            policy: Policy::default(),
            patience: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.check_values().map_err(Error::Config)
    }

    /// What is wrong with them, if anything is.
    pub(crate) fn check_values(&self) -> std::result::Result<(), String> {
        let config = Err;
        if self.size == 0 {
            return config("ranks = 0: a session has one rank at least".to_owned());
        }
        if self.rank >= self.size || self.size > 1 << 16 {
            return config(format!(
                "rank {} of {}: ranks are numbered from 0, and there are at most 65,536",
                self.rank, self.size
            ));
        }
        if !(128..=65_536).contains(&self.packet_bytes) {
            return config(format!("packets have 128 to 65,536 bytes, not {}", self.packet_bytes));
        }
        if !(2..=1024).contains(&self.window) {
            return config(format!("a window is 2 to 1024 packets, not {}", self.window));
        }
        self.thresholds.check()
    }
}

/// The name of a rank's end of a rail that is shared memory.
pub(crate) fn shared_name(session: &str, rail: usize, rank: usize) -> String {
    format!("uvia-message/{session}/{rail}/{rank}")
}

/// What a rail is on, at one rank.
pub enum RailPort {
    /// This rank does not have it.
    Absent,
    /// Virtual interfaces of this NIC. Its program drives it, so that it had better have a thread
    /// ([`uvia::Progress::Thread`]) where messages come seldom.
    Vi(Nic),
    /// TCP, listening at this address; port 0 is any that is free.
    Tcp(SocketAddr),
    /// Rings of memory that processes of one host share.
    Shared,
    /// Any other port.
    Other(Box<dyn Port>),
}

/// One of a set of ranked processes. Dropped together with its channels, it waits for what it has sent to arrive, but not
/// for long.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

impl Session {
    /// Becomes a rank of a session, and learns where the others are.
    ///
    /// # Errors
    /// Options that cannot be; a port that cannot be opened; other ranks that do not come.
    pub fn open(
        options: SessionOptions,
        rails: Vec<(String, RailPort)>,
        directory: &Directory,
    ) -> Result<Self> {
        options.check()?;
        if rails.is_empty() || rails.len() > MAX_RAILS {
            return Err(Error::Config(format!("a session has 1 to {MAX_RAILS} rails, not {}", rails.len())));
        }
        let several = rails.len() > 1;
        let SessionOptions { name, rank, size, packet_bytes, window, thresholds, describe, policy, patience } =
            options;
        let options = Options {
            session: name,
            rank,
            size,
            packet_bytes,
            window,
            thresholds,
            described: describe,
            patience,
        };
        let depth = Depth { packets: window + CONTROL + RESERVE, packet_bytes, puts: 16 };
        let mut made = Vec::with_capacity(rails.len());
        let mut addresses = Vec::with_capacity(rails.len());
        for (name, port) in rails {
            let hello = options.hello(0);
            let port = match port {
                RailPort::Absent => None,
                RailPort::Vi(nic) => {
                    let place = (rank, size);
                    let port = ViPort::new(
                        nic,
                        &options.session,
                        place,
                        hello,
                        depth,
                        several,
                        options.thresholds.inline,
                    )?;
                    Some(Carrier::Vi(Box::new(port)))
                }
                RailPort::Tcp(address) => {
                    let failed = |e| Error::io(format!("listening at {address}"), e);
                    let transport = Box::new(Tcp::new(address).map_err(failed)?);
                    let place = (rank, size);
                    let port = StreamPort::new(transport, &options.session, place, hello, depth);
                    Some(Carrier::Other(Box::new(port)))
                }
                RailPort::Shared => {
                    let address = shared_name(&options.session, made.len(), rank);
                    let failed = |e| Error::io(format!("listening at {address} on this host"), e);
                    let transport = Box::new(SharedMemory::new(address.clone()).map_err(failed)?);
                    let place = (rank, size);
                    let port = StreamPort::new(transport, &options.session, place, hello, depth);
                    Some(Carrier::Other(Box::new(port)))
                }
                RailPort::Other(port) => Some(Carrier::Other(port)),
            };
            addresses.push(port.as_ref().map(|port| port.address()));
            let port = port.unwrap_or_else(|| Carrier::Other(Box::new(Absent)));
            made.push(Rail { name, ordered: port.is_ordered(), port });
        }
        let all = directory.exchange(rank, size, addresses)?;
        if let Some(other) = all.iter().position(|rails| rails.len() != made.len()) {
            return Err(Error::Config(format!("rank {other} has another number of rails than this one")));
        }
        let core = Core::new(options, made, all);
        Ok(Self { shared: Shared::new(core, policy) })
    }

    /// Our rank.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Ranks.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// A channel: a stream of messages of its own between each two ranks, on all rails that they have in common, or on
    /// those that are named. Connections are made with the first message.
    ///
    /// # Errors
    /// [`Error::Channel`] for a number that is too high; a rail that is not there.
    pub fn channel(&self, number: usize, rails: &[&str]) -> Result<Channel> {
        if number >= MAX_CHANNELS {
            return Err(Error::Channel { channel: number, last: MAX_CHANNELS - 1 });
        }
        self.shared.core().set_rails(number, rails)?;
        Ok(Channel::new(self.shared.clone(), number))
    }

    /// Drives the session once, for programs that neither send nor receive for long: long pieces, room for others, and
    /// connections wait for it.
    ///
    /// # Errors
    /// A port is broken.
    pub fn progress(&self) -> Result<()> {
        self.shared.core().progress()
    }

    /// How its calls have waited, which is what [`SessionOptions::policy`] decides.
    pub fn wait_counts(&self) -> WaitCounts {
        self.shared.pace.counts()
    }

    /// How what was sent has gone, which is what [`SessionOptions::thresholds`] decide.
    pub fn module_counts(&self) -> ModuleCounts {
        self.shared.core().module_counts()
    }

    /// Bytes that the layer itself has copied: into packets, and out of them.
    pub fn copied(&self) -> (u64, u64) {
        self.shared.core().copied
    }
}
