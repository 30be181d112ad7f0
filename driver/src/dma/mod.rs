//! Memory that devices reach: I/O address spaces, allocations in them, registrations of callers' memory.

pub mod copy;
mod domain;
mod identity;
mod iova;
mod memory;
mod region;
mod slots;
pub mod watch;

pub use domain::{DeviceAccess, DmaDomain, DomainLimits, Rights};
pub use identity::IdentityDomain;
pub use iova::IovaSpace;
pub use memory::{DmaMemory, PageKind};
pub use region::{DmaRegion, DmaSegment};
pub use slots::{DmaSlot, DmaSlots};
