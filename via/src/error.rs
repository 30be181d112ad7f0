//! Errors of the VI layer, by the names of the VI Architecture where it has one.

use crate::{EndpointClass, MemoryHandle, ReliabilityLevel, ViState};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The adapter or the way to it.
    #[error(transparent)]
    Driver(#[from] uvia_driver::Error),
    /// An argument cannot be used (VIP_INVALID_PARAMETER).
    #[error("{0}")]
    Parameter(String),
    /// A limit of the NIC is reached (VIP_ERROR_RESOURCE).
    #[error("{what}: the limit of {limit} is reached")]
    Resource {
        /// Of what there is no more.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The queue holds as many descriptors as it was created for; reap completions and post again.
    #[error("the work queue is full ({depth} descriptors posted); reap completions first")]
    QueueFull {
        /// The queue's depth.
        depth: usize,
    },
    /// The operation is not allowed in this state (VIP_INVALID_STATE).
    #[error("not possible for a virtual interface in state {0:?}")]
    State(ViState),
    /// Memory under another tag, of another NIC, or without the right (VIP_INVALID_PTAG, protection error).
    #[error("memory {handle:?}: {why}")]
    Protection {
        /// The region.
        handle: MemoryHandle,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A message over the interface's maximum transfer size (VIP_INVALID_MTU).
    #[error("{length} bytes are over the interface's maximum transfer size of {limit}")]
    TooLong {
        /// Bytes asked for.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// The reliability level is not offered, or not for this operation (VIP_INVALID_RELIABILITY_LEVEL).
    #[error("reliability level {0:?} is not offered by this NIC, or not for this operation")]
    ReliabilityLevel(ReliabilityLevel),
    /// The other end has another reliability level (VIP_INVALID_RELIABILITY_LEVEL).
    #[error("the reliability levels differ: {local:?} here, {remote:?} there")]
    ReliabilityMismatch {
        /// Ours.
        local: ReliabilityLevel,
        /// Theirs.
        remote: ReliabilityLevel,
    },
    /// The peer asked too, but its interface was created with another level, longest transfer or quality of
    /// service (VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_QOS).
    #[error(
        "the peer's interface was created with {reliability:?}, transfers of up to {max_transfer_size} bytes and quality of service {qos}"
    )]
    Mismatch {
        /// Its level.
        reliability: ReliabilityLevel,
        /// Its longest transfer, bytes.
        max_transfer_size: u32,
        /// Its quality of service.
        qos: u8,
    },
    /// The endpoint class cannot be given, and there is no silent fallback.
    #[error("endpoint class {class:?} is not available: {why}")]
    ClassUnavailable {
        /// What was asked for.
        class: EndpointClass,
        /// Why not.
        why: String,
    },
    /// More than interfaces of this class have (VIP_ERROR_RESOURCE).
    #[error("endpoint class {class:?}: {asked} {what} are over its limit of {limit}")]
    BeyondClass {
        /// The class.
        class: EndpointClass,
        /// Of what.
        what: &'static str,
        /// How much was asked for.
        asked: u64,
        /// How much there may be.
        limit: u64,
    },
    /// Interfaces of this class do not do this (VIP_INVALID_PARAMETER).
    #[error("endpoint class {class:?} has no {what}")]
    NotInClass {
        /// The class.
        class: EndpointClass,
        /// What was asked for.
        what: &'static str,
    },
    /// All credits of an interface of class Pio are out: each send takes a slot of its window.
    #[error("all {credits} slots of the endpoint are in flight; reap completions first")]
    WouldBlock {
        /// How many it has.
        credits: usize,
    },
    /// The other end did not answer in time (VIP_TIMEOUT).
    #[error("{what}: no answer within {millis} ms; is the other end running, and its link up?")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        millis: u64,
    },
    /// The other end refused the connection (VIP_REJECT).
    #[error("the other end rejected the connection{}", said(private_data))]
    Rejected {
        /// What it said with it.
        private_data: Vec<u8>,
    },
    /// Nobody waits at that discriminator (VIP_NO_MATCH).
    #[error("nobody waits for connections to {0:?} there")]
    NoMatch(String),
    /// The other end offers another maximum transfer size (VIP_INVALID_MTU).
    #[error("the maximum transfer sizes differ: {local} here, {remote} there")]
    TransferSizeMismatch {
        /// Ours.
        local: u32,
        /// Theirs.
        remote: u32,
    },
    /// The other end asks for another quality of service (VIP_INVALID_QOS).
    #[error("the qualities of service differ: {local} here, {remote} there")]
    QosMismatch {
        /// Ours.
        local: u8,
        /// Theirs.
        remote: u8,
    },
    /// No host of that name was found (VIP_ERROR_NAMESERVICE).
    #[error(
        "no host named {name:?} answered within {millis} ms, and the hosts file has none; a program that goes by that \
         name has to be running on the same network"
    )]
    UnknownHost {
        /// The name.
        name: String,
        /// How long was asked for.
        millis: u64,
    },
    /// The connection broke.
    #[error("the connection was lost: {0}")]
    Lost(ConnectionLoss),
    /// A completion queue cannot be made smaller than what was promised to its work queues (VIP_ERROR_RESOURCE).
    #[error("the completion queue has promised {promised} entries to its work queues, and cannot have fewer")]
    Promised {
        /// Entries.
        promised: usize,
    },
    /// Something still uses the object.
    #[error("{0} is still in use")]
    InUse(&'static str),
}

