//! The split virtqueue (VIRTIO 1.2, 2.7), device's side: rust-vmm's, over our bus.

use virtio_queue::{Queue, QueueOwnedT, QueueT};

use super::ring::{Areas, Chain, Part, RingFault};
use super::staged::Staged;
use crate::bus::Bus;
use crate::faults::{Completion, Lies};

/// In the available ring's flags: no interrupts, please. Only without EVENT_IDX.
const AVAIL_F_NO_INTERRUPT: u16 = 1;

pub(super) struct SplitRing {
    queue: Queue,
    areas: Areas,
    size: u16,
}

impl SplitRing {
    /// A queue of `size` descriptors, which is a power of two. `None`: the areas cannot be ones.
    pub(super) fn new(size: u16, areas: Areas, event_idx: bool) -> Option<Self> {
        let mut queue = Queue::new(size).ok()?;
        let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
        let [descriptors, driver, device] = [areas.descriptors, areas.driver, areas.device].map(halves);
        queue.set_size(size);
        queue.set_desc_table_address(descriptors.0, descriptors.1);
        queue.set_avail_ring_address(driver.0, driver.1);
        queue.set_used_ring_address(device.0, device.1);
        queue.set_event_idx(event_idx);
        queue.set_ready(true);
        // Unaligned addresses were not taken.
        let kept =
            Areas { descriptors: queue.desc_table(), driver: queue.avail_ring(), device: queue.used_ring() };
        (kept == areas).then_some(Self { queue, areas, size })
    }

    pub(super) fn extent(&self) -> (Areas, u64) {
        (self.areas, self.size.into())
    }

    pub(super) fn pop(&mut self, bus: &mut dyn Bus, chain: &mut Chain) -> Result<bool, RingFault> {
        chain.parts.clear();
        let staged = Staged::new(bus);
        let mut available = self.queue.iter(&staged).map_err(|e| match e {
            virtio_queue::Error::GuestMemory(_) => RingFault::Memory,
            _ => RingFault::Index,
        })?;
        let before = available.next();
        let Some(descriptors) = before else { return Ok(false) };
        chain.id = descriptors.head_index();
        let mut goes_on = true;
        for descriptor in descriptors {
            goes_on = descriptor.has_next();
            chain.parts.push(Part {
                address: descriptor.addr().0,
                len: descriptor.len(),
                write: descriptor.is_write_only(),
            });
        }
        // One that stopped where it said that it goes on loops, or left the table.
        if goes_on {
            return Err(RingFault::Chain);
        }
        chain.check()?;
        Ok(true)
    }

    pub(super) fn push(&mut self, bus: &mut dyn Bus, completion: Completion) -> Result<(), RingFault> {
        match u16::try_from(completion.id) {
            Ok(head) if head < self.size => {
                let staged = Staged::new(bus);
                self.queue.add_used(&staged, head, completion.length).map_err(|_| RingFault::Memory)?;
                Ok(staged.flush()?)
            }
            // The crate puts no such thing into a ring: a lie is written without it.
            _ => {
                let next = self.queue.next_used();
                let slot = u64::from(next % self.size);
                let element = u64::from(completion.id) | u64::from(completion.length) << 32;
                bus.write(self.areas.device.wrapping_add(4 + 8 * slot), &element.to_le_bytes())?;
                self.queue.set_next_used(next.wrapping_add(1));
                bus.write(self.areas.device.wrapping_add(2), &next.wrapping_add(1).to_le_bytes())?;
                Ok(())
            }
        }
    }

    pub(super) fn wants_interrupt(&mut self, bus: &mut dyn Bus) -> Result<bool, RingFault> {
        let wanted = {
            let staged = Staged::new(bus);
            self.queue.needs_notification(&staged).map_err(|_| RingFault::Memory)?
        };
        if self.queue.event_idx_enabled() {
            return Ok(wanted);
        }
        // The crate knows of EVENT_IDX only.
        bus.fence();
        let mut flags = [0; 2];
        bus.read(self.areas.driver, &mut flags)?;
        Ok(u16::from_le_bytes(flags) & AVAIL_F_NO_INTERRUPT == 0)
    }

    pub(super) fn listen(&mut self, bus: &mut dyn Bus) -> Result<bool, RingFault> {
        let staged = Staged::new(bus);
        let more = self.queue.enable_notification(&staged).map_err(|_| RingFault::Memory)?;
        staged.flush()?;
        Ok(more)
    }

    pub(super) fn silence(&mut self, bus: &mut dyn Bus) -> Result<(), RingFault> {
        let staged = Staged::new(bus);
        self.queue.disable_notification(&staged).map_err(|_| RingFault::Memory)?;
        Ok(staged.flush()?)
    }

    pub(super) fn mislead(&mut self, bus: &mut dyn Bus, lies: &mut Lies) {
        let index = match lies.random().below(2) {
            0 => self.queue.next_used().wrapping_add(1 + lies.random().below(4) as u16),
            _ => lies.random().next() as u16,
        };
        let _ = bus.write(self.areas.device.wrapping_add(2), &index.to_le_bytes());
    }
}
