//! The status, for people and for programs.

use std::fmt::Write;

use serde::Serialize;
use uvia_driver::pci::bind::{Obstacle, Status};

use crate::names::Names;

/// A table, and under a function what there is to say about it.
pub fn table(all: &[Status], names: &Names) -> String {
    if all.is_empty() {
        return "no PCI network functions on this machine\n".to_owned();
    }
    let heading = ["ADDRESS", "IDS", "DRIVER", "INTERFACE", "GROUP", "NAME"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(heading).chain(all.iter().map(|s| row(s, names))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for (n, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
        for remark in n.checked_sub(1).map(|n| remarks(&all[n])).unwrap_or_default() {
            let _ = writeln!(text, "{:1$}  {remark}", "", widths[0]);
        }
    }
    text
}

fn row(status: &Status, names: &Names) -> [String; 6] {
    let function = &status.function;
    let or_dash =
        |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
    [
        function.address.to_string(),
        format!("{:04x}:{:04x}", function.vendor, function.device),
        or_dash(function.driver.clone()),
        or_dash(Some(function.interfaces.join(","))),
        or_dash(function.group.map(|group| group.to_string())),
        or_dash(names.of(function.vendor, function.device)),
    ]
}

fn remarks(status: &Status) -> Vec<String> {
    let mut remarks = Vec::new();
    if !status.siblings.is_empty() {
        let others: Vec<_> = status
            .siblings
            .iter()
            .map(|(address, driver)| format!("{address} ({})", driver.as_deref().unwrap_or("no driver")))
            .collect();
        remarks.push(format!("shares its group with {}", others.join(", ")));
    }
    let leads = if status.function.is_on_vfio() { "attached, but" } else { "in the way:" };
    remarks.extend(status.obstacles.iter().map(|obstacle| format!("{leads} {obstacle}")));
    remarks
}

/// One object a line.
pub fn json(all: &[Status], names: &Names) -> String {
    let mut text = String::new();
    for status in all {
        let function = &status.function;
        let line = Line {
            address: function.address.to_string(),
            vendor: format!("{:04x}", function.vendor),
            device: format!("{:04x}", function.device),
            name: names.of(function.vendor, function.device),
            driver: function.driver.as_deref(),
            interfaces: &function.interfaces,
            group: function.group,
            siblings: status
                .siblings
                .iter()
                .map(|(address, driver)| Sibling { address: address.to_string(), driver: driver.as_deref() })
                .collect(),
            attached: function.is_on_vfio(),
            obstacles: status.obstacles.iter().map(obstacle).collect(),
        };
        match serde_json::to_string(&line) {
            Ok(line) => text.extend([line.as_str(), "\n"]),
            // Strings, numbers and lists of them always can.
            Err(e) => unreachable!("{e}"),
        }
    }
    text
}

#[derive(Serialize)]
struct Line<'a> {
    address: String,
    vendor: String,
    device: String,
    name: Option<String>,
    driver: Option<&'a str>,
    interfaces: &'a [String],
    group: Option<u32>,
    siblings: Vec<Sibling<'a>>,
    attached: bool,
    obstacles: Vec<Remark>,
}

#[derive(Serialize)]
struct Sibling<'a> {
    address: String,
    driver: Option<&'a str>,
}

#[derive(Serialize)]
struct Remark {
    kind: &'static str,
    text: String,
}

fn obstacle(obstacle: &Obstacle) -> Remark {
    let kind = match obstacle {
        Obstacle::NoIommu => "no-iommu",
        Obstacle::DefaultRoute(_) => "default-route",
        Obstacle::Sibling(..) => "sibling",
        Obstacle::NoModule => "no-module",
        _ => "other",
    };
    Remark { kind, text: obstacle.to_string() }
}

#[cfg(test)]
mod tests {
    use uvia_driver::pci::Function;

    use super::*;

    fn two() -> Vec<Status> {
        let function = Function {
            address: "01:00.0".parse().unwrap(),
            vendor: 0x8086,
            device: 0x100e,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: 0x020000,
            driver: Some("e1000".to_owned()),
            driver_override: None,
            group: Some(3),
            interfaces: vec!["eth0".to_owned()],
        };
        let other = Function {
            address: "02:00.0".parse().unwrap(),
            device: 0xffff,
            driver: None,
            group: None,
            interfaces: vec![],
            ..function.clone()
        };
        vec![
            Status {
                function,
                siblings: vec![("01:00.1".parse().unwrap(), None)],
                obstacles: vec![Obstacle::DefaultRoute("eth0".to_owned())],
            },
            Status { function: other, siblings: vec![], obstacles: vec![Obstacle::NoIommu] },
        ]
    }

    #[test]
    fn people_get_a_table() {
        let names = Names::load();
        let text = table(&two(), &names);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("ADDRESS       IDS        DRIVER  INTERFACE  GROUP  NAME"), "{text}");
        assert!(lines[1].starts_with("0000:01:00.0  8086:100e  e1000   eth0       3      Intel"), "{text}");
        assert_eq!(lines[2].trim(), "shares its group with 0000:01:00.1 (no driver)");
        assert_eq!(
            lines[3].trim(),
            "in the way: carries the default route (interface eth0; --force attaches it)"
        );
        assert!(lines[4].starts_with("0000:02:00.0  8086:ffff  -       -          -      -"), "{text}");
        assert_eq!(lines[5].trim(), "in the way: in no IOMMU group");
        assert_eq!(table(&[], &names), "no PCI network functions on this machine\n");
    }

    #[test]
    fn programs_get_an_object_a_line() {
        let text = json(&two(), &Names::load());
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["address"], "0000:01:00.0");
        assert_eq!(lines[0]["vendor"], "8086");
        assert_eq!(lines[0]["siblings"][0]["address"], "0000:01:00.1");
        assert_eq!(lines[0]["obstacles"][0]["kind"], "default-route");
        assert_eq!(lines[1]["driver"], serde_json::Value::Null);
        assert_eq!(lines[1]["attached"], false);
    }
}
