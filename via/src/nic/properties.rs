//! What a NIC is, its limits, and what it has counted.

use uvia_driver::nic as adapter;

use crate::{Encapsulation, EndpointClass, MacAddress, ReliabilityLevel};

/// What a NIC is, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicProperties {
    /// The device's name.
    pub device: String,
    /// The adapter's driver.
    pub driver: &'static str,
    /// The adapter memory that its transmit ring lies in, by its name; `None` where that is the host's. Chosen by
    /// [`NicOptions::adapter`](crate::NicOptions::adapter).
    pub tx_ring_memory: Option<String>,
    /// Its address as a host: the station address, or over UDP what [`UdpOptions::host`](crate::UdpOptions::host) makes of the IPv4 address.
    pub mac: MacAddress,
    /// Message bytes in one frame.
    pub native_mtu: usize,
    /// What frames are wrapped in.
    pub encapsulation: Encapsulation,
    /// Longest message or RDMA transfer, bytes.
    pub max_transfer_size: u32,
    /// Most virtual interfaces.
    pub max_vis: usize,
    /// Most segments of a descriptor.
    pub max_segments: usize,
    /// Most descriptors of a work queue.
    pub max_depth: usize,
    /// Most entries of a completion queue.
    pub max_cq_entries: usize,
    /// Most completion queues, beside those of work queues that have none of their own.
    pub max_cqs: usize,
    /// Most protection tags at a time.
    pub max_tags: usize,
    /// Most registered regions.
    pub max_regions: usize,
    /// Most registered bytes. What a user may have pinned (`ulimit -l`) can be less, and is told when it is reached.
    pub max_registered_bytes: u64,
    /// Most bytes of one region.
    pub max_region_bytes: u64,
    /// Most discriminators that are waited at.
    pub max_listeners: usize,
    /// Longest discriminator, bytes.
    pub max_discriminator: usize,
    /// Longest private data with a connection request or its answer, bytes.
    pub max_private_data: usize,
    /// What connections can promise.
    pub reliability_levels: &'static [ReliabilityLevel],
    /// How sends can reach the adapter.
    pub classes: &'static [EndpointClass],
}

/// What a NIC has counted since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The adapter's counters. Over UDP, datagrams that were dropped as wrong are among its errors.
    pub adapter: adapter::NicStatistics,
    /// Frames that were dropped since their end-to-end check was wrong or missing, on connections that have it.
    pub damaged: u64,
    /// Frames that were dropped since they made no sense; those that manage connections and have a wrong check are
    /// among them.
    pub unsound: u64,
}
