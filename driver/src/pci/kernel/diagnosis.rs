//! Why a device cannot be opened, and what to do about it.
//!
//! The kernel answers with an errno that has many causes. So what can be seen beforehand is looked at
//! beforehand, and after a refusal we look for what explains it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use vfio_ioctls::VfioError;

use crate::pci::{Function, PciAddress, Sysfs};
use crate::{Error, Result};

/// Where VFIO's device files are.
const DEVICES: &str = "/dev/vfio";

/// Looks at what can be seen before anything is opened: the device, its IOMMU group, its driver, and the
/// group's other members. Answers the device and its group.
pub fn before_open(sysfs: &Sysfs, address: PciAddress) -> Result<(Function, u32)> {
    let function = sysfs.function(address)?;
    let Some(group) = function.group else {
        let why = if function.is_on_vfio() {
            "it is in no IOMMU group (VFIO's noiommu mode gives no protection and is not used)"
        } else {
            "it is in no IOMMU group"
        };
        return Err(Error::NoIommu { device: address.to_string(), why: why.to_owned() });
    };
    if !function.is_on_vfio() {
        return Err(Error::NotBound { device: address.to_string(), driver: function.driver });
    }
    let blockers = blockers(sysfs, group)?;
    if !blockers.is_empty() {
        return Err(Error::GroupNotViable { device: address.to_string(), group, blockers });
    }
    Ok((function, group))
}

/// The members of a group that keep it from being used, with their drivers.
pub fn blockers(sysfs: &Sysfs, group: u32) -> Result<Vec<(PciAddress, String)>> {
    let members = sysfs.group_members(group)?;
    let blocks = |member: Function| {
        let stays = member.lets_group_be_viable();
        member.driver.filter(|_| !stays).map(|driver| (member.address, driver))
    };
    Ok(members.into_iter().filter_map(blocks).collect())
}

/// Explains why no container could be made.
pub fn no_container(error: VfioError) -> Error {
    match error {
        VfioError::OpenContainer(source) => no_device_file(format!("{DEVICES}/vfio"), source),
        VfioError::VfioExtension | VfioError::VfioInvalidType => Error::NoVfio {
            path: format!("{DEVICES}/vfio"),
            source: io::Error::other("it offers no type 1 IOMMU: the module vfio_iommu_type1 is not loaded"),
        },
        other => Error::Io { what: format!("{DEVICES}/vfio"), source: io::Error::other(other) },
    }
}

/// Explains why the device, which looked usable, could not be opened.
pub fn no_device(sysfs: &Sysfs, address: PciAddress, group: u32, error: VfioError) -> Error {
    let device = address.to_string();
    match error {
        VfioError::OpenGroup(source, _) if source.raw_os_error() == Some(libc::EBUSY) => {
            let proc = Path::new("/proc");
            let mut holders = holders(proc, group);
            if holders.is_empty() {
                holders = suspects(proc);
            }
            Error::GroupBusy { device, group, holders }
        }
        VfioError::OpenGroup(source, _) => no_device_file(format!("{DEVICES}/{group}"), source),
        VfioError::GroupViable => {
            let blockers = blockers(sysfs, group).unwrap_or_default();
            Error::GroupNotViable { device, group, blockers }
        }
        VfioError::ContainerSetIOMMU(errno) if errno.errno() == libc::EPERM => Error::NoIommu {
            device,
            why: "it does not remap interrupts, so that a device could forge them (the kernel's EPERM)"
                .to_owned(),
        },
        VfioError::ContainerSetIOMMU(errno) => {
            Error::NoIommu { device, why: format!("the kernel does not take it for VFIO ({errno})") }
        }
        VfioError::VfioExtension => no_container(VfioError::VfioExtension),
        VfioError::GroupGetDeviceFD(errno) => {
            Error::io(format!("{device}: getting it from group {group}"), errno.into())
        }
        VfioError::VfioDeviceGetInfo(errno) => {
            Error::io(format!("{device}: asking what it has"), errno.into())
        }
        other => Error::Io { what: format!("{device}: opening it"), source: io::Error::other(other) },
    }
}

fn no_device_file(path: String, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission { what: path, source },
        _ => Error::NoVfio { path, source },
    }
}

/// The processes that have a group's file open, by id and name, as far as we may see. `proc` is where procfs
/// is mounted.
pub fn holders(proc: &Path, group: u32) -> Vec<(u32, String)> {
    let file = PathBuf::from(format!("{DEVICES}/{group}"));
    processes(proc, |process| has_open(process, &file))
}

/// The processes that have some device of VFIO open or mapped. The kernel does not say which device, so that
/// one of several is only perhaps the one that is looked for.
pub fn suspects(proc: &Path) -> Vec<(u32, String)> {
    const DEVICE: &str = "anon_inode:[vfio-device]";
    let mut found = processes(proc, |process| {
        let maps = || fs::read_to_string(process.join("maps")).unwrap_or_default();
        has_open(process, Path::new(DEVICE)) || maps().contains(DEVICE)
    });
    if found.len() > 1 {
        found.iter_mut().for_each(|(_, name)| name.push_str(", perhaps"));
    }
    found
}

fn has_open(process: &Path, file: &Path) -> bool {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == file))
}

fn processes(proc: &Path, is_one: impl Fn(&Path) -> bool) -> Vec<(u32, String)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut found: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            if !is_one(&entry.path()) {
                return None;
            }
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            Some((process, name.trim().to_owned()))
        })
        .collect();
    found.sort();
    found
}

