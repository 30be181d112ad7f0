//! What an engine is made with, and the limits that it keeps.

use uvia_driver::nic::MacAddress;

/// Most virtual interfaces of a NIC.
pub const MAX_VIS: usize = 16384;
/// Most listeners of a NIC.
pub const MAX_LISTENERS: usize = 256;
/// Most connection requests that wait at a listener.
pub const MAX_BACKLOG: usize = 128;
/// Most names that are looked for at a time.
pub const MAX_QUERIES: usize = 64;
/// Most names in the table of hosts.
pub const MAX_HOSTS: usize = 4096;
/// Longest private data of a request, an acceptance or a rejection, bytes.
pub const MAX_PRIVATE_DATA: usize = 64;
/// Least payload of a frame: a header with all its extensions, and something to carry.
pub const MIN_MTU: usize = 128;
/// Longest host name, bytes.
pub const MAX_NAME: usize = 64;
/// Deepest work queue.
pub const MAX_DEPTH: usize = 16384;
/// Longest message or RDMA transfer, bytes.
pub const MAX_TRANSFER: u32 = 1 << 30;
/// Most segments of a descriptor.
pub const MAX_SEGMENTS: usize = 252;

/// What an engine is made with.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The station address that frames are sent from.
    pub mac: MacAddress,
    /// The name that it answers to.
    pub name: String,
    /// Longest payload of a frame that the network surely carries, after the 14 bytes of Ethernet header.
    pub mtu: usize,
    /// Longest payload of a frame that the adapter sends and receives: a network may carry it. What is less than `mtu` is
    /// taken for that.
    pub largest: usize,
    /// Receive buffers of the adapter: what the peers of all connections may have in flight together.
    pub rx_slots: usize,
    /// Gather entries that the adapter has for a frame's payload.
    pub max_segments: usize,
    /// What connection identities are made from: unpredictable in production, fixed in simulations.
    pub seed: u64,
    /// No frame is ever lost, doubled or reordered.
    pub lossless: bool,
    /// What may be tuned.
    pub tuning: Tuning,
}

/// What may be tuned. Times are nanoseconds.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// How long an acknowledgement waits for a frame to ride on when the sender has nothing more to send.
    pub ack_delay_dry: u64,
    /// How long it waits otherwise.
    pub ack_delay: u64,
    /// Frames after which it is sent at once.
    pub ack_every: u32,
    /// Shortest retransmission time-out.
    pub rto_min: u64,
    /// Retransmission time-out before the round trip was measured.
    pub rto_initial: u64,
    /// Longest retransmission time-out.
    pub rto_max: u64,
    /// A peer that was not heard for so long, although it was asked, is taken for dead.
    pub peer_timeout: u64,
    /// An idle connection is probed after so long.
    pub keep_alive: u64,
    /// Most frames in flight on one connection; 64 at most.
    pub window: u32,
    /// Whether data frames carry a CRC32C from end to end; it is used when either end asks for it.
    pub integrity: bool,
    /// First sequence number of every connection; random without. For tests of the wrap.
    pub first_sequence: Option<u32>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            ack_delay_dry: 100_000,
            ack_delay: 1_000_000,
            ack_every: 16,
            rto_min: 5_000_000,
            rto_initial: 50_000_000,
            rto_max: 200_000_000,
            peer_timeout: 5_000_000_000,
            keep_alive: 1_000_000_000,
            window: 64,
            integrity: false,
            first_sequence: None,
        }
    }
}
