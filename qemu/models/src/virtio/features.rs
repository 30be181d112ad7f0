//! Feature bits (VIRTIO 1.2, 5.1.3 and 6).

bitflags::bitflags! {
    /// Those that the model knows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Features: u64 {
        const NET_MTU = 1 << 3;
        const NET_MAC = 1 << 5;
        const NET_MRG_RXBUF = 1 << 15;
        const NET_STATUS = 1 << 16;
        const NET_CTRL_VQ = 1 << 17;
        const NET_CTRL_RX = 1 << 18;
        const NET_CTRL_MAC_ADDR = 1 << 23;
        const RING_EVENT_IDX = 1 << 29;
        const VERSION_1 = 1 << 32;
        const ACCESS_PLATFORM = 1 << 33;
        const RING_PACKED = 1 << 34;
        const _ = !0;
    }
}

impl Features {
    /// What is offered; packed queues, and an MTU, only where asked for.
    pub(super) fn offered(packed: bool) -> Self {
        let mut features = Self::NET_MAC
            | Self::NET_MRG_RXBUF
            | Self::NET_STATUS
            | Self::NET_CTRL_VQ
            | Self::NET_CTRL_RX
            | Self::NET_CTRL_MAC_ADDR
            | Self::RING_EVENT_IDX
            | Self::VERSION_1
            | Self::ACCESS_PLATFORM;
        features.set(Self::RING_PACKED, packed);
        features
    }

    /// Whether a driver may choose these of what was offered: a modern one whose addresses are I/O virtual.
    pub(super) fn are_acceptable(self, offered: Self) -> bool {
        offered.contains(self)
            && self.contains(Self::VERSION_1 | Self::ACCESS_PLATFORM)
            && (self.contains(Self::NET_CTRL_VQ)
                || !self.intersects(Self::NET_CTRL_RX | Self::NET_CTRL_MAC_ADDR))
    }
}
