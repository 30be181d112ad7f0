//! A virtio network device as the specification describes it, for the driver's tests: its registers here, its
//! queues by the crate that virtual machine monitors use for theirs, and ways to lie.

use std::sync::Arc;

use virtio_queue::{Queue, QueueT};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::features::Features;
use super::header::HEADER;
use super::transport::Status;
use crate::nic::testing::{Bus, Model, Space, Wire};
use crate::pci::InterruptCounts;

pub const COMMON: u64 = 0x0000;
pub const ISR: u64 = 0x1000;
pub const DEVICE: u64 = 0x2000;
pub const NOTIFY: u64 = 0x3000;
pub const BAR: u8 = 4;
pub const BAR_SIZE: u64 = 0x4000;

type Memory = GuestMemoryMmap<()>;

pub struct Device {
    pub offered: Features,
    pub taken: Features,
    pub status: u8,
    selects: [u32; 2],
    queue_select: usize,
    pub queues: Vec<QueueState>,
    config_vector: u16,
    pub isr: u8,
    /// Station address, status, pairs, MTU.
    pub config: [u8; 12],
    /// Where the capabilities say that structures lie: type, bar, offset, length.
    pub capabilities: Vec<(u8, u8, u32, u32)>,
    pub multiplier: u32,
    pub counts: InterruptCounts,
    pub wire: Wire,
    /// Sent frames are done with in the opposite order.
    pub backwards: bool,
    /// Nothing is sent: the queue fills up.
    pub stalled: bool,
    /// Reads answer all-ones.
    pub gone: bool,
    /// FEATURES_OK is not kept.
    pub refuses: bool,
    /// The used length of received frames instead of the truth.
    pub lie: Option<u32>,
    pub modes: Vec<[u8; 3]>,
    pub answer: u8,
    pub descriptors: usize,
}

pub struct QueueState {
    pub most: u16,
    pub queue: Queue,
    pub vector: u16,
    pub addresses: [u64; 3],
    pub enabled: bool,
    pub notified: usize,
    size: u16,
}

impl QueueState {
    fn new(most: u16) -> Self {
        Self {
            most,
            queue: Queue::new(most.checked_next_power_of_two().unwrap_or(0x8000).max(2)).unwrap(),
            vector: 0xffff,
            addresses: [0; 3],
            enabled: false,
            notified: 0,
            size: most,
        }
    }
}

impl Device {
    pub fn new(offered: Features) -> Self {
        let mut config = [0; 12];
        config[..6].copy_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        config[6] = 1;
        config[10..].copy_from_slice(&1500u16.to_le_bytes());
        let bar = BAR;
        let mut device = Self {
            offered,
            taken: Features::empty(),
            status: 0,
            selects: [0; 2],
            queue_select: 0,
            queues: Vec::new(),
            config_vector: 0xffff,
            isr: 0,
            config,
            capabilities: vec![
                (1, bar, COMMON as u32, 0x38),
                (3, bar, ISR as u32, 1),
                (4, bar, DEVICE as u32, 12),
                (2, bar, NOTIFY as u32, 12),
                // Of other types, and of a reserved BAR: to be passed over.
                (5, 0, 0, 0),
                (8, bar, 1, 0xffff_ffff),
            ],
            multiplier: 4,
            counts: InterruptCounts { msix: 3, intx: 1, msi: 0 },
            wire: Wire::default(),
            backwards: false,
            stalled: false,
            gone: false,
            refuses: false,
            lie: None,
            modes: Vec::new(),
            answer: 0,
            descriptors: 0,
        };
        device.sized([256, 256, 64]);
        device
    }

    /// With other most sizes of queues.
    pub fn sized(&mut self, most: [u16; 3]) {
        self.queues = most.map(QueueState::new).into();
    }

    fn stop(&mut self) {
        let most: Vec<u16> = self.queues.iter().map(|q| q.most).collect();
        let notified: Vec<usize> = self.queues.iter().map(|q| q.notified).collect();
        self.queues = most.into_iter().map(QueueState::new).collect();
        for (queue, notified) in self.queues.iter_mut().zip(notified) {
            queue.notified = notified;
        }
        (self.status, self.isr, self.config_vector, self.taken) = (0, 0, 0xffff, Features::empty());
    }

    fn running(&self, index: usize) -> bool {
        self.status & Status::DRIVER_OK.bits() != 0 && self.queues[index].enabled
    }

    fn signal(&mut self, bus: &Bus, vector: u16) {
        if self.config_vector == 0xffff && self.counts.msix == 0 {
            self.isr |= 1;
            bus.interrupt();
        } else if vector != 0xffff {
            bus.interrupt();
        }
    }

