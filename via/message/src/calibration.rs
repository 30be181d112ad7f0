//! What `uvia-calibrate` has found out of a device, kept in a file, and used by sessions that are written down.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, Thresholds};

/// From how many bytes on which way of a piece is the cheapest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The device, by the name that it is opened by.
    pub device: String,
    /// As [`SessionOptions::thresholds`](crate::SessionOptions::thresholds). What a file does not say is as usual.
    #[serde(default)]
    pub thresholds: Thresholds,
}

impl Calibration {
    /// Where that of a device is kept: `uvia/calibration/DEVICE.toml` in the user's folder for what can be made again
    /// (`XDG_CACHE_HOME`, or `.cache` at home). `None`: there is no such folder.
    pub fn path(device: &str) -> Option<PathBuf> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("XDG_CACHE_HOME")
            .filter(|folder| folder.is_absolute())
            .or_else(|| set("HOME").map(|home| home.join(".cache")))?;
        Some(folder.join("uvia/calibration").join(file_name(device)))
    }

    /// That of a device, if there is one. What cannot be read is none, and is told of: a session can do without.
    pub fn load(device: &str) -> Option<Self> {
        Self::load_from(&Self::path(device)?, device)
    }

    fn load_from(path: &Path, device: &str) -> Option<Self> {
        let text = match uvia_driver::text::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
            Err(e) => {
                tracing::warn!("{} is not used: {e}", path.display());
                return None;
            }
        };
        let why = match toml::from_str::<Self>(&text) {
            Ok(found) if found.device != device => format!("it is of {:?}", found.device),
            Ok(found) => match found.thresholds.check() {
                Ok(()) => return Some(found),
                Err(why) => why,
            },
            Err(e) => e.to_string(),
        };
        tracing::warn!(
            "{} is not used, and the usual thresholds are: {why}. Run uvia-calibrate --nic {device} again, or remove the file",
            path.display()
        );
        None
    }

    /// Keeps it where [`Calibration::load`] looks, and says where that is.
    ///
    /// # Errors
    /// There is no folder for it, or it cannot be written.
    pub fn store(&self) -> Result<PathBuf> {
        let path = Self::path(&self.device).ok_or_else(|| {
            Error::Config(
                "neither XDG_CACHE_HOME nor HOME is set: there is no folder to keep it in".to_owned(),
            )
        })?;
        self.store_at(&path)?;
        Ok(path)
    }

    fn store_at(&self, path: &Path) -> Result<()> {
        let failed = |e| Error::io(format!("writing {}", path.display()), e);
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let Thresholds { inline, gather, long, read } = self.thresholds;
        let mut text = format!(
            "# By uvia-calibrate. Remove this file to have the defaults again.\ndevice = {}\n\n[thresholds]\n",
            quoted(&self.device),
        );
        for (name, bytes) in [("inline", inline), ("gather", gather), ("long", long), ("read", read)] {
            text += &format!("{name} = {}\n", bytes.min(Thresholds::NEVER));
        }
        // Who reads finds the old one or the new one, and never a part.
        let draft = path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, path)).map_err(|e| {
            // Where it could not even be made there is nothing to remove; what is told is why it was not kept.
            let _ = std::fs::remove_file(&draft);
            failed(e)
        })
    }
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

/// A file's name for a device's: what is neither letter, digit nor one of `.-_` is written as its number.
fn file_name(device: &str) -> String {
    let mut name = String::new();
    for byte in device.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name + ".toml"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_kept_and_what_is_wrong_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let usual = Thresholds::default();
        let path = folder.path().join("a/b").join(file_name("shm:x/y"));
        assert!(path.ends_with("shm%3ax%2fy.toml"), "{path:?}");
        for device in ["a \"b\" c:\\d", "tab\t", "vfio-user:/x"] {
            let odd = Calibration { device: device.to_owned(), thresholds: Thresholds { long: 1, ..usual } };
            odd.store_at(&path).unwrap();
            assert_eq!(Calibration::load_from(&path, device), Some(odd));
        }
        std::fs::remove_file(&path).unwrap();
        let other = Calibration { device: "shm:z".to_owned(), thresholds: usual };
        let found = Calibration {
            device: "shm:x/y".to_owned(),
            thresholds: Thresholds { gather: 4096, read: 65536, ..usual },
        };
        assert_eq!(Calibration::load_from(&path, "shm:x/y"), None);
        found.store_at(&path).unwrap();
        assert_eq!(Calibration::load_from(&path, "shm:x/y"), Some(found));
        assert_eq!(Calibration::load_from(&path, "shm:x_y"), None, "of another device");
        for bad in ["long = \"many\"", "long = 0", "longer = 5", "inline = -1"] {
            std::fs::write(&path, format!("device = \"shm:x/y\"\n[thresholds]\n{bad}")).unwrap();
            assert_eq!(Calibration::load_from(&path, "shm:x/y"), None, "{bad}");
        }
        // What cannot be kept leaves nothing: here a folder is in the way.
        let taken = folder.path().join("taken");
        std::fs::create_dir_all(taken.join("by a folder")).unwrap();
        assert!(matches!(other.store_at(&taken), Err(Error::Io { .. })));
        let left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| name == "a" || name == "taken"));
        std::fs::write(&path, "device = \"shm:x/y\"\n[thresholds]\nread = 9").unwrap();
        let found = Calibration::load_from(&path, "shm:x/y").unwrap();
        assert_eq!(found.thresholds, Thresholds { read: 9, ..usual });
    }
}
