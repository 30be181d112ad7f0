//! Which NIC, by which name we are known on it, and what its frames are wrapped in.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use uvia::{Encapsulation, NicOptions, UdpOptions};

use crate::Failure;

/// What frames are wrapped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Encap {
    /// Ethernet alone
    #[default]
    Ethernet,
    /// UDP over IPv4, which routers forward
    Udp,
}

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

    /// File of known hosts: a line each, address and names [default: /etc/uvia.hosts, where there is one]
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,

    /// What frames are wrapped in; the same at both ends
    #[arg(long, value_enum, default_value_t = Encap::Ethernet)]
    pub encap: Encap,

    /// With --encap udp: the NIC's IPv4 address and the bits of its subnet, such as 10.0.0.1/24. It is the NIC's alone;
    /// with a pair of NICs the second has the next one
    #[arg(long, value_name = "ADDRESS/BITS")]
    pub address: Option<UdpOptions>,

    /// With --encap udp: the router to hosts beyond the subnet
    #[arg(long, value_name = "ADDRESS")]
    pub gateway: Option<Ipv4Addr>,

    /// With --encap udp: the port at both ends [default: 34997]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// Check every frame from end to end by CRC32C; used when either end asks for it
    #[arg(long)]
    pub integrity: bool,

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

    /// How the NIC is to be opened.
    ///
    /// # Errors
    /// Options of UDP without it, or it without an address.
    pub fn options(&self) -> Result<NicOptions, Failure> {
        let mut options = NicOptions {
            name: self.name.clone(),
            hosts: self.hosts.clone(),
            integrity: self.integrity,
            encapsulation: self.encapsulation()?,
            ..NicOptions::default()
        };
        options.adapter.packed_rings = self.packed_rings;
        Ok(options)
    }

    fn encapsulation(&self) -> Result<Encapsulation, Failure> {
        match (self.encap, self.address) {
            (Encap::Udp, Some(options)) => Ok(Encapsulation::Udp(UdpOptions {
                gateway: self.gateway,
                port: self.port.unwrap_or(options.port),
                ..options
            })),
            (Encap::Udp, None) => {
                Err(Failure::usage("--encap udp needs an address of the NIC's own: --address 10.0.0.1/24"))
            }
            (Encap::Ethernet, None) if self.gateway.is_none() && self.port.is_none() => {
                Ok(Encapsulation::Ethernet)
            }
            (Encap::Ethernet, _) => {
                Err(Failure::usage("--address, --gateway and --port go with --encap udp only"))
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_udp_go_with_it_alone() {
        let address = Some("10.0.0.1/24".parse().unwrap());
        let gateway = Some(Ipv4Addr::new(10, 0, 0, 254));
        let udp = NicArgs { encap: Encap::Udp, address, gateway, port: Some(7), ..NicArgs::default() };
        let Encapsulation::Udp(options) = udp.options().unwrap().encapsulation else { panic!() };
        assert_eq!((options.gateway, options.port, options.prefix), (gateway, 7, 24));
        let usual = NicArgs { port: None, ..udp.clone() };
        let Encapsulation::Udp(options) = usual.options().unwrap().encapsulation else { panic!() };
        assert_eq!(options.port, UdpOptions::PORT);
        assert_eq!(NicArgs::default().options().unwrap().encapsulation, Encapsulation::Ethernet);
        let none = NicArgs::default();
        for wrong in [
            NicArgs { address: None, ..udp.clone() },
            NicArgs { encap: Encap::Ethernet, ..udp },
            NicArgs { gateway, ..none.clone() },
            NicArgs { port: Some(1), ..none },
        ] {
            assert!(matches!(wrong.options(), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
