//! The Virtual Interface Architecture on network adapters driven from user space.
//!
//! A [`Nic`](nic) is opened on a device; memory is registered with it under protection tags; virtual interfaces
//! are created on it, connected by name to others, and then send, receive and write into each other's memory by
//! descriptors, whose completions come from their queues. No step of that takes a system call.

mod attributes;
mod descriptor;
// Used by the NIC, which is being written on top of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
mod engine;
mod error;
mod memory;
#[allow(dead_code)]
mod wire;

pub use attributes::{EndpointClass, NetAddress, ReliabilityLevel, ViAttributes, ViState};
pub use descriptor::{Completion, Descriptor, Operation, RemoteMemory, Segment, Status, ViId, WorkQueue};
pub use error::{ConnectionLoss, Error, Result};
pub use memory::{MemoryAttributes, MemoryHandle, MemoryRegion, ProtectionTag};
pub use uvia_driver::nic::MacAddress;
