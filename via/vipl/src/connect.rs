//! Connections: who waits, who asks, and peers that ask each other.

use std::ffi::c_ulong;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uvia::{Awaited, MacAddress, NetAddress, Peer, Request, ViState};

use crate::device::lock;
use crate::handles::{Kind, Table};
use crate::nic::{NICS, Nic, level_bit};
use crate::types::{Handle, Return, ViAttributes};
use crate::vi::Vi;
use crate::waits::wait;

pub(crate) static CONNECTIONS: Table<Connection> = Table::new(Kind::Connection);

/// A request that a program has been given, until it accepts or rejects it.
pub(crate) struct Connection {
    pub(crate) nic: usize,
    request: Mutex<Option<Request>>,
}

/// An address of a program's.
pub(crate) struct Address {
    pub(crate) host: Option<MacAddress>,
    pub(crate) discriminator: Vec<u8>,
}

impl Address {
    /// Reads one.
    ///
    /// # Safety
    /// `address` is null or a `VIP_NET_ADDRESS` with as many bytes as it says.
    pub(crate) unsafe fn read(address: *const crate::types::NetAddress) -> Result<Self, Return> {
        if address.is_null() {
            return Err(Return::InvalidParameter);
        }
        // SAFETY: the caller's promise; the two lengths come first.
        let head = unsafe { address.cast::<[u16; 2]>().read_unaligned() };
        let [host, discriminator] = head.map(usize::from);
        if !matches!(host, 0 | 6) || discriminator > NetAddress::MAX_DISCRIMINATOR {
            return Err(Return::InvalidParameter);
        }
        // SAFETY: the caller's promise; the bytes follow the lengths.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>().add(4), host + discriminator) };
        let (host, discriminator) = bytes.split_at(host);
        Ok(Self { host: host.try_into().ok().map(MacAddress), discriminator: discriminator.to_vec() })
    }

    /// One to ask at: it names a host.
    fn remote(self) -> Result<NetAddress, Return> {
        let host = self.host.ok_or(Return::InvalidParameter)?;
        NetAddress::new(host, self.discriminator).map_err(|_| Return::InvalidParameter)
    }
}

/// A peer's attributes, as a program sees them.
pub(crate) fn attributes(peer: &Peer) -> ViAttributes {
    ViAttributes {
        reliability_level: level_bit(peer.reliability),
        max_transfer_size: c_ulong::from(peer.max_transfer_size),
        qos: std::ptr::without_provenance_mut(peer.qos.into()),
        ptag: std::ptr::null_mut(),
        enable_rdma_write: peer.rdma_write.into(),
        enable_rdma_read: peer.rdma_read.into(),
    }
}

/// VipConnectWait: the handle, and who asks.
pub(crate) fn wait_for_request(
    nic: &Arc<Nic>,
    local: &Address,
    timeout: Duration,
) -> Result<(Handle, Peer), Return> {
    let waiting = nic.device.wait_at(&local.discriminator).map_err(|e| {
        tracing::warn!("waiting for connections: {e}");
        match e {
            uvia::Error::Parameter(_) => Return::InvalidParameter,
            _ => Return::ErrorResource,
        }
    })?;
    let handle = std::ptr::without_provenance_mut(nic.handle);
    let request = wait(nic, Awaited::News(&nic.device.nic), timeout, |_| {
        if NICS.get(handle).is_none() {
            return Ok(Some(Err(Return::InvalidParameter)));
        }
        Ok(waiting.poll()?.map(Ok))
    })?;
    drop(waiting);
    let request = request.ok_or(Return::Timeout)?;
    let peer = request.peer().clone();
    let connection = |_| Connection { nic: nic.handle, request: Mutex::new(Some(request)) };
    let (handle, _) = CONNECTIONS.insert(connection).ok_or(Return::ErrorResource)?;
    Ok((handle, peer))
}

/// VipConnectAccept. What does not match is said, nothing is sent, and the request can be accepted again.
pub(crate) fn accept(handle: Handle, vi: &Arc<Vi>) -> Result<(), Return> {
    let connection = CONNECTIONS.get(handle).ok_or(Return::InvalidParameter)?;
    let mut slot = lock(&connection.request);
    let request = slot.take().ok_or(Return::InvalidParameter)?;
    let unfit = if connection.nic != vi.nic.handle {
        Some(Return::InvalidParameter)
    } else if vi.state() != ViState::Idle {
        Some(Return::InvalidState)
    } else if level_bit(request.peer().reliability) != vi.level_bit() {
        Some(Return::InvalidReliabilityLevel)
    } else if c_ulong::from(request.peer().max_transfer_size) != vi.max_transfer_size() {
        Some(Return::InvalidMtu)
    } else if request.peer().qos != vi.qos() {
        Some(Return::InvalidQos)
    } else {
        None
    };
    if let Some(unfit) = unfit {
        *slot = Some(request);
        return Err(unfit);
    }
    match request.accept(&vi.vi, &[]) {
        Ok(_) => {
            drop(slot);
            drop(CONNECTIONS.remove(handle));
            Ok(())
        }
        Err((request, e)) => {
            *slot = Some(request);
            Err(match e {
                uvia::Error::State(_) => Return::InvalidState,
                uvia::Error::ReliabilityMismatch { .. } => Return::InvalidReliabilityLevel,
                uvia::Error::TransferSizeMismatch { .. } => Return::InvalidMtu,
                uvia::Error::QosMismatch { .. } => Return::InvalidQos,
                // Who asked has given up meanwhile.
                _ => Return::ErrorResource,
            })
        }
    }
}