/// Explains why memory could not be mapped. `limit` is the domain's limit on mappings, where it is known.
pub fn no_mapping(address: *mut u8, len: usize, limit: Option<u64>, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => match locked_memory_limit() {
            Some(limit) => Error::MemlockExceeded { need: locked_memory() + len as u64, limit },
            None => Error::io(format!("pinning {len} bytes for DMA"), source),
        },
        Some(libc::ENOSPC) => Error::MappingsExceeded { limit: limit.or_else(entry_limit).unwrap_or(0) },
        Some(libc::EFAULT) => Error::Io {
            what: format!(
                "{len} bytes at {address:p} cannot be pinned for DMA: they are not all mapped in this process \
                 with the rights asked for (or are a BAR whose memory decoding is off)"
            ),
            source,
        },
        _ => Error::io(format!("mapping {len} bytes at {address:p} for DMA"), source),
    }
}

/// RLIMIT_MEMLOCK, bytes; `None` when there is no limit.
fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is what the call writes.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Bytes that this process has locked, which count towards the limit.
fn locked_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The kernel's own limit on mappings.
fn entry_limit() -> Option<u64> {
    let path = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::pci::fake::FakeSysfs;

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    #[test]
    fn what_can_be_seen_before_opening() {
        let fake = FakeSysfs::new();
        let sysfs = fake.sysfs();
        let look = |name: &str| before_open(&sysfs, address(name)).map(|(_, group)| group);

        let error = look("0000:09:00.0").unwrap_err();
        assert!(matches!(&error, Error::NotFound { .. }), "{error}");

        fake.add("0000:01:00.0", "8086:100e", 0x020000, Some("e1000"), None);
        let error = look("0000:01:00.0").unwrap_err();
        assert!(error.to_string().contains("in no IOMMU group; turn it on"), "{error}");

        fake.add("0000:02:00.0", "8086:100e", 0x020000, Some("e1000"), Some(2));
        let error = look("0000:02:00.0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "0000:02:00.0: is on e1000, not on vfio-pci; run `uvia-bind attach 0000:02:00.0`"
        );
        fake.set_driver("0000:02:00.0", None);
        assert!(look("0000:02:00.0").unwrap_err().to_string().contains("on no driver"));

        fake.add("0000:03:00.0", "8086:100e", 0x020000, Some("vfio-pci"), Some(3));
        fake.add("0000:03:00.1", "8086:100e", 0x020000, Some("e1000"), Some(3));
        fake.add("0000:03:00.2", "1b36:0001", 0x060400, Some("pcieport"), Some(3));
        let error = look("0000:03:00.0").unwrap_err();
        assert!(error.to_string().contains("not viable: 0000:03:00.1 is on e1000;"), "{error}");

        fake.set_driver("0000:03:00.1", None);
        assert_eq!(look("0000:03:00.0").unwrap(), 3);
    }

    #[test]
    fn who_holds_a_group() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, comm, target) in
            [("12", "dpdk", "/dev/vfio/7"), ("9", "sh", "/dev/vfio/70"), ("4", "qemu", "/dev/vfio/7")]
        {
            let process = proc.path().join(pid);
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::write(process.join("comm"), format!("{comm}\n")).unwrap();
            symlink("/dev/null", process.join("fd/0")).unwrap();
            symlink(target, process.join("fd/5")).unwrap();
        }
        fs::create_dir(proc.path().join("self")).unwrap();
        assert_eq!(holders(proc.path(), 7), [(4, "qemu".to_owned()), (12, "dpdk".to_owned())]);
        assert_eq!(holders(proc.path(), 8), []);

        assert_eq!(suspects(proc.path()), []);
        symlink("anon_inode:[vfio-device]", proc.path().join("9/fd/6")).unwrap();
        assert_eq!(suspects(proc.path()), [(9, "sh".to_owned())]);
        let map = "7f0000000000-7f0000020000 rw-s 00000000 00:0d 9 anon_inode:[vfio-device]\n";
        fs::write(proc.path().join("4/maps"), map).unwrap();
        let two = [(4, "qemu, perhaps".to_owned()), (9, "sh, perhaps".to_owned())];
        assert_eq!(suspects(proc.path()), two);
    }

    #[test]
    fn refusals_are_told_apart() {
        let sysfs = FakeSysfs::new();
        let refused = |error| no_device(&sysfs.sysfs(), address("01:00.0"), 5, error);
        let open = |errno| VfioError::OpenGroup(io::Error::from_raw_os_error(errno), "5".to_owned());
        assert!(matches!(refused(open(libc::EBUSY)), Error::GroupBusy { group: 5, .. }));
        assert!(matches!(refused(open(libc::EACCES)), Error::Permission { .. }));
        assert!(matches!(refused(open(libc::ENOENT)), Error::NoVfio { .. }));
        assert!(matches!(refused(VfioError::GroupViable), Error::GroupNotViable { group: 5, .. }));
        let remapping = VfioError::ContainerSetIOMMU(vmm_errno(libc::EPERM));
        assert!(refused(remapping).to_string().contains("remap interrupts"));
        let no_file = VfioError::OpenContainer(io::Error::from_raw_os_error(libc::ENOENT));
        assert!(no_container(no_file).to_string().contains("modprobe -a"));
        assert!(no_container(VfioError::VfioExtension).to_string().contains("vfio_iommu_type1"));
    }

    fn vmm_errno(errno: i32) -> vmm_sys_util::errno::Error {
        vmm_sys_util::errno::Error::new(errno)
    }

    #[test]
    fn mapping_refusals_are_told_apart() {
        let refused = |errno| {
            no_mapping(std::ptr::null_mut(), 4096, Some(3), io::Error::from_raw_os_error(errno)).to_string()
        };
        assert!(refused(libc::ENOSPC).contains("limit of 3 DMA mappings"));
        assert!(refused(libc::EFAULT).contains("not all mapped in this process"));
        assert!(refused(libc::EINVAL).contains("mapping 4096 bytes"));
    }
}
