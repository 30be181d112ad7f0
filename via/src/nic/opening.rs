//! How a NIC comes to be, and how it ends.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uvia_driver::dma::DmaDomain;
use uvia_driver::nic as adapter;

use super::hosts::system_host_name;
use super::options::Agreed;
use super::{Core, Nic, NicOptions, Opened, Progress, Shared};
use crate::devices::{self, Registered};
use crate::ethernet::Ethernet;
use crate::handle::Handle;
use crate::hosts::Hosts;
use crate::provider::{AnyProvider, Provider};
use crate::seldom::Seldom;
use crate::sinks::Sinks;
use crate::tags::Tags;
use crate::turn::Turn;
use crate::{Result, sleep};

static NEXT_NIC: AtomicU32 = AtomicU32::new(1);

impl Nic {
    /// Opens the device called `device` (a PCI address, `vfio-user:PATH`, or `shm:NAME` for shared memory of this host;
    /// see [`uvia_driver::nic::check_name`]) in a DMA domain of its own. Where this process has it open, this is one more
    /// handle to the same NIC.
    ///
    /// # Errors
    /// What keeps the device from being opened, by name and with the way out; [`Error::Parameter`](crate::Error::Parameter) when it is open with
    /// other options (a name, a hosts file, an adapter's set-up or a wish for checks that are not the default must be
    /// those of the first; the clock is the first one's).
    pub fn open(device: &str, options: NicOptions) -> Result<Self> {
        let ours = options.clone();
        let (shared, known) = devices::open(device, |registered| {
            let (adapter, domain) = adapter::open_named(device, &ours.adapter)?;
            Shared::open(adapter, domain, ours, Some(registered))
        })?;
        if known {
            shared.agree(&options)?;
        }
        if options.progress == Progress::Thread {
            shared.start_background()?;
        }
        Ok(Self::opened(shared))
    }

    /// One more handle of its own to the same NIC, as by [`Nic::open`].
    pub fn open_again(&self) -> Self {
        Self::opened(self.0.shared.clone())
    }
    fn opened(shared: Handle) -> Self {
        let number = shared.openings.fetch_add(1, Ordering::Relaxed) + 1;
        Self(Arc::new(Opened { shared, number }))
    }

    /// Makes a NIC of an adapter that is open already; its memory is mapped into `domain`, which must be the
    /// one that the adapter lives in. Several NICs may share a domain.
    ///
    /// # Errors
    /// No memory for headers, a hosts file that cannot be read, or an IPv4 address that cannot be.
    pub fn with_adapter(
        adapter: Box<dyn adapter::Nic>,
        domain: Arc<dyn DmaDomain>,
        options: NicOptions,
    ) -> Result<Self> {
        let progress = options.progress;
        let shared = Shared::open(adapter, domain, options, None)?;
        if progress == Progress::Thread {
            shared.start_background()?;
        }
        Ok(Self::opened(shared))
    }
}

impl Shared {
    /// A NIC of an adapter, and the first handle to it.
    fn open(
        adapter: Box<dyn adapter::Nic>,
        domain: Arc<dyn DmaDomain>,
        options: NicOptions,
        registered: Option<Registered>,
    ) -> Result<Handle> {
        let agreed = Agreed::of(&options);
        let name = match options.name {
            Some(name) => name,
            None => system_host_name(),
        };
        let hosts = Hosts::load(options.hosts.as_deref(), options.encapsulation)?;
        let id = NEXT_NIC.fetch_add(1, Ordering::Relaxed);
        let mut provider = Ethernet::new(
            adapter,
            domain,
            &name,
            options.clock,
            options.integrity,
            options.encapsulation,
            options.adapter_memory.clone(),
        )?;
        for (name, mac) in hosts.iter() {
            provider.add_host(name, mac)?;
        }
        let properties = provider.properties().clone();
        let sinks = Sinks::new();
        let callbacks = sinks.callbacks().clone();
        let posts = sinks.posts().clone();
        Ok(Handle::first(Self {
            core: Turn::new(Core {
                tags: Tags::new(id),
                cqs: 0,
                turns: 0,
                sinks,
                provider: AnyProvider::Ethernet(Box::new(provider)),
            }),
            posts,
            properties,
            id,
            name,
            hosts,
            agreed,
            sleepers: sleep::Sleepers::default(),
            standstill: Arc::default(),
            background: Mutex::new(None),
            dozing: AtomicBool::new(false),
            callbacks,
            failed: AtomicBool::new(false),
            faults: Seldom::new(),
            handles: AtomicUsize::new(1),
            openings: AtomicU32::new(0),
            _registered: registered,
        }))
    }

    /// The last handle is gone.
    pub(crate) fn close(&self) {
        // It holds what this is made of, and drives it: it goes first.
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(background);
        self.standstill.leave();
        self.callbacks.end();
        let mut core = self.core();
        let core = &mut *core;
        core.provider.close(&mut core.sinks);
    }
}
