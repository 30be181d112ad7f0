//! What can go wrong between here and a command's exit status.

use std::io;
use std::path::{Path, PathBuf};

/// The launcher's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error whose text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation of the host's system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and to which file.
        what: String,
        /// What the system answered.
        source: io::Error,
    },
    /// A host program that we run is missing.
    #[error("cannot start {program}: {source}; {remedy}")]
    NoProgram {
        /// The program.
        program: String,
        /// What the system answered.
        source: io::Error,
        /// How to get it.
        remedy: String,
    },
    /// A host program that we run failed.
    #[error("{program} failed ({status}): {output}")]
    Program {
        /// The program and its arguments.
        program: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote to its standard error.
        output: String,
    },
    /// There is no kernel to boot.
    #[error(
        "no guest kernel at {}; give --kernel IMAGE and --modules DIR, or leave both out on a Debian machine, \
         where they are fetched", .0.display()
    )]
    NoKernel(PathBuf),
    /// A kernel lacks something that the guest cannot do without.
    #[error(
        "{} holds no module {name}, and its modules.builtin does not list it either; \
         give --modules the folder (lib/modules/VERSION) that belongs to the kernel", dir.display()
    )]
    NoModule {
        /// The module's name.
        name: String,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// A module or program is not what its name says.
    #[error("{}: {why}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The options contradict each other, or the machine.
    #[error("{0}")]
    Usage(String),
    /// No QEMU here can give guests our models.
    #[error(
        "NICs that are models need a QEMU with vfio-user: the system's will not do ({unfit}), and Debian's cannot be \
         had ({why}); give --qemu PATH, a QEMU of version 10.1 or later"
    )]
    NoVfioUser {
        /// What is wrong with the one on PATH.
        unfit: Box<Error>,
        /// Why none was fetched.
        why: Box<Error>,
    },
    /// The process that serves models failed.
    #[error("the process that serves the guests' NICs failed: {0}")]
    Devices(String),
    /// QEMU ended, or the guest's kernel panicked.
    #[error("guest {guest} died: {why}")]
    Died {
        /// Which guest.
        guest: usize,
        /// What is known of the cause.
        why: String,
    },
    /// The guest did not reach user space in time.
    #[error("guest {guest} did not come up within {seconds} s")]
    BootTimeout {
        /// Which guest.
        guest: usize,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A command ran longer than it was given.
    #[error("guest {guest}: {what} did not end within {seconds:.0} s")]
    TimedOut {
        /// Which guest.
        guest: usize,
        /// The command.
        what: String,
        /// How long it was given.
        seconds: f64,
    },
    /// The guest's side refused a request.
    #[error("guest {guest}: {why}")]
    Guest {
        /// Which guest.
        guest: usize,
        /// What it said.
        why: String,
    },
    /// The main job found something wrong with what arrived.
    #[error("{0}")]
    Job(String),
}

impl Error {
    /// An [`Error::Io`] about `what`.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Error::Io { what: what.into(), source }
    }

    /// An [`Error::Io`] about doing `verb` to `path`.
    pub fn path(verb: &str, path: &Path, source: io::Error) -> Self {
        Error::Io { what: format!("{verb} {}", path.display()), source }
    }

    /// An [`Error::BadFile`].
    pub fn bad(path: &Path, why: impl Into<String>) -> Self {
        Error::BadFile { path: path.to_owned(), why: why.into() }
    }

    /// The exit status that the launcher ends with because of this error.
    pub fn status(&self) -> u8 {
        match self {
            Error::TimedOut { .. } | Error::BootTimeout { .. } => 124,
            _ => 125,
        }
    }
}
