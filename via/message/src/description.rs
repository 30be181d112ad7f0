//! Sessions as they are written down: a small TOML file, or what `uvia-launch` sets in the environment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use uvia::{Nic, NicOptions, Progress};

use crate::calibration::Calibration;
use crate::core::MAX_RAILS;
use crate::directory::{Addresses, Directory};
use crate::modules::Thresholds;
use crate::policy::Policy;
use crate::session::{RailPort, Session, SessionOptions};
use crate::{Error, Result};

/// Bytes of the longest name that a host can have.
const MAX_HOST_NAME: usize = 64;

/// The variables that tell a process which rank of which session it is.
pub mod variable {
    /// The rank.
    pub const RANK: &str = "UVIA_RANK";
    /// The session: the text of its description.
    pub const SESSION: &str = "UVIA_SESSION";
    /// A file with the description, where the other is not set.
    pub const FILE: &str = "UVIA_SESSION_FILE";
    /// Where the launcher is.
    pub const LAUNCHER: &str = "UVIA_LAUNCHER";
}

/// A session, as it is written down.
///
/// ```toml
/// name = "stencil"
/// ranks = 4
///
/// [[rail]]
/// name = "lan"
/// port = "vi"
/// device = "0000:01:00.0"
///
/// [[rail]]
/// name = "tcp"
/// port = "tcp"
/// device = "0.0.0.0:0"
///
/// [rank.3]
/// host = "b"
/// devices = { lan = "none", tcp = "10.0.0.2:7000" }
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Tells it apart from others on the same rails.
    pub name: String,
    /// How many.
    pub ranks: usize,
    /// What messages go by, best first.
    pub rail: Vec<RailDescription>,
    /// What is not the same at all ranks, by their numbers.
    #[serde(default)]
    pub rank: BTreeMap<String, RankDescription>,
    /// How to wait: "latency", "cpu" or "adaptive".
    #[serde(default)]
    pub policy: Policy,
    /// Whether messages are described, for debugging.
    #[serde(default)]
    pub describe: bool,
    /// Seconds that a call waits before it fails; 0 for ever.
    #[serde(default)]
    pub patience: u64,
    /// As [`SessionOptions::packet_bytes`].
    pub packet_bytes: Option<usize>,
    /// As [`SessionOptions::window`].
    pub window: Option<usize>,
    /// As [`SessionOptions::thresholds`]. What it does not say is as `uvia-calibrate` has found of the first NIC.
    #[serde(default)]
    pub thresholds: ThresholdsDescription,
}

/// What a session's file says of [`Thresholds`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdsDescription {
    /// As [`Thresholds::inline`].
    pub inline: Option<usize>,
    /// As [`Thresholds::gather`].
    pub gather: Option<usize>,
    /// As [`Thresholds::long`].
    pub long: Option<usize>,
    /// As [`Thresholds::read`].
    pub read: Option<usize>,
}

/// A rail.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RailDescription {
    /// Its name.
    pub name: String,
    /// What carries it.
    pub port: PortKind,
    /// What it is on, where ranks do not say otherwise: a NIC, or the address to listen at.
    pub device: Option<String>,
}

/// What can carry a rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// Virtual interfaces of a NIC.
    Vi,
    /// TCP.
    Tcp,
    /// Memory that processes of one host share.
    Shared,
}

/// What is not as at other ranks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankDescription {
    /// The host, for `uvia-launch`.
    pub host: Option<String>,
    /// What its rails are on, by their names; "none" where it does not have one.
    #[serde(default)]
    pub devices: BTreeMap<String, String>,
}

impl Description {
    /// Reads one.
    ///
    /// # Errors
    /// [`Error::Config`], with the place in the text.
    pub fn parse(text: &str) -> Result<Self> {
        let description: Self = toml::from_str(text).map_err(|e| Error::Config(e.to_string()))?;
        description.check().map_err(Error::Config)?;
        Ok(description)
    }

