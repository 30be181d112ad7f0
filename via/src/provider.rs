//! The door between the VI layer and whoever does its work: software on an Ethernet NIC, or an adapter that
//! knows virtual interfaces itself.
//!
//! A provider is called under its NIC's lock, by whoever won it, for one bounded piece of work.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::ethernet::Ethernet;
use crate::sinks::{Handed, Sinks};
use crate::vi::Image;
use crate::{
    ConnectionLoss, Descriptor, Error, MacAddress, MemoryAttributes, MemoryHandle, MemoryRegion, NetAddress,
    NicProperties, Peer, PioProperties, ProtectionTag, Result, Statistics, ViAttributes, ViId, ViState,
};

pub(crate) use crate::engine::{ListenerId, RequestId};

/// What has happened to a connection or a name.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request of ours was accepted.
    Connected(ViId, Peer),
    /// A request of ours came to nothing.
    ConnectFailed(ViId, Error),
    /// A connection is no more; the interface is in state Error.
    Broken(ViId, ConnectionLoss),
    /// A name was found.
    Resolved(String, MacAddress),
    /// A name was not found.
    Unresolved(String),
}

/// What does the work of virtual interfaces.
pub(crate) trait Provider: Send {
    fn properties(&self) -> &NicProperties;

    /// Moves frames both ways and runs timers, for one bounded burst of who waits at a ring, or nobody does. Answers how much
    /// there was to do.
    fn progress(&mut self, sink: &mut Sinks, handed: Handed<'_>) -> Result<usize>;
    /// How long until `progress` must run although nothing arrives; `None`: not at all.
    fn idle_for(&self) -> Option<Duration>;
    /// What was counted, up to now.
    fn statistics(&mut self, sink: &mut Sinks) -> Statistics;
    fn ready(&mut self) -> Result<bool>;
    fn neighbours(&self) -> Vec<MacAddress>;
    fn interrupt(&self) -> Option<BorrowedFd<'_>>;
    fn arm(&mut self, on: bool) -> Result<()>;

    fn allocate(&mut self, len: usize, attributes: MemoryAttributes) -> Result<MemoryRegion>;
    /// # Safety
    /// As [`uvia_driver::dma::DmaRegion::register`].
    unsafe fn register(
        &mut self,
        address: *mut u8,
        len: usize,
        attributes: MemoryAttributes,
    ) -> Result<MemoryRegion>;

    /// Takes note of regions that the program has unmapped.
    fn lose_regions(&mut self);
    /// The region of that handle, if it is registered.
    fn region(&mut self, handle: MemoryHandle) -> Option<MemoryRegion>;
    /// Whether a region or an interface is of that tag.
    fn uses_tag(&mut self, tag: ProtectionTag) -> bool;

    /// What interfaces of class Pio can do, and how many more there can be.
    fn pio(&self) -> Result<PioProperties>;
    /// A buffer for injected bytes.
    fn buffer(&mut self, len: usize) -> Result<MemoryRegion>;

    /// Of class Dma or Pio.
    fn create_vi(&mut self, attributes: &ViAttributes) -> Result<ViId>;
    fn destroy_vi(&mut self, vi: ViId, sink: &mut Sinks) -> Result<()>;
    /// Changes an idle interface; depths and class are as they were.
    fn set_vi_attributes(&mut self, vi: ViId, attributes: &ViAttributes) -> Result<()>;
    fn state(&self, vi: ViId) -> Option<ViState>;
    /// Bytes of a message that go with one frame, as far as the way to the peer is known; none without a connection.
    fn path_mtu(&self, vi: ViId) -> Option<usize>;
    /// Takes a descriptor for the send queue that was checked; it comes back by the sink.
    fn post_send(&mut self, vi: ViId, descriptor: Box<Descriptor>, sink: &mut Sinks) -> Result<()>;
    /// Takes a descriptor for the receive queue that was checked; it comes back by the sink.
    fn post_receive(&mut self, vi: ViId, descriptor: Box<Descriptor>, sink: &mut Sinks);

    fn listen(&mut self, discriminator: &[u8], backlog: usize) -> Result<ListenerId>;
    fn unlisten(&mut self, listener: ListenerId, sink: &mut Sinks);
    /// Forgets the requests that wait at a listener and were not handed out.
    fn overhear(&mut self, listener: ListenerId);
    fn next_request(&mut self, listener: ListenerId) -> Option<(RequestId, Peer)>;
    fn accept(&mut self, request: RequestId, vi: ViId, private_data: &[u8], sink: &mut Sinks) -> Result<()>;
    fn reject(&mut self, request: RequestId, private_data: &[u8], sink: &mut Sinks) -> Result<()>;
    fn connect(
        &mut self,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout: Duration,
        private_data: &[u8],
        sink: &mut Sinks,
    ) -> Result<()>;
    fn connect_peer(
        &mut self,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout: Duration,
        sink: &mut Sinks,
    ) -> Result<()>;
    fn disconnect(&mut self, vi: ViId, sink: &mut Sinks) -> Result<()>;
    /// Leaves all connections, saying so to the peers.
    fn close(&mut self, sink: &mut Sinks);

    fn add_host(&mut self, name: &str, mac: MacAddress) -> Result<()>;
    fn resolve(&mut self, name: &str, timeout: Duration, sink: &mut Sinks) -> Result<()>;
}

/// The providers that there are. What a message needs is called as what it is and not through the door, so that
/// posting is one function from the caller's descriptor to the adapter's ring.
pub(crate) enum AnyProvider {
    /// Software on an Ethernet NIC.
    Ethernet(Box<Ethernet>),
}

impl AnyProvider {
    #[inline(always)]
    pub(crate) fn progress(&mut self, sink: &mut Sinks, handed: Handed<'_>) -> Result<usize> {
        match self {
            Self::Ethernet(provider) => provider.progress(sink, handed),
        }
    }