impl Error {
    /// Whether it is the class of the interface that cannot be had, and another might be.
    pub(crate) fn is_of_class(&self) -> bool {
        use uvia_driver::Error as Driver;
        matches!(
            self,
            Self::ClassUnavailable { .. }
                | Self::BeyondClass { .. }
                | Self::Driver(Driver::NoWindow { .. } | Driver::AdapterMemory { .. })
        )
    }
}

/// What the other end has said, where that is a text.
fn said(private_data: &[u8]) -> String {
    match std::str::from_utf8(private_data) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => format!(": {text}"),
        _ => String::new(),
    }
}

/// Why a connection is no more; both ends can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionLoss {
    /// The other end disconnected.
    #[error("the peer disconnected")]
    PeerDisconnected,
    /// The other end was not heard for the time-out.
    #[error("the peer was not heard any more (died, or its link is down)")]
    PeerSilent,
    /// The other end does not know of the connection any more: its program was started anew.
    #[error("the peer does not know the connection any more (its program was started anew)")]
    PeerReset,
    /// Who had asked for the connection was not heard since it was accepted: it had given up by then, or is not there any
    /// more. Nothing was ever exchanged.
    #[error("the peer that had asked for the connection was gone when it was accepted")]
    RequesterGone,
    /// A message arrived and no receive was posted, at this end.
    #[error("a message arrived here and no receive was posted")]
    ReceiveQueueEmpty,
    /// A message arrived and no receive was posted, at the other end.
    #[error("the peer had no receive posted")]
    PeerReceiveQueueEmpty,
    /// A message was longer than the receive posted for it.
    #[error("a message was longer than the receive posted for it")]
    Length,
    /// An RDMA transfer named memory that it may not touch.
    #[error("an RDMA transfer was refused: wrong handle, tag, rights or bounds")]
    RdmaProtection,
    /// A transfer needed memory that this end's program had unmapped while it was registered.
    #[error("a transfer needed registered memory that the program here had unmapped")]
    MemoryGone,
    /// As [`Self::MemoryGone`], at the other end.
    #[error("a transfer needed registered memory that the peer's program had unmapped")]
    PeerMemoryGone,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol")]
    Protocol,
    /// The adapter failed.
    #[error("the adapter failed")]
    Adapter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_tells_what_was_said_with_it() {
        let text = |private_data: &[u8]| Error::Rejected { private_data: private_data.to_vec() }.to_string();
        assert_eq!(text(b"busy"), "the other end rejected the connection: busy");
        for other in [&b""[..], b"\xff", b"a\x1b[2J"] {
            assert_eq!(text(other), "the other end rejected the connection");
        }
    }
}
