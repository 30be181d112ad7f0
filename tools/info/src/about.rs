//! What there is to say about a NIC.

use std::sync::Arc;

use serde::Serialize;
use uvia::{AdapterMemory, Nic, NicOptions};
use uvia_driver::dma::DmaDomain;
use uvia_driver::nic::{self, NicConfig, RingPlace};
use uvia_driver::pci::{self, config};
use uvia_driver::pio::Caching;
use uvia_tools::Failure;

/// A NIC, as `--json` shows it.
#[derive(Debug, Serialize)]
pub struct About {
    pub device: String,
    pub driver: &'static str,
    pub ids: String,
    pub subsystem_ids: String,
    pub mac: String,
    pub link: Link,
    /// Longest payload of a frame that its network surely carries, bytes.
    pub mtu: usize,
    /// Longest frame that the adapter itself sends and receives, bytes with header.
    pub max_frame: usize,
    pub rings: Rings,
    /// Most segments of one frame.
    pub max_segments: usize,
    /// Work on frames that the adapter does for us: the drivers ask for none.
    pub offloads: &'static [&'static str],
    pub interrupts: Interrupts,
    pub classes: Classes,
    pub iova: Iova,
}

#[derive(Debug, Serialize)]
pub struct Link {
    pub up: bool,
    pub speed_mbps: Option<u32>,
    pub full_duplex: Option<bool>,
}

#[derive(Debug, Serialize)]
pub struct Rings {
    pub tx: usize,
    /// The adapter memory that the transmit ring lies in; none where it is the host's.
    pub tx_memory: Option<String>,
    pub rx: usize,
}

/// Vectors of each kind, and whether the driver uses any.
#[derive(Debug, Serialize)]
pub struct Interrupts {
    pub used: bool,
    pub intx: u32,
    pub msi: u32,
    pub msix: u32,
}

/// What endpoints of each class can do.
#[derive(Debug, Serialize)]
pub struct Classes {
    pub dma: Dma,
    /// Adapter memory that the processor stores into.
    pub pio: Pio,
}

/// Class pio: its limits, where there is adapter memory.
#[derive(Debug, Serialize)]
pub struct Pio {
    pub available: bool,
    /// Why not, where it is not.
    pub why: Option<String>,
    pub memory: Option<String>,
    /// How stores reach it: write-combining, uncached or cached.
    pub caching: Option<&'static str>,
    pub windows: usize,
    pub windows_left: usize,
    /// Credits of an interface.
    pub slots: usize,
    /// Longest message, bytes.
    pub mtu: u32,
    /// Bytes that are stored at a time, and their alignment.
    pub store_width: usize,
    pub alignment: usize,
    /// What is lacking, beside class dma.
    pub missing: Vec<&'static str>,
}

