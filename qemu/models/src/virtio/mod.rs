//! virtio-net as a PCI device (VIRTIO 1.2): modern registers, split queues (rust-vmm's device side) and packed
//! ones, one queue a direction and the control queue, MSI-X or INTx. No offloads.

mod features;
mod filter;
mod net;
mod packed;
mod queue;
mod ring;
mod split;
mod staged;

use std::io;

use features::Features;
use net::Net;
use queue::{NO_VECTOR, Queue};
use ring::RingFault;
use uvia_driver::nic::MacAddress;

use crate::config::{BarKind, Config, Identity};
use crate::faults::Lie;
use crate::model::{Context, Model, Vectors, Window, Work};
use crate::shared::SharedPages;

const RECEIVEQ: usize = 0;
const TRANSMITQ: usize = 1;
const CONTROLQ: usize = 2;
const SIZES: [u16; 3] = [256, 256, 64];
/// One for configuration changes, and one a queue.
const VECTORS: u16 = 4;

/// MSI-X table and pending bits, in a BAR of their own.
const MSIX_BAR: u8 = 1;
const MSIX_LENGTH: u32 = 4096;
const MSIX_PENDING: u32 = 2048;

/// The structures, a page each, so that the last can be mapped alone (4.1.4).
const BAR: u8 = 4;
const BAR_LENGTH: u32 = 0x4000;
const COMMON: u64 = 0x0000;
const COMMON_LENGTH: usize = 0x38;
const ISR: u64 = 0x1000;
const DEVICE: u64 = 0x2000;
const DEVICE_LENGTH: usize = 12;
const NOTIFY: u64 = 0x3000;
const MULTIPLIER: u32 = 4;

/// cfg_type of the capabilities.
const COMMON_CFG: u8 = 1;
const NOTIFY_CFG: u8 = 2;
const ISR_CFG: u8 = 3;
const DEVICE_CFG: u8 = 4;
const VENDOR: u8 = 0x09;

/// What a notification register holds while nobody has notified: no queue's number.
const QUIET: u32 = u32::MAX;

/// Device status (2.1).
const FEATURES_OK: u8 = 8;
const DRIVER_OK: u8 = 4;
const NEEDS_RESET: u8 = 64;

/// ISR status (4.1.4.5).
const ISR_QUEUE: u8 = 1;
const ISR_CONFIG: u8 = 2;

/// The least MTU that a device may have (5.1.4.1).
const LEAST_MTU: u16 = 68;

/// The device.
pub struct VirtioNet {
    offered: Features,
    taken: Features,
    status: u8,
    feature_select: [u32; 2],
    config_vector: u16,
    generation: u8,
    queue_select: u16,
    queues: [Queue; 3],
    isr: u8,
    net: Net,
    /// What the driver is told of the network, if it is; 0 otherwise.
    mtu: u16,
    /// By its manufacturer, so to say: what it has after a reset.
    mac: [u8; 6],
    link: bool,
    /// Notification registers, one word a queue: whoever finds another value than [`QUIET`] was notified.
    notify: SharedPages,
    msix: Vec<u8>,
}

impl VirtioNet {
    /// A device with a station address; `packed` queues are offered if asked for.
    ///
    /// # Errors
    /// No memory for its register pages.
    pub fn new(mac: MacAddress, packed: bool) -> io::Result<Self> {
        let notify = SharedPages::new(BAR_LENGTH as usize, NOTIFY as usize..BAR_LENGTH as usize)?;
        notify.fill(QUIET);
        Ok(Self {
            offered: Features::offered(packed),
            taken: Features::empty(),
            status: 0,
            feature_select: [0; 2],
            config_vector: NO_VECTOR,
            generation: 0,
            queue_select: 0,
            queues: SIZES.map(Queue::new),
            isr: 0,
            net: Net::new(mac.0),
            mtu: 0,
            mac: mac.0,
            link: false,
            notify,
            msix: vec![0; MSIX_LENGTH as usize],
        })
    }

