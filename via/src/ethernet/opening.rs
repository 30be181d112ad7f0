//! How the provider comes to be: the engine is set up for what the adapter is.

use std::collections::HashMap;
use std::sync::Arc;

use uvia_driver::dma::DmaDomain;
use uvia_driver::nic::Nic;
use uvia_driver::pio::AdapterMemory;

use super::answers::Answers;
use super::bell::Bell;
use super::loopback::Loopback;
use super::pio::PioPort;
use super::transmit::Transmitter;
use super::udp::UdpAdapter;
use super::{Due, Ethernet, Port};
use crate::engine::{self, Engine, EngineConfig, Time, Tuning};
use crate::memory::RegionLimits;
use crate::wire::ETHERNET;
use crate::{Clock, Encapsulation, NetAddress, NicProperties, Result};

/// Nanoseconds after which a peer on a lossless wire is asked what has become of a frame.
const LOSSLESS_TIMEOUT: u64 = 500_000_000;

impl Ethernet {
    pub(crate) fn new(
        adapter: Box<dyn Nic>,
        domain: Arc<dyn DmaDomain>,
        name: &str,
        clock: Clock,
        integrity: bool,
        encapsulation: Encapsulation,
        adapter_memory: Option<Arc<AdapterMemory>>,
    ) -> Result<Self> {
        let (adapter, transmitter) = wrapped(adapter, &domain, encapsulation, &clock)?;
        let about = adapter.properties().clone();
        let mut engine = Engine::new(EngineConfig {
            mac: about.mac,
            name: name.to_owned(),
            mtu: about.mtu,
            largest: about.max_frame.saturating_sub(ETHERNET),
            rx_slots: about.rx_slots,
            // One segment of a frame is its header.
            max_segments: about.max_segments - 1,
            seed: random_seed()?,
            lossless: about.lossless,
            tuning: tuning(about.lossless, integrity),
        })?;
        let regions = RegionLimits::of(&*domain);
        engine.regions().limit(regions);
        let adapter_memory = match (adapter_memory, encapsulation) {
            (Some(_), Encapsulation::Udp(_)) => {
                Err("over UDP, headers are written into memory of the host's")
            }
            (Some(memory), Encapsulation::Ethernet) => Ok(memory),
            (None, _) => Err("the NIC was opened without adapter memory (NicOptions::adapter_memory)"),
        };
        let pio = PioPort::new(adapter_memory, engine.native_mtu());
        let properties = NicProperties {
            device: about.device,
            driver: about.driver,
            tx_ring_memory: about.tx_ring_memory,
            mac: about.mac,
            native_mtu: engine.native_mtu(),
            max_transfer_size: engine::MAX_TRANSFER,
            max_vis: engine::MAX_VIS,
            max_segments: engine::MAX_SEGMENTS,
            max_depth: engine::MAX_DEPTH,
            max_cq_entries: 1 << 22,
            max_cqs: crate::cq::MAX_CQS,
            max_tags: crate::tags::MAX_TAGS,
            max_regions: regions.regions,
            max_registered_bytes: regions.bytes,
            max_region_bytes: regions.block,
            max_listeners: engine::MAX_LISTENERS,
            max_discriminator: NetAddress::MAX_DISCRIMINATOR,
            max_private_data: engine::MAX_PRIVATE_DATA,
            encapsulation,
            reliability_levels: Engine::RELIABILITY_LEVELS,
            classes: pio.classes(),
        };
        let port = Port {
            transmitter,
            pio,
            due: Due::empty(),
            answers: Answers::default(),
            asked: HashMap::new(),
            fault: None,
            mac: about.mac,
            loopback: Loopback::default(),
            bell: adapter.interrupt().map(Bell::new).transpose()?,
            armed: false,
        };
        Ok(Self {
            engine,
            adapter,
            port,
            domain,
            properties,
            clock,
            doomed: Vec::new(),
            look_at: Time(0),
            encapsulation,
        })
    }
}

/// Where no frame gets lost, one that is not acknowledged is at a peer that does not run: sending it again would only be
/// more for it to do.
fn tuning(lossless: bool, integrity: bool) -> Tuning {
    let tuning = Tuning { integrity, ..Tuning::default() };
    if !lossless {
        return tuning;
    }
    Tuning {
        rto_min: LOSSLESS_TIMEOUT,
        rto_initial: LOSSLESS_TIMEOUT,
        rto_max: 2 * LOSSLESS_TIMEOUT,
        ..tuning
    }
}

/// The adapter as the engine sees it, and what puts frames into it.
fn wrapped(
    adapter: Box<dyn Nic>,
    domain: &Arc<dyn DmaDomain>,
    encapsulation: Encapsulation,
    clock: &Clock,
) -> Result<(Box<dyn Nic>, Transmitter)> {
    match encapsulation {
        Encapsulation::Ethernet => {
            let transmitter = Transmitter::new(domain, adapter.properties())?;
            Ok((adapter, transmitter))
        }
        Encapsulation::Udp(options) => {
            let mut adapter = Box::new(UdpAdapter::new(adapter, domain, options, clock.clone())?);
            let transmitter = Transmitter::new(domain, adapter.properties())?;
            adapter.share(transmitter.slots());
            Ok((adapter, transmitter))
        }
    }
}

/// A seed for connection identities that nobody off the path can guess.
fn random_seed() -> Result<u64> {
    let mut seed = [0u8; 8];
    // SAFETY: 8 bytes of ours; the call writes at most as many.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    if got != seed.len() as isize {
        return Err(uvia_driver::Error::last_os("getrandom for connection identities").into());
    }
    Ok(u64::from_ne_bytes(seed))
}
