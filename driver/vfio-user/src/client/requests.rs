//! What a device can be asked.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Client;
use crate::framing::Frame;
use crate::wire::{
    Capabilities, DeviceInfo, DmaMap, DmaUnmap, IoEvent, IrqInfo, IrqSet, Proposal, RegionAccess,
    RegionAreas, RegionInfo, RegionIoFds, command, device_flags, irq_set, region_flags,
};
use crate::{Error, Result, Rights};

/// Most bytes of a region's description that are asked for.
const MOST_INFO: u32 = 64 << 10;

/// A region, as the device describes it.
#[derive(Debug)]
pub struct RegionDetails {
    /// Bytes; 0 when there is no such region.
    pub size: u64,
    /// What may be done with it by message.
    pub rights: Rights,
    /// Which parts can be mapped, if `file` is there and may be mapped.
    pub areas: RegionAreas,
    /// The file to map.
    pub file: Option<OwnedFd>,
    /// Where in the file the region begins.
    pub offset: u64,
}

/// An interrupt kind, as the device describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IrqDetails {
    /// Vectors.
    pub count: u32,
    /// See [`crate::wire::irq_flags`].
    pub flags: u32,
}

/// An eventfd that stands for writes to a place in a region.
#[derive(Debug, Clone)]
pub struct WriteEventFd {
    /// Where in the region.
    pub offset: u64,
    /// Bytes; 0 for any.
    pub size: u64,
    /// Only writes of this value.
    pub value: Option<u64>,
    /// Signalled instead of the write.
    pub event: Arc<OwnedFd>,
}

impl Client {
    pub(super) fn negotiate(&self) -> Result<Capabilities> {
        let ours = Proposal::ours();
        let reply = self.exchange.ask(command::VERSION, &[&ours.to_bytes(), &[]], &[], 4)?;
        let theirs = Proposal::parse(&reply.body).map_err(|e| self.exchange.protocol(&e.to_string()))?;
        if theirs.version.0 != ours.version.0 || theirs.version.1 > ours.version.1 {
            let (major, minor) = theirs.version;
            return Err(self.exchange.protocol(&format!("its version is {major}.{minor}")));
        }
        if theirs.capabilities.max_data_xfer_size == 0 {
            return Err(self.exchange.protocol("it takes no data"));
        }
        Ok(theirs.capabilities)
    }

    /// What the device is: flags (see [`device_flags`]), regions, interrupt kinds.
    ///
    /// # Errors
    /// All of [`Error`] that concerns a peer; so with all requests.
    pub fn device_info(&self) -> Result<DeviceInfo> {
        let argsz = size_of::<DeviceInfo>() as u32;
        self.fixed(command::DEVICE_GET_INFO, &DeviceInfo { argsz, ..DeviceInfo::default() })
    }

    /// Whether the device can be [reset](Self::reset).
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn is_resettable(&self) -> Result<bool> {
        Ok(self.device_info()?.flags & device_flags::RESET != 0)
    }

