//! What endpoints of class Pio are and are not, for programs to know beforehand.

use uvia_driver::pio::{Caching, SLOT};

use crate::wire::data::MAX_SEND_HEADER;
use crate::{EndpointClass, Error, ProtectionTag, Result, ViAttributes};

/// Where a frame's payload begins in its slot; the header ends there, whatever extensions it has.
pub(crate) const HEAD: usize = MAX_SEND_HEADER.next_multiple_of(8);
/// Most bytes of a message: a slot, less the header.
pub(crate) const MTU: usize = SLOT - HEAD;

/// What virtual interfaces of class [`EndpointClass::Pio`] can do on a NIC, and how many more of them there can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PioProperties {
    /// The adapter memory's name.
    pub memory: String,
    /// How stores reach it.
    pub caching: Caching,
    /// Windows of the adapter memory; each interface takes one.
    pub windows: usize,
    /// Windows that nobody has now. Other processes take some too.
    pub windows_left: usize,
    /// Slots of a window: the credits of an interface, and so the most descriptors of its send queue.
    pub slots: usize,
    /// Longest message, bytes.
    pub mtu: u32,
    /// Bytes that the adapter memory is stored into at a time.
    pub store_width: usize,
    /// And their alignment; a message may begin anywhere in the program's memory.
    pub alignment: usize,
    /// What is not there, beside class Dma.
    pub missing: PioMissing,
}

bitflags::bitflags! {
    /// What a class of endpoints lacks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PioMissing: u32 {
        /// RDMA writes and reads cannot be posted.
        const RDMA_SOURCE = 1;
        /// The peer cannot write or read memory by this interface.
        const RDMA_TARGET = 2;
        /// Segments of a descriptor are gathered within one slot: a message is one frame.
        const GATHER_BEYOND_SLOT = 4;
        /// The adapter computes no checksums.
        const CHECKSUM_OFFLOAD = 8;
    }
}

impl PioMissing {
    /// In words, one a missing thing.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.iter().map(|one| match one {
            Self::RDMA_SOURCE => "RDMA source",
            Self::RDMA_TARGET => "RDMA target",
            Self::GATHER_BEYOND_SLOT => "gather beyond one slot",
            _ => "checksum offload",
        })
    }
}

impl ViAttributes {
    /// As much as class Pio gives: reliable delivery, messages and a send queue up to its limits, no RDMA, a receive queue
    /// of 128. The peer, of whichever class, must be created with the same [`ViAttributes::max_transfer_size`].
    pub fn pio(tag: ProtectionTag, pio: &PioProperties) -> Self {
        Self {
            class: EndpointClass::Pio,
            max_transfer_size: pio.mtu,
            rdma_write: false,
            rdma_read: false,
            send_depth: pio.slots,
            ..Self::new(tag)
        }
    }

    /// Refuses what is beyond class Pio: never is less given than was asked for.
    pub(crate) fn check_pio(&self, slots: usize, mtu: usize) -> Result<()> {
        let class = EndpointClass::Pio;
        if self.rdma_write || self.rdma_read {
            return Err(Error::ClassUnavailable {
                class,
                why: "it has no RDMA: create the interface with rdma_write and rdma_read off".to_owned(),
            });
        }
        let beyond = |what, asked: usize, limit: usize| {
            Err(Error::BeyondClass { class, what, asked: asked as u64, limit: limit as u64 })
        };
        if self.send_depth > slots {
            return beyond("descriptors in the send queue", self.send_depth, slots);
        }
        if self.max_transfer_size as usize > mtu {
            return beyond("bytes of the longest message", self.max_transfer_size as usize, mtu);
        }
        Ok(())
    }
}
