//! Payloads of fixed layout. `argsz` is the size of the structure in a request without a payload in its reply, and
//! the room for that payload otherwise; in a reply it is the room that would have been needed.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! payloads {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }
        )*
    };
}

payloads! {
    /// VERSION, before the JSON text.
    Version {
        /// Must be the same on both sides.
        major: u16,
        /// The lesser of both sides' is spoken.
        minor: u16,
    }

    /// DMA_MAP.
    DmaMap {
        /// Size of this structure.
        argsz: u32,
        /// [`crate::Rights`] of the device.
        flags: u32,
        /// Where in the file that comes along.
        offset: u64,
        /// I/O virtual address.
        address: u64,
        /// Bytes.
        size: u64,
    }

    /// DMA_UNMAP, and its reply.
    DmaUnmap {
        /// Room for the reply.
        argsz: u32,
        /// See [`unmap_flags`].
        flags: u32,
        /// I/O virtual address.
        address: u64,
        /// Bytes.
        size: u64,
    }

    /// DEVICE_GET_INFO, and its reply.
    DeviceInfo {
        /// Room for the reply.
        argsz: u32,
        /// See [`device_flags`].
        flags: u32,
        /// Regions.
        num_regions: u32,
        /// Interrupt kinds.
        num_irqs: u32,
    }

    /// DEVICE_GET_REGION_INFO, and its reply, which capabilities may follow.
    RegionInfo {
        /// Room for the reply.
        argsz: u32,
        /// See [`region_flags`].
        flags: u32,
        /// Which region.
        index: u32,
        /// Where in the reply the first capability lies, from the start of this structure.
        cap_offset: u32,
        /// Bytes.
        size: u64,
        /// Where in the file that comes along.
        offset: u64,
    }

    /// What every capability of a region begins with.
    CapabilityHeader {
        /// Which capability.
        id: u16,
        /// Of which version.
        version: u16,
        /// Where the next one lies, from the start of the region info; 0 for none.
        next: u32,
    }

    /// The capability of regions that can be mapped in part; [`SparseArea`]s follow.
    SparseHeader {
        /// Areas.
        nr_areas: u32,
        /// 0.
        reserved: u32,
    }

    /// A part of a region that can be mapped.
    SparseArea {
        /// Where in the region.
        offset: u64,
        /// Bytes.
        size: u64,
    }

    /// DEVICE_GET_REGION_IO_FDS, and its reply, which [`IoEvent`]s follow.
    RegionIoFds {
        /// Room for the reply.
        argsz: u32,
        /// 0.
        flags: u32,
        /// Which region.
        index: u32,
        /// Entries that follow.
        count: u32,
    }

    /// A file descriptor that stands for writes to a part of a region.
    IoEvent {
        /// Where in the region.
        offset: u64,
        /// Bytes; 0 for any size of access.
        size: u64,
        /// Which of the descriptors that came along.
        fd_index: u32,
        /// 0: an eventfd.
        kind: u32,
        /// Bit 0: only writes of `datamatch`.
        flags: u32,
        /// 0.
        padding: u32,
        /// The value that is meant.
        datamatch: u64,
    }

    /// DEVICE_GET_IRQ_INFO, and its reply.
    IrqInfo {
        /// Room for the reply.
        argsz: u32,
        /// See [`irq_flags`].
        flags: u32,
        /// Which kind.
        index: u32,
        /// Vectors.
        count: u32,
    }

    /// DEVICE_SET_IRQS; bytes follow where the flags say so.
    IrqSet {
        /// Size of this structure and what follows.
        argsz: u32,
        /// See [`irq_set`].
        flags: u32,
        /// Which kind.
        index: u32,
        /// First vector.
        start: u32,
        /// Vectors.
        count: u32,
    }

    /// REGION_READ and REGION_WRITE, and their replies; data may follow.
    RegionAccess {
        /// Where in the region.
        offset: u64,
        /// Which region.
        region: u32,
        /// Bytes.
        count: u32,
    }

    /// One write of REGION_WRITE_MULTI.
    SmallWrite {
        /// Where in the region.
        offset: u64,
        /// Which region.
        region: u32,
        /// Bytes, 8 at most.
        count: u32,
        /// The bytes, as many as are meant.
        data: [u8; 8],
    }

    /// DMA_READ and DMA_WRITE, and their replies; data may follow.
    DmaAccess {
        /// I/O virtual address.
        address: u64,
        /// Bytes.
        count: u64,
    }
}

/// [`DmaUnmap::flags`].
pub mod unmap_flags {
    /// Everything, whatever the range says (which is then 0).
    pub const ALL: u32 = 1 << 1;
}

/// [`DeviceInfo::flags`].
pub mod device_flags {
    /// DEVICE_RESET is understood.
    pub const RESET: u32 = 1;
    /// A PCI device.
    pub const PCI: u32 = 2;
}

/// [`RegionInfo::flags`].
pub mod region_flags {
    /// May be read.
    pub const READ: u32 = 1;
    /// May be written.
    pub const WRITE: u32 = 2;
    /// May be mapped, by the file that came along.
    pub const MMAP: u32 = 4;
    /// There are capabilities.
    pub const CAPS: u32 = 8;
}

/// [`IrqInfo::flags`].
pub mod irq_flags {
    /// Can signal eventfds.
    pub const EVENTFD: u32 = 1;
    /// Can be masked.
    pub const MASKABLE: u32 = 2;
    /// Masks itself when it was signalled.
    pub const AUTOMASKED: u32 = 4;
    /// The number of vectors in use cannot be changed in place.
    pub const NORESIZE: u32 = 8;
}

/// [`IrqSet::flags`].
pub mod irq_set {
    /// No data: the action is for all vectors of the range.
    pub const DATA_NONE: u32 = 1;
    /// A byte a vector: whether the action is for it.
    pub const DATA_BOOL: u32 = 2;
    /// Eventfds came along, one a vector, or none to take them away.
    pub const DATA_EVENTFD: u32 = 4;
    /// All of the above.
    pub const DATA: u32 = 7;
    /// Masks.
    pub const ACTION_MASK: u32 = 8;
    /// Unmasks.
    pub const ACTION_UNMASK: u32 = 16;
    /// Triggers, or says what triggering signals.
    pub const ACTION_TRIGGER: u32 = 32;
    /// All of the above.
    pub const ACTION: u32 = 56;
}
