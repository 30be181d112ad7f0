//! Kernel modules: where they are, and what must be loaded before them.
//!
//! A Debian kernel package that was only unpacked has no modules.dep (it is made when the package is
//! installed), so dependencies are read from the modules themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf;
use crate::error::{Error, Result};

/// The modules of one kernel.
pub struct Modules {
    dir: PathBuf,
    busybox: PathBuf,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// A module, ready to be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name, with underscores.
    pub name: String,
    /// The uncompressed file.
    pub bytes: Vec<u8>,
}

impl Modules {
    /// Looks through a folder lib/modules/VERSION; `busybox` unpacks compressed modules.
    pub fn open(dir: &Path, busybox: &Path) -> Result<Self> {
        let mut modules = Modules {
            dir: dir.to_owned(),
            busybox: busybox.to_owned(),
            files: BTreeMap::new(),
            builtin: BTreeSet::new(),
        };
        walk(dir, &mut modules.files)?;
        if let Ok(text) = fs::read_to_string(dir.join("modules.builtin")) {
            modules.builtin = text.lines().filter_map(|line| name_of(Path::new(line))).collect();
        }
        Ok(modules)
    }

    /// The module with all that it depends on, in the order to load them; empty if the kernel has it built in.
    pub fn with_dependencies(&self, name: &str) -> Result<Vec<Module>> {
        let mut order = Vec::new();
        self.add(&normal(name), &mut BTreeSet::new(), &mut order)?;
        Ok(order)
    }

    fn add(&self, name: &str, seen: &mut BTreeSet<String>, order: &mut Vec<Module>) -> Result<()> {
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.files.get(name) else {
            if self.builtin.contains(name) {
                return Ok(());
            }
            return Err(Error::NoModule { name: name.to_owned(), dir: self.dir.clone() });
        };
        let bytes = self.read(path)?;
        let info = elf::section(&bytes, ".modinfo")
            .ok_or_else(|| Error::bad(path, "this is not a kernel module: it has no .modinfo"))?;
        for dependency in depends(info) {
            self.add(&dependency, seen, order)?;
        }
        order.push(Module { name: name.to_owned(), bytes });
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let unpack = |program: &Path, args: &[&str]| {
            let output = Command::new(program).args(args).arg(path).stdin(Stdio::null()).output().map_err(
                |error| Error::io(format!("start {} to unpack {}", program.display(), path.display()), error),
            )?;
            if output.status.success() {
                Ok(output.stdout)
            } else {
                Err(Error::bad(
                    path,
                    format!("unpacking failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
                ))
            }
        };
        match path.extension().and_then(|ext| ext.to_str()) {
            Some("xz") => unpack(&self.busybox, &["xzcat"]),
            Some("gz") => unpack(&self.busybox, &["zcat"]),
            Some("zst") => unpack(Path::new("zstd"), &["-dcq"]),
            _ => fs::read(path).map_err(|error| Error::path("read", path, error)),
        }
    }
}

fn walk(dir: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let failed = |error| Error::path("look for kernel modules in", dir, error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        // An installed kernel has links to its sources here: not followed.
        if kind.is_dir() {
            walk(&entry.path(), files)?;
        } else if let Some(name) = name_of(&entry.path()) {
            files.insert(name, entry.path());
        }
    }
    Ok(())
}

/// The name of the module in a file; none for other files.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().find_map(|ext| name.strip_suffix(ext))?;
    Some(normal(stem))
}

/// Files have dashes where the kernel has underscores.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// Reads the dependencies out of a module's information: NUL-separated `key=value`.
fn depends(info: &[u8]) -> Vec<String> {
    info.split(|byte| *byte == 0)
        .filter_map(|line| std::str::from_utf8(line).ok()?.strip_prefix("depends="))
        .flat_map(|list| list.split(','))
        .filter(|name| !name.is_empty())
        .map(normal)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little ELF file with nothing but a section of module information.
    fn module(depends: &str) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let info = format!("license=GPL\0depends={depends}\0name=x\0");
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = 62;
        bytes.extend_from_slice(names);
        let info_at = bytes.len() as u64;
        bytes.extend_from_slice(info.as_bytes());
        let table = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&table.to_le_bytes());
        bytes[58] = 64;
        bytes[60] = 3;
        bytes[62] = 2;
        for (name, offset, size) in
            [(0u32, 0u64, 0u64), (1, info_at, info.len() as u64), (10, 64, names.len() as u64)]
        {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&header);
        }
        bytes
    }

    fn modules(files: &[(&str, &str)]) -> (tempfile::TempDir, Modules) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("kernel/drivers")).unwrap();
        for (name, depends) in files {
            fs::write(dir.path().join("kernel/drivers").join(name), module(depends)).unwrap();
        }
        fs::write(dir.path().join("modules.builtin"), "kernel/lib/built-in.ko\n").unwrap();
        let modules = Modules::open(dir.path(), Path::new("busybox")).unwrap();
        (dir, modules)
    }

    fn names(list: &[Module]) -> Vec<&str> {
        list.iter().map(|module| module.name.as_str()).collect()
    }

    #[test]
    fn dependencies_load_first_and_once() {
        let (_dir, modules) =
            modules(&[("a-b.ko", "c,d,built_in"), ("c.ko", "d"), ("d.ko", ""), ("z.ko", "")]);
        assert_eq!(names(&modules.with_dependencies("a-b").unwrap()), ["d", "c", "a_b"]);
        assert_eq!(names(&modules.with_dependencies("a_b").unwrap()), ["d", "c", "a_b"]);
        assert!(modules.with_dependencies("built-in").unwrap().is_empty());
    }

    #[test]
    fn what_lacks_is_named_and_circles_end() {
        let (_dir, modules) = modules(&[("a.ko", "gone"), ("b.ko", "c"), ("c.ko", "b")]);
        let error = modules.with_dependencies("a").unwrap_err().to_string();
        assert!(error.contains("gone") && error.contains("--modules"), "{error}");
        assert_eq!(names(&modules.with_dependencies("b").unwrap()), ["c", "b"]);
    }

    #[test]
    fn a_file_that_is_no_module_is_an_error() {
        let (dir, _) = modules(&[]);
        fs::write(dir.path().join("kernel/x.ko"), "text").unwrap();
        let modules = Modules::open(dir.path(), Path::new("busybox")).unwrap();
        assert!(modules.with_dependencies("x").unwrap_err().to_string().contains("x.ko"));
    }
}
