//! Which NIC, and by which name we are known on it.

use std::path::PathBuf;

use crate::Failure;

/// The options that every tool takes which opens a NIC; flatten them into the tool's own.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct NicArgs {
    /// NIC to use: a PCI address such as 0000:01:00.0, on vfio-pci (see `uvia-bind`), vfio-user:PATH of a socket at
    /// which one is served, or shm:NAME for memory that processes of this host share
    #[arg(long, visible_alias = "device", value_name = "DEV", env = "UVIA_NIC", hide_env_values = true)]
    pub nic: Option<String>,

    /// Name by which this host is found by others [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// File of known hosts: a line each, station address and names
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,

    /// Packed virtqueues, on virtio devices that offer them; the NIC's name in the output is then virtio-packed
    #[arg(long)]
    pub packed_rings: bool,
}

impl NicArgs {
    /// The device that was chosen.
    ///
    /// # Errors
    /// None was; an empty UVIA_NIC counts as none.
    pub fn device(&self) -> Result<&str, Failure> {
        given_device(self.nic.as_deref())
    }
}

/// The device of an option that may be missing.
///
/// # Errors
/// There is none, or it is empty.
pub fn given_device(nic: Option<&str>) -> Result<&str, Failure> {
    nic.filter(|device| !device.is_empty()).ok_or_else(|| {
        Failure::usage(
            "which NIC? Give --nic DEV (a PCI address such as 0000:01:00.0, vfio-user:PATH or shm:NAME) or set UVIA_NIC; `uvia-bind status` lists those of this machine",
        )
    })
}
