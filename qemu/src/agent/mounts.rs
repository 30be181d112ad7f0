//! The file systems of the guest, and other things that are set once.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

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
    // Memory already, as all of the guest's root is: a mount would hide what was carried there.
    for (dir, mode) in [("/tmp", 0o1777), ("/run", 0o755)] {
        fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).map_err(|error| failed(dir, error))?;
    }
    // A kernel without hugepages is good enough for those who do not ask for any.
    let _ = mount("hugetlbfs", "/dev/hugepages", "");
    for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        // Conveniences of shells; nothing of ours needs them.
        let _ = std::os::unix::fs::symlink(format!("/proc/self/fd{target}"), format!("/dev/{link}"));
    }
    loopback_up()
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

/// Turns the loopback interface on, which tests of sockets expect.
fn loopback_up() -> io::Result<()> {
    // SAFETY: the call takes plain numbers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(failed("make a socket", io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the pointer is to a valid request that outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } != 0 {
        return Err(failed("turn the loopback interface on", io::Error::last_os_error()));
    }
    Ok(())
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
