//! The hosts file: addresses and the names they go by.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::{Encapsulation, Error, MacAddress, Result, UdpOptions};

/// Where a system keeps it.
const DEFAULT: &str = "/etc/uvia.hosts";

/// Names from a hosts file: a line is a station address, or an IPv4 address, and one or more names; `#` starts a
/// comment. What is no address of the encapsulation's kind is passed over, so that one file serves both.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Vec<(String, MacAddress)>);

impl Hosts {
    /// Reads `path`, or the system's file if there is one.
    pub(crate) fn load(path: Option<&Path>, encapsulation: Encapsulation) -> Result<Self> {
        let (path, required) = match path {
            Some(path) => (path.to_owned(), true),
            None => (PathBuf::from(DEFAULT), false),
        };
        match uvia_driver::text::read(&path) {
            Ok(text) => Self::parse(&text, encapsulation)
                .map_err(|(line, why)| Error::Parameter(format!("{}:{line}: {why}", path.display()))),
            Err(e) if !required && e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(uvia_driver::Error::io(format!("reading {}", path.display()), e).into()),
        }
    }

    fn parse(text: &str, encapsulation: Encapsulation) -> std::result::Result<Self, (usize, String)> {
        let over_udp = matches!(encapsulation, Encapsulation::Udp(_));
        let mut hosts = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(address) = words.next() else { continue };
            let (host, ours) = match address.parse::<Ipv4Addr>() {
                Ok(address) => (UdpOptions::host(address), over_udp),
                Err(_) => {
                    let mac: MacAddress = address.parse().map_err(|_| {
                        let why =
                            "is neither a station address such as 52:54:00:12:34:56 nor an IPv4 address";
                        (number + 1, format!("{address:?} {why}"))
                    })?;
                    (mac, !over_udp)
                }
            };
            let mut words = words.peekable();
            if words.peek().is_none() {
                return Err((number + 1, format!("{address} has no name")));
            }
            if ours {
                hosts.extend(words.map(|name| (name.to_owned(), host)));
            }
        }
        Ok(Self(hosts))
    }

    pub(crate) fn get(&self, name: &str) -> Option<MacAddress> {
        self.iter().find(|(known, _)| *known == name).map(|(_, mac)| mac)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, MacAddress)> {
        self.0.iter().map(|(name, mac)| (name.as_str(), *mac))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_says_which_line_is_wrong() {
        let text = "# all\n52:54:00:00:00:01 a alpha # first\n\n52:54:00:00:00:02\tb\n10.0.0.7 b c\n";
        let hosts = Hosts::parse(text, Encapsulation::Ethernet).unwrap();
        assert_eq!(hosts.get("alpha"), Some(MacAddress([0x52, 0x54, 0, 0, 0, 1])));
        assert_eq!(hosts.get("b"), Some(MacAddress([0x52, 0x54, 0, 0, 0, 2])));
        assert_eq!(hosts.get("first"), None);
        assert_eq!(hosts.get("c"), None);
        let udp = Encapsulation::Udp("10.0.0.1/24".parse().unwrap());
        let hosts = Hosts::parse(text, udp).unwrap();
        assert_eq!(hosts.get("b"), Some(UdpOptions::host(Ipv4Addr::new(10, 0, 0, 7))));
        assert_eq!(hosts.get("alpha"), None);
        for encapsulation in [Encapsulation::Ethernet, udp] {
            assert_eq!(Hosts::parse("\n52:54:00:00:00:01\n", encapsulation).unwrap_err().0, 2);
            assert_eq!(Hosts::parse("10.0.0.1", encapsulation).unwrap_err().0, 1);
            assert_eq!(Hosts::parse("a 52:54:00:00:00:01\n", encapsulation).unwrap_err().0, 1);
            assert!(Hosts::load(Some(Path::new("/nonexistent/hosts")), encapsulation).is_err());
        }
    }
}
