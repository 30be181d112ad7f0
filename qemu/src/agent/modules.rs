//! Loads kernel modules.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::failed;
use crate::image::MODULE_LISTS;

/// Loads a set of modules that the image carries, in the order of its list.
pub fn load_set(set: &str) -> io::Result<()> {
    let list = fs::read_to_string(Path::new(MODULE_LISTS).join(set))
        .map_err(|error| failed(format!("the guest's kernel has no module {set}"), error))?;
    list.lines().try_for_each(load)
}

fn load(path: &str) -> io::Result<()> {
    let file = File::open(path).map_err(|error| failed(path, error))?;
    let parameters = CString::default();
    // SAFETY: the descriptor is open and the parameters are a C string; both outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EEXIST) {
            return Err(failed(format!("load {path}"), error));
        }
    }
    Ok(())
}
