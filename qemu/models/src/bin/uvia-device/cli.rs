//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;
use uvia_driver::nic::MacAddress;
use uvia_models::AdapterMemory;
use uvia_models::machine::Kind;

/// Serves models of network adapters over vfio-user, joined by a switch
///
/// Prints `ready` once all sockets listen, and serves until SIGTERM or SIGINT. When a client goes away, the next one
/// finds its adapter as after power-on.
#[derive(Debug, Parser)]
#[command(
    name = "uvia-device",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  Two adapters, for two programs on this machine:
    uvia-device --nic e1000,socket=/tmp/a.sock --nic virtio,socket=/tmp/b.sock
    uvia-info --nic vfio-user:/tmp/a.sock
  One for a guest of QEMU 10.1 or later, whose kernel drives it:
    qemu-system-x86_64 ... -device \\
        '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/a.sock\"}}'
  An adapter, and memory to send from:
    uvia-device --nic e1000,socket=/tmp/a.sock --adapter-memory 1M,socket=/tmp/m.sock
  Two processes whose adapters are on one network:
    uvia-device --nic e1000,socket=/tmp/a.sock --link /tmp/wire
    uvia-device --nic virtio,socket=/tmp/b.sock --link /tmp/wire
  A wire that loses frames, and an adapter that lies, the same way for the same seed:
    printf 'wire loss 1%\\nnic 0 lie bad-id at 1000\\n' > faults
    uvia-device --seed 7 --faults faults \\
        --nic e1000,socket=/tmp/a.sock --nic e1000,socket=/tmp/b.sock

Exit codes: 0 after a signal, 1 when something failed (said on standard error), 2 for wrong arguments."
)]
pub struct Cli {
    /// An adapter: its kind (e1000, virtio, virtio-packed), where to serve it, its station address, and the MTU of its
    /// network, which a virtio device then tells its driver
    #[arg(long = "nic", value_name = "KIND,socket=PATH[,mac=MAC][,mtu=N]", required = true)]
    pub nics: Vec<NicArgument>,

    /// Adapter memory: how much (such as 1M; a power of two), and where to serve it; may be repeated. Any number of
    /// programs can open it (`uvia-perf --adapter-memory vfio-user:PATH`)
    #[arg(long = "adapter-memory", value_name = "SIZE,socket=PATH")]
    pub memories: Vec<MemoryArgument>,

    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// What goes wrong: a line a rule, such as `wire loss 1%`, `lie never at 17`, `link down at 2s for 1s`
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,

    /// Join the switch to a TAP interface of this name, which is made if it does not exist
    #[arg(long, value_name = "NAME")]
    pub tap: Option<String>,

    /// Join the switch to that of the process that is given the same path of a socket, or to a NIC of QEMU's
    /// (-netdev stream); may be repeated
    #[arg(long = "link", value_name = "PATH")]
    pub links: Vec<PathBuf>,

    /// Let clients ring by a store into shared memory, which a thread polls: no system calls, some processor time
    /// (all of one for 200 us after each activity, then naps, of 500 us at most); the default
    #[arg(long, conflicts_with = "trap")]
    pub poll: bool,

    /// Let clients ring by a message: a system call and a wake-up each, and no processor time while idle
    #[arg(long)]
    pub trap: bool,
}

/// The least MTU that a virtio device may tell (VIRTIO 1.2, 5.1.4.1).
const LEAST_MTU: u16 = 68;

/// An adapter as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicArgument {
    pub kind: Kind,
    pub socket: PathBuf,
    pub mac: Option<MacAddress>,
    /// At least 68.
    pub mtu: Option<u16>,
}

impl FromStr for NicArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let kind = Kind::ALL.iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            format!("{name:?} is not one of {}", names.join(", "))
        })?;
        let (mut socket, mut mac, mut mtu) = (None, None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("socket", path)) if !path.is_empty() => socket = Some(PathBuf::from(path)),
                Some(("mac", address)) => {
                    let address: MacAddress = address.parse().map_err(|e| format!("{e}"))?;
                    if !address.is_unicast() {
                        return Err(format!("{address} names no station"));
                    }
                    mac = Some(address);
                }
                Some(("mtu", bytes)) => {
                    let bytes = bytes.parse().ok().filter(|bytes| *bytes >= LEAST_MTU);
                    mtu = Some(bytes.ok_or_else(|| format!("{part:?} is no MTU: {LEAST_MTU} to 65535"))?);
                }
                _ => return Err(format!("{part:?} is neither socket=PATH, mac=MAC nor mtu=N")),
            }
        }
        if mtu.is_some() && *kind == Kind::E1000 {
            return Err("an e1000 tells no MTU; a virtio does".to_owned());
        }
        let socket = socket.ok_or("socket=PATH is missing")?;
        Ok(Self { kind: *kind, socket, mac, mtu })
    }
}

/// Adapter memory as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryArgument {
    /// Bytes.
    pub size: usize,
    pub socket: PathBuf,
}

impl FromStr for MemoryArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (size, socket) = text.split_once(",socket=").ok_or("it is SIZE,socket=PATH")?;
        let (digits, unit) = match size.as_bytes().last() {
            Some(b'K' | b'k') => (&size[..size.len() - 1], 1 << 10),
            Some(b'M' | b'm') => (&size[..size.len() - 1], 1 << 20),
            _ => (size, 1),
        };
        let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
        let size = bytes
            .filter(|bytes| bytes.is_power_of_two() && AdapterMemory::SIZES.contains(bytes))
            .ok_or_else(|| format!("{size:?} is no power of two of 4K to 64M"))?;
        match socket {
            "" => Err("socket=PATH is empty".to_owned()),
            socket => Ok(Self { size, socket: socket.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["uvia-device"]),
            [""; 0]
        );
    }

    #[test]
    fn adapter_memory() {
        let memory: MemoryArgument = "1M,socket=/tmp/m,x".parse().unwrap();
        assert_eq!((memory.size, memory.socket), (1 << 20, "/tmp/m,x".into()));
        for (text, named) in [
            ("1M", "SIZE,socket=PATH"),
            ("1M,socket=", "empty"),
            ("3M,socket=x", "power of two"),
            ("1K,socket=x", "power of two"),
            ("1G,socket=x", "power of two"),
            ("99999999999999999999M,socket=x", "power of two"),
        ] {
            let error = text.parse::<MemoryArgument>().unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn arguments() {
        Cli::command().debug_assert();
        let nic: NicArgument = "virtio,mac=52:54:00:12:34:56,socket=/tmp/x".parse().unwrap();
        assert_eq!((nic.kind, nic.mac.is_some(), nic.mtu), (Kind::Virtio, true, None));
        let nic: NicArgument = "virtio-packed,socket=/tmp/x,mtu=9000".parse().unwrap();
        assert_eq!((nic.kind, nic.mtu), (Kind::VirtioPacked, Some(9000)));
        for (text, named) in [
            ("e100,socket=x", "virtio-packed"),
            ("e1000", "socket=PATH is missing"),
            ("e1000,socket=", "neither"),
            ("e1000,socket=x,mtu=1500", "tells no MTU"),
            ("virtio,socket=x,mtu=67", "68 to 65535"),
            ("virtio,socket=x,mtu=70000", "68 to 65535"),
            ("e1000,socket=x,mac=1", "not a station address"),
            ("e1000,socket=x,mac=ff:ff:ff:ff:ff:ff", "no station"),
        ] {
            let error = text.parse::<NicArgument>().unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
