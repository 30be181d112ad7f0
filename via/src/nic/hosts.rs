//! Hosts: what this one is called, and which others there are.

use std::time::Duration;

use super::Nic;
use crate::sleep;
use crate::{Encapsulation, Error, MacAddress, Result, UdpOptions};

impl Nic {
    /// This host's name, by which others find it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The other stations that are known to be there without being asked: on shared memory, the ports of other processes
    /// of this host; on a network, none.
    pub fn neighbours(&self) -> Vec<MacAddress> {
        self.0.core().provider.neighbours()
    }

    /// Finds a host by its name: in the hosts file, else by asking all of the network for up to `timeout`. Over UDP
    /// that is all of the subnet, and an IPv4 address is a name too.
    ///
    /// # Errors
    /// [`Error::UnknownHost`].
    pub fn resolve(&self, name: &str, timeout: Duration) -> Result<MacAddress> {
        if name == self.0.name {
            return Ok(self.0.properties.mac);
        }
        if let Some(mac) = self.0.hosts.get(name) {
            return Ok(mac);
        }
        if let Encapsulation::Udp(_) = self.0.properties.encapsulation
            && let Ok(address) = name.parse()
        {
            return Ok(UdpOptions::host(address));
        }
        {
            let mut core = self.0.core();
            let core = &mut *core;
            core.sinks.forget_name(name);
            core.provider.resolve(name, timeout, &mut core.sinks)?;
        }
        let found = self.0.wait(sleep::beyond(timeout), |_| {
            self.0.progress()?;
            Ok(self.0.core().sinks.take_name(name))
        })?;
        found
            .flatten()
            .ok_or_else(|| Error::UnknownHost { name: name.to_owned(), millis: timeout.as_millis() as u64 })
    }
}

/// The system's host name, or "localhost" where it has none.
pub(super) fn system_host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}
