//! What is to be seen of a pair of NICs, a file a topic.

pub mod adapter_memory;
pub mod bring_up;
pub mod bursts;
pub mod close;
pub mod empty_pool;
pub mod filters;
pub mod full_ring;
pub mod gather;
pub mod interrupts;
pub mod laps;
pub mod link;
pub mod polled;
pub mod refusals;
pub mod removal;
pub mod reset;
pub mod sizes;
pub mod statistics;
pub mod transmit_ring;
