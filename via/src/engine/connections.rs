//! What a program asks of connections: waiting for requests, answering them, asking, leaving.

use super::handshake::Handshake;
use super::listener::check_private_data;
use super::{Engine, ListenerId, Output, Request, RequestId, Slot, Time, no_such_vi};
use crate::attributes::check_discriminator;
use crate::wire::control::{Control, Envelope, emit};
use crate::{Error, NetAddress, Result, ViId, ViState};

impl Engine {
    /// Waits for requests to a discriminator.
    ///
    /// # Errors
    /// [`Error::InUse`] when somebody does already, [`Error::Resource`], [`Error::Parameter`].
    pub fn listen(&mut self, discriminator: &[u8], backlog: usize) -> Result<ListenerId> {
        self.listeners.listen(discriminator, backlog)
    }

    /// Forgets the requests that wait at a listener and were not handed out; their senders ask again.
    pub fn overhear(&mut self, listener: ListenerId) {
        self.listeners.overhear(listener);
    }

    /// Waits no more; the requests that wait there are rejected.
    pub fn unlisten<O: Output + ?Sized>(&mut self, now: Time, listener: ListenerId, out: &mut O) {
        for frame in self.listeners.unlisten(listener, self.core.config.mac) {
            self.core.control(now, &frame, out);
        }
    }

    /// The next request that waits there. It stays in the engine's care until it is accepted or rejected.
    pub fn next_request(&mut self, listener: ListenerId) -> Option<Request> {
        self.listeners.next(listener)
    }

    /// Connects an idle interface to who asked.
    ///
    /// # Errors
    /// [`Error::ReliabilityMismatch`], [`Error::TransferSizeMismatch`]: the request stays, and nothing was sent.
    /// [`Error::State`] of the interface, [`Error::Parameter`] for a request that is no more.
    pub fn accept<O: Output + ?Sized>(
        &mut self,
        now: Time,
        request: RequestId,
        vi: ViId,
        private_data: &[u8],
        out: &mut O,
    ) -> Result<()> {
        check_private_data(private_data)?;
        let Some(Slot { generation, endpoint: Some(endpoint) }) = self.vis.get_mut(vi.slot()) else {
            return Err(no_such_vi());
        };
        if *generation != vi.generation() {
            return Err(no_such_vi());
        }
        let core = &mut self.core;
        let pending = self.listeners.get(request)?;
        if endpoint.state != ViState::Idle {
            return Err(Error::State(endpoint.state));
        }
        let theirs = pending.attributes;
        if theirs.reliability != endpoint.attributes.reliability {
            return Err(Error::ReliabilityMismatch {
                local: endpoint.attributes.reliability,
                remote: theirs.reliability,
            });
        }
        if theirs.max_transfer_size != endpoint.attributes.max_transfer_size {
            return Err(Error::TransferSizeMismatch {
                local: endpoint.attributes.max_transfer_size,
                remote: theirs.max_transfer_size,
            });
        }
        if theirs.qos != endpoint.attributes.qos {
            return Err(Error::QosMismatch { local: endpoint.attributes.qos, remote: theirs.qos });
        }
        endpoint.begin(core);
        let offer = endpoint.offer(core, &[], &[], private_data);
        let envelope = Envelope {
            to: pending.peer.0,
            from: core.config.mac.0,
            slot: pending.offer().slot,
            identity: pending.identity,
            sender: endpoint.identity,
        };
        let frame = emit(&envelope, &Control::Accept(offer));
        endpoint.establish(core, now, pending.peer, pending.identity, &pending.offer());
        let life = core.config.tuning.peer_timeout;
        endpoint.start_handshake(core, now, Handshake::new(now, life, frame), out);
        self.listeners.accept(request);
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
        let frame = self.listeners.reject(request, self.core.config.mac, private_data)?;
        self.core.control(now, &frame, out);
        Ok(())
    }

    /// Asks for a connection. What came of it is told by [`Event::Connected`] or [`Event::ConnectFailed`].
    ///
    /// # Errors
    /// [`Error::State`] of the interface, [`Error::Parameter`].
    #[allow(clippy::too_many_arguments)] // The architecture's request has them.
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
        self.check_request(local_discriminator, remote, timeout_ns)?;
        check_private_data(private_data)?;
        let (core, endpoint) = self.vi(vi)?;
        endpoint.request(
            core,
            now,
            local_discriminator,
            remote.host,
            remote.discriminator(),
            timeout_ns,
            private_data,
            out,
        )
    }

    /// Asks a peer that asks too: each names its own discriminator and the other's, and they are connected when these
    /// match crosswise. Told as for [`Engine::connect`].
    ///
    /// # Errors
    /// [`Error::State`] of the interface, [`Error::Parameter`].
    pub fn connect_peer<O: Output + ?Sized>(
        &mut self,
        now: Time,
        vi: ViId,
        local_discriminator: &[u8],
        remote: &NetAddress,
        timeout_ns: u64,
        out: &mut O,
    ) -> Result<()> {
        self.check_request(local_discriminator, remote, timeout_ns)?;
        let (core, endpoint) = self.vi(vi)?;
        endpoint.request_peer(
            core,
            now,
            local_discriminator,
            remote.host,
            remote.discriminator(),
            timeout_ns,
            out,
        )
    }

    fn check_request(&self, local_discriminator: &[u8], remote: &NetAddress, timeout_ns: u64) -> Result<()> {
        check_discriminator(local_discriminator)?;
        if timeout_ns == 0 {
            return Err(Error::Parameter("a connection request needs a time-out over 0".to_owned()));
        }
        if !remote.host.is_unicast() {
            return Err(Error::Parameter(format!(
                "{} is no host: it does not name one station",
                remote.host
            )));
        }
        Ok(())
    }

    /// Leaves a connection, gives up a request, or clears an error: the interface is idle, and what was posted
    /// completes flushed as soon as the adapter refers to it no more. The peer hears of it once it has what was sent to it
    /// before, on other reliable connections too.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an interface that is no more.
    pub fn disconnect<O: Output + ?Sized>(&mut self, now: Time, vi: ViId, out: &mut O) -> Result<()> {
        let before = self.sent_before(vi);
        let (core, endpoint) = self.vi(vi)?;
        core.before = before;
        endpoint.disconnect(core, now, out);
        core.before.clear();
        Ok(())
    }

    /// Leaves all connections and rejects all requests. Peers that do not answer are told again as time goes by,
    /// until [`Engine::is_quiet`].
    pub fn disconnect_all<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        for frame in self.listeners.reject_all(self.core.config.mac) {
            self.core.control(now, &frame, out);
        }
        for endpoint in self.vis.iter_mut().filter_map(|slot| slot.endpoint.as_deref_mut()) {
            endpoint.disconnect(&mut self.core, now, out);
        }
    }
}