    /// Describes a region.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn region_info(&self, index: u32) -> Result<RegionDetails> {
        let mut argsz = 4096;
        let mut reply = loop {
            let asked = RegionInfo { argsz, index, ..RegionInfo::default() };
            let reply = self.ask(command::DEVICE_GET_REGION_INFO, &asked, size_of::<RegionInfo>())?;
            let needed = RegionInfo::read_from_prefix(&reply.body).map_or(0, |(info, _)| info.argsz);
            if needed <= argsz || argsz == MOST_INFO {
                break reply;
            }
            argsz = needed.min(MOST_INFO);
        };
        let (info, areas) = RegionAreas::parse(&reply.body)
            .map_err(|e| self.exchange.protocol(&format!("region {index}: {e}")))?;
        if info.index != index {
            return Err(self
                .exchange
                .protocol(&format!("it describes region {} and not {index}", info.index)));
        }
        let has = |flag, right| if info.flags & flag != 0 { right } else { Rights::empty() };
        Ok(RegionDetails {
            size: info.size,
            rights: has(region_flags::READ, Rights::READ) | has(region_flags::WRITE, Rights::WRITE),
            areas,
            file: if reply.fds.is_empty() { None } else { Some(reply.fds.swap_remove(0)) },
            offset: info.offset,
        })
    }

    /// Describes an interrupt kind.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn irq_info(&self, index: u32) -> Result<IrqDetails> {
        let asked = IrqInfo { argsz: size_of::<IrqInfo>() as u32, index, ..IrqInfo::default() };
        let info = self.fixed(command::DEVICE_GET_IRQ_INFO, &asked)?;
        if info.index != index {
            return Err(self
                .exchange
                .protocol(&format!("it describes interrupt {} and not {index}", info.index)));
        }
        Ok(IrqDetails { count: info.count, flags: info.flags })
    }

    /// Eventfds that stand for writes to a region.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn region_events(&self, index: u32) -> Result<Vec<WriteEventFd>> {
        let fixed = size_of::<RegionIoFds>();
        let asked = RegionIoFds { argsz: 4096, index, ..RegionIoFds::default() };
        let reply = self.ask(command::DEVICE_GET_REGION_IO_FDS, &asked, fixed)?;
        let (answer, mut rest) = RegionIoFds::read_from_prefix(&reply.body)
            .map_err(|_| self.exchange.protocol("a description of eventfds is cut short"))?;
        let fds: Vec<Arc<OwnedFd>> = reply.fds.into_iter().map(Arc::new).collect();
        let mut found = Vec::new();
        for _ in 0..answer.count {
            let (event, more) = IoEvent::read_from_prefix(rest)
                .map_err(|_| self.exchange.protocol("a description of eventfds is cut short"))?;
            rest = more;
            // Other kinds are for hypervisors.
            if event.kind != 0 {
                continue;
            }
            let fd = fds.get(event.fd_index as usize).ok_or_else(|| {
                self.exchange.protocol(&format!("eventfd {} did not come along", event.fd_index))
            })?;
            found.push(WriteEventFd {
                offset: event.offset,
                size: event.size,
                value: (event.flags & 1 != 0).then_some(event.datamatch),
                event: fd.clone(),
            });
        }
        Ok(found)
    }

    /// Routes vectors from `start` on to eventfds.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn route_irqs(&self, index: u32, start: u32, events: &[BorrowedFd<'_>]) -> Result<()> {
        let most = self.capabilities().max_msg_fds.clamp(1, crate::wire::MAX_FDS);
        let mut start = start;
        for events in events.chunks(most) {
            let flags = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
            self.set_irqs(flags, index, start, events.len() as u32, &[], events)?;
            start += events.len() as u32;
        }
        Ok(())
    }

    /// Takes all routes of an interrupt kind away.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn unroute_irqs(&self, index: u32) -> Result<()> {
        self.set_irqs(irq_set::DATA_NONE | irq_set::ACTION_TRIGGER, index, 0, 0, &[], &[])
    }

    /// Does `action` (of [`irq_set`]) with `count` vectors from `start` on.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn act_on_irqs(&self, action: u32, index: u32, start: u32, count: u32) -> Result<()> {
        self.set_irqs(irq_set::DATA_NONE | action, index, start, count, &[], &[])
    }

    /// DEVICE_SET_IRQS with everything that it can say.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn set_irqs(
        &self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        bools: &[u8],
        events: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let argsz = (size_of::<IrqSet>() + bools.len()) as u32;
        let set = IrqSet { argsz, flags, index, start, count };
        self.exchange.ask(command::DEVICE_SET_IRQS, &[set.as_bytes(), bools], events, 0).map(drop)
    }

    /// Reads a region by message.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn region_read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<()> {
        let access = self.access(region, offset, into.len())?;
        let fixed = size_of::<RegionAccess>();
        let reply = self.ask(command::REGION_READ, &access, fixed)?;
        match RegionAccess::read_from_prefix(&reply.body) {
            Ok((echo, data)) if echo == access && data.len() == into.len() => {
                into.copy_from_slice(data);
                Ok(())
            }
            _ => Err(self.out_of_step(command::REGION_READ)),
        }
    }

    /// Writes a region by message, and waits until the device has it.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn region_write(&self, region: u32, offset: u64, from: &[u8]) -> Result<()> {
        let access = self.access(region, offset, from.len())?;
        let fixed = size_of::<RegionAccess>();
        let reply = self.exchange.ask(command::REGION_WRITE, &[access.as_bytes(), from], &[], fixed)?;
        match RegionAccess::read_from_prefix(&reply.body) {
            Ok((echo, _)) if echo == access => Ok(()),
            _ => Err(self.out_of_step(command::REGION_WRITE)),
        }
    }

    /// Writes a region by message, and does not wait: later requests are handled after it. Nobody tells when the
    /// device refuses it.
    ///
    /// # Errors
    /// The connection is over.
    pub fn region_post(&self, region: u32, offset: u64, from: &[u8]) -> Result<()> {
        let access = self.access(region, offset, from.len())?;
        self.exchange.tell(command::REGION_WRITE, &[access.as_bytes(), from])
    }

    /// Lets the device access `len` bytes at I/O virtual address `iova`: those at an offset in a file, or, without
    /// one, what [`super::ClientMemory`] knows.
    ///
    /// # Errors
    /// As [`Self::device_info`]; refused with EEXIST where something is mapped already.
    pub fn dma_map(
        &self,
        iova: u64,
        len: u64,
        rights: Rights,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<()> {
        let map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: rights.bits(),
            offset: file.map_or(0, |(_, offset)| offset),
            address: iova,
            size: len,
        };
        let fds: Vec<BorrowedFd<'_>> = file.into_iter().map(|(fd, _)| fd).collect();
        self.exchange.ask(command::DMA_MAP, &[map.as_bytes(), &[]], &fds, 0).map(drop)
    }

    /// Takes the device's access to a range away: when this returns, it has no access under way.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn dma_unmap(&self, iova: u64, len: u64) -> Result<()> {
        let unmap = DmaUnmap { argsz: size_of::<DmaUnmap>() as u32, flags: 0, address: iova, size: len };
        self.ask(command::DMA_UNMAP, &unmap, 0).map(drop)
    }

    /// Resets the device.
    ///
    /// # Errors
    /// As [`Self::device_info`].
    pub fn reset(&self) -> Result<()> {
        self.exchange.ask(command::DEVICE_RESET, &[&[], &[]], &[], 0).map(drop)
    }

    fn access(&self, region: u32, offset: u64, len: usize) -> Result<RegionAccess> {
        let most = self.capabilities().max_data_xfer_size.min(crate::wire::MAX_DATA);
        if len == 0 || len > most {
            return Err(Error::Argument {
                what: format!(
                    "{}: {len} bytes of region {region}: 1 to {most} can be moved at once",
                    self.peer()
                ),
            });
        }
        Ok(RegionAccess { offset, region, count: len as u32 })
    }

    fn ask(&self, command: u16, body: &(impl IntoBytes + Immutable), at_least: usize) -> Result<Frame> {
        self.exchange.ask(command, &[body.as_bytes(), &[]], &[], at_least)
    }

    /// Asks for a structure by the same structure.
    fn fixed<T: FromBytes + IntoBytes + KnownLayout + Immutable>(&self, command: u16, body: &T) -> Result<T> {
        let reply = self.ask(command, body, size_of::<T>())?;
        T::read_from_prefix(&reply.body).map(|(answer, _)| answer).map_err(|_| self.out_of_step(command))
    }

    /// The device answers something else than was asked.
    fn out_of_step(&self, command: u16) -> Error {
        let why = format!("its reply to {} is to something else", command::name(command));
        self.exchange.close(&why);
        self.exchange.protocol(&why)
    }
}
