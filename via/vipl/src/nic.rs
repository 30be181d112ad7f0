//! Open NICs and their protection tags.

use std::ffi::{c_char, c_ulong};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use uvia::{MacAddress, ProtectionTag, ReliabilityLevel};

use crate::connect::CONNECTIONS;
use crate::device::Device;
use crate::errors::{self, Callback};
use crate::handles::{Kind, Table};
use crate::memory::Memory;
use crate::types::{self, Handle, NicAttributes, Return};
use crate::waits::Sleepers;
use crate::{cq, vi};

pub(crate) static NICS: Table<Nic> = Table::new(Kind::Nic);
pub(crate) static PTAGS: Table<Ptag> = Table::new(Kind::Ptag);

/// Most descriptors of a work queue.
pub(crate) const MAX_DEPTH: usize = 1024;

/// A device, as one VipOpenNic sees it.
pub(crate) struct Nic {
    /// Its handle, as a number.
    pub(crate) handle: usize,
    pub(crate) device: Arc<Device>,
    /// A handle to it of its own, by which errors are told apart.
    pub(crate) own: uvia::Nic,
    /// What the program called it.
    name: String,
    mac: [u8; 6],
    /// Of interfaces and memory without a tag of the program's.
    pub(crate) tag: ProtectionTag,
    pub(crate) memory: Memory,
    pub(crate) errors: Callback,
    /// Who waits on it.
    pub(crate) sleepers: Sleepers,
    /// Whether the name service was begun.
    pub(crate) names: AtomicBool,
    /// Stations whose names the program has asked for.
    pub(crate) known: Mutex<Vec<(MacAddress, String)>>,
}

/// A protection tag.
pub(crate) struct Ptag {
    /// The NIC that it was made for.
    pub(crate) nic: usize,
    pub(crate) tag: ProtectionTag,
}

/// VipOpenNic.
pub(crate) fn open(name: &str) -> Result<Handle, Return> {
    let refuse = |e: uvia::Error| {
        eprintln!("vipl: opening {name:?}: {e}");
        Return::ErrorResource
    };
    let device = Device::open(name).map_err(refuse)?;
    let tag = device.nic.create_tag().map_err(refuse)?;
    let mac = device.nic.properties().mac.0;
    let own = device.nic.open_again();
    let inserted = NICS.insert(|handle| Nic {
        handle: handle.addr(),
        device,
        own,
        name: name.to_owned(),
        mac,
        tag,
        memory: Memory::default(),
        errors: Callback::default(),
        sleepers: Sleepers::default(),
        names: AtomicBool::new(false),
        known: Mutex::default(),
    });
    let (handle, nic) = inserted.ok_or(Return::ErrorResource)?;
    let number = handle.addr();
    nic.own.set_error_handler(move |error| errors::happened(number, error)).map_err(refuse)?;
    Ok(handle)
}

/// VipCloseNic. What the program has not destroyed goes with it.
pub(crate) fn close(handle: Handle) -> Result<(), Return> {
    let nic = NICS.remove(handle).ok_or(Return::InvalidParameter)?;
    nic.sleepers.wake();
    nic.own.clear_error_handler();
    let of = nic.handle;
    for connection in CONNECTIONS.find(|connection| connection.nic == of) {
        drop(CONNECTIONS.remove(connection));
    }
    for vi in vi::all(|vi| vi.nic.handle == of) {
        vi.bury();
    }
    for cq in cq::all(|cq| cq.nic.handle == of) {
        cq.bury();
    }
    nic.memory.clear();
    for ptag in PTAGS.find(|ptag| ptag.nic == of) {
        if let Some(ptag) = PTAGS.remove(ptag) {
            nic.end_tag(ptag.tag);
        }
    }
    Ok(())
}

