//! A NIC in words.

use std::fmt;

use crate::about::{About, Link};

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |label: &str, value: fmt::Arguments<'_>| writeln!(f, "{label:<13}{value}");
        let (dma, irq) = (&self.classes.dma, &self.interrupts);
        line("device", format_args!("{}", self.device))?;
        line("driver", format_args!("{} (ids {}, subsystem {})", self.driver, self.ids, self.subsystem_ids))?;
        line("mac", format_args!("{}", self.mac))?;
        line("link", format_args!("{}", self.link))?;
        let beyond = "where the network carries them";
        match self.max_frame.saturating_sub(ETHERNET) {
            most if most > self.mtu => line("mtu", format_args!("{}; {most} {beyond}", self.mtu))?,
            _ => line("mtu", format_args!("{}", self.mtu))?,
        }
        line("rings", format_args!("transmit {} frames, receive {} buffers", self.rings.tx, self.rings.rx))?;
        match &self.rings.tx_memory {
            Some(memory) => {
                line("", format_args!("transmit in adapter memory {memory}, receive in the host's"))?
            }
            None => line("", format_args!("in the host's memory"))?,
        }
        line("segments", format_args!("{} a frame", self.max_segments))?;
        line("offloads", format_args!("{}", Words(self.offloads)))?;
        line(
            "interrupts",
            format_args!(
                "{}; vectors: INTx {}, MSI {}, MSI-X {}",
                if irq.used { "used" } else { "not used" },
                irq.intx,
                irq.msi,
                irq.msix
            ),
        )?;
        line(
            "class dma",
            format_args!(
                "{}; {} message bytes a frame, {} a transfer, {} segments a descriptor",
                if dma.available { "available" } else { "not available" },
                dma.native_mtu,
                dma.max_transfer_size,
                dma.max_segments
            ),
        )?;
        line(
            "",
            format_args!(
                "{} VIs, {} descriptors a queue, {} entries a completion queue, {} regions",
                dma.max_vis, dma.max_depth, dma.max_cq_entries, dma.max_regions
            ),
        )?;
        let pio = &self.classes.pio;
        if let (Some(memory), Some(caching)) = (&pio.memory, pio.caching) {
            line(
                "class pio",
                format_args!(
                    "available, from {memory} ({caching}); {} of {} windows left, {} slots each, messages of up to {} bytes",
                    pio.windows_left, pio.windows, pio.slots, pio.mtu
                ),
            )?;
            line(
                "",
                format_args!(
                    "stores of {} bytes at multiples of {}; without {}",
                    pio.store_width,
                    pio.alignment,
                    pio.missing.join(", ")
                ),
            )?;
        } else {
            let why = pio.why.as_deref().unwrap_or("no reason is known");
            line("class pio", format_args!("not available: {why}"))?;
        }
        for (n, [first, last]) in self.iova.ranges.iter().enumerate() {
            line(if n == 0 { "iova" } else { "" }, format_args!("{first} to {last}"))?;
        }
        match self.iova.max_mappings {
            Some(most) => write!(f, "{:<13}{most}, of pages of {} bytes", "mappings", self.iova.page_size),
            None => write!(f, "{:<13}no limit, of pages of {} bytes", "mappings", self.iova.page_size),
        }
    }
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A list that may be empty.
struct Words(&'static [&'static str]);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { f.write_str(&self.0.join(", ")) }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.up { "up" } else { "down" })?;
        if let Some(speed) = self.speed_mbps {
            write!(f, ", {speed} Mb/s")?;
        }
        match self.full_duplex {
            Some(true) => f.write_str(", full duplex"),
            Some(false) => f.write_str(", half duplex"),
            None => Ok(()),
        }
    }
}
