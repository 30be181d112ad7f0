//! What to boot.

use std::path::PathBuf;
use std::time::Duration;

use crate::nic::NicKind;
use crate::paths;

/// How the guest's processors are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Accel {
    /// KVM where a probe guest boots under it, else TCG.
    Auto,
    /// The host's processors.
    Kvm,
    /// Software emulation.
    Tcg,
}

/// What to boot: one guest or several, all alike.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many guests. One has two NICs joined by a hub; of several, each has `nics_each`, all on one segment.
    pub guests: usize,
    /// NICs of each of several guests: 1 or 2.
    pub nics_each: usize,
    /// The NICs' kinds. One guest, and several with two NICs each: of NIC A and NIC B. Several with one: of guest 0, 1,
    /// 2, ..., repeated as needed.
    pub nics: Vec<NicKind>,
    /// Whether the NICs are given to vfio-pci at boot; if not, to the guest kernel's own drivers.
    pub attach: bool,
    /// Processors of each guest.
    pub vcpus: u32,
    /// Memory of each guest, in MiB.
    pub memory_mib: u32,
    /// Hugepages of 2 MiB reserved in each guest.
    pub hugepages: u32,
    /// Bytes of a further function of each guest that is memory of an adapter; none: there is no such function.
    pub adapter_memory: Option<u64>,
    /// How the processors are run.
    pub accel: Accel,
    /// QEMU itself; a name is looked up on PATH. None: the one on PATH, and where that does not know what the NICs
    /// need, Debian's newest is fetched.
    pub qemu: Option<PathBuf>,
    /// The guest's kernel image; none: Debian's is fetched.
    pub kernel: Option<PathBuf>,
    /// The folder lib/modules/VERSION that belongs to the kernel; none: Debian's.
    pub modules: Option<PathBuf>,
    /// A statically linked busybox; none: Debian's is fetched.
    pub busybox: Option<PathBuf>,
    /// Host files and folders that appear in the guest at the same absolute paths.
    pub carry: Vec<PathBuf>,
    /// Further kernel modules to load in the guest.
    pub load: Vec<String>,
    /// Further words for QEMU's command line.
    pub qemu_args: Vec<String>,
    /// Further words for that of the process that serves models.
    pub device_args: Vec<String>,
    /// Where what is fetched is kept; none: `vm` in Cargo's target folder.
    pub cache: Option<PathBuf>,
    /// The folder that holds our tools; none: that of the running program.
    pub tools: Option<PathBuf>,
    /// Where the guests' consoles are written to as well.
    pub keep_log: Option<PathBuf>,
    /// How long the guests may take to come up: some 4 s under emulation, many times that on a busy machine.
    pub boot_limit: Duration,
    /// Whether consoles and progress are shown on standard error.
    pub verbose: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            guests: 1,
            nics_each: 1,
            nics: vec![NicKind::E1000],
            attach: true,
            vcpus: 2,
            memory_mib: 1024,
            hugepages: 0,
            adapter_memory: None,
            accel: Accel::Auto,
            qemu: None,
            kernel: None,
            modules: None,
            busybox: None,
            carry: Vec::new(),
            load: Vec::new(),
            qemu_args: Vec::new(),
            device_args: Vec::new(),
            cache: None,
            tools: None,
            keep_log: None,
            boot_limit: Duration::from_secs(180),
            verbose: false,
        }
    }
}

impl Settings {
    /// Where what is fetched is kept.
    pub fn cache(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(paths::default_cache)
    }

    /// Whether a guest has a NIC that is a model of ours.
    pub fn has_models(&self) -> bool {
        (0..self.guests).any(|guest| self.nics_of(guest).iter().any(|kind| kind.model().is_some()))
    }

    /// The kinds of the NICs of one guest.
    pub fn nics_of(&self, guest: usize) -> Vec<NicKind> {
        let kind = |at: usize| self.nics.get(at % self.nics.len().max(1)).copied().unwrap_or(NicKind::E1000);
        if self.guests == 1 || self.nics_each > 1 { vec![kind(0), kind(1)] } else { vec![kind(guest)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guest_has_two_nics_and_several_have_one_each() {
        let mut settings = Settings { nics: vec![NicKind::E1000, NicKind::Virtio], ..Settings::default() };
        assert_eq!(settings.nics_of(0), [NicKind::E1000, NicKind::Virtio]);
        settings.guests = 3;
        let kinds: Vec<_> = (0..3).flat_map(|guest| settings.nics_of(guest)).collect();
        assert_eq!(kinds, [NicKind::E1000, NicKind::Virtio, NicKind::E1000]);
        settings.nics_each = 2;
        assert!((0..3).all(|guest| settings.nics_of(guest) == [NicKind::E1000, NicKind::Virtio]));
        settings = Settings { nics: vec![NicKind::Virtio], ..Settings::default() };
        assert_eq!(settings.nics_of(0), [NicKind::Virtio, NicKind::Virtio]);
    }
}
