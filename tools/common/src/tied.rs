//! Programs that end with who has started them, even if that is killed.
//!
//! They are started by way of the tool itself, which ties its life to its parent's and then becomes the program: between
//! fork and exec only unsafe code could do so.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The first word of a command line of our own for a child.
const INNER: &str = "__child-of";

/// A tool in its other life, between its parent and a program.
#[derive(Debug)]
pub struct Tied {
    parent: i32,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Tied {
    /// A command that starts a program, tied to this process; arguments are added to it. The tool's main function has to
    /// begin with [`Tied::from_arguments`].
    ///
    /// # Errors
    /// The system does not tell where this tool is.
    pub fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(INNER).arg(std::process::id().to_string()).arg(program);
        Ok(command)
    }

    /// What the command line asks for, if it is one of ours for a child.
    pub fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        if arguments.nth(1)? != INNER {
            return None;
        }
        let parent = arguments.next()?.to_str()?.parse().ok()?;
        Some(Self { parent, program: arguments.next()?, arguments: arguments.collect() })
    }

    /// Becomes the program; answers only why it cannot.
    pub fn become_it(self) -> io::Error {
        if let Err(e) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return e.into();
        }
        // It may have ended before that.
        if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(self.parent) {
            return io::Error::other("the parent is gone");
        }
        let error = Command::new(&self.program).args(self.arguments).exec();
        io::Error::new(error.kind(), format!("{}: {error}", self.program.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_command_line_of_a_child_is_one() {
        let parse = |line: &str| Tied::from_arguments(line.split(' ').map(OsString::from));
        assert!(parse("uvia-demo --json").is_none());
        assert!(parse("uvia-demo").is_none());
        assert!(parse("uvia-demo __child-of x true").is_none());
        let tied = parse("uvia-demo __child-of 7 echo a b").unwrap();
        assert_eq!((tied.parent, tied.program.to_str(), tied.arguments.len()), (7, Some("echo"), 2));
        // Not our parent: nothing is started.
        assert!(
            parse("uvia-demo __child-of 2147483647 true").unwrap().become_it().to_string().contains("parent")
        );
    }
}
