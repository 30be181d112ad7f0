//! The file systems of the guest, and other things that are set once.

use std::ffi::CString;
use std::fs;
use std::io;

use super::failed;

/// What has to be there before anything else.
pub fn early() -> io::Result<()> {
    mount("proc", "/proc", "")?;
    mount("sysfs", "/sys", "")?;
    mount("devtmpfs", "/dev", "")?;
    raise_limit(libc::RLIMIT_MEMLOCK)?;
    raise_limit(libc::RLIMIT_CORE)
}

/// The rest.
pub fn late() -> io::Result<()> {
    for dir in ["/dev/pts", "/dev/shm", "/dev/hugepages"] {
        fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    }
    mount("devpts", "/dev/pts", "")?;
    mount("tmpfs", "/dev/shm", "mode=1777")?;
    mount("tmpfs", "/tmp", "mode=1777")?;
    mount("tmpfs", "/run", "mode=755")?;
    // A kernel without hugepages is good enough for those who do not ask for any.
    let _ = mount("hugetlbfs", "/dev/hugepages", "");
    for (link, target) in [("/dev/fd", "/proc/self/fd"), ("/dev/stdin", "/proc/self/fd/0")] {
        let _ = std::os::unix::fs::symlink(target, link);
    }
    for (link, target) in [("/dev/stdout", "/proc/self/fd/1"), ("/dev/stderr", "/proc/self/fd/2")] {
        let _ = std::os::unix::fs::symlink(target, link);
    }
    Ok(())
}

fn mount(kind: &str, at: &str, options: &str) -> io::Result<()> {
    let [kind_c, at_c, options_c] = [kind, at, options].map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: all pointers are to C strings that outlive the call.
    let result =
        unsafe { libc::mount(kind_c.as_ptr(), at_c.as_ptr(), kind_c.as_ptr(), 0, options_c.as_ptr().cast()) };
    if result != 0 {
        return Err(failed(format!("mount {at}"), io::Error::last_os_error()));
    }
    Ok(())
}

/// Commands inherit it: DMA memory is locked memory.
fn raise_limit(what: libc::__rlimit_resource_t) -> io::Result<()> {
    let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a valid structure that outlives the call.
    if unsafe { libc::setrlimit(what, &all) } != 0 {
        return Err(failed("raise a limit", io::Error::last_os_error()));
    }
    Ok(())
}

/// Names the guest, and tells it its name's address.
pub fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: the pointer and the length describe the string.
    if unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) } != 0 {
        return Err(failed("set the host name", io::Error::last_os_error()));
    }
    fs::write("/etc/hostname", format!("{name}\n"))?;
    fs::write("/etc/hosts", format!("127.0.0.1 localhost {name}\n"))
}

/// Checks that the kernel reserved as many hugepages as were asked for.
pub fn check_hugepages(wanted: u64) -> io::Result<()> {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let text = fs::read_to_string(path).map_err(|error| failed(path, error))?;
    let got = text.trim().parse().unwrap_or(0u64);
    if got < wanted {
        let text =
            format!("only {got} of {wanted} hugepages fit into the guest's memory; give --memory more");
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
    }
    Ok(())
}
