//! The split virtqueue (VIRTIO 1.2, 2.7): a table of descriptors, and a ring each way.

use std::sync::Arc;

use super::{Access, Used, Virtqueue, needs_event, unknown};
use crate::dma::{DmaDomain, DmaMemory, DmaSegment, Rights};
use crate::mmio::Registers;
use crate::nic::order;
use crate::nic::place::Shared;
use crate::{DeviceFault, Result};

/// `struct virtq_desc`: address, length, flags, next.
const DESCRIPTOR: usize = 16;
/// The buffer goes on in `next`.
const DESC_F_NEXT: u16 = 1;
/// The device writes the buffer (and only writes it).
const DESC_F_WRITE: u16 = 2;
/// In the available ring's flags: no interrupts, please. Only without EVENT_IDX.
const AVAIL_F_NO_INTERRUPT: u16 = 1;
/// In the used ring's flags: no notifications, please. Only without EVENT_IDX.
const USED_F_NO_NOTIFY: u16 = 1;
/// Of both rings: flags, then the index, then the ring.
const INDEX: usize = 2;
const RING: usize = 4;
/// `struct virtq_used_elem`: id, length.
const USED_ELEMENT: usize = 8;

/// Where in its memory the used ring is. It must be aligned to 4 (2.7); here so that its elements are to 8, and each is
/// read in one access.
const USED: usize = USED_ELEMENT - RING;

/// Where a used_event is out of reach for all sizes of queues.
const FAR: u16 = 0x8000;

/// One virtqueue.
pub(in super::super) struct SplitQueue<M = DmaMemory> {
    index: u16,
    size: u16,
    event_idx: bool,
    /// The descriptors, from 0 on, and the available ring: the device only reads them.
    driver: M,
    /// Where in `driver` the available ring is.
    avail: usize,
    /// The used ring, which it writes.
    device: DmaMemory,
    records: Box<[Record]>,
    /// First descriptor of the free list.
    free: u16,
    free_count: u16,
    /// Chains that the device has.
    in_flight: u16,
    /// The available ring's index: what the next chain takes, and what the device was last shown.
    avail_next: u16,
    avail_shown: u16,
    /// What the available index was when a notification was last thought about.
    avail_asked: u16,
    /// The used ring's index: what was taken, and what the device was last seen to have put.
    used_taken: u16,
    used_seen: u16,
    notify: Option<Registers>,
}

/// What we know of a descriptor.
#[derive(Clone, Copy, Default)]
struct Record {
    /// The next of its chain, or of the free list.
    next: u16,
    /// For the head of a chain that the device has: how many descriptors it has. Else 0.
    chain: u16,
}

impl<M: Shared> SplitQueue<M> {
    fn describe(&mut self, at: u16, buffer: DmaSegment, flags: u16, next: u16) {
        let offset = usize::from(at) * DESCRIPTOR;
        self.driver.store(offset, buffer.iova());
        let word = u64::from(buffer.len()) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.driver.store(offset + 8, word);
    }

    fn queue(&mut self, head: u16) {
        let slot = usize::from(self.avail_next & (self.size - 1));
        self.driver.store16(self.avail + RING + 2 * slot, head);
        self.avail_next = self.avail_next.wrapping_add(1);
        self.in_flight += 1;
    }

    /// Whether the device has put more into the used ring.
    #[inline]
    fn look(&mut self) -> std::result::Result<bool, DeviceFault> {
        let seen = u16::from_le(self.device.read(USED + INDEX));
        if seen == self.used_taken {
            return Ok(false);
        }
        // The index before the elements, and the buffers, that it stands for (2.7.14).
        order::after_done();
        if seen.wrapping_sub(self.used_taken) > self.in_flight {
            return Err(DeviceFault::BadValue {
                what: "a used index of",
                value: seen.into(),
                bound: "is further than chains were given",
            });
        }
        self.used_seen = seen;
        Ok(true)
    }

    fn used_event(&self) -> usize {
        self.avail + RING + 2 * usize::from(self.size)
    }

    fn avail_event(&self) -> usize {
        USED + RING + USED_ELEMENT * usize::from(self.size)
    }
}

impl<M: Shared> Virtqueue for SplitQueue<M> {
    const PACKED: bool = false;

    type Memory = M;

    fn new(of: &M::Of, domain: &Arc<dyn DmaDomain>, device: &str, index: u16, size: u16) -> Result<Self> {
        let entries = usize::from(size);
        let avail = entries * DESCRIPTOR;
        // Behind each ring two bytes for the other side's event index.
        let (avail_end, used_end) =
            (avail + RING + 2 * entries + 2, USED + RING + USED_ELEMENT * entries + 2);
        let both = Rights::READ | Rights::WRITE;
        Ok(Self {
            index,
            size,
            event_idx: false,
            driver: M::allocate(of, domain, device, avail_end, Rights::READ)?,
            avail,
            // Devices read what they wrote there, too.
            device: DmaMemory::allocate(domain.clone(), used_end, both)?,
            records: vec![Record::default(); entries].into(),
            free: 0,
            free_count: 0,
            in_flight: 0,
            avail_next: 0,
            avail_shown: 0,
            avail_asked: 0,
            used_taken: 0,
            used_seen: 0,
            notify: None,
        })
    }

