//! The name service.

use std::sync::atomic::Ordering;
use std::time::Duration;

use uvia::MacAddress;

use crate::config::Config;
use crate::device::lock;
use crate::nic::Nic;
use crate::types::Return;

/// How long the network is asked for a name.
const PATIENCE: Duration = Duration::from_secs(2);

/// Names that always mean this host.
const HERE: &[&str] = &["localhost", "127.0.0.1", "::1"];

fn begun(nic: &Nic) -> Result<(), Return> {
    // Relaxed: a flag with nothing behind it.
    if nic.names.load(Ordering::Relaxed) { Ok(()) } else { Err(Return::ErrorNameService) }
}

/// VipNSGetHostByName: the station, of several the `index`-th.
pub(crate) fn by_name(nic: &Nic, name: &str, index: usize) -> Result<MacAddress, Return> {
    begun(nic)?;
    let config = Config::system();
    if config.stations(name).next().is_some() {
        return config.stations(name).nth(index).ok_or(Return::ErrorNameService);
    }
    if index != 0 || name.is_empty() {
        return Err(Return::ErrorNameService);
    }
    let nic_of = &nic.device.nic;
    let station = if HERE.contains(&name) || name == nic_of.name() {
        nic_of.properties().mac
    } else if let Ok(station) = name.parse() {
        station
    } else {
        nic_of.resolve(name, PATIENCE).map_err(|e| {
            tracing::info!("looking for {name:?}: {e}");
            Return::ErrorNameService
        })?
    };
    let mut known = lock(&nic.known);
    if !known.iter().any(|(mac, _)| *mac == station) {
        known.push((station, name.to_owned()));
    }
    Ok(station)
}

/// VipNSGetHostByAddr.
pub(crate) fn by_address(nic: &Nic, station: MacAddress) -> Result<String, Return> {
    begun(nic)?;
    if let Some(name) = Config::system().name_of(station) {
        return Ok(name.to_owned());
    }
    if station == nic.device.nic.properties().mac {
        return Ok(nic.device.nic.name().to_owned());
    }
    let known = lock(&nic.known);
    known
        .iter()
        .find(|(mac, _)| *mac == station)
        .map(|(_, name)| name.clone())
        .ok_or(Return::ErrorNameService)
}
