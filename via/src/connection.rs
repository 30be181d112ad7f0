//! Connections: who waits, who asks, and what each end learns of the other.

use std::time::Duration;

use crate::handle::Handle;
use crate::provider::{ListenerId, RequestId};
use crate::{NetAddress, ReliabilityLevel, Result, Vi};

/// The other end of a connection, or who asks for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where it is.
    pub address: NetAddress,
    /// Its reliability level.
    pub reliability: ReliabilityLevel,
    /// Its maximum transfer size, bytes.
    pub max_transfer_size: u32,
    /// Its quality of service.
    pub qos: u8,
    /// Whether it lets us write into its memory.
    pub rdma_write: bool,
    /// Whether it lets us read its memory.
    pub rdma_read: bool,
    /// Whether it asked for the end-to-end check; the connection has it when either end did.
    pub integrity: bool,
    /// What its program said with the request or the acceptance.
    pub private_data: Vec<u8>,
}

/// Waits for connection requests at a discriminator. Dropping it rejects those not yet answered.
pub struct Listener {
    nic: Handle,
    id: ListenerId,
}

impl Listener {
    pub(crate) fn new(nic: Handle, id: ListenerId) -> Self {
        Self { nic, id }
    }

    /// The next request, if one has come; drives the NIC. Never blocks.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn poll(&self) -> Result<Option<Request>> {
        self.nic.progress()?;
        let next = self.nic.core().provider.next_request(self.id);
        Ok(next.map(|(id, peer)| Request {
            nic: self.nic.clone(),
            id,
            peer: Box::new(peer),
            answered: false,
        }))
    }

    /// The next request; waits for it up to `timeout`.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Request>> {
        self.nic.wait(timeout, |_| self.poll())
    }
}

impl Listener {
    /// Waits no more, and says nothing to those who asked and were not handed out: they ask again by themselves, and
    /// are told then that nobody waits, or meet the next who does.
    pub fn leave(self) {
        let mut core = self.nic.core();
        let core = &mut *core;
        core.provider.overhear(self.id);
        // Under the same lock, so that nobody comes in between, to be rejected.
        core.provider.unlisten(self.id, &mut core.sinks);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut core = self.nic.core();
        let core = &mut *core;
        core.provider.unlisten(self.id, &mut core.sinks);
    }
}

/// A connection request. Dropping it unanswered rejects it.
pub struct Request {
    nic: Handle,
    id: RequestId,
    peer: Box<Peer>,
    answered: bool,
}

impl Request {
    /// Who asks, and for what.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Connects an idle interface to the one that asks; answers who that is, and with which attributes. Should it have given
    /// up meanwhile, or not be there any more, the connection breaks by
    /// [`RequesterGone`](crate::ConnectionLoss::RequesterGone): at once where its NIC still says so, else after 5 s.
    ///
    /// # Errors
    /// [`State`](crate::Error::State) when the interface is not idle,
    /// [`ReliabilityMismatch`](crate::Error::ReliabilityMismatch) or
    /// [`TransferSizeMismatch`](crate::Error::TransferSizeMismatch) when it is not what is asked for: nothing was sent
    /// then, and the request comes back, to be accepted once the interface was changed ([`Vi::set_attributes`]) or with
    /// another one, or to be rejected. Rights for RDMA need not match.
    pub fn accept(mut self, vi: &Vi, private_data: &[u8]) -> std::result::Result<Peer, (Self, crate::Error)> {
        let outcome = {
            let mut core = self.nic.core();
            let core = &mut *core;
            if vi.belongs_to(&self.nic) {
                core.provider.accept(self.id, vi.id(), private_data, &mut core.sinks)
            } else {
                Err(crate::Error::Parameter("the virtual interface belongs to another NIC".to_owned()))
            }
        };
        match outcome {
            Ok(()) => {
                self.answered = true;
                Ok(Peer::clone(&self.peer))
            }
            Err(e) => Err((self, e)),
        }
    }

    /// Refuses it.
    ///
    /// # Errors
    /// When the private data is too long.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        let mut core = self.nic.core();
        let core = &mut *core;
        core.provider.reject(self.id, private_data, &mut core.sinks)?;
        self.answered = true;
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered {
            let mut core = self.nic.core();
            let core = &mut *core;
            // What fails here has been given up by the other end already.
            let _ = core.provider.reject(self.id, &[], &mut core.sinks);
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("peer", &self.peer).finish_non_exhaustive()
    }
}