    /// What makes no sense is refused here, once and with its place, and not by each rank or by nobody.
    fn check(&self) -> std::result::Result<(), String> {
        self.options(0).check_values()?;
        if self.name.is_empty() || self.name.contains(char::is_control) {
            return Err(format!("name = {:?}: a name has letters, and none that control", self.name));
        }
        if self.rail.is_empty() || self.rail.len() > MAX_RAILS {
            return Err(format!("a session has 1 to {MAX_RAILS} rails, not {}", self.rail.len()));
        }
        for (n, rail) in self.rail.iter().enumerate() {
            if rail.name.is_empty() || rail.name.contains(char::is_control) {
                return Err(format!("rail {n} has the name {:?}, which is none", rail.name));
            }
            if self.rail[..n].iter().any(|other| other.name == rail.name) {
                return Err(format!("two rails have the name {:?}", rail.name));
            }
            let longest = self.nic_name(self.ranks - 1, rail);
            if longest.len() > MAX_HOST_NAME {
                return Err(format!(
                    "{longest:?}, a rank's name on rail {:?}, is longer than {MAX_HOST_NAME} bytes",
                    rail.name
                ));
            }
        }
        for (key, rank) in &self.rank {
            // Written as we look it up: "03" would be found by nobody.
            let number = key.parse::<usize>().ok().filter(|n| *n < self.ranks && n.to_string() == *key);
            if number.is_none() {
                return Err(format!("[rank.{key}]: there are ranks 0 to {}", self.ranks - 1));
            }
            for name in rank.devices.keys() {
                if !self.rail.iter().any(|rail| rail.name == *name) {
                    return Err(format!("[rank.{key}] has a device for the rail {name:?}, which is none"));
                }
            }
        }
        // Ranks of which nothing is said are all alike.
        let alike = (0..self.ranks).find(|rank| !self.rank.contains_key(&rank.to_string()));
        let told = self.rank.keys().filter_map(|key| key.parse().ok());
        for rank in alike.into_iter().chain(told) {
            self.rail.iter().try_for_each(|rail| self.check_device(rank, rail))?;
        }
        Ok(())
    }

    /// Whether a rank's device can be one of its rail.
    fn check_device(&self, rank: usize, rail: &RailDescription) -> std::result::Result<(), String> {
        let device = self.device(rank, rail);
        match (rail.port, device.as_deref()) {
            (_, Some("none")) | (PortKind::Shared, None) => Ok(()),
            (PortKind::Vi, Some(device)) => uvia_driver::nic::check_name(device)
                .map_err(|e| format!("rail {:?} of rank {rank}: {e}", rail.name)),
            (PortKind::Vi, None) => Err(format!("rail {:?} needs a `device`: a NIC's name", rail.name)),
            (PortKind::Tcp, Some(device)) => tcp_address(device).map(drop),
            (PortKind::Tcp, None) => Err(format!(
                "rail {:?} needs a `device`: an address to listen at, such as 127.0.0.1:0",
                rail.name
            )),
            (PortKind::Shared, Some(device)) => {
                Err(format!("rail {:?} is shared memory, and on no device such as {device:?}", rail.name))
            }
        }
    }

    /// Options of a rank, but for what is known of its NIC.
    fn options(&self, rank: usize) -> SessionOptions {
        let usual = SessionOptions::new(&self.name, rank, self.ranks);
        SessionOptions {
            policy: self.policy,
            describe: self.describe,
            patience: (self.patience > 0).then(|| Duration::from_secs(self.patience)),
            packet_bytes: self.packet_bytes.unwrap_or(usual.packet_bytes),
            window: self.window.unwrap_or(usual.window),
            thresholds: self.thresholds(None),
            ..usual
        }
    }

    fn device(&self, rank: usize, rail: &RailDescription) -> Option<String> {
        let own = self.rank.get(&rank.to_string()).and_then(|rank| rank.devices.get(&rail.name));
        own.or(rail.device.as_ref()).cloned()
    }

    fn port(&self, rank: usize, rail: &RailDescription) -> Result<RailPort> {
        let device = self.device(rank, rail);
        if device.as_deref() == Some("none") {
            return Ok(RailPort::Absent);
        }
        let lacking = |what| Error::Config(format!("rail {:?} needs a `device`: {what}", rail.name));
        Ok(match rail.port {
            PortKind::Vi => {
                let device = device.ok_or_else(|| lacking("a NIC's name"))?;
                let name = Some(self.nic_name(rank, rail));
                // A rank that computes for long must not be taken for dead.
                let options = NicOptions { name, progress: Progress::Thread, ..NicOptions::default() };
                let nic = Nic::open(&device, options)?;
                nic.wait_ready(Duration::from_secs(30))?;
                RailPort::Vi(nic)
            }
            PortKind::Tcp => {
                let device = device.ok_or_else(|| lacking("an address to listen at, such as 127.0.0.1:0"))?;
                let address = tcp_address(&device).map_err(Error::Config)?;
                RailPort::Tcp(address)
            }
            PortKind::Shared => RailPort::Shared,
        })
    }

    /// A rank's thresholds: as written; else as `found` of its first NIC; else the usual ones.
    fn thresholds(&self, found: Option<Calibration>) -> Thresholds {
        let found = found.map(|found| found.thresholds).unwrap_or_default();
        let ThresholdsDescription { inline, gather, long, read } = self.thresholds;
        Thresholds {
            inline: inline.unwrap_or(found.inline),
            gather: gather.unwrap_or(found.gather),
            long: long.unwrap_or(found.long),
            read: read.unwrap_or(found.read),
        }
    }

