//! The Virtual Interface Architecture on network adapters driven from user space.
//!
//! A [`Nic`] is opened on a device; memory is registered with it under protection tags; virtual interfaces are
//! created on it, connected by name to others, and then send, receive and write into each other's memory by
//! descriptors, whose completions come from their queues. No step of that takes a system call.

mod async_error;
mod attributes;
mod background;
mod cache;
mod callbacks;
mod clock;
mod connection;
mod cq;
mod credits;
mod descriptor;
mod devices;
mod encapsulation;
mod engine;
mod error;
mod ethernet;
mod event;
mod handle;
mod hosts;
mod memory;
mod nic;
mod pio;
mod promises;
mod provider;
mod registration;
mod ring;
mod rings;
mod seldom;
mod sinks;
mod sleep;
mod sleeper;
mod standstill;
mod sync;
mod tags;
mod turn;
mod vi;
mod wire;

pub use async_error::{AsyncError, ErrorCode, ErrorResource};
pub use attributes::{EndpointClass, NetAddress, ReliabilityLevel, ViAttributes, ViState};
pub use cache::{CacheLimits, CacheState, CacheStatistics, Lease, RegistrationCache};
pub use clock::Clock;
pub use connection::{Listener, Peer, Request};
pub use cq::{CompletionQueue, Completions};
pub use descriptor::{Completion, Descriptor, Operation, RemoteMemory, Segment, Status, ViId, WorkQueue};
pub use encapsulation::{Encapsulation, UdpOptions};
pub use error::{ConnectionLoss, Error, Result};
pub use event::{CompletionEvent, NextCompletion};
pub use memory::{MemoryAttributes, MemoryHandle, MemoryRegion, ProtectionTag};
pub use nic::{Nic, NicOptions, NicProperties, Progress, Statistics};
pub use pio::{PioMissing, PioProperties};
pub use sleeper::{Awaited, Sleeper};
pub use uvia_driver::nic::MacAddress;
pub use uvia_driver::pio::AdapterMemory;
pub use vi::{PostError, Vi};
