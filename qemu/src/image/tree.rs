//! The guest's files before they are packed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::cpio::Archive;
use crate::error::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Dir,
    Host { path: PathBuf, mode: u32 },
    Bytes { data: Vec<u8>, mode: u32 },
    Link(OsString),
}

/// A tree of files; later additions replace earlier ones.
///
/// The guest has the merged layout (/bin is /usr/bin, and so on), whatever the host has: so a path is
/// good in the guest under either name.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

impl Default for Tree {
    fn default() -> Self {
        let mut tree = Tree { nodes: BTreeMap::new() };
        for name in MERGED {
            tree.dir(&Path::new("/usr").join(name));
            tree.nodes.insert(name.into(), Node::Link(format!("usr/{name}").into()));
        }
        tree
    }
}

impl Tree {
    /// Where a path is kept: relative to the root, merged, without dots.
    fn place(path: &Path) -> PathBuf {
        let mut place = PathBuf::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => {
                    if place.as_os_str().is_empty() && MERGED.iter().any(|merged| name == *merged) {
                        place.push("usr");
                    }
                    place.push(name);
                }
                Component::ParentDir => {
                    place.pop();
                }
                _ => {}
            }
        }
        place
    }

    fn insert(&mut self, path: &Path, node: Node) {
        let place = Self::place(path);
        if let Some(parent) = place.parent() {
            for dir in parent.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
                if !matches!(self.nodes.get(dir), Some(Node::Dir)) {
                    self.nodes.insert(dir.to_owned(), Node::Dir);
                }
            }
        }
        if !place.as_os_str().is_empty() {
            self.nodes.insert(place, node);
        }
    }

    /// Adds a folder and its parents.
    pub fn dir(&mut self, path: &Path) {
        if !matches!(self.nodes.get(&Self::place(path)), Some(Node::Dir)) {
            self.insert(path, Node::Dir);
        }
    }

    /// Adds a file of the host with its mode; what it is read from may be a symbolic link.
    pub fn host(&mut self, path: &Path, from: &Path) -> Result<()> {
        let meta = from.metadata().map_err(|error| Error::path("read", from, error))?;
        self.insert(path, Node::Host { path: from.to_owned(), mode: meta.permissions().mode() });
        Ok(())
    }

    /// Adds a file with these bytes.
    pub fn bytes(&mut self, path: &Path, data: impl Into<Vec<u8>>, mode: u32) {
        self.insert(path, Node::Bytes { data: data.into(), mode });
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &Path, target: impl Into<OsString>) {
        self.insert(path, Node::Link(target.into()));
    }

    /// Whether there is something at `path`.
    pub fn has(&self, path: &Path) -> bool {
        self.nodes.contains_key(&Self::place(path))
    }

    /// Packs the tree.
    pub fn pack<W: Write>(&self, to: W) -> Result<W> {
        let failed = |error| Error::io("write the guest's initramfs", error);
        let mut archive = Archive::new(to);
        // The map's order puts each folder before what is in it.
        for (place, node) in &self.nodes {
            let name = place.as_os_str().as_bytes();
            match node {
                Node::Dir => archive.dir(name, 0o755).map_err(failed)?,
                Node::Link(target) => archive.symlink(name, target.as_bytes()).map_err(failed)?,
                Node::Bytes { data, mode } => {
                    archive.file(name, *mode, data.len() as u64, &mut &data[..]).map_err(failed)?;
                }
                Node::Host { path, mode } => {
                    let pack = |archive: &mut Archive<W>| -> io::Result<()> {
                        let mut file = File::open(path)?;
                        let size = file.metadata()?.len();
                        archive.file(name, *mode, size, &mut file)
                    };
                    pack(&mut archive).map_err(|error| Error::path("pack", path, error))?;
                }
            }
        }
        archive.finish().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first_and_merged_folders_are_one() {
        let mut tree = Tree::default();
        tree.bytes(Path::new("/bin/a"), "1", 0o755);
        tree.bytes(Path::new("/usr/bin/b"), "2", 0o755);
        tree.bytes(Path::new("/opt/x/../y/c"), "3", 0o644);
        assert!(tree.has(Path::new("/usr/bin/a")) && tree.has(Path::new("/bin/b")));
        assert!(tree.has(Path::new("/opt/y")) && !tree.has(Path::new("/opt/x")));
        let packed = String::from_utf8_lossy(&tree.pack(Vec::new()).unwrap()).into_owned();
        let at = |name: &str| packed.find(&format!("{name}\0")).unwrap();
        assert!(at("opt") < at("opt/y") && at("opt/y") < at("opt/y/c"));
    }

    #[test]
    fn a_missing_host_file_is_an_error_that_names_it() {
        let error = Tree::default().host(Path::new("/x"), Path::new("/nonexistent/y")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/y"), "{error}");
    }
}
