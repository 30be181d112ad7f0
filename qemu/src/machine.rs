//! QEMU's command line: the virtual machine that a guest sees.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use crate::nic::NicKind;
use crate::settings::Settings;

/// The name of the control port in the guest.
pub const PORT: &str = "uvia.control";
/// The slot, on the root bus, of the root port of the first NIC; the others follow.
const FIRST_SLOT: usize = 0x10;

/// A NIC of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Its kind.
    pub kind: NicKind,
    /// Where a model is served.
    pub socket: Option<PathBuf>,
}

/// A way out of a machine, for the NICs that QEMU emulates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// A socket of ours, to a neighbouring guest.
    Socket(RawFd),
    /// The path of a socket, to the switch between models.
    Path(PathBuf),
}

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
    /// The socket of QEMU's monitor.
    pub monitor: RawFd,
    /// Where its NICs lead to.
    pub ways: &'a [Way],
    /// The NICs.
    pub nics: &'a [Nic],
}

/// Adapter memory, in a slot behind those of the NICs: memory that is no part of the guest's own.
fn add_adapter_memory(add: &mut impl FnMut(&[&str]), size: u64, nics: usize) {
    let slot = FIRST_SLOT + nics;
    add(&["-object", &format!("memory-backend-ram,id=adapter-memory,size={size},share=on")]);
    add(&[
        "-device",
        &format!("pcie-root-port,id=rp{nics},bus=pcie.0,addr=0x{slot:x},chassis={},slot={0}", nics + 1),
    ]);
    add(&["-device", &format!("ivshmem-plain,id=memory0,bus=rp{nics},memdev=adapter-memory")]);
}

/// The address, in the guest, of the root port that a NIC is behind; adapter memory is behind the one after the last
/// NIC's.
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
    let kind = "q35,kernel-irqchip=split";
    if machine.nics.iter().any(|nic| nic.socket.is_some()) {
        // A model reads and writes the guest's memory itself: it has to be a file, and the file to be shared. A
        // private mapping would look the same, and go wrong silently.
        let memory = format!("memory-backend-memfd,id=memory,size={}M,share=on", settings.memory_mib);
        add(&["-object", &memory, "-machine", &format!("{kind},memory-backend=memory")]);
    } else {
        add(&["-machine", kind]);
    }
    add(&["-accel", machine.accel[0], "-cpu", machine.accel[1]]);
    add(&["-m", &settings.memory_mib.to_string(), "-smp", &settings.vcpus.to_string()]);
    // caching-mode: the IOMMU hears of every new mapping, which devices of other processes need.
    add(&["-device", "intel-iommu,intremap=on,caching-mode=on"]);
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-chardev", &format!("socket,id=console,fd={}", machine.console), "-serial", "chardev:console"]);
    add(&["-chardev", &format!("socket,id=control,fd={}", machine.control)]);
    add(&["-chardev", &format!("socket,id=monitor,fd={}", machine.monitor)]);
    add(&["-mon", "chardev=monitor,mode=control"]);
    add(&["-device", "virtio-serial-pci,id=serial0,romfile=", "-device"]);
    add(&[&format!("virtserialport,bus=serial0.0,chardev=control,name={PORT}")]);
    add_nics(&mut add, machine);
    if let Some(size) = settings.adapter_memory {
        add_adapter_memory(&mut add, size, machine.nics.len());
    }
    add(&["-kernel"]);
    args.push(machine.kernel.into());
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    add(&["-initrd", &format!("/proc/self/fd/{}", machine.initrd), "-append", &kernel_words(settings)]);
    args.extend(settings.qemu_args.iter().map(OsString::from));
    args
}

fn add_nics(add: &mut impl FnMut(&[&str]), machine: &Machine) {
    // One NIC and one neighbour need no hub; everything else meets on one.
    let emulated = machine.nics.iter().filter(|nic| nic.socket.is_none()).count();
    let direct = emulated == 1 && machine.ways.len() == 1;
    for (number, way) in machine.ways.iter().enumerate() {
        let to = match way {
            Way::Socket(fd) => format!("addr.type=fd,addr.str={fd}"),
            Way::Path(path) => format!("server=off,addr.type=unix,addr.path={}", path.display()),
        };
        add(&["-netdev", &format!("stream,id=link{number},{to}")]);
        if !direct {
            add(&["-netdev", &format!("hubport,id=hublink{number},hubid=0,netdev=link{number}")]);
        }
    }
    for (number, nic) in machine.nics.iter().enumerate() {
        // Each behind a root port of its own: an IOMMU group of its own, and a reset that works.
        let slot = FIRST_SLOT + number;
        add(&[
            "-device",
            &format!(
                "pcie-root-port,id=rp{number},bus=pcie.0,addr=0x{slot:x},chassis={},slot={0}",
                number + 1
            ),
        ]);
        let (driver, bus) = (nic.kind.device(), format!("rp{number}"));
        if let Some(path) = &nic.socket {
            let socket = serde_json::json!({ "type": "unix", "path": path });
            let device = serde_json::json!(
                { "driver": driver, "id": format!("nic{number}"), "bus": bus, "socket": socket }
            );
            add(&["-device", &device.to_string()]);
            continue;
        }
        let netdev = if direct { "link0".to_owned() } else { format!("hub{number}") };
        if !direct {
            add(&["-netdev", &format!("hubport,id={netdev},hubid=0")]);
        }
        let mac = mac(machine.guest, number);
        add(&["-device", &format!("{driver},id=nic{number},bus={bus},netdev={netdev},mac={mac}")]);
    }
}

