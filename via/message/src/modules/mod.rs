//! Transmission modules: the ways in which bytes go, of which the cheapest is taken for each piece and each packet.
//!
//! | module | what goes so | copies by the layer |
//! |---|---|---|
//! | [`Module::Inline`] | the smallest packets, where an endpoint of class Pio was granted | one at each end |
//! | [`Module::Copied`] | short pieces, in packets of registered memory under credits | one at each end |
//! | [`Module::Gathered`] | pieces of middle size, from their place behind a packet's header | one, at the receiver |
//! | [`Module::Written`] | long pieces, put into their place once the receiver has named it | none |
//! | [`Module::Read`] | long pieces that the receiver does not expect yet: it fetches them | none |
//!
//! Which is taken is decided by [`choice`], by [`Thresholds`]. Where each is done: `port/vi/inline.rs`, `core/short.rs` and
//! `core/stream.rs`, `port/vi/gathered.rs`, `core/long.rs`, `core/pull.rs`.

pub(crate) mod choice;
mod thresholds;

pub use thresholds::Thresholds;

/// A way in which bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Module {
    /// Stored into adapter memory by the processor.
    Inline,
    /// Copied into a packet's buffer.
    Copied,
    /// Taken by the port from where they lie, behind a packet's header.
    Gathered,
    /// Written by the sender into the place that the receiver has named.
    Written,
    /// Read by the receiver from the place that the sender has named.
    Read,
}

/// How often each module was used, by who sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModuleCounts {
    /// Packets that went by [`Module::Inline`].
    pub inline: u64,
    /// Packets that went by [`Module::Copied`], those that only steer left aside.
    pub copied: u64,
    /// Packets with bytes that went by [`Module::Gathered`].
    pub gathered: u64,
    /// Pieces that went by [`Module::Written`].
    pub written: u64,
    /// Pieces that went by [`Module::Read`].
    pub read: u64,
}
