//! How a NIC is opened, and what those who open it together agree on.

use std::path::PathBuf;
use std::sync::Arc;

use uvia_driver::nic as adapter;
use uvia_driver::pio::AdapterMemory;

use super::Shared;
use crate::{Clock, Encapsulation, Error, Result};

/// How a NIC is opened.
#[derive(Debug, Clone, Default)]
pub struct NicOptions {
    /// This host's name, by which others find it. Default: the system's host name.
    pub name: Option<String>,
    /// A hosts file (lines of `ADDRESS NAME...`, a station's or an IPv4 address; those of the other kind than the
    /// encapsulation's are passed over). Default: /etc/uvia.hosts, where there is one.
    pub hosts: Option<PathBuf>,
    /// How the adapter is set up.
    pub adapter: adapter::NicConfig,
    /// Where it has its time from.
    pub clock: Clock,
    /// Who drives it.
    pub progress: Progress,
    /// End-to-end checksums (CRC32C) on every frame; used when either end asks for them.
    pub integrity: bool,
    /// What frames are wrapped in.
    pub encapsulation: Encapsulation,
    /// Memory of an adapter, for interfaces of class [`EndpointClass::Pio`](crate::EndpointClass::Pio). NICs of a process may share it.
    pub adapter_memory: Option<Arc<AdapterMemory>>,
}

/// Who drives a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// The program, by its calls.
    #[default]
    Caller,
    /// The program, and a thread of the NIC's whenever it does not.
    Thread,
}

/// What those who open a NIC together agree on.
pub(super) struct Agreed {
    hosts: Option<PathBuf>,
    adapter: adapter::NicConfig,
    integrity: bool,
    adapter_memory: Option<Arc<AdapterMemory>>,
}

impl Agreed {
    pub(super) fn of(options: &NicOptions) -> Self {
        let NicOptions { hosts, adapter, integrity, adapter_memory, .. } = options.clone();
        Self { hosts, adapter, integrity, adapter_memory }
    }
}

impl Shared {
    /// Refuses options that are not those that the NIC is open with.
    pub(super) fn agree(&self, options: &NicOptions) -> Result<()> {
        let differs = |what: &str| {
            Err(Error::Parameter(format!(
                "{} is open in this process with another {what}: leave the option at its default, or close it first",
                self.properties.device
            )))
        };
        let Agreed { hosts, adapter, integrity, adapter_memory } = &self.agreed;
        if options.name.as_ref().is_some_and(|name| *name != self.name) {
            return differs("host name");
        }
        if options.hosts.is_some() && options.hosts != *hosts {
            return differs("hosts file");
        }
        if options.adapter != adapter::NicConfig::default() && options.adapter != *adapter {
            return differs("set-up of the adapter");
        }
        if options.integrity && !integrity {
            return differs("choice of end-to-end checks");
        }
        let name =
            |memory: &Option<Arc<AdapterMemory>>| memory.as_ref().map(|memory| memory.name().to_owned());
        if options.adapter_memory.is_some() && name(&options.adapter_memory) != name(adapter_memory) {
            return differs("adapter memory");
        }
        let encapsulation = options.encapsulation;
        if encapsulation != Encapsulation::default() && encapsulation != self.properties.encapsulation {
            return differs("encapsulation");
        }
        Ok(())
    }
}
