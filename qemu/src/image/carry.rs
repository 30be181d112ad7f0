//! Puts host programs into the guest, with the shared libraries that they need.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf::{self, Elf};
use super::tree::Tree;
use crate::error::{Error, Result};

/// Adds host files to a tree.
pub struct Carrier<'a> {
    tree: &'a mut Tree,
    /// Folders with programs, to be put on PATH.
    pub path: Vec<PathBuf>,
    done: BTreeSet<PathBuf>,
    loader: Option<PathBuf>,
    libraries: Vec<(String, PathBuf)>,
}

impl<'a> Carrier<'a> {
    /// Starts carrying into `tree`.
    pub fn new(tree: &'a mut Tree) -> Self {
        Carrier { tree, path: Vec::new(), done: BTreeSet::new(), loader: None, libraries: Vec::new() }
    }

    /// Carries a program to another path, with its libraries at theirs.
    pub fn program(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.tree.host(to, from)?;
        self.needs(from, to)
    }

    /// Carries a file or folder to the same absolute path.
    pub fn carry(&mut self, path: &Path) -> Result<()> {
        let path = std::path::absolute(path).map_err(|error| Error::path("find", path, error))?;
        let real = path.canonicalize().map_err(|error| Error::path("carry", &path, error))?;
        if real.is_dir() {
            self.folder(&path, &real, &path)?;
            self.on_path(&path.join("bin"));
            self.on_path(&path);
            return Ok(());
        }
        if !real.is_file() {
            return Err(Error::bad(&path, "only files and folders can be carried"));
        }
        self.file(&path)?;
        if is_program(&path) {
            path.parent().into_iter().for_each(|dir| self.add_path(dir));
        }
        Ok(())
    }

    /// Makes every carried library known to the loader.
    ///
    /// Not by LD_LIBRARY_PATH, which would also put a carried folder's private libraries before the
    /// system's: by a link in the loader's own folder, where nothing of that name is yet.
    pub fn finish(self) -> Vec<PathBuf> {
        let libc = self.libraries.iter().find(|(name, _)| name == "libc.so.6");
        let Some(dir) = libc.and_then(|(_, path)| path.parent()).map(Path::to_owned) else {
            return self.path;
        };
        for (name, path) in &self.libraries {
            let link = dir.join(name);
            if !self.tree.has(&link) {
                self.tree.link(&link, path.as_os_str());
            }
        }
        self.path
    }

    fn on_path(&mut self, dir: &Path) {
        let programs = |dir: &Path| {
            fs::read_dir(dir).is_ok_and(|mut entries| {
                entries.any(|entry| entry.is_ok_and(|entry| is_program(&entry.path())))
            })
        };
        if programs(dir) {
            self.add_path(dir);
        }
    }

    fn add_path(&mut self, dir: &Path) {
        if !self.path.iter().any(|known| known == dir) {
            self.path.push(dir.to_owned());
        }
    }

    fn folder(&mut self, dir: &Path, root_real: &Path, root: &Path) -> Result<()> {
        self.tree.dir(dir);
        let failed = |error| Error::path("carry", dir, error);
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let meta = path.symlink_metadata().map_err(|error| Error::path("carry", &path, error))?;
            if meta.is_symlink() {
                self.symlink(&path, root_real, root)?;
            } else if meta.is_dir() {
                self.folder(&path, root_real, root)?;
            } else if meta.is_file() {
                self.file(&path)?;
            }
            // Sockets, pipes and devices have no meaning in the guest.
        }
        Ok(())
    }

    /// A link that stays within its folder is carried as it is; one that leaves it becomes what it points to.
    fn symlink(&mut self, path: &Path, root_real: &Path, root: &Path) -> Result<()> {
        let target = fs::read_link(path).map_err(|error| Error::path("read the link", path, error))?;
        match path.canonicalize() {
            Ok(real) if real.is_file() && !real.starts_with(root_real) => self.file(path),
            Ok(real) => {
                // An absolute target inside the folder is named as the folder was named.
                let inside = real.strip_prefix(root_real).ok().filter(|_| target.is_absolute());
                let target = inside.map_or(target.clone(), |rest| root.join(rest));
                self.tree.link(path, target);
                self.named(path);
                Ok(())
            }
            // A link to nowhere is a link to nowhere in the guest too.
            Err(_) => {
                self.tree.link(path, target);
                Ok(())
            }
        }
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        if !self.done.insert(path.to_owned()) {
            return Ok(());
        }
        self.tree.host(path, path)?;
        self.needs(path, path)
    }

    /// Notes the names by which the loader may look for a library.
    fn named(&mut self, path: &Path) {
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|name| name.ends_with(".so") || name.contains(".so.")) {
            self.libraries.push((name.to_owned(), path.to_owned()));
        }
    }

    /// Carries what `from`, which the guest has as `to`, needs.
    fn needs(&mut self, from: &Path, to: &Path) -> Result<()> {
        let head = head(from)?;
        if !elf::is_elf(&head) {
            return self.script(&head);
        }
        let bytes = fs::read(from).map_err(|error| Error::path("read", from, error))?;
        let Some(Elf { interpreter, soname, dynamic: true }) = elf::parse(&bytes) else {
            return Ok(());
        };
        drop(bytes);
        if interpreter.is_none() {
            self.named(to);
        }
        if let Some(name) = soname {
            self.libraries.push((name, to.to_owned()));
        }
        let loader = match interpreter.map(PathBuf::from).or_else(|| self.loader.clone()) {
            Some(loader) => loader,
            None => own_loader()?,
        };
        if !loader.exists() {
            return Err(Error::bad(from, format!("its loader {} is not on this machine", loader.display())));
        }
        if self.done.insert(loader.clone()) {
            self.tree.host(&loader, &loader)?;
        }
        self.loader.get_or_insert_with(|| loader.clone());
        for library in libraries(&loader, from)? {
            self.file(&library)?;
        }
        Ok(())
    }

    /// A script's interpreter comes along, unless busybox already stands in its place.
    fn script(&mut self, head: &[u8]) -> Result<()> {
        let Some(line) = head.strip_prefix(b"#!") else { return Ok(()) };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let Ok(line) = std::str::from_utf8(line) else { return Ok(()) };
        let Some(interpreter) = line.split_whitespace().next().map(Path::new) else { return Ok(()) };
        if interpreter.is_absolute() && interpreter.is_file() && !self.tree.has(interpreter) {
            return self.file(interpreter);
        }
        Ok(())
    }
}

