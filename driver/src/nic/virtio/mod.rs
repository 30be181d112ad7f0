//! virtio-net as a PCI device: VIRTIO 1.x, split queues, or packed ones where they are asked for and offered.
//!
//! One queue a direction, and the control queue where there is one. The data path touches memory only, but for
//! the notification that the device asks for when it was idle. Interrupts are by one MSI-X vector for received
//! frames and configuration changes, or by INTx.

mod capability;
mod control;
mod features;
mod header;
mod queue;
mod rx;
mod transport;
mod tx;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use capability::Structures;
use control::{Answer, ControlQueue};
use features::Features;
use queue::{PackedQueue, SplitQueue, Virtqueue};
use rx::RxQueue;
use transport::Vector;
use tx::TxQueue;

use super::event::Event;
use super::health::Health;
use super::length::{ETHERNET_HEADER, MTU};
use super::place::Shared;
use super::{
    Link, MacAddress, Nic, NicConfig, NicProperties, NicStatistics, RingPlace, RxFilter, RxFrame, TxFrame,
};
use crate::dma::DmaMemory;
use crate::pci::{InterruptKind, PciDevice};
use crate::pio::RingMemory;
use crate::{DeviceFault, Error, Result};

/// The ids that this driver is for: modern, and transitional devices that have the modern structures too.
pub(super) const IDS: &[(u16, u16)] = &[(0x1af4, 0x1041), (0x1af4, 0x1000)];

/// Queue numbers (5.1.2) without multiqueue.
const RECEIVEQ: u16 = 0;
const TRANSMITQ: u16 = 1;
const CONTROLQ: u16 = 2;

/// The control queue has one command at a time, of three parts.
const CONTROL_SIZE: usize = 4;

/// `struct virtio_net_config` (5.1.4).
const CONFIG_MAC: usize = 0;
const CONFIG_STATUS: usize = 6;
const CONFIG_MTU: usize = 10;
/// In its status: the link is up.
const S_LINK_UP: u16 = 1;

/// The least MTU that a device may have (5.1.4.1).
const LEAST_MTU: u16 = 68;

/// A frame of more segments would mostly be descriptors.
const MAX_SEGMENTS: usize = 16;

/// An opened virtio network device, whose transmit queue is of a kind of its own: it may lie elsewhere.
struct VirtioNet<Q: Virtqueue, T: Virtqueue> {
    properties: NicProperties,
    structures: Structures,
    features: Features,
    rx: RxQueue<Q>,
    tx: TxQueue<T>,
    control: Option<ControlQueue<Q>>,
    statistics: NicStatistics,
    health: Health,
    /// Tokens of frames that a reset dropped, until they are reclaimed.
    dropped: Vec<u64>,
    /// Frames received and sent when the device was last looked after.
    seen: u64,
    interrupt: Option<(InterruptKind, Event)>,
    // Last: the device goes when nothing of it is in use, and its handle closes behind the queues' memory.
    device: Arc<dyn PciDevice>,
}

/// Brings the device up.
pub(super) fn open(device: Arc<dyn PciDevice>, config: &NicConfig) -> Result<Box<dyn Nic>> {
    let health = Health::new(device.name());
    let structures = capability::find(&device)?;
    let faulty = |fault| health.error(fault);
    transport::reset(&structures.common).map_err(faulty)?;
    let negotiate = |offered| features::negotiate(offered, config.packed_rings);
    let features = transport::agree(&structures.common, negotiate).map_err(faulty)?;
    // What follows is compiled for each layout.
    let parts = (device, config, health, structures, features);
    match (features.contains(Features::RING_PACKED), &config.tx_ring_place) {
        (true, RingPlace::Host) => build::<PackedQueue, PackedQueue>(parts, &()),
        (false, RingPlace::Host) => build::<SplitQueue, SplitQueue>(parts, &()),
        (true, RingPlace::Adapter(memory)) => build::<PackedQueue, PackedQueue<RingMemory>>(parts, memory),
        (false, RingPlace::Adapter(memory)) => build::<SplitQueue, SplitQueue<RingMemory>>(parts, memory),
    }
}

