//! apt, kept away from the host: nothing is installed, and lists can be our own.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::lock;
use crate::error::{Error, Result};

/// What to do where there is no apt, for what the guest boots from.
const REMEDY: &str = "on a machine that is not Debian, give --kernel, --modules and --busybox";

/// apt with the host's package lists, or with its own where the host's do not know the package.
pub struct Apt {
    options: Vec<String>,
    remedy: &'static str,
}

impl Apt {
    /// With the host's sources; `dir` is for lists where the host's do not know the package.
    pub fn of_the_host(dir: &Path, name: &str, verbose: bool) -> Result<Self> {
        // As root, apt would drop to a user who cannot write into our folder.
        let mut apt = Apt { options: vec!["APT::Sandbox::User=root".into()], remedy: REMEDY };
        if apt.knows(name)? {
            return Ok(apt);
        }
        let _lock = lock::take(&dir.with_extension("lock"), verbose)?;
        apt.keep_state_in(dir)?;
        if !apt.knows(name)? {
            if verbose {
                eprintln!("uvia-vm: fetching package lists");
            }
            apt.update()?;
        }
        if !apt.knows(name)? {
            return Err(Error::Usage(format!("apt's sources offer no package {name}; {REMEDY}")));
        }
        Ok(apt)
    }

    /// With these sources and no others, for a machine on which nothing is installed; all state is in `dir`.
    pub fn of_its_own(dir: &Path, sources: &str, remedy: &'static str) -> Result<Self> {
        let mut apt = Apt { options: vec!["APT::Sandbox::User=root".into()], remedy };
        apt.keep_state_in(dir)?;
        let none = dir.join("none");
        fs::create_dir_all(&none).map_err(|error| Error::path("make the folder", &none, error))?;
        for (file, text) in [("sources.list", sources), ("status", "")] {
            let path = dir.join(file);
            fs::write(&path, text).map_err(|error| Error::path("write", &path, error))?;
        }
        for (option, path) in [
            ("Dir::Etc::sourcelist", dir.join("sources.list")),
            ("Dir::Etc::sourceparts", none.clone()),
            ("Dir::Etc::preferences", dir.join("status")),
            ("Dir::Etc::preferencesparts", none),
            ("Dir::State::status", dir.join("status")),
        ] {
            apt.options.push(format!("{option}={}", path.display()));
        }
        apt.options.push("APT::Install-Recommends=false".into());
        Ok(apt)
    }

    fn keep_state_in(&mut self, dir: &Path) -> Result<()> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = dir.join(part);
            fs::create_dir_all(&part).map_err(|error| Error::path("make the folder", &part, error))?;
        }
        self.options.push(format!("Dir::State::Lists={}", dir.join("lists").display()));
        self.options.push(format!("Dir::Cache={}", dir.join("cache").display()));
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.arg("-o").arg(option);
        }
        command
    }

    /// Fetches the package lists.
    pub fn update(&self) -> Result<()> {
        // Without the word, apt takes a list that it could not fetch for one that is empty.
        self.run(self.command("apt-get").args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]))
    }

    /// What the lists say of a package.
    pub fn show(&self, name: &str) -> Result<String> {
        let mut command = self.command("apt-cache");
        command.args(["--no-all-versions", "show", name]).env("LC_ALL", "C").stdin(Stdio::null());
        let output = command.output().map_err(|source| self.missing("apt-cache", source))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn knows(&self, name: &str) -> Result<bool> {
        Ok(self.show(name)?.lines().any(|line| line.starts_with("Filename:")))
    }

    /// Downloads one package into a folder.
    pub fn download(&self, name: &str, to: &Path) -> Result<()> {
        self.run(self.command("apt-get").args(["-qq", "download", name]).current_dir(to))
    }

    /// Downloads a package of a release with all that it depends on, into the cache; `progress` is told the
    /// percentage that is there.
    pub fn download_all(&self, name: &str, release: &str, mut progress: impl FnMut(f32)) -> Result<()> {
        let mut command = self.command("apt-get");
        command.args(["-qq", "-y", "-d", "-o", "APT::Status-Fd=1", "-t", release, "install", name]);
        let program = describe(&command);
        let mut child = quiet(&mut command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| self.missing("apt-get", source))?;
        for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            // dlstatus:FILE:PERCENT:TEXT
            let line = line.unwrap_or_default();
            let percent =
                line.strip_prefix("dlstatus:").and_then(|rest| rest.split(':').nth(1)?.parse().ok());
            percent.into_iter().for_each(&mut progress);
        }
        // Its few words fit into the pipe until it has ended.
        let output = child.wait_with_output().map_err(|error| Error::io("wait for apt-get", error))?;
        succeeded(program, &output)
    }

    /// Unpacks a package's files.
    pub fn unpack(&self, archive: &Path, to: &Path) -> Result<()> {
        self.run(Command::new("dpkg-deb").arg("-x").arg(archive).arg(to))
    }

    fn missing(&self, program: &str, source: std::io::Error) -> Error {
        Error::NoProgram { program: program.to_owned(), source, remedy: self.remedy.to_owned() }
    }

    fn run(&self, command: &mut Command) -> Result<()> {
        let program = describe(command);
        let output = quiet(command)
            .output()
            .map_err(|source| self.missing(&command.get_program().to_string_lossy(), source))?;
        succeeded(program, &output)
    }
}

/// The packages in a folder.
pub fn archives(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(dir).map_err(|error| Error::path("look into", dir, error))?;
    let found: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("deb")))
        .collect();
    if found.is_empty() {
        return Err(Error::bad(dir, "apt-get reported success but downloaded nothing"));
    }
    Ok(found)
}

/// The command as it is told in an error: without the options that only say where state is kept.
fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    let mut args = command.get_args();
    while let Some(arg) = args.next() {
        if arg == "-o" {
            args.next();
        } else {
            words.push(arg.to_string_lossy().into_owned());
        }
    }
    words.join(" ")
}

fn quiet(command: &mut Command) -> &mut Command {
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null())
}

fn succeeded(program: String, output: &std::process::Output) -> Result<()> {
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
    fn errors_name_the_command_without_our_folders() {
        let dir = tempfile::tempdir().unwrap();
        let apt = Apt::of_its_own(dir.path(), "", "do without").unwrap();
        let mut command = apt.command("apt-get");
        command.args(["-qq", "update"]);
        assert_eq!(describe(&command), "apt-get -qq update");
    }

    #[test]
    fn a_folder_without_packages_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(archives(dir.path()).is_err());
        fs::write(dir.path().join("a_1_all.deb"), "").unwrap();
        assert_eq!(archives(dir.path()).unwrap().len(), 1);
    }
}
