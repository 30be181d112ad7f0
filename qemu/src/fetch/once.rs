//! What is fetched once and then kept in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use super::lock;
use crate::error::{Error, Result};

/// The folder `cache`/`name`/root, filled by `fill` unless it is there. `fill` gets a folder to work in, and leaves
/// what is to be kept in its subfolder `root`.
///
/// A finished folder has its final name; everything before happens under another name, so a killed run
/// leaves nothing that a later one would take for complete.
pub fn folder(
    cache: &Path,
    name: &str,
    verbose: bool,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let home = cache.join(name);
    let done = home.join("root");
    if done.is_dir() {
        return Ok(done);
    }
    fs::create_dir_all(&home).map_err(|error| Error::path("make the folder", &home, error))?;
    let _lock = lock::take(&home.join("lock"), verbose)?;
    if done.is_dir() {
        return Ok(done);
    }
    let work = home.join("work");
    if work.exists() {
        fs::remove_dir_all(&work)
            .map_err(|error| Error::path("remove the remains of a killed run", &work, error))?;
    }
    fs::create_dir_all(work.join("root")).map_err(|error| Error::path("make the folder", &work, error))?;
    fill(&work)?;
    fs::rename(work.join("root"), &done).map_err(|error| Error::path("move into place", &done, error))?;
    fs::remove_dir_all(&work).map_err(|error| Error::path("remove", &work, error))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_filled_once_and_a_failure_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let failed = folder(dir.path(), "p", false, |_| Err(Error::Usage("no network".into())));
        assert!(failed.is_err() && !dir.path().join("p/root").exists());
        let fill = |work: &Path| {
            fs::write(work.join("root/file"), "x").unwrap();
            Ok(())
        };
        let root = folder(dir.path(), "p", false, fill).unwrap();
        assert!(root.join("file").is_file() && !dir.path().join("p/work").exists());
        let again = folder(dir.path(), "p", false, |_| panic!("it is there"));
        assert_eq!(again.unwrap(), root);
    }
}