/// From agreed features to a device that sends and receives.
fn build<Q: Virtqueue<Memory = DmaMemory> + 'static, T: Virtqueue + 'static>(
    (device, config, health, structures, features): (
        Arc<dyn PciDevice>,
        &NicConfig,
        Health,
        Structures,
        Features,
    ),
    of: &<T::Memory as Shared>::Of,
) -> Result<Box<dyn Nic>> {
    let faulty = |fault| health.error(fault);
    let (mac, told) = identity(&structures, features).map_err(faulty)?;
    let (mtu, max_frame) = match told {
        // No longer frame may be sent, and buffers have to hold one as long (5.1.4.1): the device knows its network.
        Some(mtu) => (mtu, mtu + ETHERNET_HEADER),
        None => (MTU, config.longest_frame()?),
    };

    let size =
        |index, wanted| transport::queue_size(&structures.common, index, wanted, Q::PACKED).map_err(faulty);
    let rx = RxQueue::<Q>::new(device.domain(), RECEIVEQ, size(RECEIVEQ, config.rx_ring)?, max_frame)?;
    // Two descriptors a frame of one segment: header and segment.
    let tx_size = size(TRANSMITQ, config.tx_ring.saturating_mul(2))?;
    let tx = TxQueue::<T>::new(of, device.domain(), device.name(), TRANSMITQ, tx_size)?;
    let control = if features.contains(Features::NET_F_CTRL_RX) {
        Some(ControlQueue::<Q>::new(device.domain(), CONTROLQ, size(CONTROLQ, CONTROL_SIZE)?)?)
    } else {
        None
    };
    let counts = device.interrupts();
    let kind = match (counts.msix, counts.intx) {
        _ if !config.interrupts => None,
        (1.., _) => Some(InterruptKind::Msix),
        (_, 1..) => Some(InterruptKind::Intx),
        _ => None,
    };
    let interrupt = kind.map(|kind| Ok::<_, Error>((kind, Event::new()?))).transpose()?;

    let properties = NicProperties {
        device: device.name().to_owned(),
        driver: if Q::PACKED { "virtio-packed" } else { "virtio" },
        mac,
        mtu,
        max_frame,
        tx_slots: tx.capacity(),
        rx_slots: rx.queue.size().into(),
        max_segments: MAX_SEGMENTS.min(usize::from(tx.queue.size()) - 1),
        tx_ring_memory: tx.queue.memory().map(str::to_owned),
        lossless: false,
    };
    let mut nic = VirtioNet {
        dropped: Vec::with_capacity(tx.capacity()),
        properties,
        structures,
        features,
        rx,
        tx,
        control,
        statistics: NicStatistics::default(),
        health,
        seen: 0,
        interrupt,
        device,
    };
    nic.start()?;
    Ok(Box::new(nic))
}

/// Station address, and the MTU where it is told, as the device's configuration has them.
fn identity(
    structures: &Structures,
    features: Features,
) -> std::result::Result<(MacAddress, Option<usize>), DeviceFault> {
    let config = &structures.device;
    let needed = if features.contains(Features::NET_F_MTU) {
        CONFIG_MTU + 2
    } else if features.contains(Features::NET_F_STATUS) {
        CONFIG_STATUS + 2
    } else if features.contains(Features::NET_F_MAC) {
        CONFIG_MAC + 6
    } else {
        0
    };
    if config.len() < needed {
        let what =
            format!("the network configuration has {} bytes; its features need {needed}", config.len());
        return Err(DeviceFault::Layout(what));
    }
    let mac = if features.contains(Features::NET_F_MAC) {
        transport::consistent(&structures.common, || {
            MacAddress(std::array::from_fn(|n| config.read8(CONFIG_MAC + n)))
        })?
    } else {
        random_address()
    };
    if !mac.is_unicast() {
        return Err(DeviceFault::Layout(format!("the station address is {mac}, which names no station")));
    }
    let mtu = if features.contains(Features::NET_F_MTU) {
        let mtu = config.read16(CONFIG_MTU);
        if mtu < LEAST_MTU {
            return Err(DeviceFault::BadValue {
                what: "an MTU of",
                value: mtu.into(),
                bound: "is less than 68",
            });
        }
        Some(mtu.into())
    } else {
        None
    };
    Ok((mac, mtu))
}

