//! Errors of the message layer.

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The virtual interfaces below.
    #[error(transparent)]
    Vi(#[from] uvia::Error),
    /// A socket or a file.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The session's description cannot be used.
    #[error("session: {0}")]
    Config(String),
    /// There is no such rank.
    #[error("there is no rank {rank}: the session has ranks 0 to {last}, and this is rank {own}")]
    Rank {
        /// What was asked for.
        rank: usize,
        /// The highest.
        last: usize,
        /// Ours; no messages go to oneself.
        own: usize,
    },
    /// There is no such channel.
    #[error("there is no channel {channel}: a session has channels 0 to {last}")]
    Channel {
        /// What was asked for.
        channel: usize,
        /// The highest.
        last: usize,
    },
    /// All ways to a rank are gone.
    #[error("rank {rank} cannot be reached any more: {why}")]
    Unreachable {
        /// Which.
        rank: usize,
        /// What happened to the last way there.
        why: String,
    },
    /// One message at a time goes each way between two ranks on a channel.
    #[error(
        "a message {way} rank {rank} on this channel is not ended yet: end it first, or use another channel"
    )]
    Busy {
        /// The other end.
        rank: usize,
        /// "to" or "from".
        way: &'static str,
    },
    /// The sender packed another sequence than the receiver unpacks. Without descriptions only a long piece of another
    /// length is noticed, and a wrong sum of the others'; with them the first piece that differs.
    #[error("piece {position} from rank {rank} was packed as {packed}, and unpacked as {unpacked}")]
    Mismatch {
        /// The sender.
        rank: usize,
        /// Pieces before it in the message.
        position: usize,
        /// What the sender did.
        packed: String,
        /// What the receiver did.
        unpacked: String,
    },
    /// The two ends were opened with options that do not go together.
    #[error("rank {rank} was opened with other options: {what}")]
    Options {
        /// The other end.
        rank: usize,
        /// Which options.
        what: &'static str,
    },
    /// The sender gave the message up before its end.
    #[error("rank {rank} gave the message up before its end")]
    Abandoned {
        /// The sender.
        rank: usize,
    },
    /// The receiver gave the message up before its end.
    #[error("rank {rank} did not take all of the message")]
    Refused {
        /// The receiver.
        rank: usize,
    },
    /// The other end breaks the protocol.
    #[error("rank {rank} broke the protocol: {what}")]
    Protocol {
        /// The other end.
        rank: usize,
        /// How.
        what: &'static str,
    },
    /// Nothing came of it in the session's patience.
    #[error("{what}: nothing happened for {seconds} s (the session's patience)")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        seconds: u64,
    },
    /// A piece of the message failed before; what follows it cannot be right.
    #[error("the message failed before this call")]
    Failed,
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}