    /// Puts a prebuilt message into the slot of the next descriptor of a send queue; false where it cannot lie there alone,
    /// and has to be memory of the descriptor's.
    #[inline]
    pub(crate) fn put_template(&mut self, vi: ViId, image: &mut Image) -> bool {
        match self {
            Self::Ethernet(provider) => provider.put_template(vi, image),
        }
    }

    /// As [`Provider::post_send`] for a short message and nothing else, out of memory with that tag, where it can go to the
    /// adapter at once; gives it back else, and all that was checked is to be checked again. False when the adapter has a
    /// fault, which [`AnyProvider::take_fault`] tells.
    #[inline(always)]
    pub(crate) fn post_short(
        &mut self,
        vi: ViId,
        tag: ProtectionTag,
        descriptor: Box<Descriptor>,
    ) -> std::result::Result<bool, Box<Descriptor>> {
        match self {
            Self::Ethernet(provider) => provider.post_short(vi, tag, descriptor),
        }
    }

    /// The fault that a post has met.
    #[cold]
    pub(crate) fn take_fault(&mut self) -> Result<()> {
        match self {
            Self::Ethernet(provider) => provider.take_fault(),
        }
    }

    /// As [`Provider::post_receive`], where that is but to keep it; gives it back else.
    #[inline(always)]
    pub(crate) fn keep_receive(
        &mut self,
        vi: ViId,
        descriptor: Box<Descriptor>,
    ) -> std::result::Result<(), Box<Descriptor>> {
        match self {
            Self::Ethernet(provider) => provider.keep_receive(vi, descriptor),
        }
    }

    /// As [`AnyProvider::keep_receive`], for several; false where they are all still to be posted.
    #[inline(always)]
    #[expect(clippy::vec_box, reason = "they move by the box")]
    pub(crate) fn keep_receives(&mut self, vi: ViId, descriptors: &mut Vec<Box<Descriptor>>) -> bool {
        match self {
            Self::Ethernet(provider) => provider.keep_receives(vi, descriptors),
        }
    }
}

impl Deref for AnyProvider {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Ethernet(provider) => &**provider,
        }
    }
}

impl DerefMut for AnyProvider {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Ethernet(provider) => &mut **provider,
        }
    }
}
