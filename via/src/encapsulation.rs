//! What frames are wrapped in: Ethernet alone, or UDP over IPv4 for networks that carry only that.

use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::{Error, MacAddress, Result};

/// What frames are wrapped in. Both ends of a connection use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Encapsulation {
    /// Ethernet frames of an EtherType of their own.
    #[default]
    Ethernet,
    /// Datagrams of UDP over IPv4, which routers forward.
    Udp(UdpOptions),
}

/// How a NIC takes part in an IPv4 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpOptions {
    /// The NIC's address. It is the NIC's alone: no kernel uses it.
    pub address: Ipv4Addr,
    /// Bits of the address that are its subnet's, 1 to 32. Hosts of the subnet are reached with no router.
    pub prefix: u8,
    /// The router to all other hosts, an address of the subnet. Without one they cannot be reached.
    pub gateway: Option<Ipv4Addr>,
    /// The port, at both ends. All hosts that talk to each other use the same.
    pub port: u16,
}

/// What the address of a host begins with that is made of an IPv4 address: locally administered, and one station.
const PREFIX: [u8; 2] = [2, 0];

impl UdpOptions {
    /// The port unless another is set: the number of our EtherType.
    pub const PORT: u16 = 0x88b5;

    /// An address in a subnet whose number has `prefix` bits, with no router, at the usual port.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Self {
        Self { address, prefix, gateway: None, port: Self::PORT }
    }

    /// What the VI layer calls the host with an IPv4 address: 02:00, and its four bytes.
    pub fn host(address: Ipv4Addr) -> MacAddress {
        let [a, b, c, d] = address.octets();
        MacAddress([PREFIX[0], PREFIX[1], a, b, c, d])
    }

    /// The IPv4 address that a host's address was made of; none for others.
    pub fn address_of(host: MacAddress) -> Option<Ipv4Addr> {
        let [p, q, a, b, c, d] = host.0;
        ([p, q] == PREFIX).then_some(Ipv4Addr::new(a, b, c, d))
    }

    /// The bits of the subnet's number.
    pub fn netmask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0))
    }

    /// The address of all hosts of the subnet; of all on the wire where the subnet is too small to have one.
    pub fn broadcast(&self) -> Ipv4Addr {
        if self.prefix > 30 {
            return Ipv4Addr::BROADCAST;
        }
        Ipv4Addr::from_bits(self.address.to_bits() | !self.netmask().to_bits())
    }

    /// Whether a host is in the subnet.
    pub fn is_near(&self, host: Ipv4Addr) -> bool {
        let mask = self.netmask().to_bits();
        host.to_bits() & mask == self.address.to_bits() & mask
    }

    /// Who a datagram to a host is handed to: itself, or the router. None where there is no way.
    pub(crate) fn next_hop(&self, host: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.is_near(host) { Some(host) } else { self.gateway }
    }

    /// Whether one host can have that address: it is none of many, and not the subnet's own number.
    pub(crate) fn is_one_host(&self, host: Ipv4Addr) -> bool {
        let reserved = host.octets()[0] >= 224 || host.octets()[0] == 0 || host.is_loopback();
        let number =
            self.prefix <= 30 && self.is_near(host) && host.to_bits() & !self.netmask().to_bits() == 0;
        !reserved && !number && host != self.broadcast()
    }

    /// # Errors
    /// [`Error::Parameter`] for what cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { address, prefix, gateway, port } = self;
        if !(1..=32).contains(prefix) {
            return Err(Error::Parameter(format!("a subnet's number has 1 to 32 bits, not {prefix}")));
        }
        if !self.is_one_host(*address) {
            return Err(Error::Parameter(format!("{address}/{prefix} is no address that one host can have")));
        }
        if let Some(gateway) = gateway
            && (!self.is_near(*gateway) || !self.is_one_host(*gateway) || gateway == address)
        {
            return Err(Error::Parameter(format!(
                "{gateway} is no router for {address}/{prefix}: it has to be another host of the subnet"
            )));
        }
        if *port == 0 {
            return Err(Error::Parameter("UDP has no port 0".to_owned()));
        }
        Ok(())
    }

    /// # Errors
    /// [`Error::Parameter`] for the address of a host that there is no way to.
    pub(crate) fn check_way(&self, host: MacAddress) -> Result<()> {
        let Some(address) = Self::address_of(host).filter(|address| self.is_one_host(*address)) else {
            return Err(Error::Parameter(format!(
                "{host} is not made of the IPv4 address of one host, as hosts over UDP are"
            )));
        };
        match self.next_hop(address) {
            Some(_) => Ok(()),
            None => Err(Error::Parameter(format!(
                "{address} is beyond {}/{}, and no gateway was given",
                self.address, self.prefix
            ))),
        }
    }
}

