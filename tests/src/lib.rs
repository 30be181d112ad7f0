//! What the tests that cross crates share.

mod memory_nic;

pub use memory_nic::{Faults, MemoryNic, memory_pair, memory_pair_with};
