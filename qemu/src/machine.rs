//! QEMU's command line: the virtual machine that a guest sees.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

use crate::nic::NicKind;
use crate::settings::Settings;

/// The name of the control port in the guest.
pub const PORT: &str = "uvia.control";
/// The slot, on the root bus, of the root port of the first NIC; the others follow.
const FIRST_SLOT: usize = 0x10;

/// What one machine is made of beyond the settings.
pub struct Machine<'a> {
    /// Which guest.
    pub guest: usize,
    /// The words for `-accel` and `-cpu`.
    pub accel: [&'a str; 2],
    /// The kernel image.
    pub kernel: &'a Path,
    /// The initramfs, as QEMU's descriptor.
    pub initrd: RawFd,
    /// The socket of the serial console.
    pub console: RawFd,
    /// The socket of the control port.
    pub control: RawFd,
    /// Sockets to the neighbouring guests.
    pub links: &'a [RawFd],
    /// The NICs.
    pub nics: &'a [NicKind],
}

/// The address, in the guest, of the root port that a NIC is behind.
pub fn port_address(nic: usize) -> String {
    format!("0000:00:{:02x}.0", FIRST_SLOT + nic)
}

/// A NIC's address on the wire: locally administered, distinct over all guests.
pub fn mac(guest: usize, nic: usize) -> String {
    format!("02:75:76:69:{:02x}:{:02x}", guest & 0xff, 0x0a + nic)
}

/// QEMU's arguments.
pub fn arguments(settings: &Settings, machine: &Machine) -> Vec<OsString> {
    let mut args = Vec::<OsString>::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    add(&["-name", &format!("uvia-{}", machine.guest)]);
    // split: the IOMMU cannot remap interrupts of a wholly in-kernel interrupt controller.
    add(&["-machine", "q35,kernel-irqchip=split", "-accel", machine.accel[0], "-cpu", machine.accel[1]]);
    add(&["-m", &settings.memory_mib.to_string(), "-smp", &settings.vcpus.to_string()]);
    // caching-mode: the IOMMU hears of every new mapping, which vfio devices under it would need.
    add(&["-device", "intel-iommu,intremap=on,caching-mode=on"]);
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-chardev", &format!("socket,id=console,fd={}", machine.console), "-serial", "chardev:console"]);
    add(&["-chardev", &format!("socket,id=control,fd={}", machine.control)]);
    add(&["-device", "virtio-serial-pci,id=serial0,romfile=", "-device"]);
    add(&[&format!("virtserialport,bus=serial0.0,chardev=control,name={PORT}")]);
    add_nics(&mut add, machine);
    add(&["-kernel"]);
    args.push(machine.kernel.into());
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    add(&["-initrd", &format!("/proc/self/fd/{}", machine.initrd), "-append", &kernel_words(settings)]);
    args.extend(settings.qemu_args.iter().map(OsString::from));
    args
}

fn add_nics(add: &mut impl FnMut(&[&str]), machine: &Machine) {
    // One NIC and one neighbour need no hub; everything else meets on one.
    let direct = machine.nics.len() == 1 && machine.links.len() == 1;
    for (link, fd) in machine.links.iter().enumerate() {
        add(&["-netdev", &format!("stream,id=link{link},addr.type=fd,addr.str={fd}")]);
        if !direct {
            add(&["-netdev", &format!("hubport,id=hublink{link},hubid=0,netdev=link{link}")]);
        }
    }
    for (nic, kind) in machine.nics.iter().enumerate() {
        let netdev = if direct { "link0".to_owned() } else { format!("hub{nic}") };
        if !direct {
            add(&["-netdev", &format!("hubport,id={netdev},hubid=0")]);
        }
        // Each behind a root port of its own: an IOMMU group of its own, and a reset that works.
        let slot = FIRST_SLOT + nic;
        add(&[
            "-device",
            &format!("pcie-root-port,id=rp{nic},bus=pcie.0,addr=0x{slot:x},chassis={},slot={0}", nic + 1),
        ]);
        let mac = mac(machine.guest, nic);
        add(&["-device", &format!("{},id=nic{nic},bus=rp{nic},netdev={netdev},mac={mac}", kind.device())]);
    }
}

fn kernel_words(settings: &Settings) -> String {
    let mut words = String::from(
        // The tsc words: under emulation the guest's clock would be the hpet, and slow. panic: with
        // -no-reboot, QEMU then ends instead of hanging. iommu=pt: the kernel's own devices stay fast.
        // no_timer_check: on a busy machine the emulated timer may miss its test, which ends in a panic.
        "console=ttyS0 quiet panic=-1 oops=panic intel_iommu=on iommu=pt tsc=reliable clocksource=tsc \
         no_timer_check",
    );
    if settings.hugepages > 0 {
        words.push_str(&format!(" default_hugepagesz=2M hugepagesz=2M hugepages={}", settings.hugepages));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(links: &[RawFd], nics: &[NicKind]) -> String {
        let settings = Settings { hugepages: 8, ..Settings::default() };
        let machine = Machine {
            guest: 1,
            accel: ["tcg", "max"],
            kernel: Path::new("/k"),
            initrd: 10,
            console: 11,
            control: 12,
            links,
            nics,
        };
        let words: Vec<_> =
            arguments(&settings, &machine).iter().map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn two_nics_meet_on_a_hub_and_one_takes_the_link_itself() {
        let two = line(&[], &[NicKind::E1000, NicKind::Virtio]);
        assert!(two.contains("e1000,romfile=,id=nic0,bus=rp0,netdev=hub0,mac=02:75:76:69:01:0a"), "{two}");
        assert!(two.contains("id=nic1,bus=rp1,netdev=hub1,mac=02:75:76:69:01:0b"), "{two}");
        assert!(two.contains("hugepages=8"), "{two}");
        let one = line(&[7], &[NicKind::E1000]);
        assert!(one.contains("netdev=link0") && !one.contains("hubport"), "{one}");
        let middle = line(&[7, 8], &[NicKind::E1000]);
        assert!(middle.contains("hubport,id=hublink1,hubid=0,netdev=link1"), "{middle}");
    }

    #[test]
    fn addresses_differ_over_guests_and_nics() {
        let mut macs: Vec<_> = (0..4).flat_map(|guest| (0..2).map(move |nic| mac(guest, nic))).collect();
        macs.sort();
        macs.dedup();
        assert_eq!(macs.len(), 8);
        assert_eq!(port_address(1), "0000:00:11.0");
    }
}
