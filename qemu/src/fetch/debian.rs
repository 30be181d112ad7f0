//! Debian packages, downloaded and unpacked into the cache; nothing is installed on the host.

use std::path::{Path, PathBuf};

use super::apt::{Apt, archives};
use super::once;
use crate::error::{Error, Result};

/// The guest's kernel: a package whose only use is to depend on today's kernel.
pub const KERNEL: &str = "linux-image-amd64";
/// The guest's user space.
pub const BUSYBOX: &str = "busybox-static";

/// The folder with a package's files, fetched unless it is there.
pub fn package(cache: &Path, name: &str, verbose: bool) -> Result<PathBuf> {
    once::folder(cache, name, verbose, |work| {
        let apt = Apt::of_the_host(&cache.join("apt"), name, verbose)?;
        let concrete = if name == KERNEL { kernel(&apt)? } else { name.to_owned() };
        if verbose {
            eprintln!("uvia-vm: fetching the package {concrete} for the guest");
        }
        apt.download(&concrete, work)?;
        archives(work)?.iter().try_for_each(|archive| apt.unpack(archive, &work.join("root")))
    })
}

fn kernel(apt: &Apt) -> Result<String> {
    concrete_kernel(&apt.show(KERNEL)?).ok_or_else(|| {
        Error::Usage(format!("the package {KERNEL} depends on no kernel; give --kernel and --modules"))
    })
}

/// The kernel that the package `linux-image-amd64` depends on.
fn concrete_kernel(show: &str) -> Option<String> {
    let depends = show.lines().find_map(|line| line.strip_prefix("Depends:"))?;
    let names = depends.split(',').filter_map(|item| item.split_whitespace().next());
    names.filter(|name| name.starts_with("linux-image-")).map(str::to_owned).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_among_the_dependencies() {
        let text = "Package: linux-image-amd64\nDepends: linux-base, linux-image-6.1.0-57-amd64 (= 6.1.192-3)\nSize: 1\n";
        assert_eq!(concrete_kernel(text).as_deref(), Some("linux-image-6.1.0-57-amd64"));
        assert_eq!(concrete_kernel("Package: x\nDepends: libc6\n"), None);
    }

    #[test]
    fn what_is_in_the_cache_is_used_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("p/root")).unwrap();
        assert_eq!(package(dir.path(), "p", false).unwrap(), dir.path().join("p/root"));
    }
}
