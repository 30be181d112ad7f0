//! What a virtual interface is asked for, and where it can be reached.

use std::fmt;
use std::time::Duration;

use uvia_driver::nic::MacAddress;

use crate::{Error, NicProperties, ProtectionTag, Result};

/// What a connection promises (VI Architecture 1.0, "Reliability levels").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReliabilityLevel {
    /// At most once; a loss is not seen, and the connection survives it.
    Unreliable,
    /// Exactly once and in order, or the connection breaks. A completed send may still be in flight.
    ReliableDelivery,
    /// As reliable delivery, and a completed send is in the remote memory.
    ReliableReception,
}

/// How an endpoint's sends reach the adapter. What is asked for is what is given: there is no silent fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EndpointClass {
    /// The adapter fetches from registered memory.
    #[default]
    Dma,
    /// The processor stores into adapter memory: scarce, fewer credits, smaller messages, no RDMA.
    /// [`Nic::pio`](crate::Nic::pio) tells what there is.
    Pio,
    /// [`EndpointClass::Pio`] where an interface of these attributes can have it, else [`EndpointClass::Dma`]; the
    /// attributes of the interface then tell which. No interface is of this class.
    PioElseDma,
}

/// The attributes of a virtual interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViAttributes {
    /// Must be the same at both ends.
    pub reliability: ReliabilityLevel,
    /// Longest message or RDMA transfer, bytes. Must be the same at both ends.
    pub max_transfer_size: u32,
    /// The quality of service: a number for what the programs agree on. Must be the same at both ends. The architecture
    /// leaves its meaning open; here the ends are held to it, and frames are treated alike. 0 is that of nothing in
    /// particular.
    pub qos: u8,
    /// Only memory under this tag is used by the interface.
    pub tag: ProtectionTag,
    /// Whether the peer may write into memory of this tag that allows it too.
    pub rdma_write: bool,
    /// Whether the peer may read memory of this tag that allows it too.
    pub rdma_read: bool,
    /// Most descriptors posted to the send queue.
    pub send_depth: usize,
    /// Most descriptors posted to the receive queue.
    pub receive_depth: usize,
    /// How sends reach the adapter.
    pub class: EndpointClass,
    /// An extension of the architecture: for how long a message that finds no receive posted here is not taken and comes
    /// again, before the connection breaks. `None`, the architecture's way: it breaks at once. It says nothing at level
    /// Unreliable. At most [`Self::MAX_NOT_READY`].
    pub not_ready: Option<Duration>,
}

impl ViAttributes {
    /// Reliable delivery, messages up to 16 MiB, RDMA write allowed, queues of 128 descriptors.
    pub fn new(tag: ProtectionTag) -> Self {
        Self {
            reliability: ReliabilityLevel::ReliableDelivery,
            max_transfer_size: 16 << 20,
            qos: 0,
            tag,
            rdma_write: true,
            rdma_read: false,
            send_depth: 128,
            receive_depth: 128,
            class: EndpointClass::Dma,
            not_ready: None,
        }
    }

    /// Longest [`Self::not_ready`].
    pub const MAX_NOT_READY: Duration = Duration::from_secs(60);

    /// Refuses what a NIC of these properties does not offer.
    pub(crate) fn check(&self, limits: &NicProperties) -> Result<()> {
        if !limits.reliability_levels.contains(&self.reliability) {
            return Err(Error::ReliabilityLevel(self.reliability));
        }
        if self.max_transfer_size > limits.max_transfer_size {
            return Err(Error::TooLong {
                length: self.max_transfer_size.into(),
                limit: limits.max_transfer_size.into(),
            });
        }
        if self.not_ready.is_some_and(|time| time > Self::MAX_NOT_READY) {
            return Err(Error::Parameter(format!(
                "a receiver may be not ready for {:?} at most",
                Self::MAX_NOT_READY
            )));
        }
        for depth in [self.send_depth, self.receive_depth] {
            if depth == 0 || depth > limits.max_depth {
                return Err(Error::Parameter(format!(
                    "a work queue's depth is 1 to {}, not {depth}",
                    limits.max_depth
                )));
            }
        }
        Ok(())
    }
}

/// The states of a virtual interface (VI Architecture 1.0, "VI states").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ViState {
    /// Not connected; receives may be posted.
    Idle = 0,
    /// Connected.
    Connected = 1,
    /// A request is on its way.
    ConnectPending = 2,
    /// Broken or left by the peer; posted descriptors complete flushed until [`disconnect`](crate::Vi::disconnect).
    Error = 3,
}

/// A connection point: a host and a discriminator, which tells apart those who wait there.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NetAddress {
    /// The host's NIC.
    pub host: MacAddress,
    discriminator: Vec<u8>,
}

impl NetAddress {
    /// Longest discriminator, bytes.
    pub const MAX_DISCRIMINATOR: usize = 64;

    /// A connection point on `host`.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the discriminator is over [`Self::MAX_DISCRIMINATOR`] bytes.
    pub fn new(host: MacAddress, discriminator: impl Into<Vec<u8>>) -> Result<Self> {
        let discriminator = discriminator.into();
        check_discriminator(&discriminator)?;
        Ok(Self { host, discriminator })
    }

    /// The discriminator's bytes.
    pub fn discriminator(&self) -> &[u8] {
        &self.discriminator
    }
}

impl fmt::Debug for NetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.discriminator.escape_ascii())
    }
}

/// Refuses a discriminator that does not fit a frame.
pub(crate) fn check_discriminator(discriminator: &[u8]) -> Result<()> {
    if discriminator.len() > NetAddress::MAX_DISCRIMINATOR {
        return Err(Error::Parameter(format!(
            "a discriminator of {} bytes is over the limit of {}",
            discriminator.len(),
            NetAddress::MAX_DISCRIMINATOR
        )));
    }
    Ok(())
}