impl FromStr for UdpOptions {
    type Err = Error;

    /// Reads `ADDRESS/BITS`, such as 10.0.0.1/24.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::Parameter(format!(
                "{text:?} is not an address and the bits of its subnet, such as 10.0.0.1/24"
            ))
        };
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let options = Self::new(address.parse().map_err(|_| bad())?, prefix.parse().map_err(|_| bad())?);
        options.check()?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn subnets_have_their_numbers() {
        let options: UdpOptions = "10.1.2.3/20".parse().unwrap();
        assert_eq!((options.netmask(), options.broadcast()), (ip("255.255.240.0"), ip("10.1.15.255")));
        assert!(options.is_near(ip("10.1.0.1")) && !options.is_near(ip("10.1.16.1")));
        assert_eq!(options.next_hop(ip("10.1.9.9")), Some(ip("10.1.9.9")));
        assert_eq!(options.next_hop(ip("10.2.0.1")), None);
        assert!(!options.is_one_host(ip("10.1.0.0")) && !options.is_one_host(ip("10.1.15.255")));
        assert!(options.is_one_host(ip("10.2.0.0")), "other subnets' numbers are not known");
        let point: UdpOptions = "192.168.0.1/32".parse().unwrap();
        assert_eq!((point.netmask(), point.broadcast()), (Ipv4Addr::BROADCAST, Ipv4Addr::BROADCAST));
    }

    #[test]
    fn hosts_are_named_by_their_addresses_and_back() {
        let host = UdpOptions::host(ip("127.0.0.255"));
        assert_eq!(host.to_string(), "02:00:7f:00:00:ff");
        assert!(host.is_unicast());
        assert_eq!(UdpOptions::address_of(host), Some(ip("127.0.0.255")));
        assert_eq!(UdpOptions::address_of(MacAddress([2, 1, 0, 0, 0, 1])), None);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for text in [
            "10.0.0.1",
            "10.0.0.1/",
            "10.0.0/8",
            "10.0.0.1/33",
            "10.0.0.1/0",
            "10.0.0.0/24",
            "10.0.0.255/24",
            "224.0.0.1/4",
            "127.0.0.1/8",
            "0.0.0.1/8",
            "255.255.255.255/32",
            "x/24",
        ] {
            assert!(text.parse::<UdpOptions>().is_err(), "{text}");
        }
        let options: UdpOptions = "10.0.0.1/31".parse().unwrap();
        let with = |gateway: &str| UdpOptions { gateway: Some(ip(gateway)), ..options };
        assert!(with("10.0.0.0").check().is_ok());
        for gateway in ["10.0.0.1", "10.0.0.2", "255.255.255.255"] {
            assert!(with(gateway).check().is_err(), "{gateway}");
        }
        assert!(UdpOptions { port: 0, ..options }.check().is_err());
        assert!(options.check_way(UdpOptions::host(ip("10.9.9.9"))).is_err());
        assert!(options.check_way(MacAddress([0x52, 0, 0, 0, 0, 1])).is_err());
        assert!(with("10.0.0.0").check_way(UdpOptions::host(ip("10.9.9.9"))).is_ok());
    }
}
