//! The kinds of network card that a guest can be given.

use std::str::FromStr;

/// A kind of emulated network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicKind {
    /// Intel 82540EM.
    E1000,
    /// Intel 82574L.
    E1000e,
    /// Intel 82576 (QEMU 8 and later).
    Igb,
    /// virtio-net, modern, behind the IOMMU.
    Virtio,
    /// The same with packed rings.
    VirtioPacked,
    /// VMware's paravirtual card.
    Vmxnet3,
    /// Our model of Intel's 82540EM, served by another process.
    ModelE1000,
    /// Our model of virtio-net.
    ModelVirtio,
    /// The same with packed rings.
    ModelVirtioPacked,
}

impl NicKind {
    /// Every kind.
    pub const ALL: [NicKind; 9] = [
        NicKind::E1000,
        NicKind::E1000e,
        NicKind::Igb,
        NicKind::Virtio,
        NicKind::VirtioPacked,
        NicKind::Vmxnet3,
        NicKind::ModelE1000,
        NicKind::ModelVirtio,
        NicKind::ModelVirtioPacked,
    ];

    /// The name on our command line.
    pub fn name(self) -> &'static str {
        match self {
            NicKind::E1000 => "e1000",
            NicKind::E1000e => "e1000e",
            NicKind::Igb => "igb",
            NicKind::Virtio => "virtio",
            NicKind::VirtioPacked => "virtio-packed",
            NicKind::Vmxnet3 => "vmxnet3",
            NicKind::ModelE1000 => "model-e1000",
            NicKind::ModelVirtio => "model-virtio",
            NicKind::ModelVirtioPacked => "model-virtio-packed",
        }
    }

    /// What `uvia-device` calls it, if it is a model.
    pub fn model(self) -> Option<&'static str> {
        self.name().strip_prefix("model-")
    }

    /// QEMU's device, with the properties that user-space drivers need.
    ///
    /// An empty romfile takes the option ROM away, which costs seconds of every boot. virtio has to be told
    /// that it sits behind the IOMMU, else it reads guest memory directly whatever the IOMMU says.
    pub fn device(self) -> &'static str {
        match self {
            NicKind::E1000 => "e1000,romfile=",
            NicKind::E1000e => "e1000e,romfile=",
            NicKind::Igb => "igb,romfile=",
            NicKind::Virtio => "virtio-net-pci,romfile=,iommu_platform=on,disable-legacy=on",
            NicKind::VirtioPacked => "virtio-net-pci,romfile=,iommu_platform=on,disable-legacy=on,packed=on",
            NicKind::Vmxnet3 => "vmxnet3,romfile=",
            // What it is, its process says.
            NicKind::ModelE1000 | NicKind::ModelVirtio | NicKind::ModelVirtioPacked => "vfio-user-pci",
        }
    }

    /// The guest kernel's own driver for it.
    pub fn module(self) -> &'static str {
        match self {
            NicKind::E1000 | NicKind::ModelE1000 => "e1000",
            NicKind::E1000e => "e1000e",
            NicKind::Igb => "igb",
            NicKind::Virtio | NicKind::VirtioPacked | NicKind::ModelVirtio | NicKind::ModelVirtioPacked => {
                "virtio_net"
            }
            NicKind::Vmxnet3 => "vmxnet3",
        }
    }
}

impl FromStr for NicKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        NicKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<_> = NicKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("no NIC kind {text:?}; there are {}", names.join(", "))
        })
    }
}

impl std::fmt::Display for NicKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in NicKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.model().is_some(), kind.device() == "vfio-user-pci");
        }
        let error = "e100".parse::<NicKind>().unwrap_err();
        assert!(error.contains("e1000e"), "{error}");
    }
}