    pub fn transmit(&mut self, bus: &Bus) {
        if self.stalled || !self.running(1) {
            return;
        }
        let memory = memory(&bus.space);
        let mut done = Vec::new();
        while let Some(chain) = self.queues[1].queue.pop_descriptor_chain(&memory) {
            let head = chain.head_index();
            let mut bytes = Vec::new();
            for descriptor in chain {
                assert!(!descriptor.is_write_only() && descriptor.len() > 0);
                self.descriptors += 1;
                let start = bytes.len();
                bytes.resize(start + descriptor.len() as usize, 0);
                bus.read(descriptor.addr().0, &mut bytes[start..]);
            }
            assert_eq!(bytes[..HEADER], [0; HEADER]);
            self.wire.sent.push_back(bytes.split_off(HEADER));
            done.push(head);
        }
        if self.backwards {
            done.reverse();
        }
        for head in done {
            self.queues[1].queue.add_used(&memory, head, 0).unwrap();
        }
        self.wait_for(1, &memory, bus);
    }

    pub fn receive(&mut self, bus: &Bus) {
        if !self.running(0) {
            return;
        }
        let memory = memory(&bus.space);
        while !self.wire.waiting.is_empty() {
            let Some(chain) = self.queues[0].queue.pop_descriptor_chain(&memory) else { break };
            let frame = self.wire.waiting.pop_front().unwrap();
            let head = chain.head_index();
            let mut written = [&[0; HEADER], &frame[..]].concat();
            written[10] = 1; // num_buffers
            let mut len = 0;
            for descriptor in chain {
                assert!(descriptor.is_write_only());
                let part = written.drain(..written.len().min(descriptor.len() as usize)).collect::<Vec<_>>();
                bus.write(descriptor.addr().0, &part);
                len += part.len() as u32;
            }
            // What does not fit is lost, and the driver told of the rest.
            self.queues[0].queue.add_used(&memory, head, self.lie.unwrap_or(len)).unwrap();
        }
        self.wait_for(0, &memory, bus);
    }

    fn command(&mut self, bus: &Bus) {
        let memory = memory(&bus.space);
        while let Some(chain) = self.queues[2].queue.pop_descriptor_chain(&memory) {
            let head = chain.head_index();
            let mut bytes = Vec::new();
            for descriptor in chain {
                if descriptor.is_write_only() {
                    memory.write_obj(self.answer, descriptor.addr()).unwrap();
                } else {
                    let mut part = vec![0; descriptor.len() as usize];
                    bus.read(descriptor.addr().0, &mut part);
                    bytes.extend(part);
                }
            }
            self.modes.push(bytes.try_into().unwrap());
            self.queues[2].queue.add_used(&memory, head, 1).unwrap();
        }
        self.wait_for(2, &memory, bus);
    }

    /// Signals what was done, if the driver asks, and asks to be notified of what comes.
    fn wait_for(&mut self, index: usize, memory: &Memory, bus: &Bus) {
        let queue = &mut self.queues[index];
        // The crate knows of EVENT_IDX only, and not of the available ring's flag.
        let mut flags = [0; 2];
        if !queue.queue.event_idx_enabled() {
            bus.read(queue.addresses[1], &mut flags);
        }
        let signal = queue.queue.needs_notification(memory).unwrap() && flags == [0; 2];
        queue.queue.enable_notification(memory).unwrap();
        if signal {
            let vector = queue.vector;
            self.signal(bus, vector);
        }
    }

    pub fn deliver(&mut self, bus: &Bus, frame: Vec<u8>) {
        self.wire.waiting.push_back(frame);
        self.receive(bus);
    }

    /// The device changed its configuration.
    pub fn reconfigured(&mut self, bus: &Bus) {
        self.signal(bus, self.config_vector);
    }

    /// Overwrites an element of a used ring and its index.
    pub fn forge(&self, bus: &Bus, queue: usize, slot: u64, id: u32, len: u32, index: u16) {
        let used = self.queues[queue].addresses[2];
        bus.write(used + 4 + 8 * slot, &id.to_le_bytes());
        bus.write(used + 8 + 8 * slot, &len.to_le_bytes());
        bus.write(used + 2, &index.to_le_bytes());
    }
}

/// The driver's memory as the queue crate wants it.
fn memory(space: &Arc<Space>) -> Memory {
    let region = |(iova, address, len): (u64, *mut u8, usize)| {
        // SAFETY: mapped into the space, so valid until the test, which runs in this thread, unmaps it; the
        // region made here is gone by then.
        let builder = unsafe { MmapRegionBuilder::new(len).with_raw_mmap_pointer(address) };
        let builder = builder
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        GuestRegionMmap::new(builder.build().unwrap(), GuestAddress(iova)).unwrap()
    };
    Memory::from_regions(space.all().into_iter().map(region).collect()).unwrap()
}

