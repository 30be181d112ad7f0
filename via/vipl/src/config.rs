//! Which device a name means: environment, configuration file, and the names that programs of old have built in.

use std::path::PathBuf;
use std::sync::OnceLock;

use uvia::MacAddress;

/// Where the configuration lies unless `UVIA_CONF` says otherwise.
const DEFAULT: &str = "/etc/uvia.conf";
/// The device that needs no adapter: shared memory between processes of this host.
const LOOPBACK: &str = "/dev/via_lo";
/// Names that mean it.
const LOOPBACK_NAMES: &[&str] = &[LOOPBACK, "via_lo", "lo", "loopback"];
/// What device names start with; a number follows, or nothing.
const NUMBERED: &[&str] =
    &["/dev/via_eth", "via_eth", "/dev/clanvi", "clanvi", "VINIC", "vinic", "nic", "NIC"];

/// Characters of a wrong line that are shown: it may be no text at all.
const SHOWN: usize = 60;

/// What the configuration file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    /// `name NAME`: what this host is called.
    pub(crate) name: Option<String>,
    /// `nic N DEVICE`: the N-th NIC.
    nics: Vec<(usize, String)>,
    /// `alias NAME DEVICE`: a name that a program uses.
    aliases: Vec<(String, String)>,
    /// `host MAC NAME...`: other hosts.
    pub(crate) hosts: Vec<(String, MacAddress)>,
    /// `hosts FILE`: a file of such lines without the first word.
    pub(crate) hosts_file: Option<PathBuf>,
}

impl Config {
    /// The system's, read once. What cannot be read is said on standard error, and passed over.
    pub(crate) fn system() -> &'static Self {
        static SYSTEM: OnceLock<Config> = OnceLock::new();
        SYSTEM.get_or_init(|| {
            let given = std::env::var_os("UVIA_CONF").map(PathBuf::from);
            let path = given.clone().unwrap_or_else(|| DEFAULT.into());
            match uvia_driver::text::read(&path) {
                Ok(text) => {
                    let (config, complaints) = Self::parse(&text);
                    for (line, why) in complaints {
                        eprintln!("vipl: {}:{line}: {why}; the line is passed over", path.display());
                    }
                    config
                }
                Err(e) if given.is_none() && e.kind() == std::io::ErrorKind::NotFound => Self::default(),
                Err(e) => {
                    eprintln!("vipl: reading {}: {e}", path.display());
                    Self::default()
                }
            }
        })
    }

    /// What a text says, and what cannot be understood of it, by line.
    fn parse(text: &str) -> (Self, Vec<(usize, String)>) {
        let mut config = Self::default();
        let mut complaints = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<_> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            if let Err(why) = config.line(&words) {
                complaints.push((number + 1, why));
            }
        }
        (config, complaints)
    }

    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            [] => {}
            ["name", name] => self.name = Some((*name).to_owned()),
            ["nic", number, device] => {
                let number = number.parse().map_err(|_| format!("{number:?} is no number of a NIC"))?;
                if let Some((_, first)) = self.nics.iter().find(|(n, _)| *n == number) {
                    return Err(format!("NIC {number} is {first:?} already"));
                }
                self.nics.push((number, (*device).to_owned()));
            }
            ["alias", name, device] => {
                if let Some((_, first)) = self.aliases.iter().find(|(n, _)| n == name) {
                    return Err(format!("{name:?} means {first:?} already"));
                }
                self.aliases.push(((*name).to_owned(), (*device).to_owned()));
            }
            ["hosts", file] => self.hosts_file = Some(file.into()),
            ["host", mac, names @ ..] if !names.is_empty() => {
                let mac: MacAddress = mac.parse().map_err(|e: uvia_driver::Error| e.to_string())?;
                self.hosts.extend(names.iter().map(|name| ((*name).to_owned(), mac)));
            }
            _ => {
                let line: String = words.join(" ").chars().take(SHOWN).collect();
                return Err(format!(
                    "{line:?} is not one of: name NAME, nic N DEVICE, alias NAME DEVICE, host MAC NAME..., hosts FILE"
                ));
            }
        }
        Ok(())
    }

    /// The device that a program means by `name`.
    pub(crate) fn device(&self, name: &str) -> String {
        self.device_in(name, |variable| std::env::var(variable).ok(), first_functions)
    }

    fn device_in(
        &self,
        name: &str,
        environment: impl Fn(&str) -> Option<String>,
        functions: impl Fn() -> Vec<String>,
    ) -> String {
        if let Some((_, device)) = self.aliases.iter().find(|(alias, _)| alias == name) {
            return device.clone();
        }
        if LOOPBACK_NAMES.contains(&name) {
            return LOOPBACK.to_owned();
        }
        if uvia_driver::nic::check_name(name).is_ok() {
            return name.to_owned();
        }
        let number = number(name);
        environment(&format!("UVIA_NIC_{number}"))
            .or_else(|| environment("UVIA_NIC").filter(|_| number == 0))
            .filter(|device| !device.is_empty())
            .or_else(|| self.nics.iter().find(|(n, _)| *n == number).map(|(_, device)| device.clone()))
            .or_else(|| functions().get(number).cloned())
            // A machine without a NIC for us still has itself.
            .unwrap_or_else(|| LOOPBACK.to_owned())
    }

    /// The stations of that name, in the order of the file.
    pub(crate) fn stations<'a>(&'a self, name: &'a str) -> impl Iterator<Item = MacAddress> + 'a {
        self.hosts.iter().filter(move |(known, _)| known == name).map(|(_, mac)| *mac)
    }

    /// The first name of a station.
    pub(crate) fn name_of(&self, mac: MacAddress) -> Option<&str> {
        self.hosts.iter().find(|(_, known)| *known == mac).map(|(name, _)| name.as_str())
    }
}