/// VipConnectReject.
pub(crate) fn reject(handle: Handle) -> Result<(), Return> {
    let connection = CONNECTIONS.remove(handle).ok_or(Return::InvalidParameter)?;
    // One who has given up meanwhile need not hear it.
    let request = lock(&connection.request).take();
    if let Some(Err(e)) = request.map(|request| request.reject(&[])) {
        tracing::debug!("rejecting: {e}");
    }
    Ok(())
}

/// What became of asking.
fn outcome(e: &uvia::Error) -> Return {
    match e {
        uvia::Error::Timeout { .. } => Return::Timeout,
        uvia::Error::Rejected { .. } => Return::Reject,
        uvia::Error::NoMatch(_) => Return::NoMatch,
        uvia::Error::State(_) => Return::InvalidState,
        uvia::Error::Mismatch { .. } | uvia::Error::TransferSizeMismatch { .. } => Return::InvalidMtu,
        uvia::Error::QosMismatch { .. } => Return::InvalidQos,
        uvia::Error::ReliabilityMismatch { .. } => Return::InvalidReliabilityLevel,
        uvia::Error::Parameter(_) => Return::InvalidParameter,
        e => {
            tracing::warn!("connecting: {e}");
            Return::ErrorResource
        }
    }
}

/// The margin beyond a request's time-out, at which it ends by itself, for its end to come through.
const MARGIN: Duration = Duration::from_secs(5);

/// VipConnectRequest.
pub(crate) fn request(
    vi: &Arc<Vi>,
    local: &Address,
    remote: Address,
    timeout: Duration,
) -> Result<Peer, Return> {
    if timeout.is_zero() {
        return Err(Return::InvalidParameter);
    }
    let remote = remote.remote()?;
    if vi.state() != ViState::Idle {
        return Err(Return::InvalidState);
    }
    let own = vi.nic.device.nic.properties().mac;
    if remote.host != own {
        return ask(vi, local, &remote, timeout);
    }
    // This host, of which each process on shared memory is a station of its own: whoever waits there is meant.
    let end = Instant::now() + timeout;
    for host in vi.nic.device.nic.neighbours() {
        let left = end.saturating_duration_since(Instant::now());
        let station = NetAddress::new(host, remote.discriminator()).map_err(|e| outcome(&e))?;
        match ask(vi, local, &station, left.max(LEAST)) {
            Err(Return::NoMatch) => {}
            outcome => return outcome,
        }
    }
    if !vi.nic.device.is_waited_at(remote.discriminator()) {
        return Err(Return::NoMatch);
    }
    ask(vi, local, &remote, end.saturating_duration_since(Instant::now()).max(LEAST))
}

/// The least time that a station is given to answer.
const LEAST: Duration = Duration::from_millis(1);

/// Asks one station.
fn ask(vi: &Arc<Vi>, local: &Address, remote: &NetAddress, timeout: Duration) -> Result<Peer, Return> {
    vi.vi.connect_start_from(&local.discriminator, remote, timeout, &[]).map_err(|e| outcome(&e))?;
    let answer =
        wait(&vi.nic, Awaited::News(&vi.nic.device.nic), timeout + MARGIN, |_| match vi.vi.connect_done() {
            Ok(None) => Ok(None),
            Ok(Some(peer)) => Ok(Some(Ok(peer))),
            Err(e) => Ok(Some(Err(outcome(&e)))),
        })?;
    answer.ok_or(Return::Timeout)
}

/// VipConnectPeerRequest.
pub(crate) fn ask_peer(
    vi: &Arc<Vi>,
    local: &Address,
    remote: Address,
    timeout: Duration,
) -> Result<(), Return> {
    if timeout.is_zero() {
        return Err(Return::InvalidParameter);
    }
    let mut remote = remote.remote()?;
    if vi.state() != ViState::Idle {
        return Err(Return::InvalidState);
    }
    let nic = &vi.nic.device.nic;
    if remote.host == nic.properties().mac
        && let [other] = nic.neighbours()[..]
    {
        // On shared memory the peer on this host is the one other process there.
        remote.host = other;
    }
    vi.vi.connect_peer_start(&local.discriminator, &remote, timeout).map_err(|e| outcome(&e))?;
    *lock(&vi.asks) = Some(timeout);
    Ok(())
}

/// VipConnectPeerDone: who it is, once there is an outcome.
pub(crate) fn peer_done(vi: &Vi) -> Result<Peer, Return> {
    if lock(&vi.asks).is_none() {
        return Err(Return::InvalidState);
    }
    let answer = match vi.vi.connect_done() {
        Ok(None) => return Err(Return::NotDone),
        Ok(Some(peer)) => Ok(peer),
        Err(uvia::Error::Mismatch { reliability, .. }) if level_bit(reliability) != vi.level_bit() => {
            Err(Return::InvalidReliabilityLevel)
        }
        Err(uvia::Error::Mismatch { max_transfer_size, qos, .. })
            if c_ulong::from(max_transfer_size) == vi.max_transfer_size() && qos != vi.qos() =>
        {
            Err(Return::InvalidQos)
        }
        Err(e) => Err(outcome(&e)),
    };
    *lock(&vi.asks) = None;
    answer
}

/// VipConnectPeerWait.
pub(crate) fn peer_wait(vi: &Vi) -> Result<Peer, Return> {
    let timeout = lock(&vi.asks).ok_or(Return::InvalidState)?;
    let answer =
        wait(&vi.nic, Awaited::News(&vi.nic.device.nic), timeout + MARGIN, |_| match peer_done(vi) {
            Err(Return::NotDone) => Ok(None),
            outcome => Ok(Some(outcome)),
        })?;
    answer.ok_or(Return::Timeout)
}
