//! One message: what it asks, whether it may, and what the answer is.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Device, Region, Server};
use crate::Rights;
use crate::framing::{Defect, Frame};
use crate::wire::{
    Capabilities, DeviceInfo, DmaMap, DmaUnmap, IoEvent, IrqInfo, IrqSet, MAX_DATA, Proposal, RegionAccess,
    RegionAreas, RegionInfo, RegionIoFds, SmallWrite, command, device_flags, irq, irq_flags, irq_set, region,
    region_flags, unmap_flags,
};

/// What a command is answered with.
#[derive(Debug, Default)]
pub struct Reply {
    /// The payload.
    pub body: Vec<u8>,
    /// The file descriptors.
    pub fds: Vec<Arc<OwnedFd>>,
}

impl From<Vec<u8>> for Reply {
    fn from(body: Vec<u8>) -> Self {
        Self { body, fds: Vec::new() }
    }
}

type Outcome = Result<Reply, Errno>;

impl Server {
    /// Does what a message says.
    pub(super) fn dispatch(&mut self, frame: Frame, device: &mut dyn Device) -> Outcome {
        match frame.defect {
            Some(Defect::TooLong) => return Err(Errno::MSGSIZE),
            Some(Defect::TooManyFds) => return Err(Errno::TOOMANYREFS),
            None => {}
        }
        let Frame { header, body, mut fds, .. } = frame;
        if self.is_attached() == (header.command == command::VERSION) {
            // Versions come first, and once.
            return Err(Errno::INVAL);
        }
        // Only these take file descriptors; others would hide that they were meant for something.
        if !fds.is_empty() && !matches!(header.command, command::DMA_MAP | command::DEVICE_SET_IRQS) {
            return Err(Errno::INVAL);
        }
        match header.command {
            command::VERSION => self.version(&body, device),
            command::DMA_MAP => {
                let file = fds.pop();
                if fds.is_empty() { self.dma_map(&body, file, device) } else { Err(Errno::INVAL) }
            }
            command::DMA_UNMAP => self.dma_unmap(&body, device),
            command::DEVICE_GET_INFO => self.device_info(&body),
            command::DEVICE_GET_REGION_INFO => self.region_info(&body),
            command::DEVICE_GET_REGION_IO_FDS => self.region_io_fds(&body),
            command::DEVICE_GET_IRQ_INFO => self.irq_info(&body),
            command::DEVICE_SET_IRQS => self.set_irqs(&body, fds, device),
            command::REGION_READ => self.region_read(&body, device),
            command::REGION_WRITE => self.region_write(&body, device),
            command::REGION_WRITE_MULTI => self.region_write_multi(&body, device),
            command::DEVICE_RESET => {
                if !self.description.resettable {
                    return Err(Errno::OPNOTSUPP);
                }
                self.interrupts.reset();
                device.reset();
                Ok(Reply::default())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn version(&mut self, body: &[u8], device: &mut dyn Device) -> Outcome {
        let proposal = Proposal::parse(body).map_err(|e| {
            tracing::debug!("a client's VERSION: {e}");
            Errno::INVAL
        })?;
        let mut ours = Proposal::ours();
        if proposal.version.0 != ours.version.0 || proposal.capabilities.max_data_xfer_size == 0 {
            return Err(Errno::INVAL);
        }
        ours.version.1 = ours.version.1.min(proposal.version.1);
        ours.capabilities.write_multiple &= proposal.capabilities.write_multiple;
        if let Some(channel) = self.space.channel().as_mut() {
            channel.max_data = proposal.capabilities.max_data_xfer_size.min(MAX_DATA);
        }
        if let Some(session) = &mut self.session {
            session.client = Some(proposal.capabilities);
        }
        device.attached();
        Ok(ours.to_bytes().into())
    }

    fn dma_map(&mut self, body: &[u8], file: Option<OwnedFd>, device: &mut dyn Device) -> Outcome {
        let map: DmaMap = payload(body)?;
        let rights = Rights::from_bits(map.flags).ok_or(Errno::INVAL)?;
        let most = Capabilities::ours().max_dma_maps;
        let file = file.map(|fd| (fd, map.offset));
        self.space.change(false, |books| books.insert(map.address, map.size, rights, file, most))?;
        device.memory_changed(map.address, map.size, rights);
        Ok(Reply::default())
    }

    fn dma_unmap(&mut self, body: &[u8], device: &mut dyn Device) -> Outcome {
        let unmap: DmaUnmap = payload(body)?;
        match unmap.flags {
            0 => self.space.change(true, |books| books.remove(unmap.address, unmap.size))?,
            unmap_flags::ALL if unmap.address == 0 && unmap.size == 0 => {
                self.space.change(true, super::map::DmaMap::clear);
            }
            _ => return Err(Errno::INVAL),
        }
        device.memory_changed(unmap.address, unmap.size, Rights::empty());
        Ok(unmap.as_bytes().to_vec().into())
    }

    fn device_info(&self, body: &[u8]) -> Outcome {
        let _: DeviceInfo = payload(body)?;
        let reset = if self.description.resettable { device_flags::RESET } else { 0 };
        let info = DeviceInfo {
            argsz: size_of::<DeviceInfo>() as u32,
            flags: device_flags::PCI | reset,
            num_regions: region::COUNT.max(self.description.regions.len() as u32),
            num_irqs: irq::COUNT,
        };
        Ok(info.as_bytes().to_vec().into())
    }

    fn region_info(&self, body: &[u8]) -> Outcome {
        let asked: RegionInfo = payload(body)?;
        let count = region::COUNT.max(self.description.regions.len() as u32);
        if asked.index >= count || (asked.argsz as usize) < size_of::<RegionInfo>() {
            return Err(Errno::INVAL);
        }
        let nothing = Region::default();
        let described = self.description.region(asked.index).unwrap_or(&nothing);
        let flag = |on, flag| if on { flag } else { 0 };
        let mut info = RegionInfo {
            argsz: 0,
            flags: flag(described.readable, region_flags::READ)
                | flag(described.writable, region_flags::WRITE),
            index: asked.index,
            cap_offset: 0,
            size: described.size,
            offset: 0,
        };
        let mut fds = Vec::new();
        let areas = match &described.shared {
            None => RegionAreas::None,
            Some(shared) => {
                fds.push(Arc::new(shared.memory.fd().try_clone_to_owned().map_err(|e| errno(&e))?));
                RegionAreas::Sparse(shared.areas.clone())
            }
        };
        let mut body = areas.to_reply(info);
        if body.len() > asked.argsz as usize {
            // No room: how much is needed is the answer. What can be mapped comes when there is room for it; QEMU takes
            // capabilities that are announced and not there for an error, and others might map the whole region.
            info.argsz = body.len() as u32;
            body = info.as_bytes().to_vec();
            fds.clear();
        }
        Ok(Reply { body, fds })
    }

    fn region_io_fds(&self, body: &[u8]) -> Outcome {
        let asked: RegionIoFds = payload(body)?;
        let fixed = size_of::<RegionIoFds>();
        if asked.flags != 0 || (asked.argsz as usize) < fixed {
            return Err(Errno::INVAL);
        }
        let events = &self.description.region(asked.index).ok_or(Errno::INVAL)?.events;
        let most =
            self.session.as_ref().and_then(|session| session.client.as_ref()).map_or(1, |c| c.max_msg_fds);
        let events = &events[..events.len().min(most)];
        let argsz = fixed + events.len() * size_of::<IoEvent>();
        let fits = argsz <= asked.argsz as usize;
        let count = if fits { events.len() as u32 } else { 0 };
        let answer = RegionIoFds { argsz: argsz as u32, flags: 0, index: asked.index, count };
        let mut reply = Reply::from(answer.as_bytes().to_vec());
        for (n, event) in events.iter().enumerate().filter(|_| fits) {
            let described = IoEvent {
                offset: event.offset,
                size: event.size,
                fd_index: n as u32,
                kind: 0,
                flags: u32::from(event.value.is_some()),
                padding: 0,
                datamatch: event.value.unwrap_or(0),
            };
            reply.body.extend_from_slice(described.as_bytes());
            reply.fds.push(event.event.clone());
        }
        Ok(reply)
    }

    fn irq_info(&self, body: &[u8]) -> Outcome {
        let asked: IrqInfo = payload(body)?;
        let count = *self.description.vectors.get(asked.index as usize).ok_or(Errno::INVAL)?;
        let flags = match asked.index {
            irq::INTX => irq_flags::EVENTFD | irq_flags::MASKABLE | irq_flags::AUTOMASKED,
            _ => irq_flags::EVENTFD | irq_flags::MASKABLE,
        };
        let info = IrqInfo { argsz: size_of::<IrqInfo>() as u32, flags, index: asked.index, count };
        Ok(info.as_bytes().to_vec().into())
    }

    fn set_irqs(&mut self, body: &[u8], fds: Vec<OwnedFd>, device: &mut dyn Device) -> Outcome {
        let (set, data) = IrqSet::read_from_prefix(body).map_err(|_| Errno::INVAL)?;
        let bools = match set.flags & irq_set::DATA {
            irq_set::DATA_BOOL => data.get(..set.count as usize).ok_or(Errno::INVAL)?,
            _ => &[],
        };
        self.interrupts.set(set.flags, set.index, set.start, set.count, bools, fds)?;
        device.interrupts_changed(set.index);
        Ok(Reply::default())
    }

    fn region_read(&self, body: &[u8], device: &mut dyn Device) -> Outcome {
        let access: RegionAccess = payload(body)?;
        let described = self.accessed(&access, |region| region.readable)?;
        let fixed = access.as_bytes();
        let mut reply = vec![0; fixed.len() + access.count as usize];
        reply[..fixed.len()].copy_from_slice(fixed);
        let into = &mut reply[fixed.len()..];
        match &described.shared {
            Some(shared) if shared.contain(access.offset, into.len()) => {
                shared.memory.read(access.offset as usize, into);
            }
            _ => device.region_read(access.region, access.offset, into).map_err(|e| errno(&e))?,
        }
        Ok(reply.into())
    }

    fn region_write(&self, body: &[u8], device: &mut dyn Device) -> Outcome {
        let (access, data) = RegionAccess::read_from_prefix(body).map_err(|_| Errno::INVAL)?;
        if data.len() != access.count as usize {
            return Err(Errno::INVAL);
        }
        self.write(&access, data, device)?;
        Ok(access.as_bytes().to_vec().into())
    }

    fn region_write_multi(&self, body: &[u8], device: &mut dyn Device) -> Outcome {
        let (count, mut rest) = u64::read_from_prefix(body).map_err(|_| Errno::INVAL)?;
        let (whole, odd) = (rest.len() / size_of::<SmallWrite>(), rest.len() % size_of::<SmallWrite>());
        if count != whole as u64 || odd != 0 {
            return Err(Errno::INVAL);
        }
        while let Ok((write, more)) = SmallWrite::read_from_prefix(rest) {
            rest = more;
            let data = write.data.get(..write.count as usize).ok_or(Errno::INVAL)?;
            let access = RegionAccess { offset: write.offset, region: write.region, count: write.count };
            self.write(&access, data, device)?;
        }
        Ok(count.as_bytes().to_vec().into())
    }

    fn write(&self, access: &RegionAccess, data: &[u8], device: &mut dyn Device) -> Result<(), Errno> {
        let described = self.accessed(access, |region| region.writable)?;
        match &described.shared {
            Some(shared) if shared.contain(access.offset, data.len()) => {
                shared.memory.write(access.offset as usize, data);
                Ok(())
            }
            _ => device.region_write(access.region, access.offset, data).map_err(|e| errno(&e)),
        }
    }

    /// The region of an access that may be made.
    fn accessed(&self, access: &RegionAccess, may: impl Fn(&Region) -> bool) -> Result<&Region, Errno> {
        let described = self.description.region(access.region).ok_or(Errno::INVAL)?;
        let end = access.offset.checked_add(access.count.into()).ok_or(Errno::INVAL)?;
        if access.count == 0 || access.count as usize > MAX_DATA || end > described.size {
            return Err(Errno::INVAL);
        }
        if may(described) { Ok(described) } else { Err(Errno::ACCESS) }
    }
}

/// A payload of fixed size. More than that is let pass, as later versions of a structure are longer.
fn payload<T: FromBytes + KnownLayout + Immutable>(body: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(body).map(|(payload, _)| payload).map_err(|_| Errno::INVAL)
}

/// What a client is told of an error.
fn errno(e: &io::Error) -> Errno {
    Errno::from_io_error(e).filter(|errno| errno.raw_os_error() != 0).unwrap_or(match e.kind() {
        io::ErrorKind::InvalidInput => Errno::INVAL,
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        io::ErrorKind::Unsupported => Errno::OPNOTSUPP,
        _ => Errno::IO,
    })
}