    /// What is known of a rank's first NIC.
    fn calibration(&self, rank: usize) -> Option<Calibration> {
        let mut nics = self.rail.iter().filter(|rail| rail.port == PortKind::Vi);
        nics.find_map(|rail| self.device(rank, rail)).and_then(|device| Calibration::load(&device))
    }

    /// What a rank's NIC is called: that of each rail otherwise, since several rails may be on one network.
    fn nic_name(&self, rank: usize, rail: &RailDescription) -> String {
        format!("{}.{rank}.{}", self.name, rail.name)
    }

    /// Whether ranks can find each other by what is written alone.
    fn check_found(&self) -> Result<()> {
        for rail in self.rail.iter().filter(|rail| rail.port == PortKind::Tcp) {
            for rank in 0..self.ranks {
                let address = self.device(rank, rail).and_then(|device| tcp_address(&device).ok());
                if address.is_some_and(|address| address.port() == 0 || address.ip().is_unspecified()) {
                    return Err(Error::Config(format!(
                        "rail {:?}: without uvia-launch each rank's own address and port are to be written down; \
                         those of rank {rank} are not",
                        rail.name
                    )));
                }
            }
        }
        Ok(())
    }

    /// Addresses as they are without anybody to ask: hosts by their names, which the NICs find, and TCP as written.
    fn fixed(&self) -> Vec<Addresses> {
        (0..self.ranks)
            .map(|rank| {
                let address = |(n, rail): (usize, &RailDescription)| {
                    let device = self.device(rank, rail);
                    if device.as_deref() == Some("none") {
                        return None;
                    }
                    match rail.port {
                        PortKind::Vi => Some(format!("{}/{rank}", self.nic_name(rank, rail))),
                        PortKind::Tcp => device,
                        PortKind::Shared => Some(crate::session::shared_name(&self.name, n, rank)),
                    }
                };
                self.rail.iter().enumerate().map(address).collect()
            })
            .collect()
    }
}

/// The address of a rail over TCP.
fn tcp_address(device: &str) -> std::result::Result<SocketAddr, String> {
    device.parse().map_err(|_| format!("{device:?} is no address such as 10.0.0.1:7000"))
}

