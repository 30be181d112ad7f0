//! A port of the switch that is a network interface of the kernel's: a TAP.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use super::SwitchPort;
use super::outside::{Waker, send_from};
use crate::port::{LONGEST, Port};

/// Joins TAP `name` (made if it does not exist, which takes the right to) to a port, for as long as the process
/// lives.
///
/// # Errors
/// No such device, no right to it, or a name that cannot be one.
pub fn join(name: &str, port: SwitchPort, waker: Waker) -> io::Result<()> {
    let tap = open(name)?;
    let mut writer = tap.try_clone()?;
    send_from(port.clone(), "tap", move |frame| writer.write_all(frame))?;
    std::thread::Builder::new().name("tap-receive".to_owned()).spawn(move || {
        if let Err(e) = receive(tap, port, &waker) {
            tracing::error!("the TAP is lost: {e}");
        }
    })?;
    Ok(())
}

fn receive(mut tap: File, mut port: SwitchPort, waker: &Waker) -> io::Result<()> {
    let mut bytes = vec![0; LONGEST];
    loop {
        match tap.read(&mut bytes) {
            Ok(len) => {
                port.send(bytes[..len].to_vec());
                waker();
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            // An interface that is down.
            Err(e) if e.raw_os_error() == Some(libc::EIO) => {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            Err(e) => return Err(e),
        }
    }
}

fn open(name: &str) -> io::Result<File> {
    let tap = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: a structure of integers and arrays of them, for which zeros are values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name for an interface"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the call reads and writes one `ifreq`, which is a local.
    if unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(tap)
}