fn kernel_words(settings: &Settings) -> String {
    let mut words = String::from(
        // The tsc words: under emulation the guest's clock would be the hpet, and slow. panic: with
        // -no-reboot, QEMU then ends instead of hanging. iommu=pt: the kernel's own devices stay fast.
        // no_timer_check: on a busy machine the emulated timer may miss its test, which ends in a panic.
        // panic_on_rcu_stall: a guest was seen to lose a processor's timer for good under emulation. What waits for
        // the kernel's grace periods then hangs, and all else goes on, so that only a panic tells. One stall may be
        // a host that paused.
        "console=ttyS0 quiet panic=-1 oops=panic intel_iommu=on iommu=pt tsc=reliable clocksource=tsc \
         no_timer_check sysctl.kernel.panic_on_rcu_stall=1 sysctl.kernel.max_rcu_stall_to_panic=2",
    );
    if settings.hugepages > 0 {
        words.push_str(&format!(" default_hugepagesz=2M hugepagesz=2M hugepages={}", settings.hugepages));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ways: &[Way], kinds: &[NicKind]) -> String {
        let nic = |kind: &NicKind| Nic { kind: *kind, socket: kind.model().map(|name| name.into()) };
        let nics: Vec<_> = kinds.iter().map(nic).collect();
        let settings = Settings { hugepages: 8, ..Settings::default() };
        let machine = Machine {
            guest: 1,
            accel: ["tcg", "max"],
            kernel: Path::new("/k"),
            initrd: 10,
            console: 11,
            control: 12,
            monitor: 13,
            ways,
            nics: &nics,
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
        let one = line(&[Way::Socket(7)], &[NicKind::E1000]);
        assert!(one.contains("netdev=link0") && !one.contains("hubport"), "{one}");
        let middle = line(&[Way::Socket(7), Way::Socket(8)], &[NicKind::E1000]);
        assert!(middle.contains("hubport,id=hublink1,hubid=0,netdev=link1"), "{middle}");
    }

    #[test]
    fn a_model_is_a_function_at_a_socket_and_the_memory_is_shared() {
        let mixed = line(&[Way::Path("/d/link".into())], &[NicKind::ModelE1000, NicKind::E1000]);
        assert!(mixed.contains(r#""socket":{"path":"e1000","type":"unix"}"#), "{mixed}");
        assert!(mixed.contains("id=nic1,bus=rp1,netdev=link0"), "{mixed}");
        assert!(mixed.contains("addr.path=/d/link") && mixed.contains("share=on"), "{mixed}");
        let two = line(&[], &[NicKind::ModelVirtio, NicKind::ModelVirtio]);
        assert!(!two.contains("netdev"), "{two}");
        assert!(!line(&[], &[NicKind::E1000, NicKind::E1000]).contains("memory-backend"));
    }

    #[test]
    fn adapter_memory_is_behind_the_nics() {
        let nic = || Nic { kind: NicKind::E1000, socket: None };
        let settings = Settings { adapter_memory: Some(1 << 20), ..Settings::default() };
        let machine = Machine {
            guest: 0,
            accel: ["tcg", "max"],
            kernel: Path::new("/k"),
            initrd: 10,
            console: 11,
            control: 12,
            monitor: 13,
            ways: &[],
            nics: &[nic(), nic()],
        };
        let words: Vec<_> =
            arguments(&settings, &machine).iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let words = words.join(" ");
        assert!(words.contains("ivshmem-plain,id=memory0,bus=rp2,memdev=adapter-memory"), "{words}");
        assert!(words.contains("size=1048576") && words.contains("addr=0x12"), "{words}");
        assert_eq!(port_address(2), "0000:00:12.0");
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