impl Session {
    /// Becomes a rank of a session that is written down. Without a directory, ranks are found by what is written, and
    /// by the names of their NICs.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_described(
        description: &Description,
        rank: usize,
        directory: Option<Directory>,
    ) -> Result<Self> {
        // Found before any rail is opened.
        description.check().map_err(Error::Config)?;
        let mut options = description.options(rank);
        options.check()?;
        if directory.is_none() {
            description.check_found()?;
        }
        options.thresholds = description.thresholds(description.calibration(rank));
        let rails = description
            .rail
            .iter()
            .map(|rail| Ok((rail.name.clone(), description.port(rank, rail)?)))
            .collect::<Result<Vec<_>>>()?;
        let directory = directory.unwrap_or_else(|| Directory::Fixed(description.fixed()));
        Self::open(options, rails, &directory)
    }

    /// Becomes the rank that the environment says ([`variable`]): as `uvia-launch` started it.
    ///
    /// # Errors
    /// A variable that is not set; else as [`Session::open`].
    pub fn from_environment() -> Result<Self> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let lacking = |name| Error::Config(format!("{name} is not set: start the program by uvia-launch"));
        let rank = get(variable::RANK).ok_or_else(|| lacking(variable::RANK))?;
        let rank =
            rank.parse().map_err(|_| Error::Config(format!("{}={rank:?} is no rank", variable::RANK)))?;
        let text = match (get(variable::SESSION), get(variable::FILE)) {
            (Some(text), _) => text,
            (None, Some(path)) => {
                uvia_driver::text::read(&path).map_err(|e| Error::io(format!("reading {path}"), e))?
            }
            (None, None) => return Err(lacking(variable::SESSION)),
        };
        let description = Description::parse(&text)?;
        Self::open_described(&description, rank, get(variable::LAUNCHER).map(Directory::Launcher))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "job"
        ranks = 3
        [[rail]]
        name = "lan"
        port = "vi"
        device = "shm:job"
        [[rail]]
        name = "tcp"
        port = "tcp"
        device = "127.0.0.1:0"
        [rank.2]
        host = "b"
        devices = { lan = "none", tcp = "10.0.0.2:7000" }
    "#;

    #[test]
    fn a_description_says_what_each_rank_has() {
        let description = Description::parse(TEXT).unwrap();
        let fixed = description.fixed();
        assert_eq!(fixed[1], [Some("job.1.lan/1".to_owned()), Some("127.0.0.1:0".to_owned())]);
        assert_eq!(fixed[2], [None, Some("10.0.0.2:7000".to_owned())]);
        assert!(matches!(description.port(2, &description.rail[0]).unwrap(), RailPort::Absent));
    }

    #[test]
    fn thresholds_are_as_written_else_as_found_else_the_usual_ones() {
        let usual = Thresholds::default();
        let found = Calibration {
            device: "shm:job".to_owned(),
            thresholds: Thresholds { inline: 1, gather: 2, long: 3, read: 4 },
        };
        let nothing = Description::parse(TEXT).unwrap();
        assert_eq!(nothing.thresholds(None), usual);
        assert_eq!(nothing.thresholds(Some(found.clone())), found.thresholds);
        let some = Description::parse(&format!("{TEXT}\n[thresholds]\nlong = 5000\ninline = 0")).unwrap();
        assert_eq!(some.thresholds(None), Thresholds { long: 5000, inline: 0, ..usual });
        let expected = Thresholds { inline: 0, gather: 2, long: 5000, read: 4 };
        assert_eq!(some.thresholds(Some(found)), expected);
        assert!(Description::parse(&format!("{TEXT}\n[thresholds]\nlonger = 5")).is_err());
    }

    /// Every kind of nonsense, and a word of what is said about it.
    #[test]
    fn what_cannot_be_is_refused() {
        let long = "x".repeat(60);
        for (from, to, what) in [
            ("rank.2", "rank.3", "ranks 0 to 2"),
            ("rank.2", "rank.02", "ranks 0 to 2"),
            ("rank.2", "rank.\"+2\"", "ranks 0 to 2"),
            ("port = \"vi\"", "port = \"via\"", "via"),
            ("ranks", "rankss", "rankss"),
            ("ranks = 3", "ranks = 0", "one rank at least"),
            ("ranks = 3", "ranks = 1000000000000", "at most 65,536"),
            ("ranks = 3", "ranks = -1", "-1"),
            ("\"job\"\n", "\"\"\n", "letters"),
            ("\"job\"\n", "\"a\\tb\"\n", "control"),
            ("\"job\"\n", &format!("\"{long}\"\n"), "longer than 64"),
            ("\"lan\"", "\"tcp\"", "two rails"),
            ("lan = \"none\"", "lann = \"none\"", "\"lann\", which is none"),
            ("shm:job", "eth0", "\"eth0\" is not a device name"),
            ("shm:job", "shm:", "shm:NAME"),
            ("127.0.0.1:0", "localhost", "10.0.0.1:7000"),
            ("10.0.0.2:7000", "10.0.0.2:70000", "10.0.0.1:7000"),
            ("device = \"shm:job\"", "", "needs a `device`"),
            ("device = \"127.0.0.1:0\"", "", "needs a `device`"),
            ("port = \"vi\"", "port = \"shared\"", "on no device"),
            ("ranks", "packet_bytes = 1\nranks", "128 to 65,536"),
            ("ranks", "window = 1\nranks", "2 to 1024"),
            ("[rank.2]", "[thresholds]\nlong = 0\n[rank.2]", "1 byte"),
            ("ranks", "patience = -1\nranks", "-1"),
            (TEXT, "name = \"a\"\nranks = 1\nrail = []", "1 to 8 rails"),
            (TEXT, "name = \"a\"\nranks = 1", "rail"),
        ] {
            let text = TEXT.replace(from, to);
            assert_ne!(text, TEXT, "{to}");
            match Description::parse(&text) {
                Err(Error::Config(said)) => assert!(said.contains(what), "{to}: {said}"),
                other => panic!("{to}: {other:?}"),
            }
        }
    }

    #[test]
    fn ranks_that_nobody_tells_where_the_others_are_need_all_addresses() {
        let written = TEXT.replace("lan = \"none\", ", "");
        for (address, found) in [("127.0.0.1:0", false), ("0.0.0.0:7", false), ("10.0.0.1:7000", true)] {
            let description = Description::parse(&written.replace("127.0.0.1:0", address)).unwrap();
            assert_eq!(description.check_found().is_ok(), found, "{address}");
        }
        let description = Description::parse(TEXT).unwrap();
        match Session::open_described(&description, 1, None).map(drop) {
            Err(Error::Config(what)) => assert!(what.contains("rank 0"), "{what}"),
            other => panic!("{other:?}"),
        }
        let third = Session::open_described(&description, 3, None).map(drop);
        assert!(matches!(third, Err(Error::Config(_))), "{third:?}");
    }
}