impl Pio {
    fn of(nic: &Nic) -> Self {
        match nic.pio() {
            Ok(about) => Self {
                available: true,
                why: None,
                memory: Some(about.memory),
                caching: Some(match about.caching {
                    Caching::WriteCombining => "write-combining",
                    Caching::Uncached => "uncached",
                    Caching::Cached => "cached",
                }),
                windows: about.windows,
                windows_left: about.windows_left,
                slots: about.slots,
                mtu: about.mtu,
                store_width: about.store_width,
                alignment: about.alignment,
                missing: about.missing.names().collect(),
            },
            Err(e) => Self {
                available: false,
                why: Some(match e {
                    // Said for programs; here it is an option that was not given.
                    uvia::Error::ClassUnavailable { .. } => "no --adapter-memory was given".to_owned(),
                    other => other.to_string(),
                }),
                memory: None,
                caching: None,
                windows: 0,
                windows_left: 0,
                slots: 0,
                mtu: 0,
                store_width: 0,
                alignment: 0,
                missing: Vec::new(),
            },
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Dma {
    pub available: bool,
    /// Message bytes in one frame.
    pub native_mtu: usize,
    pub max_transfer_size: u32,
    pub max_vis: usize,
    pub max_depth: usize,
    pub max_segments: usize,
    pub max_cq_entries: usize,
    pub max_regions: usize,
    pub max_private_data: usize,
}

/// The I/O address space.
#[derive(Debug, Serialize)]
pub struct Iova {
    pub page_size: u64,
    pub max_mappings: Option<u64>,
    /// Usable addresses, hexadecimal, first and last.
    pub ranges: Vec<[String; 2]>,
}

impl About {
    /// Opens the NIC, looks, and closes it.
    pub fn of(name: &str, memory: Option<&str>, ring_there: bool) -> Result<Self, Failure> {
        let adapter_memory = memory.map(AdapterMemory::open).transpose()?;
        let tx_ring_place = match (&adapter_memory, ring_there) {
            (Some(memory), true) => RingPlace::Adapter(memory.clone()),
            (None, true) => {
                return Err(Failure::usage(
                    "--ring-in-adapter-memory needs an adapter's memory: give --adapter-memory ADDR or set UVIA_ADAPTER_MEMORY",
                ));
            }
            (_, false) => RingPlace::Host,
        };
        let config = NicConfig { tx_ring_place, ..NicConfig::default() };
        // An adapter on shared memory is no function of anything.
        let (mut adapter, domain, function) = match pci::check_name(name) {
            Ok(()) => {
                let function = pci::open(name)?;
                let domain: Arc<dyn DmaDomain> = function.domain().clone();
                (nic::open(function.clone(), &config)?, domain, Some(function))
            }
            Err(_) => {
                let (adapter, domain) = nic::open_named(name, &config)?;
                (adapter, domain, None)
            }
        };
        let (ids, subsystem_ids) = match &function {
            Some(function) => {
                let (vendor, device) = config::ids(&**function)?;
                let subsystem = (
                    config::read_u16(&**function, config::SUBSYSTEM_VENDOR_ID)?,
                    config::read_u16(&**function, config::SUBSYSTEM_ID)?,
                );
                (format!("{vendor:04x}:{device:04x}"), format!("{:04x}:{:04x}", subsystem.0, subsystem.1))
            }
            None => ("none".to_owned(), "none".to_owned()),
        };
        let [intx, msi, msix] = function.as_ref().map_or([0; 3], |function| {
            let counts = function.interrupts();
            [counts.intx, counts.msi, counts.msix]
        });
        let limits = domain.limits();
        let (properties, link) = (adapter.properties().clone(), adapter.link()?);
        let used = adapter.interrupt().is_some();
        let options = NicOptions { adapter_memory, ..NicOptions::default() };
        let nic = Nic::with_adapter(adapter, domain, options)?;
        let vi = nic.properties().clone();
        Ok(Self {
            device: properties.device,
            driver: properties.driver,
            ids,
            subsystem_ids,
            mac: properties.mac.to_string(),
            link: Link { up: link.up, speed_mbps: link.speed, full_duplex: link.full_duplex },
            mtu: properties.mtu,
            max_frame: properties.max_frame,
            rings: Rings {
                tx: properties.tx_slots,
                tx_memory: properties.tx_ring_memory,
                rx: properties.rx_slots,
            },
            max_segments: properties.max_segments,
            offloads: &[],
            interrupts: Interrupts { used, intx, msi, msix },
            classes: Classes {
                dma: Dma {
                    available: vi.classes.contains(&uvia::EndpointClass::Dma),
                    native_mtu: vi.native_mtu,
                    max_transfer_size: vi.max_transfer_size,
                    max_vis: vi.max_vis,
                    max_depth: vi.max_depth,
                    max_segments: vi.max_segments,
                    max_cq_entries: vi.max_cq_entries,
                    max_regions: vi.max_regions,
                    max_private_data: vi.max_private_data,
                },
                pio: Pio::of(&nic),
            },
            iova: Iova {
                page_size: limits.page_size,
                max_mappings: limits.max_mappings,
                ranges: limits
                    .apertures
                    .iter()
                    .map(|range| [format!("{:#x}", range.start()), format!("{:#x}", range.end())])
                    .collect(),
            },
        })
    }
}
