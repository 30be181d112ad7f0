//! Devices as they are.

use uvia_driver::Result;
use uvia_driver::nic::{self, NicConfig};
use uvia_driver::pci;

use crate::conformance::{Bench, Effort, Memory, Opened};

/// Two NICs back to back, named by `UVIA_NIC_A` and `UVIA_NIC_B`, on vfio-pci in a machine with an IOMMU. Which kinds
/// they are makes no difference, and they may differ.
#[derive(Debug, Clone, Copy, Default)]
pub struct InGuest;

/// The device that a variable names.
///
/// # Panics
/// When it names none.
fn name(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} names no device"))
}

impl Bench for InGuest {
    fn effort(&self) -> Effort {
        Effort::Guest
    }

    fn adapter_memory(&self) -> Memory {
        match std::env::var("UVIA_ADAPTER_MEMORY") {
            Ok(name) => Memory::of_function(&name),
            Err(_) => Memory::of_host(),
        }
    }

    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]> {
        let names = [name("UVIA_NIC_A"), name("UVIA_NIC_B")];
        // One domain: memory of either end is mapped for both.
        let domain = pci::new_domain(&names[0])?;
        let open = |name: &str| -> Result<Opened> {
            let nic = nic::open(domain.clone().open(name)?, config)?;
            Ok(Opened { nic, domain: domain.clone() })
        };
        Ok([open(&names[0])?, open(&names[1])?])
    }
}
