//! The door to a network adapter: what every Ethernet NIC does, whichever way it does it.

mod e1000;
mod event;
mod frame;
mod health;
mod length;
mod memory;
mod order;
mod place;
mod registry;
mod virtio;

#[cfg(test)]
mod testing;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

pub use frame::{MacAddress, RxFrame, TxFrame};
pub use place::RingPlace;
pub use registry::{check_name, driver_for, open, open_named};

use crate::{Error, Result};

/// An opened network adapter with one transmit and one receive queue.
///
/// Dropping it quiesces the device: rings stopped, bus mastering off, reset, and only then is memory unmapped.
///
/// # Faults
/// Everything that the device writes is checked. After an [`Error::Device`] the adapter does no more until
/// [`Nic::reset`].
pub trait Nic: Send {
    /// What the adapter is and can do; constant while it is open.
    fn properties(&self) -> &NicProperties;

    /// The link, as the device reports it now.
    fn link(&mut self) -> Result<Link>;

    /// Whether frames sent now can be received at the other end and the other way round: the link is up and
    /// the receiver is awake (QEMU's e1000 is deaf for about 1 s after set-up).
    fn ready(&mut self) -> Result<bool>;

    /// Puts one frame into the transmit ring: false when it has no room (then [`Nic::reclaim`] and try again).
    /// The device may not know of it before [`Nic::flush`].
    ///
    /// The memory must stay registered and unchanged until [`Nic::reclaim`] gives the frame's token back.
    ///
    /// # Errors
    /// A frame without bytes, with more segments than [`NicProperties::max_segments`], or longer than
    /// [`NicProperties::max_frame`]; a device fault.
    fn transmit(&mut self, frame: &TxFrame<'_>) -> Result<bool>;

    /// Tells the device of all frames put since the last call: one register write or notification, or none
    /// where the device is known to look by itself.
    fn flush(&mut self) -> Result<()>;

    /// Hands back the tokens of frames that the device no longer refers to, in whatever order they completed;
    /// each token exactly once, also for frames that a reset dropped. Answers how many there were.
    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> Result<usize>;

    /// Takes up to `budget` received frames. The memory of each is given back to the device after `sink`
    /// returns, so that what is to be kept is copied out. Frames come without their check sequence.
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Result<usize>;

    /// Counters since the adapter was opened.
    fn statistics(&mut self) -> NicStatistics;

    /// Which frames are received beside those to our own and the broadcast address.
    fn set_filter(&mut self, filter: RxFilter) -> Result<()>;

    /// The stations that are known to be on its wire without being asked, but for itself: none, for most.
    fn neighbours(&self) -> Vec<MacAddress> {
        Vec::new()
    }

    /// Becomes readable when, armed, the adapter has something to do. `None` when it has no interrupts.
    fn interrupt(&self) -> Option<BorrowedFd<'_>>;

    /// Arms (or disarms) the interrupt for the next received frame or link change; a latched one is consumed.
    /// After arming, poll once more before sleeping: what arrived before is not signalled again.
    fn arm(&mut self, on: bool) -> Result<()>;

    /// Brings the device back to the state in which it was opened, whatever it did; frames in its rings are
    /// dropped, and their tokens come back through [`Nic::reclaim`].
    fn reset(&mut self) -> Result<()>;

    /// Looks at the device's own account of itself, unless it has received or sent since the last time: whether it is
    /// there, and asks for no reset. For whoever polls, now and then: rings alone do not tell, and the look takes a
    /// register.
    ///
    /// # Errors
    /// The fault that it has; from then on every call has it.
    fn look_after(&mut self) -> Result<()> {
        self.link().map(drop)
    }

    /// Puts frames into the ring until it is full and tells the device; answers how many it took.
    ///
    /// # Errors
    /// As [`Nic::transmit`]; frames before the one in error are sent.
    fn transmit_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize> {
        let mut taken = 0;
        let mut outcome = Ok(());
        for frame in frames {
            match self.transmit(frame) {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }
        self.flush()?;
        outcome.map(|()| taken)
    }

    /// Waits until [`Nic::ready`].
    ///
    /// # Errors
    /// [`Error::Timeout`], or a device fault.
    fn wait_ready(&mut self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        while !self.ready()? {
            if start.elapsed() >= timeout {
                return Err(Error::Timeout {
                    device: self.properties().device.clone(),
                    what: "the link (is the other end up?)".to_owned(),
                    millis: timeout.as_millis() as u64,
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// How an adapter is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicConfig {
    /// Transmit descriptors wanted; the driver takes the nearest that the device allows.
    pub tx_ring: usize,
    /// Receive descriptors (and buffers) wanted.
    pub rx_ring: usize,
    /// Whether interrupts are set up. Without, the adapter can only be polled.
    pub interrupts: bool,
    /// Packed virtqueues (VIRTIO_F_RING_PACKED) on virtio devices that offer them; [`NicProperties::driver`] tells which
    /// it came to. Other devices know nothing of it.
    pub packed_rings: bool,
    /// Where the transmit ring lies; [`NicProperties::tx_ring_memory`] tells. Adapters without a ring in memory refuse all
    /// but the host's.
    pub tx_ring_place: RingPlace,
    /// The longest frame wanted, in bytes with header and without check sequence, within [`NicConfig::FRAMES`]; `None` for
    /// the longest of these. Each receive buffer holds one such frame: 256 take 2 MiB with the longest, 512 KiB with the
    /// shortest limit. A virtio device that tells its MTU decides by itself, and an adapter on shared memory has a limit of
    /// its own; [`NicProperties::max_frame`] tells what it came to.
    pub max_frame: Option<usize>,
}

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            tx_ring: 256,
            rx_ring: 256,
            interrupts: true,
            packed_rings: false,
            tx_ring_place: RingPlace::Host,
            max_frame: None,
        }
    }
}

/// What an adapter is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicProperties {
    /// The device's name, as it was opened.
    pub device: String,
    /// The driver in this crate: "e1000", "virtio", "virtio-packed" (its rings are packed).
    pub driver: &'static str,
    /// The station address.
    pub mac: MacAddress,
    /// Longest payload of a frame, without the 14 bytes of Ethernet header, that every network of its kind carries: 1500
    /// on Ethernet, or what the device says of its network.
    pub mtu: usize,
    /// Longest frame that the adapter itself sends and receives, with header, without check sequence: at least `mtu` and
    /// 14. Whether the network carries frames beyond its MTU is not known from here: where it does not, they are lost
    /// without a word. A longer frame is refused on the way out, and on the way in dropped and counted
    /// ([`NicStatistics::rx_errors`]) where the adapter lets that be seen; a VLAN tag in a received frame comes on top.
    pub max_frame: usize,
    /// Frames that fit into the transmit ring when each has one segment.
    pub tx_slots: usize,
    /// Receive buffers that the device is given.
    pub rx_slots: usize,
    /// Most segments of one frame.
    pub max_segments: usize,
    /// The adapter memory that the transmit ring lies in, by its name; `None` where it lies in the host's memory.
    pub tx_ring_memory: Option<String>,
    /// Frames never get lost or reordered between the two ends (a NIC made of memory).
    pub lossless: bool,
}

/// The link's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Carrier.
    pub up: bool,
    /// Megabits per second, where the device tells.
    pub speed: Option<u32>,
    /// Full duplex, where the device tells.
    pub full_duplex: Option<bool>,
}

/// Counters since the adapter was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NicStatistics {
    /// Frames that the device has finished sending.
    pub tx_frames: u64,
    /// Their bytes, without check sequence.
    pub tx_bytes: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Their bytes, without check sequence.
    pub rx_bytes: u64,
    /// Frames that the device dropped for want of a receive buffer, where it counts them.
    pub rx_missed: u64,
    /// Frames received in error, or longer than [`NicProperties::max_frame`], and dropped.
    pub rx_errors: u64,
    /// Register writes or notifications that told the device of new frames or buffers.
    pub doorbells: u64,
}

/// Which frames are received beside those to our own and the broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxFilter {
    /// All frames.
    pub promiscuous: bool,
    /// All multicast frames.
    pub all_multicast: bool,
}
