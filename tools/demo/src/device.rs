//! The adapters.

use std::path::{Path, PathBuf};
use std::time::Duration;

use uvia_tools::Failure;

use crate::cli::Kind;
use crate::process::{Process, Programs};

/// How long a process that serves may take to listen.
const START: Duration = Duration::from_secs(10);

/// Two adapters on one network, and the processes that serve them.
pub struct Devices {
    processes: Vec<Process>,
    sockets: [PathBuf; 2],
}

impl Devices {
    /// Starts them: served by one process, or `apart`, by one each and joined by a link.
    ///
    /// # Errors
    /// One does not come up.
    pub fn start(programs: &Programs, folder: &Path, kinds: [Kind; 2], apart: bool) -> Result<Self, Failure> {
        let sockets = ["a.sock", "b.sock"].map(|name| folder.join(name));
        let link = folder.join("link");
        let each: Vec<Vec<usize>> = if apart { vec![vec![0], vec![1]] } else { vec![vec![0, 1]] };
        let mut processes = Vec::new();
        for served in each {
            let mut arguments = Vec::new();
            for n in served {
                // Addresses are given, so that two processes do not happen to choose the same.
                let (kind, socket) = (kinds[n].name(), sockets[n].display());
                arguments.push("--nic".to_owned());
                arguments.push(format!("{kind},socket={socket},mac=02:75:76:00:00:0{}", n + 1));
            }
            if apart {
                arguments.extend(["--link".to_owned(), link.display().to_string()]);
            }
            let mut process = programs.start("uvia-device", arguments)?;
            process.wait_for(START, |output, _| output.contains("ready\n"))?;
            processes.push(process);
        }
        Ok(Self { processes, sockets })
    }

    /// The names of both, for `--nic`.
    pub fn names(&self) -> [String; 2] {
        [0, 1].map(|n| format!("vfio-user:{}", self.sockets[n].display()))
    }

    /// Ends the processes in order.
    ///
    /// # Errors
    /// One did not end as it should.
    pub fn end(self) -> Result<(), Failure> {
        self.processes.into_iter().try_for_each(Process::end)
    }
}