impl Model for Device {
    fn config(&self) -> Vec<u8> {
        let mut config = vec![0; 256];
        config[..4].copy_from_slice(&[0xf4, 0x1a, 0x41, 0x10]);
        config[6] = 0x10;
        config[0x34] = 0x40;
        let mut at = 0x40;
        for (n, (kind, bar, offset, length)) in self.capabilities.iter().enumerate() {
            let next = if n + 1 == self.capabilities.len() { 0 } else { at + 20 };
            config[at..at + 5].copy_from_slice(&[9, next as u8, 20, *kind, *bar]);
            config[at + 8..at + 12].copy_from_slice(&offset.to_le_bytes());
            config[at + 12..at + 16].copy_from_slice(&length.to_le_bytes());
            config[at + 16..at + 20].copy_from_slice(&self.multiplier.to_le_bytes());
            at += 20;
        }
        config
    }

    fn bar(&self, bar: u8) -> u64 {
        if bar == BAR { BAR_SIZE } else { 0 }
    }

    fn read(&mut self, bar: u8, offset: u64, into: &mut [u8]) {
        assert_eq!(bar, BAR);
        let queue = self.queues.get(self.queue_select);
        let value: u64 = match (offset, into.len()) {
            _ if self.gone => u64::MAX,
            (0x00, 4) => self.selects[0].into(),
            (0x04, 4) => self.offered.bits() >> (32 * self.selects[0]),
            (0x10, 2) => self.config_vector.into(),
            (0x12, 2) => self.queues.len() as u64,
            (0x14, 1) => self.status.into(),
            (0x15, 1) => 0,
            (0x18, 2) => queue.map_or(0, |q| q.size.into()),
            (0x1a, 2) => queue.map_or(0xffff, |q| q.vector.into()),
            (0x1e, 2) => self.queue_select as u64,
            (ISR, 1) => std::mem::take(&mut self.isr).into(),
            (DEVICE..NOTIFY, len) => {
                let mut bytes = [0; 8];
                bytes[..len].copy_from_slice(&self.config[(offset - DEVICE) as usize..][..len]);
                u64::from_le_bytes(bytes)
            }
            other => panic!("read of {other:#x?}"),
        };
        into.copy_from_slice(&value.to_le_bytes()[..into.len()]);
    }

    fn write(&mut self, bus: &Bus, bar: u8, offset: u64, from: &[u8]) {
        assert_eq!(bar, BAR);
        if self.gone {
            return;
        }
        let mut bytes = [0; 8];
        bytes[..from.len()].copy_from_slice(from);
        let value = u64::from_le_bytes(bytes);
        let queue = self.queue_select;
        match (offset, from.len()) {
            (0x00, 4) => self.selects[0] = value as u32,
            (0x08, 4) => self.selects[1] = value as u32,
            (0x0c, 4) => {
                let half = 32 * self.selects[1];
                let kept = self.taken.bits() & !(0xffff_ffff << half);
                self.taken = Features::from_bits_retain(kept | value << half);
            }
            (0x10, 2) => {
                self.config_vector = if value < self.counts.msix.into() { value as u16 } else { 0xffff }
            }
            (0x14, 1) if value == 0 => self.stop(),
            (0x14, 1) => {
                assert_eq!(value as u8 & self.status, self.status, "status bits are only added");
                self.status = value as u8;
                if self.refuses {
                    self.status &= !Status::FEATURES_OK.bits();
                }
                assert!(self.offered.contains(self.taken));
            }
            (0x16, 2) => self.queue_select = value as usize,
            (0x18, 2) => self.queues[queue].size = value as u16,
            (0x1a, 2) => {
                self.queues[queue].vector =
                    if value < self.counts.msix.into() { value as u16 } else { 0xffff };
            }
            (0x1c, 2) => {
                assert_eq!(value, 1);
                let event_idx = self.taken.contains(Features::RING_EVENT_IDX);
                let state = &mut self.queues[queue];
                let [desc, avail, used] = state.addresses.map(|a| (Some(a as u32), Some((a >> 32) as u32)));
                state.queue.set_size(state.size);
                state.queue.set_desc_table_address(desc.0, desc.1);
                state.queue.set_avail_ring_address(avail.0, avail.1);
                state.queue.set_used_ring_address(used.0, used.1);
                state.queue.set_event_idx(event_idx);
                state.queue.set_ready(true);
                assert!(state.queue.is_valid(&memory(&bus.space)));
                state.enabled = true;
            }
            (0x20..0x38, 4) => {
                let address = &mut self.queues[queue].addresses[(offset - 0x20) as usize / 8];
                *address = if offset.is_multiple_of(8) {
                    *address & !0xffff_ffff | value
                } else {
                    *address & 0xffff_ffff | value << 32
                };
            }
            (NOTIFY.., 2) => {
                assert_eq!(offset, NOTIFY + value * u64::from(self.multiplier));
                assert!(bus.is_master() && self.status & Status::DRIVER_OK.bits() != 0);
                self.queues[value as usize].notified += 1;
                match value {
                    0 => self.receive(bus),
                    1 => self.transmit(bus),
                    _ => self.command(bus),
                }
            }
            other => panic!("write of {value:#x} to {other:#x?}"),
        }
    }

    fn reset(&mut self) {
        self.stop();
    }

    fn interrupts(&self) -> InterruptCounts {
        self.counts
    }
}
