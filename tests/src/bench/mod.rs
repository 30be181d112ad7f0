//! Pairs of NICs for the conformance suite: models in this process, models behind sockets, a guest's
//! own, and shared memory.

mod guest;
mod in_process;
mod packed_rings;
mod rings_in_adapter_memory;
mod served;
mod shared_memory;

pub use guest::InGuest;
pub use in_process::InProcess;
pub use packed_rings::PackedRings;
pub use rings_in_adapter_memory::RingsInAdapterMemory;
pub use served::Served;
pub use shared_memory::SharedMemory;

use uvia_driver::nic::MacAddress;

/// The station address of the n-th model.
fn station(n: usize) -> MacAddress {
    MacAddress([0x52, 0x54, 0, 0x12, 0x34, n as u8 + 1])
}
