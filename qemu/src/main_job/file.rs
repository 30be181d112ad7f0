//! The file that the main job moves.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::host::guest::Guest;

/// A file of the host, open for reading.
#[derive(Debug)]
pub struct Payload {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Payload {
    /// Opens it: what cannot be read is known before anything is booted.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |error| Error::path("read", path, error);
        let file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(Error::bad(path, "--file takes a file"));
        }
        Ok(Payload { path: path.to_owned(), file, size: meta.len() })
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The memory, in MiB, that a guest needs to hold it: /tmp takes half of the memory.
    pub fn memory_mib(&self) -> u32 {
        u32::try_from((self.size >> 20) * 5 / 2 + 512).unwrap_or(u32::MAX)
    }

    /// Puts it into a guest; its SHA-256.
    pub fn put(&self, guest: &Guest, path: &str) -> Result<String> {
        let mut sum = Sum { file: &self.file, digest: Sha256::new() };
        guest.put_from(path, &mut sum, 0o644)?;
        Ok(sum.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

struct Sum<'a> {
    file: &'a File,
    digest: Sha256,
}

impl Read for Sum<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buf)?;
        self.digest.update(&buf[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_moved_is_refused_by_name() {
        assert!(Payload::open(Path::new("/no/file")).unwrap_err().to_string().contains("/no/file"));
        assert!(Payload::open(Path::new("/")).unwrap_err().to_string().contains("--file"));
    }

    #[test]
    fn large_files_ask_for_more_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        let payload = Payload { path: "/x/y".into(), file, size: 1 << 30 };
        assert_eq!(payload.memory_mib(), 3072);
        assert_eq!(payload.name(), "y");
    }
}
