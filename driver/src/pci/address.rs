//! Where a PCI function lives: domain, bus, device, function.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A PCI function's address, written `dddd:bb:dd.f` in hexadecimal, as sysfs and lspci do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Segment group ("domain").
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device (slot) number, below 32.
    pub device: u8,
    /// Function number, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    /// Reads `dddd:bb:dd.f`, or `bb:dd.f` with domain 0.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| Error::BadName { name: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (front, function) = text.rsplit_once('.')?;
    let mut parts = front.rsplit(':');
    let device = hex(parts.next()?, 2)?;
    let bus = hex(parts.next()?, 2)?;
    let domain = match parts.next() {
        Some(text) => hex(text, 8)?,
        None => 0,
    };
    let function = hex(function, 1)?;
    if parts.next().is_some() || device > 31 || function > 7 {
        return None;
    }
    Some(PciAddress { domain, bus: bus as u8, device: device as u8, function: function as u8 })
}

/// A hexadecimal number of at most `digits` digits; `from_str_radix` alone would take a sign.
fn hex(text: &str, digits: usize) -> Option<u32> {
    if text.is_empty() || text.len() > digits || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["0000:01:00.0", "0000:ff:1f.7", "10000:02:03.4"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        assert_eq!("01:02.3".parse::<PciAddress>().unwrap().to_string(), "0000:01:02.3");
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in [
            "",
            "eth0",
            "01:00",
            "0000:01:20.0",
            "0000:01:00.8",
            "+1:00.0",
            "0:0:0:0.0",
            "01:00.00",
            "g1:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