/// Which NIC a name of old means: the number at its end, the first without one, and for names that nobody knows.
fn number(name: &str) -> usize {
    NUMBERED
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or_else(|| name.trim_start_matches(|c: char| !c.is_ascii_digit()))
        .parse()
        .unwrap_or(0)
}

/// Network functions that are vfio-pci's, by address.
fn first_functions() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/bus/pci/drivers/vfio-pci") else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .filter(|entry| {
            // Class 02 is that of network controllers.
            std::fs::read_to_string(entry.path().join("class")).is_ok_and(|class| class.starts_with("0x02"))
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
name here # us
nic 0 0000:01:00.0
nic 1 vfio-user:/run/b.sock
alias /dev/special shm:other
host 52:54:00:00:00:02 there yonder
host 52:54:00:00:00:03 there
";

    #[test]
    fn every_name_means_a_device() {
        let (config, complaints) = Config::parse(TEXT);
        assert!(complaints.is_empty(), "{complaints:?}");
        let device = |name: &str| config.device_in(name, |_| None, Vec::new);
        for (name, wanted) in [
            ("/dev/via_lo", "/dev/via_lo"),
            ("/dev/via_eth0", "0000:01:00.0"),
            ("/dev/via_eth1", "vfio-user:/run/b.sock"),
            ("/dev/clanvi0", "0000:01:00.0"),
            ("VINIC", "0000:01:00.0"),
            ("VINIC1", "vfio-user:/run/b.sock"),
            ("nic0", "0000:01:00.0"),
            ("whatever", "0000:01:00.0"),
            ("", "0000:01:00.0"),
            ("nic7", "/dev/via_lo"),
            ("/dev/special", "shm:other"),
            ("0000:02:00.1", "0000:02:00.1"),
            ("vfio-user:/tmp/x", "vfio-user:/tmp/x"),
            ("shm:mine", "shm:mine"),
        ] {
            assert_eq!(device(name), wanted, "{name}");
        }
        let environment = |variable: &str| match variable {
            "UVIA_NIC" => Some("first".to_owned()),
            "UVIA_NIC_1" => Some("second".to_owned()),
            _ => None,
        };
        let device = |name: &str| config.device_in(name, environment, Vec::new);
        assert_eq!((device("nic0"), device("VINIC1")), ("first".to_owned(), "second".to_owned()));
        let bare = Config::default();
        let bound = || vec!["0000:03:00.0".to_owned()];
        assert_eq!(bare.device_in("nic0", |_| None, bound), "0000:03:00.0");
    }

    #[test]
    fn a_line_that_says_nothing_is_named() {
        let (config, complaints) = Config::parse("nic x y\nname a\nfoo\nhost 1 b\n");
        assert_eq!(complaints.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4]);
        // What is wrong with it can be seen, also where the first word is right, and a file that is no text is not all shown.
        for (line, shown) in [("nic 0", "\"nic 0\" is not one of"), ("alias a b c", "\"alias a b c\" is")] {
            let (_, complaints) = Config::parse(line);
            assert!(complaints[0].1.starts_with(shown), "{complaints:?}");
        }
        let (_, complaints) = Config::parse(&"\0".repeat(1 << 20));
        assert!(complaints[0].1.len() < 400, "{}", complaints[0].1.len());
        // The first counts, as ever, and the second is told of.
        let (twice, complaints) = Config::parse("nic 0 shm:a\nnic 0 shm:b\nalias n shm:c\nalias n shm:d\n");
        assert_eq!(complaints.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(twice.nics, [(0, "shm:a".to_owned())]);
        assert_eq!(config.name.as_deref(), Some("a"));
        let (config, _) = Config::parse(TEXT);
        assert_eq!(config.stations("there").count(), 2);
        assert_eq!(config.name_of(MacAddress([0x52, 0x54, 0, 0, 0, 2])), Some("there"));
    }
}
