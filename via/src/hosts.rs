//! The hosts file: station addresses and the names they go by.

use std::path::{Path, PathBuf};

use crate::{Error, MacAddress, Result};

/// Where a system keeps it.
const DEFAULT: &str = "/etc/uvia.hosts";

/// Names from a hosts file: a line is a station address and one or more names; `#` starts a comment.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Vec<(String, MacAddress)>);

impl Hosts {
    /// Reads `path`, or the system's file if there is one.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self> {
        let (path, required) = match path {
            Some(path) => (path.to_owned(), true),
            None => (PathBuf::from(DEFAULT), false),
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text)
                .map_err(|(line, why)| Error::Parameter(format!("{}:{line}: {why}", path.display()))),
            Err(e) if !required && e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(uvia_driver::Error::io(format!("reading {}", path.display()), e).into()),
        }
    }

    fn parse(text: &str) -> std::result::Result<Self, (usize, String)> {
        let mut hosts = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(mac) = words.next() else { continue };
            let mac: MacAddress = mac.parse().map_err(|e: uvia_driver::Error| (number + 1, e.to_string()))?;
            let before = hosts.len();
            hosts.extend(words.map(|name| (name.to_owned(), mac)));
            if hosts.len() == before {
                return Err((number + 1, format!("{mac} has no name")));
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
        let hosts =
            Hosts::parse("# all\n52:54:00:00:00:01 a alpha # first\n\n52:54:00:00:00:02\tb\n").unwrap();
        assert_eq!(hosts.get("alpha"), Some(MacAddress([0x52, 0x54, 0, 0, 0, 1])));
        assert_eq!(hosts.get("b"), Some(MacAddress([0x52, 0x54, 0, 0, 0, 2])));
        assert_eq!(hosts.get("first"), None);
        assert_eq!(Hosts::parse("\n52:54:00:00:00:01\n").unwrap_err().0, 2);
        assert_eq!(Hosts::parse("a 52:54:00:00:00:01\n").unwrap_err().0, 1);
        assert!(Hosts::load(Some(Path::new("/nonexistent/hosts"))).is_err());
    }
}
