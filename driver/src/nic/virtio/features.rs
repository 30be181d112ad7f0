//! Feature bits (VIRTIO 1.2: 5.1.3 for network devices, 6 for all), and which of them this driver takes.

use bitflags::bitflags;

use crate::DeviceFault;

bitflags! {
    /// Feature bits by the names of the specification.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The device's configuration has an MTU.
        const NET_F_MTU = 1 << 3;
        /// The device's configuration has a station address.
        const NET_F_MAC = 1 << 5;
        /// The device's configuration has the link's state.
        const NET_F_STATUS = 1 << 16;
        /// There is a control queue.
        const NET_F_CTRL_VQ = 1 << 17;
        /// The control queue takes receive modes.
        const NET_F_CTRL_RX = 1 << 18;
        /// Each side says by an index when it wants to be told.
        const RING_EVENT_IDX = 1 << 29;
        /// Version 1 of the specification: not a legacy device.
        const VERSION_1 = 1 << 32;
        /// The device's accesses are translated by the platform's IOMMU.
        const ACCESS_PLATFORM = 1 << 33;
        /// Queues are packed.
        const RING_PACKED = 1 << 34;
        /// The device needs the barriers of the platform's real devices.
        const ORDER_PLATFORM = 1 << 36;
        const _ = !0;
    }
}

/// What is taken when offered.
///
/// Not taken, on purpose: MRG_RXBUF, since every buffer holds a whole frame, and one buffer a frame needs no
/// count read from the device; all offloads, since checksums of frames between programs are not made by
/// anybody here; INDIRECT_DESC, since it costs the device one more fetch for each frame, of a table that it
/// has no cached mapping of.
const WANTED: Features = Features::NET_F_MTU
    .union(Features::NET_F_MAC)
    .union(Features::NET_F_STATUS)
    .union(Features::NET_F_CTRL_VQ)
    .union(Features::NET_F_CTRL_RX)
    .union(Features::RING_EVENT_IDX)
    .union(Features::VERSION_1)
    .union(Features::ACCESS_PLATFORM)
    .union(Features::ORDER_PLATFORM);

/// What to accept of what is offered; packed queues only where they are wanted.
///
/// # Errors
/// A device without VERSION_1, or without ACCESS_PLATFORM: its accesses would bypass the IOMMU, and our I/O
/// virtual addresses would mean other memory to it (QEMU: iommu_platform=on).
pub(super) fn negotiate(offered: Features, packed: bool) -> Result<Features, DeviceFault> {
    for (needed, what) in [
        (Features::VERSION_1, "VERSION_1 (a legacy device; QEMU: disable-legacy=on)"),
        (Features::ACCESS_PLATFORM, "ACCESS_PLATFORM (it would bypass the IOMMU; QEMU: iommu_platform=on)"),
    ] {
        if !offered.contains(needed) {
            return Err(DeviceFault::Layout(format!("the device does not offer {what}")));
        }
    }
    let layout = if packed { Features::RING_PACKED } else { Features::empty() };
    let mut taken = offered & (WANTED | layout);
    // CTRL_RX says nothing without the queue that it is for (5.1.3.1).
    if !taken.contains(Features::NET_F_CTRL_VQ | Features::NET_F_CTRL_RX) {
        taken -= Features::NET_F_CTRL_VQ | Features::NET_F_CTRL_RX;
    }
    Ok(taken)
}
