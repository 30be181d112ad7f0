//! Debian packages, downloaded and unpacked into the cache; nothing is installed on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::lock;
use crate::error::{Error, Result};

/// The guest's kernel: a package whose only use is to depend on today's kernel.
pub const KERNEL: &str = "linux-image-amd64";
/// The guest's user space.
pub const BUSYBOX: &str = "busybox-static";

const REMEDY: &str = "on a machine that is not Debian, give --kernel, --modules and --busybox";

/// The folder with a package's files, fetched unless it is there.
///
/// A finished folder has its final name; everything before happens under another name, so a killed run
/// leaves nothing that a later one would take for complete.
pub fn package(cache: &Path, name: &str, verbose: bool) -> Result<PathBuf> {
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

    let apt = Apt::open(&cache.join("apt"), name, verbose)?;
    let concrete = if name == KERNEL { apt.kernel()? } else { name.to_owned() };
    if verbose {
        eprintln!("uvia-vm: fetching the package {concrete} for the guest");
    }
    apt.download(&concrete, &work)?;
    let archive = fs::read_dir(&work)
        .map_err(|error| Error::path("look into", &work, error))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ext| ext == "deb"))
        .ok_or_else(|| Error::bad(&work, "apt-get reported success but downloaded nothing"))?;
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(work.join("root")))?;
    fs::rename(work.join("root"), &done).map_err(|error| Error::path("move into place", &done, error))?;
    fs::remove_dir_all(&work).map_err(|error| Error::path("remove", &work, error))?;
    Ok(done)
}

/// apt with the host's package lists, or with its own where the host's do not know the package.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn open(dir: &Path, name: &str, verbose: bool) -> Result<Self> {
        // As root, apt would drop to a user who cannot write into our folder.
        let mut apt = Apt { options: vec!["APT::Sandbox::User=root".into()] };
        if apt.knows(name)? {
            return Ok(apt);
        }
        let _lock = lock::take(&dir.with_extension("lock"), verbose)?;
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = dir.join(part);
            fs::create_dir_all(&part).map_err(|error| Error::path("make the folder", &part, error))?;
        }
        apt.options.push(format!("Dir::State::Lists={}", dir.join("lists").display()));
        apt.options.push(format!("Dir::Cache={}", dir.join("cache").display()));
        if !apt.knows(name)? {
            if verbose {
                eprintln!("uvia-vm: fetching package lists");
            }
            run(apt.command("apt-get").args(["-qq", "update"]))?;
        }
        if !apt.knows(name)? {
            return Err(Error::Usage(format!("apt's sources offer no package {name}; {REMEDY}")));
        }
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.arg("-o").arg(option);
        }
        command
    }

    fn show(&self, name: &str) -> Result<String> {
        let mut command = self.command("apt-cache");
        command.args(["--no-all-versions", "show", name]).env("LC_ALL", "C").stdin(Stdio::null());
        let output = command.output().map_err(|source| missing("apt-cache", source))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn knows(&self, name: &str) -> Result<bool> {
        Ok(self.show(name)?.lines().any(|line| line.starts_with("Filename:")))
    }

    fn kernel(&self) -> Result<String> {
        let text = self.show(KERNEL)?;
        concrete_kernel(&text)
            .ok_or_else(|| Error::Usage(format!("the package {KERNEL} depends on no kernel; {REMEDY}")))
    }

    fn download(&self, name: &str, to: &Path) -> Result<()> {
        run(self.command("apt-get").args(["-qq", "download", name]).current_dir(to))
    }
}

/// The kernel that the package `linux-image-amd64` depends on.
fn concrete_kernel(show: &str) -> Option<String> {
    let depends = show.lines().find_map(|line| line.strip_prefix("Depends:"))?;
    let names = depends.split(',').filter_map(|item| item.split_whitespace().next());
    names.filter(|name| name.starts_with("linux-image-")).map(str::to_owned).next()
}

fn missing(program: &str, source: std::io::Error) -> Error {
    Error::NoProgram { program: program.to_owned(), source, remedy: REMEDY.to_owned() }
}

fn run(command: &mut Command) -> Result<()> {
    let program = format!("{command:?}").replace('"', "");
    let output = command
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| missing(&command.get_program().to_string_lossy(), source))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Program { program, status: output.status.to_string(), output: text })
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
        fs::create_dir_all(dir.path().join("p/root")).unwrap();
        assert_eq!(package(dir.path(), "p", false).unwrap(), dir.path().join("p/root"));
    }
}