/// A locally administered address, for a device that has none (5.1.5).
fn random_address() -> MacAddress {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library's hash keys are from the system's random numbers.
    let [a, b, c, d, e, f, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    MacAddress([a & 0xfc | 0x02, b, c, d, e, f])
}

/// Empties a queue, tells the device of it, and enables it there.
fn set_up_queue(
    structures: &Structures,
    queue: &mut impl Virtqueue,
    event_idx: bool,
    vector: Vector,
) -> std::result::Result<(), DeviceFault> {
    queue.restart(event_idx);
    let notify = transport::enable_queue(structures, queue, vector)?;
    queue.attach(notify);
    Ok(())
}

impl<Q: Virtqueue, T: Virtqueue> VirtioNet<Q, T> {
    /// Makes sure that the device touches no memory: by its own reset, then by the bus.
    fn quiesce(&mut self) -> Result<()> {
        let stopped = transport::reset(&self.structures.common);
        let silent = match &self.interrupt {
            Some((kind, _)) => self.device.disable_interrupts(*kind),
            None => Ok(()),
        };
        let off_the_bus = self.device.set_bus_master(false);
        self.health.note(stopped).and(silent).and(off_the_bus)
    }
}

impl<Q: Virtqueue<Memory = DmaMemory>, T: Virtqueue> VirtioNet<Q, T> {
    /// From a device with agreed features to one that sends and receives.
    fn start(&mut self) -> Result<()> {
        if let Some((kind, event)) = &self.interrupt {
            self.device.enable_interrupts(*kind, &[event.as_fd()])?;
        }
        let set_up = self.set_up_queues();
        self.health.note(set_up)?;
        self.rx.fill()?;
        self.device.set_bus_master(true)?;
        let going = transport::go(&self.structures.common);
        self.health.note(going)?;
        self.statistics.doorbells += u64::from(self.rx.queue.notify());
        if self.control.is_some() {
            // Devices may begin by taking everything.
            self.set_modes(RxFilter::default())?;
        }
        Ok(())
    }

    fn set_up_queues(&mut self) -> std::result::Result<(), DeviceFault> {
        let vector = match self.interrupt {
            Some((InterruptKind::Msix, _)) => Vector::First,
            _ => Vector::None,
        };
        let event_idx = self.features.contains(Features::RING_EVENT_IDX);
        transport::route_config(&self.structures.common, vector)?;
        let structures = &self.structures;
        set_up_queue(structures, &mut self.rx.queue, event_idx, vector)?;
        set_up_queue(structures, &mut self.tx.queue, event_idx, Vector::None)?;
        match &mut self.control {
            Some(control) => set_up_queue(structures, &mut control.queue, event_idx, Vector::None),
            None => Ok(()),
        }
    }

    fn set_modes(&mut self, filter: RxFilter) -> Result<()> {
        let Some(control) = &mut self.control else {
            return Err(self.unsupported("choosing which frames are received (no CTRL_RX)"));
        };
        for (mode, on) in [(control::PROMISC, filter.promiscuous), (control::ALLMULTI, filter.all_multicast)]
        {
            let outcome = control.receive_mode(self.health.device(), mode, on)?;
            if self.health.note(outcome)? == Answer::Refused {
                return Err(self.unsupported("this receive mode"));
            }
        }
        Ok(())
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::Unsupported { device: self.properties.device.clone(), what: what.to_owned() }
    }

    /// A fault of the device's own account, or its absence, is one of ours too.
    fn check_status(&mut self) -> Result<()> {
        self.health.check()?;
        let status = transport::check(&self.structures.common);
        self.health.note(status)
    }
}

impl<Q: Virtqueue<Memory = DmaMemory>, T: Virtqueue> Nic for VirtioNet<Q, T> {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    fn link(&mut self) -> Result<Link> {
        self.check_status()?;
        let up = !self.features.contains(Features::NET_F_STATUS)
            || self.structures.device.read16(CONFIG_STATUS) & S_LINK_UP != 0;
        Ok(Link { up, speed: None, full_duplex: None })
    }

    fn ready(&mut self) -> Result<bool> {
        Ok(self.link()?.up)
    }

    #[inline]
    fn transmit(&mut self, frame: &TxFrame<'_>) -> Result<bool> {
        self.health.check()?;
        let size = frame.check(&self.properties)?;
        if self.tx.put(frame, size) {
            return Ok(true);
        }
        // The device must know of what fills the queue, or waiting for room would be for ever.
        self.tx.flush(&mut self.statistics);
        Ok(false)
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        self.health.check()?;
        self.tx.flush(&mut self.statistics);
        Ok(())
    }

    #[inline]
    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> Result<usize> {
        self.health.check()?;
        let mut count = 0;
        while let Some(token) = self.dropped.pop() {
            done(token);
            count += 1;
        }
        let reclaimed = self.tx.reclaim(&mut self.statistics, done);
        Ok(count + self.health.note(reclaimed)?)
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Result<usize> {
        self.health.check()?;
        let received = self.rx.receive(budget, &mut self.statistics, sink);
        let frames = self.health.note(received)?;
        if frames == 0 && self.device.is_gone() {
            return Err(self.health.fail(DeviceFault::Gone));
        }
        Ok(frames)
    }

    fn look_after(&mut self) -> Result<()> {
        let frames = self.statistics.rx_frames.wrapping_add(self.statistics.tx_frames);
        match std::mem::replace(&mut self.seen, frames) == frames {
            true => self.check_status(),
            false => self.health.check(),
        }
    }

    /// All counted here: virtio devices count nothing themselves.
    fn statistics(&mut self) -> NicStatistics {
        self.statistics
    }

    fn set_filter(&mut self, filter: RxFilter) -> Result<()> {
        self.health.check()?;
        self.set_modes(filter)
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.as_ref().map(|(_, event)| event.as_fd())
    }

    fn arm(&mut self, on: bool) -> Result<()> {
        // What woke a sleeper may be that the device asks for a reset.
        self.check_status()?;
        let Some((kind, event)) = &self.interrupt else { return Ok(()) };
        self.rx.arm(false);
        if *kind == InterruptKind::Intx {
            // Reading takes the line down (4.1.4.5).
            self.structures.isr.read8(0);
        }
        event.drain();
        if on {
            self.rx.arm(true);
            if *kind == InterruptKind::Intx {
                self.device.unmask_intx()?;
            }
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        self.health.resetting();
        // A device that no longer answers its registers can still come back by a reset of the function.
        let quiet = self.quiesce();
        self.device.reset()?;
        if quiet.is_err() {
            let again = transport::reset(&self.structures.common);
            self.health.note(again)?;
        }
        self.tx.abandon(&mut self.dropped);
        let features = self.features;
        let agreed = transport::agree(&self.structures.common, |offered| {
            let again = features::negotiate(offered, Q::PACKED)?;
            if again == features {
                Ok(again)
            } else {
                Err(DeviceFault::Layout("the device offers other features after its reset".to_owned()))
            }
        });
        self.health.note(agreed)?;
        self.start()?;
        self.health.recovered();
        Ok(())
    }
}

impl<Q: Virtqueue, T: Virtqueue> Drop for VirtioNet<Q, T> {
    /// Before any field goes: no memory of the queues is given up that the device could still touch.
    fn drop(&mut self) {
        match self.quiesce() {
            Ok(()) => self.tx.queue.let_go(),
            Err(e) => tracing::warn!(device = self.health.device(), "while closing: {e}"),
        }
    }
}