    fn restart(&mut self, event_idx: bool) {
        for offset in (0..self.driver.len()).step_by(8) {
            self.driver.store(offset, 0);
        }
        for offset in (0..self.device.len()).step_by(8) {
            self.device.write(offset, 0u64);
        }
        for (n, record) in self.records.iter_mut().enumerate() {
            *record = Record { next: n as u16 + 1, chain: 0 };
        }
        self.event_idx = event_idx;
        (self.free, self.free_count, self.in_flight) = (0, self.size, 0);
        (self.avail_next, self.avail_shown, self.avail_asked) = (0, 0, 0);
        (self.used_taken, self.used_seen) = (0, 0);
        self.notify = None;
        self.silence();
    }

    fn memory(&self) -> Option<&str> {
        self.driver.memory()
    }

    fn let_go(&mut self) {
        self.driver.set_in_use(false);
    }

    fn attach(&mut self, notify: Registers) {
        self.driver.set_in_use(true);
        self.notify = Some(notify);
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn size(&self) -> u16 {
        self.size
    }

    fn descriptor_area(&self) -> u64 {
        self.driver.iova()
    }

    fn driver_area(&self) -> u64 {
        self.driver.iova() + self.avail as u64
    }

    fn device_area(&self) -> u64 {
        self.device.iova() + USED as u64
    }

    fn heads(&self) -> impl Iterator<Item = u16> {
        self.records.iter().enumerate().filter(|(_, r)| r.chain > 0).map(|(n, _)| n as u16)
    }

    #[inline]
    fn add(&mut self, parts: u16, mut buffers: impl Iterator<Item = (DmaSegment, Access)>) -> Option<u16> {
        if parts == 0 || parts > self.free_count {
            return None;
        }
        let head = self.free;
        let mut at = head;
        let mut left = parts;
        while let Some((buffer, access)) = buffers.next().filter(|_| left > 0) {
            left -= 1;
            let next = self.records[usize::from(at)].next;
            let mut flags = if access == Access::DeviceWrites { DESC_F_WRITE } else { 0 };
            if left > 0 {
                flags |= DESC_F_NEXT;
            }
            self.describe(at, buffer, flags, if left > 0 { next } else { 0 });
            if left == 0 {
                self.free = next;
            } else {
                at = next;
            }
        }
        debug_assert_eq!(left, 0, "fewer buffers than announced");
        self.free_count -= parts;
        self.records[usize::from(head)].chain = parts;
        self.queue(head);
        Some(head)
    }

    #[inline]
    fn requeue(&mut self, head: u16) {
        // Its descriptor is as it was.
        self.records[usize::from(head)].chain = 1;
        self.queue(head);
    }

    #[inline]
    fn show(&mut self) {
        if self.avail_shown == self.avail_next {
            return;
        }
        // Descriptors and ring entries before the index that makes them valid (2.7.13.3).
        M::before_publish();
        self.driver.store16(self.avail + INDEX, self.avail_next);
        M::after_publish();
        self.avail_shown = self.avail_next;
    }

    #[inline]
    fn notify(&mut self) -> bool {
        let (old, new) = (self.avail_asked, self.avail_shown);
        if old == new {
            return false;
        }
        // Our index before its wish: the device stores its wish, then looks at our index once more before it
        // stops looking (2.7.13.4.1, and 2.7.10 for avail_event).
        order::store_then_load();
        self.avail_asked = new;
        let wanted = if self.event_idx {
            let event = u16::from_le(self.device.read(self.avail_event()));
            needs_event(event, new, old)
        } else {
            u16::from_le(self.device.read(USED)) & USED_F_NO_NOTIFY == 0
        };
        let Some(register) = self.notify.as_ref().filter(|_| wanted) else { return false };
        register.write16(0, self.index);
        true
    }

    #[inline]
    fn take(&mut self) -> std::result::Result<Option<Used>, DeviceFault> {
        if self.used_taken == self.used_seen && !self.look()? {
            return Ok(None);
        }
        let slot = usize::from(self.used_taken & (self.size - 1));
        let element = u64::from_le(self.device.read(USED + RING + USED_ELEMENT * slot));
        let (id, written) = (element as u32, (element >> 32) as u32);
        let head = id as u16;
        let Some(record) = self.records.get_mut(id as usize).filter(|r| r.chain > 0) else {
            return Err(unknown(id));
        };
        record.chain = 0;
        self.used_taken = self.used_taken.wrapping_add(1);
        self.in_flight -= 1;
        Ok(Some(Used { head, written }))
    }

    #[inline]
    fn release(&mut self, head: u16, parts: u16) {
        let mut last = head;
        for _ in 1..parts {
            last = self.records[usize::from(last)].next;
        }
        self.records[usize::from(last)].next = self.free;
        self.free = head;
        self.free_count += parts;
    }

    #[inline]
    fn silence(&mut self) {
        if self.event_idx {
            self.driver.store16(self.used_event(), self.used_taken.wrapping_add(FAR));
        } else {
            self.driver.store16(self.avail, AVAIL_F_NO_INTERRUPT);
        }
    }

    fn listen(&mut self) {
        if self.event_idx {
            self.driver.store16(self.used_event(), self.used_taken);
        } else {
            self.driver.store16(self.avail, 0);
        }
        // Our wish before its index: the device stores its index, then looks at our wish (2.7.10).
        order::store_then_load();
    }
}