fn head(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(256).read_to_end(&mut bytes))
        .map_err(|error| Error::path("read", path, error))?;
    Ok(bytes)
}

/// Whether this is a program; the mode alone would not do, as some files have it without being one.
fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        && head(path).is_ok_and(|head| elf::is_elf(&head) || head.starts_with(b"#!"))
}

fn own_loader() -> Result<PathBuf> {
    let exe = Path::new("/proc/self/exe");
    let bytes = fs::read(exe).map_err(|error| Error::path("read", exe, error))?;
    elf::parse(&bytes)
        .and_then(|elf| elf.interpreter)
        .map(PathBuf::from)
        .ok_or_else(|| Error::bad(exe, "this program is static: it cannot tell which loader a library needs"))
}

/// What the loader would load for a file. It is asked itself, since it alone knows all of its rules.
fn libraries(loader: &Path, file: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new(loader)
        .arg("--list")
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::path("start", loader, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (found, missing) = parse_list(&text);
    if let Some(name) = missing {
        return Err(Error::bad(file, format!("it needs the library {name}, which is not on this machine")));
    }
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::bad(file, format!("its libraries cannot be found: {why}")));
    }
    Ok(found)
}

/// Reads lines such as `libc.so.6 => /lib/libc.so.6 (0x7f...)`: the paths, and the first that is missing.
fn parse_list(text: &str) -> (Vec<PathBuf>, Option<String>) {
    let (mut found, mut missing) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix("=> not found") {
            missing.get_or_insert(name.trim().to_owned());
            continue;
        }
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        let path = path.rsplit_once(" (0x").map_or(path, |(path, _)| path);
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    (found, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibx.so.1 => /opt/a b/libx.so.1 (0x00007f)\n\
                    \tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let (found, missing) = parse_list(text);
        assert_eq!(
            found,
            ["/opt/a b/libx.so.1", "/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        assert_eq!(missing, None);
        assert_eq!(parse_list("\tlibq.so.1 => not found\n").1.as_deref(), Some("libq.so.1"));
    }

    #[test]
    fn a_program_brings_its_loader_and_libraries() {
        let exe = std::env::current_exe().unwrap();
        let mut tree = Tree::default();
        let mut carrier = Carrier::new(&mut tree);
        carrier.carry(&exe).unwrap();
        let path = carrier.finish();
        assert_eq!(path, [exe.parent().unwrap()]);
        assert!(tree.has(&exe));
        let loader = elf::parse(&fs::read(&exe).unwrap()).unwrap().interpreter.unwrap();
        assert!(tree.has(Path::new(&loader)));
        for library in libraries(Path::new(&loader), &exe).unwrap() {
            assert!(tree.has(&library), "{}", library.display());
        }
    }

    #[test]
    fn folders_keep_links_that_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/file"), "x").unwrap();
        fs::write(dir.path().join("outside"), "y").unwrap();
        std::os::unix::fs::symlink("sub/file", root.join("inner")).unwrap();
        std::os::unix::fs::symlink("../outside", root.join("outer")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
        let mut tree = Tree::default();
        Carrier::new(&mut tree).carry(&root).unwrap();
        for name in ["sub/file", "inner", "outer", "dangling"] {
            assert!(tree.has(&root.join(name)), "{name}");
        }
        let packed = tree.pack(Vec::new()).unwrap();
        assert!(packed.windows(8).any(|bytes| bytes == b"sub/file"));
        assert!(!packed.windows(10).any(|bytes| bytes == b"../outside"));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let mut tree = Tree::default();
        let error = Carrier::new(&mut tree).carry(Path::new("/no/such/thing")).unwrap_err();
        assert!(error.to_string().contains("/no/such/thing"));
    }
}
