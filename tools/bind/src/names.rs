//! What cards are called.

use std::fs;

/// Where distributions keep the list of the PCI ID Project.
const LISTS: [&str; 3] =
    ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/var/lib/pciutils/pci.ids"];

/// Cards that we drive, or will: named on machines without a list, too.
const KNOWN: [(u16, u16, &str); 9] = [
    (0x8086, 0x100e, "Intel 82540EM Gigabit Ethernet (e1000)"),
    (0x8086, 0x100f, "Intel 82545EM Gigabit Ethernet (e1000)"),
    (0x8086, 0x10d3, "Intel 82574L Gigabit Ethernet (e1000e)"),
    (0x8086, 0x10c9, "Intel 82576 Gigabit Ethernet (igb)"),
    (0x8086, 0x10ca, "Intel 82576 virtual function (igbvf)"),
    (0x1af4, 0x1000, "virtio network device (transitional)"),
    (0x1af4, 0x1041, "virtio network device"),
    (0x15ad, 0x07b0, "VMware VMXNET3"),
    (0x10ec, 0x8139, "Realtek RTL8139 Fast Ethernet"),
];

/// Names of cards by their ids.
pub struct Names {
    list: String,
}

impl Names {
    /// From the system's list, if it has one.
    pub fn load() -> Self {
        // Names there are not all UTF-8.
        let read = |path| fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self { list: LISTS.iter().find_map(read).unwrap_or_default() }
    }

    /// What a card is called, if anybody knows.
    pub fn of(&self, vendor: u16, device: u16) -> Option<String> {
        let known =
            || KNOWN.iter().find(|card| (card.0, card.1) == (vendor, device)).map(|card| card.2.to_owned());
        self.listed(vendor, device).or_else(known)
    }

    /// Vendors begin a line with their id; their devices follow, each after a tab; subsystems after two.
    fn listed(&self, vendor: u16, device: u16) -> Option<String> {
        let (vendor, device) = (format!("{vendor:04x}  "), format!("\t{device:04x}  "));
        let mut lines = self.list.lines();
        let maker = lines.find_map(|line| line.strip_prefix(&vendor))?;
        let card = lines
            .take_while(|line| line.starts_with('\t') || line.starts_with('#') || line.is_empty())
            .find_map(|line| line.strip_prefix(&device))?;
        Some(format!("{maker} {card}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_comes_first() {
        let list = "# comment\n1af4  Red Hat, Inc.\n\t1041  Virtio 1.0 network device\n\t\t1af4 1100  QEMU\n\
                    8086  Intel Corporation\n\t100e  82540EM Gigabit Ethernet Controller\nC 00  Unclassified\n\t10d3  x\n";
        let names = Names { list: list.to_owned() };
        assert_eq!(
            names.of(0x8086, 0x100e).unwrap(),
            "Intel Corporation 82540EM Gigabit Ethernet Controller"
        );
        assert_eq!(names.of(0x1af4, 0x1041).unwrap(), "Red Hat, Inc. Virtio 1.0 network device");
        assert_eq!(names.of(0x8086, 0x10d3).unwrap(), "Intel 82574L Gigabit Ethernet (e1000e)");
        assert_eq!(names.of(0x1af4, 0x100e), None);
    }
}
