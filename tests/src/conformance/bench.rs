//! Where pairs of NICs come from.

use std::sync::Arc;

use uvia_driver::Result;
use uvia_driver::dma::DmaDomain;
use uvia_driver::nic::{Nic, NicConfig};

use super::{Effort, Memory};

/// A NIC, and the domain that memory for it is mapped in.
pub struct Opened {
    /// The NIC.
    pub nic: Box<dyn Nic>,
    /// Its domain, which may be that of the other one, too.
    pub domain: Arc<dyn DmaDomain>,
}

/// What becomes of a NIC's cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Put in.
    Plugged,
    /// Pulled.
    Pulled,
}

/// Two NICs on one wire, which can be opened again and again.
pub trait Bench: Sync {
    /// How much may be asked of it.
    fn effort(&self) -> Effort;

    /// Opens both; neither is open.
    ///
    /// # Errors
    /// What keeps one of them from coming up.
    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]>;

    /// Memory that frames can be sent from: an adapter's, where there is one; else a memfd does.
    fn adapter_memory(&self) -> Memory {
        Memory::of_host()
    }

    /// Whether the NICs have transmit rings in memory, which can lie in an adapter's.
    fn has_rings(&self) -> bool {
        true
    }

    /// Pulls the cable of one of them, or puts it in again. Only benches that can are asked.
    fn cable(&self, _end: usize, _line: Line) {
        unimplemented_by_this_bench("pull cables");
    }

    /// Takes one of the devices away while it is open. Only benches that can are asked.
    fn remove(&self, _end: usize) {
        unimplemented_by_this_bench("remove devices");
    }

    /// Frames to one of them that were dropped since it was first opened, because its receiver had no room for them,
    /// where the wire counts them.
    fn dropped(&self, _end: usize) -> Option<u64> {
        None
    }

    /// How often a device reached for memory that was not mapped for it, where that is counted.
    fn stray(&self) -> Option<u64> {
        None
    }

    /// Mappings in force, where they are counted.
    fn mapped(&self) -> Option<usize> {
        None
    }
}

fn unimplemented_by_this_bench(what: &str) -> ! {
    panic!("this bench cannot {what}: leave out the topics that need it")
}
