//! The VI engine: the protocol, with nothing of the world in it.
//!
//! Frames and the time go in; frames (a header and a gather list over registered memory), completions, events
//! and the next deadline come out. There is no clock, no socket and no thread in here, and no randomness but
//! from the seed that it is made with, so that two engines joined by a simulated wire run the same way each time.

mod config;
mod output;
mod time;

use uvia_driver::nic::{MacAddress, RxFrame};

pub use config::*;
pub use output::*;
pub use time::Time;

use crate::memory::RegionTable;
use crate::{ConnectionLoss, Descriptor, Error, NetAddress, Result, ViAttributes, ViId, ViState};

/// The protocol engine of one NIC.
pub(crate) struct Engine {
    regions: RegionTable,
}

#[allow(unused_variables, clippy::too_many_arguments)]
impl Engine {
    /// An engine with no interface.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a configuration that cannot work.
    pub fn new(config: EngineConfig) -> Result<Self> {
        Ok(Self { regions: RegionTable::new() })
    }

    /// The registered regions.
    pub fn regions(&mut self) -> &mut RegionTable {
        &mut self.regions
    }

    /// Creates an interface.
    ///
    /// # Errors
    /// [`Error::ReliabilityLevel`] for a level that is not offered, [`Error::Resource`], [`Error::Parameter`].
    pub fn create_vi(&mut self, attributes: &ViAttributes) -> Result<ViId> {
        Err(Error::Parameter("not yet".into()))
    }

    /// Destroys an idle interface.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle, [`Error::InUse`] while descriptors have not come back.
    pub fn destroy_vi(&mut self, vi: ViId) -> Result<()> {
        Ok(())
    }

    /// Its state; none for an interface that is no more.
    pub fn state(&self, vi: ViId) -> Option<ViState> {
        None
    }

    /// Why its connection was lost, in state Error.
    pub fn loss(&self, vi: ViId) -> Option<ConnectionLoss> {
        None
    }

    /// Posts to the send queue.
    pub fn post_send<O: Output + ?Sized>(
        &mut self,
        now: Time,
        vi: ViId,
        descriptor: Box<Descriptor>,
        out: &mut O,
    ) {
    }

    /// Posts to the receive queue.
    pub fn post_receive<O: Output + ?Sized>(
        &mut self,
        now: Time,
        vi: ViId,
        descriptor: Box<Descriptor>,
        out: &mut O,
    ) {
    }

    /// Takes a frame from the wire.
    pub fn receive<O: Output + ?Sized>(&mut self, now: Time, frame: &RxFrame<'_>, out: &mut O) {}

    /// The adapter no longer refers to the payload of a frame.
    pub fn transmitted<O: Output + ?Sized>(&mut self, token: FrameToken, out: &mut O) {}

    /// Timers, acknowledgements that are due, and what found the adapter full.
    pub fn poll<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {}

    /// When [`Engine::poll`] has something to do at the latest.
    pub fn deadline(&self) -> Option<Time> {
        None
    }

    /// Whether nothing is under way: no descriptor posted for sending, no farewell without answer.
    pub fn is_quiet(&self) -> bool {
        true
    }

    /// Waits for requests to a discriminator.
    ///
    /// # Errors
    /// [`Error::InUse`] when somebody does already, [`Error::Resource`], [`Error::Parameter`].
    pub fn listen(&mut self, discriminator: &[u8], backlog: usize) -> Result<ListenerId> {
        Err(Error::Parameter("not yet".into()))
    }

    /// Waits no more; the requests that wait there are rejected.
    pub fn unlisten<O: Output + ?Sized>(&mut self, now: Time, listener: ListenerId, out: &mut O) {}

    /// The next request that waits there. It stays in the engine's care until it is accepted or rejected.
    pub fn next_request(&mut self, listener: ListenerId) -> Option<Request> {
        None
    }

    /// Connects an idle interface to who asked.
    ///
    /// # Errors
    /// [`Error::ReliabilityLevel`], [`Error::TransferSizeMismatch`]: the request stays, and nothing was sent.
    /// [`Error::State`] of the interface, [`Error::Parameter`] for a request that is no more.
    pub fn accept<O: Output + ?Sized>(
        &mut self,
        now: Time,
        request: RequestId,
        vi: ViId,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        Ok(())
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub fn reject<O: Output + ?Sized>(
        &mut self,
        now: Time,
        request: RequestId,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        Ok(())
    }

    /// Asks for a connection. What came of it is told by [`Event::Connected`] or [`Event::ConnectFailed`].
    ///
    /// # Errors
    /// [`Error::State`] of the interface, [`Error::Parameter`].
    pub fn connect<O: Output + ?Sized>(
        &mut self,
        now: Time,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout_ns: u64,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        Ok(())
    }

    /// Leaves a connection, gives up a request, or clears an error: the interface is idle, and what was posted
    /// completes flushed as soon as the adapter refers to it no more.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an interface that is no more.
    pub fn disconnect<O: Output + ?Sized>(&mut self, now: Time, vi: ViId, out: &mut O) -> Result<()> {
        Ok(())
    }

    /// Leaves all connections and rejects all requests.
    pub fn disconnect_all<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {}

    /// Adds a name to the table of hosts.
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::Resource`].
    pub fn add_host(&mut self, name: &str, mac: MacAddress) -> Result<()> {
        Ok(())
    }

    /// Looks for a name: in the table, then on the wire. Told by [`Event::Resolved`] or [`Event::Unresolved`].
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::Resource`].
    pub fn resolve<O: Output + ?Sized>(
        &mut self,
        now: Time,
        name: &str,
        timeout_ns: u64,
        out: &mut O,
    ) -> Result<()> {
        Ok(())
    }
}
