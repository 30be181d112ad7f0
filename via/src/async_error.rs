//! Errors that no descriptor can carry.

use std::fmt;

use crate::ViId;

/// What an asynchronous error is; the numbers are VIPL's.
///
/// Some cannot happen here, and are for who stands on this interface: a descriptor is checked when it is posted and
/// refused then ([`PostDescriptor`](Self::PostDescriptor)), and completion queues cannot be overrun
/// ([`Overrun`](Self::Overrun)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum ErrorCode {
    /// A posted descriptor cannot be read.
    PostDescriptor = 0,
    /// The connection is no more, and not because this end left it: [`Vi::loss`](crate::Vi::loss) says why.
    ConnectionLost = 1,
    /// A message came and no receive was posted. On an unreliable connection it was dropped, else the connection is no
    /// more.
    ReceiveQueueEmpty = 2,
    /// More completions than entries for them.
    Overrun = 3,
    /// The peer's RDMA write was refused here: handle, tag, rights or bounds.
    RdmaWriteProtection = 4,
    /// The data of the peer's RDMA write was damaged. (Here such frames are taken for lost, and come again.)
    RdmaWriteData = 5,
    /// The peer's RDMA write ended in its middle: a part of the memory was written.
    RdmaWriteAbort = 6,
    /// The peer's RDMA read was refused here: handle, tag, rights or bounds.
    RdmaReadProtection = 7,
    /// A completion could not be written.
    CompletionProtection = 8,
    /// The connection was lost in the middle of the peer's RDMA read.
    RdmaTransport = 9,
    /// The adapter has failed.
    Catastrophic = 10,
}

/// What an asynchronous error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorResource {
    /// The NIC.
    Nic,
    /// A virtual interface.
    Vi(ViId),
}

/// An error that no descriptor can carry ([`Nic::set_error_handler`](crate::Nic::set_error_handler)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsyncError {
    /// What it is.
    pub code: ErrorCode,
    /// What it is about.
    pub resource: ErrorResource,
}

impl fmt::Display for AsyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.code {
            ErrorCode::PostDescriptor => "a posted descriptor cannot be read",
            ErrorCode::ConnectionLost => "the connection was lost",
            ErrorCode::ReceiveQueueEmpty => "a message came and no receive was posted",
            ErrorCode::Overrun => "a completion queue was overrun",
            ErrorCode::RdmaWriteProtection => "an RDMA write of the peer's was refused",
            ErrorCode::RdmaWriteData => "an RDMA write of the peer's was damaged",
            ErrorCode::RdmaWriteAbort => "an RDMA write of the peer's ended in its middle",
            ErrorCode::RdmaReadProtection => "an RDMA read of the peer's was refused",
            ErrorCode::CompletionProtection => "a completion could not be written",
            ErrorCode::RdmaTransport => "the connection was lost in the middle of an RDMA read of the peer's",
            ErrorCode::Catastrophic => "the adapter has failed",
        };
        match self.resource {
            ErrorResource::Nic => f.write_str(what),
            ErrorResource::Vi(vi) => write!(f, "{vi:?}: {what}"),
        }
    }
}
