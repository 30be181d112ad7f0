//! Which NICs could be shown.

use serde::Serialize;
use uvia_driver::nic::driver_for;
use uvia_driver::pci::{Function, Sysfs};
use uvia_tools::{Failure, print_json, print_line};

/// A function on vfio-pci that a driver here is for.
#[derive(Debug, Serialize)]
struct Candidate {
    device: String,
    ids: String,
    driver: &'static str,
    iommu_group: Option<u32>,
}

impl Candidate {
    fn of(function: &Function) -> Option<Self> {
        let driver = driver_for(function.vendor, function.device).filter(|_| function.is_on_vfio())?;
        Some(Self {
            device: function.address.to_string(),
            ids: format!("{:04x}:{:04x}", function.vendor, function.device),
            driver,
            iommu_group: function.group,
        })
    }
}

/// Lists them. None is no failure.
pub fn run(sysfs: &Sysfs, json: bool) -> Result<(), Failure> {
    let functions = sysfs.network_functions()?;
    let candidates: Vec<_> = functions.iter().filter_map(Candidate::of).collect();
    if candidates.is_empty() {
        eprintln!(
            "uvia-info: no NIC that is driven here is on vfio-pci; `uvia-bind status` shows what there is"
        );
    }
    for candidate in &candidates {
        if json {
            print_json(candidate)?;
        } else {
            print_line(format_args!("{}  {}  {}", candidate.device, candidate.ids, candidate.driver))?;
        }
    }
    Ok(())
}