    /// The same device on a network whose MTU it knows, at least 68: it offers VIRTIO_NET_F_MTU.
    #[must_use]
    pub fn with_mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu.max(LEAST_MTU);
        self.offered |= Features::NET_MTU;
        self
    }

    fn reset_device(&mut self) {
        (self.taken, self.status, self.feature_select) = (Features::empty(), 0, [0; 2]);
        (self.config_vector, self.queue_select, self.isr) = (NO_VECTOR, 0, 0);
        for queue in &mut self.queues {
            queue.reset();
        }
        self.notify.fill(QUIET);
        self.net = Net::new(self.mac);
    }

    fn packed(&self) -> bool {
        self.taken.contains(Features::RING_PACKED)
    }

    fn is_running(&self) -> bool {
        self.status & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK
    }

    fn common(&self) -> [u8; COMMON_LENGTH] {
        let mut bytes = [0; COMMON_LENGTH];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let half = |features: Features, select: u32| match select {
            0 => features.bits() as u32,
            1 => (features.bits() >> 32) as u32,
            _ => 0,
        };
        put(0x00, &self.feature_select[0].to_le_bytes());
        put(0x04, &half(self.offered, self.feature_select[0]).to_le_bytes());
        put(0x08, &self.feature_select[1].to_le_bytes());
        put(0x0c, &half(self.taken, self.feature_select[1]).to_le_bytes());
        put(0x10, &self.config_vector.to_le_bytes());
        put(0x12, &(self.queues.len() as u16).to_le_bytes());
        put(0x14, &[self.status, self.generation]);
        put(0x16, &self.queue_select.to_le_bytes());
        // A queue that there is not reads size 0.
        if let Some(queue) = self.queues.get(usize::from(self.queue_select)) {
            put(0x18, &queue.size.to_le_bytes());
            put(0x1a, &queue.vector.to_le_bytes());
            put(0x1c, &u16::from(queue.is_enabled()).to_le_bytes());
            put(0x1e, &self.queue_select.to_le_bytes());
            put(0x20, &queue.areas.descriptors.to_le_bytes());
            put(0x28, &queue.areas.driver.to_le_bytes());
            put(0x30, &queue.areas.device.to_le_bytes());
        }
        bytes
    }

    fn set_common(&mut self, context: &mut Context<'_>, offset: u64, from: &[u8]) {
        // 64-bit fields may be written whole or by halves (4.1.3.1).
        if let (0x20..0x38, [low @ .., _, _, _, _]) = (offset, from)
            && low.len() == 4
        {
            self.set_common(context, offset, low);
            return self.set_common(context, offset + 4, &from[4..]);
        }
        let mut bytes = [0; 4];
        let Some(part) = bytes.get_mut(..from.len()) else { return };
        part.copy_from_slice(from);
        let value = u32::from_le_bytes(bytes);
        let (packed, taken) = (self.packed(), self.taken);
        let vector = if value < VECTORS.into() { value as u16 } else { NO_VECTOR };
        let queue = self.queues.get_mut(usize::from(self.queue_select));
        match (offset, from.len(), queue) {
            (0x00, 4, _) => self.feature_select[0] = value,
            (0x08, 4, _) => self.feature_select[1] = value,
            (0x0c, 4, _) => self.take_features(value),
            (0x10, 2, _) => self.config_vector = vector,
            (0x14, 1, _) => self.set_status(context, value as u8),
            (0x16, 2, _) => self.queue_select = value as u16,
            (0x18, 2, Some(queue)) => queue.set_size(value as u16, packed),
            (0x1a, 2, Some(queue)) => queue.vector = vector,
            (0x1c, 2, Some(queue)) if value == 1 => queue.enable(taken),
            (0x20..0x38, 4, Some(queue)) if !queue.is_enabled() => {
                let address = match offset {
                    0x20..0x28 => &mut queue.areas.descriptors,
                    0x28..0x30 => &mut queue.areas.driver,
                    _ => &mut queue.areas.device,
                };
                let value = u64::from(value);
                *address = match offset & 7 {
                    0 => *address & !0xffff_ffff | value,
                    4 => *address & 0xffff_ffff | value << 32,
                    _ => *address,
                };
            }
            _ => (),
        }
    }

    fn take_features(&mut self, value: u32) {
        if self.status & FEATURES_OK != 0 {
            return;
        }
        let (value, kept) = match self.feature_select[1] {
            0 => (u64::from(value), self.taken.bits() & !0xffff_ffff),
            1 => (u64::from(value) << 32, self.taken.bits() & 0xffff_ffff),
            _ => return,
        };
        self.taken = Features::from_bits_retain(kept | value);
    }

    fn set_status(&mut self, context: &mut Context<'_>, status: u8) {
        if status == 0 {
            if !context.lies.tells(Lie::NoReset) {
                self.reset_device();
                context.bus.intx(false);
            }
            return;
        }
        // Bits are only added; of a driver that takes some away nothing is taken.
        let mut status = self.status | status & !NEEDS_RESET;
        if self.status & FEATURES_OK == 0 && !self.taken.are_acceptable(self.offered) {
            status &= !(FEATURES_OK | DRIVER_OK);
        }
        self.status = status;
        if status & FEATURES_OK != 0 && self.taken.contains(Features::NET_MTU) {
            self.net.limit(self.mtu);
        }
    }

    fn device_config(&self) -> [u8; DEVICE_LENGTH] {
        let mut bytes = [0; DEVICE_LENGTH];
        bytes[..6].copy_from_slice(&self.net.mac);
        bytes[6] = u8::from(self.link);
        bytes[8] = 1; // pairs of queues
        bytes[10..].copy_from_slice(&self.mtu.to_le_bytes());
        bytes
    }

    fn signal(&mut self, context: &mut Context<'_>, vector: u16, isr: u8) {
        if context.lies.tells(Lie::NoInterrupt) {
            return;
        }
        if context.config.msix_enabled() || context.bus.messages_routed() {
            if vector != NO_VECTOR {
                context.bus.message(vector);
            }
        } else {
            self.isr |= isr;
            context.bus.intx(true);
        }
    }

    fn follow_link(&mut self, context: &mut Context<'_>) {
        if context.port.link() != self.link {
            self.link = !self.link;
            self.generation = self.generation.wrapping_add(1);
            if self.status & DRIVER_OK != 0 {
                self.signal(context, self.config_vector, ISR_CONFIG);
            }
        }
    }

    /// Does no more until it is reset, and says so (2.1.2).
    fn give_up(&mut self, context: &mut Context<'_>) -> Work {
        self.status |= NEEDS_RESET;
        self.signal(context, self.config_vector, ISR_CONFIG);
        Work::default()
    }

    /// Works on all queues; answers how much there was to do, and when the next late completion is due.
    fn work_queues(&mut self, context: &mut Context<'_>, budget: usize) -> Result<Work, RingFault> {
        let mut work = Work::default();
        for n in 0..self.queues.len() {
            if self.notify.load(n * MULTIPLIER as usize) != QUIET {
                self.notify.swap(n * MULTIPLIER as usize, QUIET);
                self.queues[n].wake(context.bus)?;
            }
            let deadline = self.queues[n].release(context)?;
            work = work.and(Work { done: 0, deadline });
        }
        let mergeable = self.taken.contains(Features::NET_MRG_RXBUF);
        work.done += self.net.transmit(context, &mut self.queues[TRANSMITQ], budget)?;
        work.done += self.net.receive(context, &mut self.queues[RECEIVEQ], mergeable, budget)?;
        if self.taken.contains(Features::NET_CTRL_VQ) {
            work.done += self.net.command(context, &mut self.queues[CONTROLQ], budget)?;
        }
        for n in 0..self.queues.len() {
            if self.queues[n].interrupts(context)? {
                let vector = self.queues[n].vector;
                self.signal(context, vector, ISR_QUEUE);
            }
        }
        Ok(work)
    }
}

