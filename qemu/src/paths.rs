//! Where things are on the host.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Looks a program up: a name on PATH and in the system's folders, a path as it is.
pub fn program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return is_program(name).then(|| name.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Cargo's target folder, as seen from the running program; outside of one, the user's cache folder.
pub fn default_cache() -> PathBuf {
    let exe = env::current_exe().unwrap_or_default();
    // Cargo marks its target folder with this file.
    if let Some(target) = exe.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file()) {
        return target.join("vm");
    }
    let home = env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from).join("uvia-vm")
}

/// The folder with our built programs: that of the running one, or its parent for a test program of Cargo's.
pub fn default_tools() -> PathBuf {
    let exe = env::current_exe().unwrap_or_default();
    let dir = exe.parent().unwrap_or(Path::new(".")).to_owned();
    let test = [OsStr::new("deps"), OsStr::new("examples")].contains(&dir.file_name().unwrap_or_default());
    if test { dir.parent().map(Path::to_owned).unwrap_or(dir) } else { dir }
}
