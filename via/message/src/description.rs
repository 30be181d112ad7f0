//! Sessions as they are written down: a small TOML file, or what `uvia-launch` sets in the environment.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use uvia::{Nic, NicOptions, Progress};

use crate::calibration::Calibration;
use crate::directory::{Addresses, Directory};
use crate::modules::Thresholds;
use crate::policy::Policy;
use crate::session::{RailPort, Session, SessionOptions};
use crate::{Error, Result};

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
        if description.ranks == 0 {
            return Err(Error::Config("ranks = 0: a session has one rank at least".to_owned()));
        }
        for rank in description.rank.keys() {
            if rank.parse::<usize>().is_ok_and(|rank| rank < description.ranks) {
                continue;
            }
            return Err(Error::Config(format!(
                "[rank.{rank}]: there are ranks 0 to {}",
                description.ranks - 1
            )));
        }
        Ok(description)
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
                let address = device
                    .parse()
                    .map_err(|_| Error::Config(format!("{device:?} is no address such as 10.0.0.1:7000")))?;
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
        let mut options = SessionOptions::new(&description.name, rank, description.ranks);
        options.policy = description.policy;
        options.describe = description.describe;
        options.patience = (description.patience > 0).then(|| Duration::from_secs(description.patience));
        options.packet_bytes = description.packet_bytes.unwrap_or(options.packet_bytes);
        options.window = description.window.unwrap_or(options.window);
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
                std::fs::read_to_string(&path).map_err(|e| Error::io(format!("reading {path}"), e))?
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

    #[test]
    fn what_cannot_be_is_refused() {
        for (from, to) in [("rank.2", "rank.3"), ("port = \"vi\"", "port = \"via\""), ("ranks", "rankss")] {
            assert!(matches!(Description::parse(&TEXT.replace(from, to)), Err(Error::Config(_))), "{to}");
        }
    }
}
