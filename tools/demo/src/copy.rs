//! The file that is moved.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uvia_tools::Failure;

use crate::job::Ends;

/// How long the copy may take: a few seconds and what a slow machine needs for so many bytes.
fn patience(bytes: u64) -> Duration {
    Duration::from_secs(60 + bytes / 2_000_000)
}

/// A file to move.
pub struct Payload {
    path: PathBuf,
    bytes: u64,
}

/// What the copy came to.
#[derive(Debug, Serialize)]
pub struct Copied {
    /// The file's name.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// From the first message to the last.
    pub seconds: f64,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
    /// Of what arrived, computed here.
    pub sha256: String,
}

/// What `uvia-cp --json` prints, as far as we need it.
#[derive(Deserialize)]
struct Line {
    seconds: f64,
    mb_per_s: f64,
}

impl Payload {
    /// The file that was named, or this program.
    ///
    /// # Errors
    /// There is none, or none that can be read.
    pub fn find(given: Option<&Path>) -> Result<Self, Failure> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()?,
        };
        let failed = |e: io::Error| Failure::failed(format!("{}: {e}", path.display()));
        let about = File::open(&path).and_then(|file| file.metadata()).map_err(failed)?;
        if !about.is_file() {
            return Err(Failure::usage(format!("{} is no file", path.display())));
        }
        Ok(Self { path, bytes: about.len() })
    }

    /// Its name and size, for people.
    pub fn describe(&self) -> String {
        format!("{} ({:.1} MB)", self.name(), self.bytes as f64 / 1e6)
    }

    fn name(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Moves it from one process to the other, into `folder`.
    ///
    /// # Errors
    /// It does not arrive, or not as it was.
    pub fn copy(&self, ends: &Ends<'_>, folder: &Path) -> Result<Copied, Failure> {
        let arrived = folder.join("arrived");
        std::fs::create_dir(&arrived)?;
        let listen = ["--listen".as_ref(), arrived.as_os_str(), "--once".as_ref()];
        let send = [self.path.as_os_str(), "b:file".as_ref(), "--json".as_ref()];
        let said = ends.run("uvia-cp", &listen, &send, patience(self.bytes))?;
        let line: Line = serde_json::from_str(said.trim())
            .map_err(|e| Failure::failed(format!("uvia-cp wrote what is no result ({e}): {said}")))?;
        // Not by the copying tool's own word.
        let (sent, got) = (digest(&self.path)?, digest(&arrived.join("file"))?);
        if sent != got {
            return Err(Failure::failed(format!(
                "{} arrived changed: its SHA-256 is {got} and not {sent}",
                self.name()
            )));
        }
        // Its place is wanted for the sockets alone.
        std::fs::remove_dir_all(&arrived)?;
        let Line { seconds, mb_per_s } = line;
        Ok(Copied { file: self.name(), bytes: self.bytes, seconds, mb_per_s, sha256: got })
    }
}

fn digest(path: &Path) -> Result<String, Failure> {
    let failed = |e: io::Error| Failure::failed(format!("{}: {e}", path.display()));
    let mut file = File::open(path).map_err(failed)?;
    let (mut digest, mut part) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part).map_err(failed)? {
            0 => break,
            n => digest.update(&part[..n]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_moved_is_refused_by_name() {
        let why = |path: &str| match Payload::find(Some(Path::new(path))) {
            Err(Failure::Failed(why) | Failure::Usage(why)) => why,
            _ => panic!("{path} is taken"),
        };
        assert!(why("/nonexistent/x").contains("/nonexistent/x"));
        assert!(why("/").contains("no file"));
    }

    #[test]
    fn digests_are_those_of_sha256() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "abc").unwrap();
        assert!(digest(&path).unwrap().starts_with("ba7816bf8f01cfea"));
    }
}