impl Model for VirtioNet {
    fn kind(&self) -> &'static str {
        "virtio-net"
    }

    fn config(&self) -> Config {
        let identity =
            Identity { ids: (0x1af4, 0x1041), subsystem: (0x1af4, 0x1100), revision: 1, class: [2, 0, 0] };
        Config::new(identity)
            .with_bar(MSIX_BAR, BarKind::Memory, MSIX_LENGTH)
            .with_bar(BAR, BarKind::Memory, BAR_LENGTH)
            .with_pin()
            .with_express()
            .with_msix(VECTORS, MSIX_BAR, MSIX_PENDING)
            .with_capability(VENDOR, &structure(16, COMMON_CFG, COMMON, COMMON_LENGTH as u32, None))
            .with_capability(VENDOR, &structure(16, ISR_CFG, ISR, 1, None))
            .with_capability(VENDOR, &structure(16, DEVICE_CFG, DEVICE, DEVICE_LENGTH as u32, None))
            .with_capability(VENDOR, &structure(20, NOTIFY_CFG, NOTIFY, 0x1000, Some(MULTIPLIER)))
    }

    fn vectors(&self) -> Vectors {
        Vectors { intx: 1, msix: VECTORS.into() }
    }

    fn windows(&self) -> Vec<Window> {
        vec![Window { bar: BAR, pages: self.notify.clone() }]
    }

    fn read(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, into: &mut [u8]) {
        into.fill(0);
        let (from, at): (&[u8], u64) = match (bar, offset) {
            (MSIX_BAR, _) => (&self.msix, offset),
            (_, COMMON..ISR) => (&self.common(), offset - COMMON),
            (_, ISR..DEVICE) => {
                let isr = if offset == ISR { std::mem::take(&mut self.isr) } else { 0 };
                if offset == ISR {
                    context.bus.intx(false);
                }
                (&[isr], offset - ISR)
            }
            (_, DEVICE..NOTIFY) => {
                self.follow_link(context);
                (&self.device_config(), offset - DEVICE)
            }
            _ => (&[], 0),
        };
        if let Some(from) = from.get(at as usize..) {
            let len = into.len().min(from.len());
            into[..len].copy_from_slice(&from[..len]);
        }
    }

    fn write(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, from: &[u8]) {
        match (bar, offset) {
            (MSIX_BAR, _) => {
                if let Some(to) = self.msix.get_mut(offset as usize..offset as usize + from.len()) {
                    to.copy_from_slice(from);
                }
            }
            (_, COMMON..ISR) => self.set_common(context, offset - COMMON, from),
            (_, NOTIFY..) => {
                // Whatever is written is a notification of the queue whose register it is.
                let word = (offset - NOTIFY) as usize & !3;
                self.notify.store(word, 0);
            }
            _ => (),
        }
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        self.reset_device();
        self.msix.fill(0);
        self.link = context.port.link();
        context.bus.intx(false);
    }

    fn work(&mut self, context: &mut Context<'_>, budget: usize) -> Work {
        self.follow_link(context);
        if !self.is_running() {
            // What comes before the driver is ready is lost.
            let lost = std::iter::from_fn(|| context.port.receive()).take(budget).count();
            return Work { done: lost, deadline: None };
        }
        if context.lies.tells(Lie::NeedsReset) {
            return self.give_up(context);
        }
        // An error: the driver broke the rules, or its memory went.
        self.work_queues(context, budget).unwrap_or_else(|_| self.give_up(context))
    }
}

/// The body of a `struct virtio_pci_cap` behind its id and pointer.
fn structure(length: u8, kind: u8, offset: u64, bytes: u32, multiplier: Option<u32>) -> Vec<u8> {
    let mut body = vec![length, kind, BAR, 0, 0, 0];
    body.extend((offset as u32).to_le_bytes());
    body.extend(bytes.to_le_bytes());
    body.extend(multiplier.into_iter().flat_map(u32::to_le_bytes));
    body
}
