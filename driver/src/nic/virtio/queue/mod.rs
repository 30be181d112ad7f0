//! Virtqueues, driver's side: what both layouts are to the rest of the driver.
//!
//! What the device gets to see is written and never read back: which descriptors form which chain is kept in
//! our own record, so that an id from the device is looked up there before anything is done with it.

mod packed;
mod split;

use std::sync::Arc;

pub(super) use packed::PackedQueue;
pub(super) use split::SplitQueue;

use crate::dma::{DmaDomain, DmaMemory, DmaSegment};
use crate::mmio::Registers;
use crate::nic::place::Shared;
use crate::{DeviceFault, Result};

/// Which way a buffer's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    DeviceReads,
    DeviceWrites,
}

/// A chain that the device has done with: its head, and how many bytes the device says that it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) head: u16,
    pub(super) written: u32,
}

/// One virtqueue. The layout is chosen when the device is opened, and the driver is compiled for each: on the data path
/// nothing is looked up.
///
/// A chain is known by its head, a number below the queue's size that no other chain has meanwhile. Chains of one
/// descriptor that are added to an empty queue have the numbers from 0 on.
pub(super) trait Virtqueue: Sized + Send {
    /// Whether this is the layout that VIRTIO_F_RING_PACKED stands for.
    const PACKED: bool;

    /// What the driver writes of it lies here; what only the device writes, always in the host's memory.
    type Memory: Shared;

    /// Memory for a queue of `size` descriptors, of a size that the layout allows, for a device of that name.
    fn new(
        of: &<Self::Memory as Shared>::Of,
        domain: &Arc<dyn DmaDomain>,
        device: &str,
        index: u16,
        size: u16,
    ) -> Result<Self>;

    /// As [`Self::new`], all of it in the host's memory.
    fn in_host(domain: &Arc<dyn DmaDomain>, index: u16, size: u16) -> Result<Self>
    where
        Self: Virtqueue<Memory = DmaMemory>,
    {
        Self::new(&(), domain, "", index, size)
    }

    /// The adapter memory that it lies in, where it does.
    fn memory(&self) -> Option<&str>;

    /// The device was stopped for good.
    fn let_go(&mut self);

    /// An empty queue, for a device that was reset and knows of none.
    fn restart(&mut self, event_idx: bool);

    /// The register that notifications go to, once the device named it.
    fn attach(&mut self, notify: Registers);

    fn index(&self) -> u16;

    fn size(&self) -> u16;

    /// I/O addresses of the three areas (2.6).
    fn descriptor_area(&self) -> u64;
    fn driver_area(&self) -> u64;
    fn device_area(&self) -> u64;

    /// Heads of the chains that the device has.
    fn heads(&self) -> impl Iterator<Item = u16>;

    /// Makes a chain of `parts` buffers, at least one, and queues it: its head, or `None` when it does not
    /// fit. The device sees it from [`Virtqueue::show`] on.
    fn add(&mut self, parts: u16, buffers: impl Iterator<Item = (DmaSegment, Access)>) -> Option<u16>;

    /// Queues a chain of one descriptor once more that [`Virtqueue::take`] gave, with the same buffer.
    fn requeue(&mut self, head: u16);

    /// Shows the device all chains queued since the last time: one store, no notification.
    fn show(&mut self);

    /// Notifies the device if it asks to be, for what was shown since the last time; whether it did.
    fn notify(&mut self) -> bool;

    /// The next chain that the device has done with, in its order, whatever that is.
    fn take(&mut self) -> std::result::Result<Option<Used>, DeviceFault>;

    /// Frees the `parts` descriptors of a chain that [`Virtqueue::take`] gave.
    fn release(&mut self, head: u16, parts: u16);

    /// Asks for no interrupt. To be called again now and then (each time that something was taken): where the wish
    /// is an index that is far away, it comes closer.
    fn silence(&mut self);

    /// Asks for an interrupt at the next chain done. What was done before is not signalled: take once more
    /// afterwards.
    fn listen(&mut self);
}

/// Whether going from `old` to `new` passed `event`, all modulo 2^16 (2.7.10).
fn needs_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// An id that stands for no chain that the device has.
#[cold]
fn unknown(id: u32) -> DeviceFault {
    DeviceFault::BadValue {
        what: "a used descriptor id of",
        value: id.into(),
        bound: "is no chain that it was given",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_needed_when_it_was_passed() {
        for (event, new, old, needed) in [
            (0, 1, 0, true),
            (1, 1, 0, false),
            (5, 10, 5, true),
            (9, 10, 5, true),
            (4, 10, 5, false),
            (0xffff, 2, 0xfff0, true),
            (2, 2, 0xfff0, false),
            (0x8000, 256, 0, false),
        ] {
            assert_eq!(needs_event(event, new, old), needed, "{event} {new} {old}");
        }
    }
}
