//! The processes.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use uvia_message::description::variable;
use uvia_tools::Failure;

/// Between two looks at who has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Whether a host is this one.
pub fn is_here(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "")
}

/// The processes that were started. Those that still run when this goes are ended.
#[derive(Default)]
pub struct Ranks(Vec<(usize, Child)>);

impl Ranks {
    /// Starts a rank.
    pub fn start(
        &mut self,
        rank: usize,
        host: &str,
        session: &str,
        launcher: &str,
        command: &[String],
    ) -> Result<(), Failure> {
        let set = [
            (variable::RANK, rank.to_string()),
            (variable::SESSION, session.to_owned()),
            (variable::LAUNCHER, launcher.to_owned()),
        ];
        let mut process = if is_here(host) {
            let mut process = Command::new(&command[0]);
            process.args(&command[1..]).envs(set);
            process
        } else {
            // The shell there gets one line, in which each word is quoted.
            let words = set.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
            let line: Vec<_> = words.chain(command.iter().map(|word| quoted(word))).collect();
            let mut process = Command::new("ssh");
            process.args(["-o", "BatchMode=yes", host, "env"]).arg(line.join(" "));
            process
        };
        let child = process
            .spawn()
            .map_err(|e| Failure::failed(format!("starting rank {rank} ({}) on {host}: {e}", command[0])))?;
        self.0.push((rank, child));
        Ok(())
    }

    /// Waits for all; when one ends badly the others are ended.
    pub fn wait(mut self) -> Result<(), Failure> {
        while !self.0.is_empty() {
            let mut bad: Option<(usize, ExitStatus)> = None;
            self.0.retain_mut(|(rank, child)| match child.try_wait() {
                Ok(Some(status)) => {
                    if !status.success() && bad.is_none() {
                        bad = Some((*rank, status));
                    }
                    false
                }
                _ => true,
            });
            if let Some((rank, status)) = bad {
                return Err(Failure::failed(format!(
                    "rank {rank} ended with {status}; the others are ended"
                )));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // One that has ended already is no matter.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
