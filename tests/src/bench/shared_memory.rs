//! Two adapters on shared memory of this host.

use std::sync::atomic::{AtomicU32, Ordering};

use uvia_driver::Result;
use uvia_driver::nic::{self, NicConfig};

use crate::conformance::{Bench, Effort, Opened};

/// A segment of its own for each bench.
pub struct SharedMemory {
    name: String,
}

impl SharedMemory {
    /// A bench with a segment that nobody else knows.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("shm:bench-{}-{n}", std::process::id()) }
    }
}

impl Default for SharedMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench for SharedMemory {
    fn effort(&self) -> Effort {
        Effort::native()
    }

    /// The segment is all that there is.
    fn has_rings(&self) -> bool {
        false
    }

    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]> {
        let open = || nic::open_named(&self.name, config).map(|(nic, domain)| Opened { nic, domain });
        Ok([open()?, open()?])
    }
}
