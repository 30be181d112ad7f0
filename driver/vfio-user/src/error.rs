//! What can go wrong with a peer.

use std::io;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with whom, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody serves a device there.
    #[error("{peer}: no device is served there ({source}); start its server, for example `uvia-device`")]
    Connect {
        /// The socket.
        peer: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A socket cannot be served on.
    #[error("{socket}: cannot listen there: {source}{}", hint(source))]
    Listen {
        /// The socket.
        socket: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The other side is gone, or was given up on.
    #[error("{peer}: the connection is over: {why}; open the device again")]
    Closed {
        /// The socket.
        peer: String,
        /// How it ended.
        why: String,
    },
    /// The other side did not answer in time.
    #[error("{peer}: no answer to {what} within {millis} ms; does another client use the device?")]
    Timeout {
        /// The socket.
        peer: String,
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        millis: u64,
    },
    /// The other side answered with an error.
    #[error("{peer}: {what} was refused: {source}")]
    Refused {
        /// The socket.
        peer: String,
        /// What was asked.
        what: &'static str,
        /// The errno that it gave.
        source: io::Error,
    },
    /// The other side breaks the protocol.
    #[error("{peer}: breaks the vfio-user protocol: {what}")]
    Protocol {
        /// The socket.
        peer: String,
        /// How.
        what: String,
    },
    /// The caller's argument cannot be used.
    #[error("{what}")]
    Argument {
        /// Which argument, what it was and what it may be.
        what: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// Object and operation.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    /// The errno behind it, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Connect { source, .. }
            | Self::Listen { source, .. }
            | Self::Refused { source, .. }
            | Self::Io { source, .. } => source.raw_os_error(),
            Self::Closed { .. } | Self::Timeout { .. } | Self::Protocol { .. } | Self::Argument { .. } => {
                None
            }
        }
    }
}

/// What to do where a socket cannot be served on. One that a dead server left has been replaced by then.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; another process serves there: end it, or give another path",
        _ => "",
    }
}
