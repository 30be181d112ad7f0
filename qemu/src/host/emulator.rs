//! Which QEMU runs the guests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::fetch;
use crate::paths;
use crate::settings::Settings;

/// What is looked for on PATH.
const NAME: &str = "qemu-system-x86_64";
/// The device by which a guest gets a NIC that another process serves.
const VFIO_USER: &str = "vfio-user-pci";

/// A QEMU, and how it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emulator {
    /// QEMU itself.
    pub(crate) binary: PathBuf,
    /// What is started: QEMU, or a loader that is told of it by the arguments.
    pub(crate) program: PathBuf,
    /// The arguments that go before all others.
    pub(crate) arguments: Vec<OsString>,
    /// What is added to the environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Emulator {
    /// The QEMU that the settings ask for, or the first one that is good enough for their NICs: that on PATH, and
    /// then one of our own.
    pub fn find(settings: &Settings) -> Result<Self> {
        let models = settings.has_models();
        if let Some(path) = &settings.qemu {
            let own = Self::on_path(path)?;
            if models {
                own.check_vfio_user()?;
            }
            return Ok(own);
        }
        let own = Self::on_path(Path::new(NAME));
        if !models {
            return own;
        }
        let unfit = match own.and_then(|own| own.check_vfio_user().map(|()| own)) {
            Ok(own) => return Ok(own),
            Err(error) => error,
        };
        fetch::qemu::private(&settings.cache(), settings.verbose)
            .map_err(|error| Error::NoVfioUser { unfit: Box::new(unfit), why: Box::new(error) })
    }

    fn on_path(name: &Path) -> Result<Self> {
        let binary = paths::program(name).ok_or_else(|| Error::NoProgram {
            program: name.display().to_string(),
            source: std::io::ErrorKind::NotFound.into(),
            remedy: "install QEMU (Debian: apt-get install --no-install-recommends qemu-system-x86) or give \
                     --qemu PATH"
                .into(),
        })?;
        Ok(Emulator { program: binary.clone(), binary, arguments: Vec::new(), environment: Vec::new() })
    }

    /// The command that starts it, for more arguments to follow.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Whether it can give a guest NICs that another process serves; an error if not. It is asked, and not its
    /// version: a build may leave the device out.
    pub fn check_vfio_user(&self) -> Result<()> {
        // Of this one alone: a list of all would load modules, and those of another QEMU if it finds them.
        let output = self
            .command()
            .args(["-device", &format!("{VFIO_USER},help")])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::path("start", &self.program, error))?;
        // One that does not know it may still end as if all were well.
        if output.status.success() && String::from_utf8_lossy(&output.stdout).contains("socket=") {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Usage(format!(
            "{} has no {VFIO_USER}, by which a guest gets a model as a NIC (QEMU 10.1 and later have it): {said}",
            self.binary.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_qemu_is_an_error_that_says_how_to_get_it() {
        let settings = Settings { qemu: Some("no-such-qemu".into()), ..Settings::default() };
        let error = Emulator::find(&settings).unwrap_err();
        assert!(error.to_string().contains("apt-get install"), "{error}");
        assert_eq!(error.status(), 125);
    }

    #[test]
    fn one_that_was_named_is_not_replaced() {
        let nics = vec!["model-e1000".parse().unwrap()];
        let settings = Settings { qemu: Some("true".into()), nics, ..Settings::default() };
        let error = Emulator::find(&settings).unwrap_err();
        assert!(error.to_string().contains("10.1"), "{error}");
        assert_eq!(error.status(), 125);
    }
}
