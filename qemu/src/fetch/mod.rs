//! Gets the guest's kernel, modules and busybox: those named by option, or Debian's; and a QEMU that knows vfio-user.

mod apt;
mod bar;
mod debian;
mod lock;
mod once;
pub(crate) mod qemu;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::settings::Settings;

/// What a guest boots from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The folder lib/modules/VERSION.
    pub modules: PathBuf,
    /// A static busybox.
    pub busybox: PathBuf,
}

/// Finds or fetches what a guest boots from.
pub fn system(settings: &Settings, cache: &Path) -> Result<System> {
    let (kernel, modules) = match (&settings.kernel, &settings.modules) {
        (Some(kernel), modules) => {
            if !kernel.is_file() {
                return Err(Error::NoKernel(kernel.clone()));
            }
            let modules = match modules {
                Some(modules) => modules.clone(),
                None => modules_of(kernel)?,
            };
            (kernel.clone(), modules)
        }
        (None, Some(_)) => {
            return Err(Error::Usage("--modules belongs to a kernel: give --kernel too".into()));
        }
        (None, None) => {
            let root = debian::package(cache, debian::KERNEL, settings.verbose)?;
            (only(&root, &["boot"], "vmlinuz-")?, only(&root, &["lib/modules", "usr/lib/modules"], "")?)
        }
    };
    let busybox = match &settings.busybox {
        Some(busybox) => busybox.clone(),
        None => {
            let root = debian::package(cache, debian::BUSYBOX, settings.verbose)?;
            only(&root, &["bin", "usr/bin"], "busybox")?
        }
    };
    for (path, what) in [(&modules, "the folder of kernel modules"), (&busybox, "busybox")] {
        if !path.exists() {
            return Err(Error::bad(path, format!("{what} is not there")));
        }
    }
    Ok(System { kernel, modules, busybox })
}

/// An installed kernel is named after its version, and so are its modules.
fn modules_of(kernel: &Path) -> Result<PathBuf> {
    let name = kernel.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = name.split_once('-').map_or("", |(_, version)| version);
    let modules = Path::new("/lib/modules").join(version);
    if version.is_empty() || !modules.is_dir() {
        return Err(Error::Usage(format!(
            "no modules found for the kernel {}; give --modules DIR (its lib/modules/VERSION)",
            kernel.display()
        )));
    }
    Ok(modules)
}

/// The only entry in one of these folders that starts so.
fn only(root: &Path, dirs: &[&str], start: &str) -> Result<PathBuf> {
    let found = dirs
        .iter()
        .filter_map(|dir| fs::read_dir(root.join(dir)).ok())
        .flatten()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(start));
    found.map(|entry| entry.path()).ok_or_else(|| {
        Error::bad(root, format!("the unpacked package has no {}/{start}*; remove the folder", dirs[0]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_not_there_is_named() {
        let settings = Settings { kernel: Some("/no/vmlinuz".into()), ..Settings::default() };
        let error = system(&settings, Path::new("/nonexistent")).unwrap_err();
        assert!(matches!(error, Error::NoKernel(_)));
        assert_eq!(error.status(), 125);
        let settings = Settings { modules: Some("/no".into()), ..Settings::default() };
        assert!(system(&settings, Path::new("/nonexistent")).unwrap_err().to_string().contains("--kernel"));
    }
}
