//! Which interfaces this machine reaches the network through.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The route is in force.
const UP: u32 = 0x0001;
/// The route turns packets away.
const REJECT: u32 = 0x0200;

/// The interfaces that default routes lead to, IPv4 and IPv6, and those beneath them (of a bridge, a bond, a
/// VLAN). `proc` and `sys` are where procfs and sysfs are mounted.
pub fn default_interfaces(proc: &Path, sys: &Path) -> BTreeSet<String> {
    let read = |file: &str| fs::read_to_string(proc.join("net").join(file)).unwrap_or_default();
    let (v4, v6) = (read("route"), read("ipv6_route"));
    let mut found: BTreeSet<String> = v4
        .lines()
        .filter_map(default_v4)
        .chain(v6.lines().filter_map(default_v6))
        .map(str::to_owned)
        .collect();
    let mut new: Vec<String> = found.iter().cloned().collect();
    while let Some(upper) = new.pop() {
        let entries = fs::read_dir(sys.join("class/net").join(upper)).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            if let Some(lower) = name.to_str().and_then(|name| name.strip_prefix("lower_"))
                && found.insert(lower.to_owned())
            {
                new.push(lower.to_owned());
            }
        }
    }
    found
}

/// A line of /proc/net/route: interface, destination, gateway, flags, three counts, mask.
fn default_v4(line: &str) -> Option<&str> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
    let everywhere = *fields.get(1)? == "00000000" && *fields.get(7)? == "00000000";
    (everywhere && flags & (UP | REJECT) == UP).then_some(fields[0])
}

/// A line of /proc/net/ipv6_route: destination and its length, source and its length, next hop, metric, two
/// counts, flags, interface.
fn default_v6(line: &str) -> Option<&str> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
    let everywhere = fields[0].bytes().all(|b| b == b'0') && *fields.get(1)? == "00";
    // The kernel keeps such routes to "lo" for what it knows no way to.
    let interface = *fields.get(9)?;
    (everywhere && flags & (UP | REJECT) == UP && interface != "lo").then_some(interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_of_both_families() {
        let v4 = |line| default_v4(line);
        assert_eq!(v4("eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0"), Some("eth0"));
        assert_eq!(v4("eth0\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0"), None);
        assert_eq!(v4("eth0\t00000000\t0102A8C0\t0203\t0\t0\t100\t00000000\t0\t0\t0"), None);
        assert_eq!(v4("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask"), None);
        assert_eq!(v4(""), None);
        let zeros = "0".repeat(32);
        let v6 = |length: &str, flags: &str, interface: &str| {
            let gateway = "fe800000000000000000000000000001";
            let line = format!(
                "{zeros} {length} {zeros} 00 {gateway} 00000400 00000001 00000000 {flags} {interface:>8}"
            );
            default_v6(&line).map(str::to_owned)
        };
        assert_eq!(v6("00", "00450003", "eth1").as_deref(), Some("eth1"));
        assert_eq!(v6("40", "00450003", "eth1"), None);
        assert_eq!(v6("00", "00200200", "lo"), None);
        assert_eq!(default_v6("garbage"), None);
    }
}
