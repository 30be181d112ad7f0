//! What the tests that cross crates share.

pub mod bench;
pub mod conformance;
mod counting;
mod crowd;
mod idle;
pub mod lies;
mod long_writes;
mod memory_nic;
mod misdirected;
mod pages;
mod pinned;
mod raw_pair;
pub mod sealed;
mod served_models;
mod vi_pair;

pub use counting::Counting;
pub use crowd::Crowd;
pub use idle::Idle;
pub use long_writes::LongWrites;
pub use memory_nic::{Faults, MemoryNic, long_memory_pair, memory_pair, memory_pair_with};
pub use misdirected::Misdirected;
pub use pages::Pages;
pub use pinned::PinnedDomain;
pub use raw_pair::RawPair;
pub use sealed::{Sealed, without_system_calls};
pub use served_models::ServedModels;
pub use vi_pair::{End, PATIENCE, PingPong, ViPair, join};