/// VipQueryNic.
pub(crate) fn query(nic: &Nic) -> NicAttributes {
    let properties = nic.device.nic.properties();
    let mut name = [0 as c_char; 64];
    // The last byte stays 0.
    for (to, from) in name[..63].iter_mut().zip(nic.name.bytes()) {
        *to = from as c_char;
    }
    let version = |part: &str| part.parse::<c_ulong>().unwrap_or(0);
    let levels = properties.reliability_levels;
    let support = levels.iter().fold(0, |mask, level| mask | level_bit(*level));
    NicAttributes {
        name,
        hardware_version: 1,
        provider_version: version(env!("CARGO_PKG_VERSION_MAJOR")) << 16
            | version(env!("CARGO_PKG_VERSION_MINOR")),
        nic_address_len: nic.mac.len() as u16,
        local_nic_address: nic.mac.as_ptr(),
        thread_safe: 1,
        max_discriminator_len: properties.max_discriminator as u16,
        max_register_bytes: properties.max_registered_bytes,
        max_register_regions: properties.max_regions as c_ulong,
        max_register_block_bytes: properties.max_region_bytes,
        max_vi: properties.max_vis as c_ulong,
        max_descriptors_per_queue: MAX_DEPTH as c_ulong,
        max_segments_per_desc: properties.max_segments as c_ulong,
        max_cq: properties.max_cqs as c_ulong,
        max_cq_entries: properties.max_cq_entries as c_ulong,
        max_transfer_size: properties.max_transfer_size.into(),
        native_mtu: properties.native_mtu as c_ulong,
        max_ptags: properties.max_tags as c_ulong,
        reliability_level_support: support,
        // Reads need a connection that repeats what was lost.
        rdma_read_support: support & !types::UNRELIABLE,
    }
}

/// The bit of a level.
pub(crate) fn level_bit(level: ReliabilityLevel) -> u16 {
    match level {
        ReliabilityLevel::Unreliable => types::UNRELIABLE,
        ReliabilityLevel::ReliableDelivery => types::RELIABLE_DELIVERY,
        ReliabilityLevel::ReliableReception => types::RELIABLE_RECEPTION,
    }
}

/// The level of a bit; one bit alone names one.
pub(crate) fn level(bit: u16) -> Result<ReliabilityLevel, Return> {
    match bit {
        types::UNRELIABLE => Ok(ReliabilityLevel::Unreliable),
        types::RELIABLE_DELIVERY => Ok(ReliabilityLevel::ReliableDelivery),
        types::RELIABLE_RECEPTION => Ok(ReliabilityLevel::ReliableReception),
        _ => Err(Return::InvalidReliabilityLevel),
    }
}

/// VipCreatePtag.
pub(crate) fn create_ptag(nic: &Nic) -> Result<Handle, Return> {
    let tag = nic.device.nic.create_tag().map_err(|_| Return::ErrorResource)?;
    let (handle, _) = PTAGS.insert(|_| Ptag { nic: nic.handle, tag }).ok_or_else(|| {
        nic.end_tag(tag);
        Return::ErrorResource
    })?;
    Ok(handle)
}

/// VipDestroyPtag. Refused while memory or an interface has it.
pub(crate) fn destroy_ptag(nic: &Nic, ptag: Handle) -> Result<(), Return> {
    PTAGS.get(ptag).filter(|tag| tag.nic == nic.handle).ok_or(Return::InvalidParameter)?;
    let of_interface = !vi::all(|vi| vi.nic.handle == nic.handle && vi.has_ptag(ptag)).is_empty();
    if of_interface || nic.memory.uses(ptag) {
        return Err(Return::ErrorResource);
    }
    let tag = PTAGS.remove(ptag).ok_or(Return::InvalidParameter)?;
    vi::forget_memory(nic);
    nic.memory.unshare(tag.tag);
    nic.end_tag(tag.tag);
    Ok(())
}

impl Nic {
    fn end_tag(&self, tag: ProtectionTag) {
        if let Err(e) = self.device.nic.destroy_tag(tag) {
            tracing::debug!("ending a protection tag: {e}");
        }
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        self.memory.clear();
        self.end_tag(self.tag);
    }
}
