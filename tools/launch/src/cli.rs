//! The command line.

use std::path::PathBuf;

use clap::Parser;
use uvia_driver::text;
use uvia_message::Description;
use uvia_tools::Failure;

const EXAMPLES: &str = "\
Examples:
  Four ranks on this host, over virtual interfaces on shared memory
    uvia-launch -n 4 ./stencil
  Two ranks on two rails
    uvia-launch -n 2 --rail vi=shm:job --rail shared ./ring
  Over NICs of two hosts, started by ssh
    uvia-launch -n 2 --hosts a,b --address 10.0.0.1 --rail vi=0000:01:00.0 ./ring
  Over TCP, started by another remote shell, called as COMMAND HOST LINE
    uvia-launch -n 4 --hosts localhost,b --address 10.0.0.1 --remote-shell 'ssh -p 2222' \\
        --rail tcp=0.0.0.0:0 ./ring
  As it is written down
    uvia-launch --session job.toml ./ring

Ranks find their session in the environment (UVIA_RANK, UVIA_SESSION, UVIA_LAUNCHER), and have no standard input. When one ends badly, when it is killed, and when the launcher is, the others are ended: they are asked to (SIGTERM), and killed after 2 s.

Exit codes: 0 all ranks ended well, 1 failure (the reason is on standard error), 2 wrong usage.";

/// NICs that shared memory of one name has at most.
const MEMORY_NICS: usize = 64;

/// Starts the ranks of a session
#[derive(Debug, Parser)]
#[command(name = "uvia-launch", version, after_help = EXAMPLES)]
pub struct Cli {
    /// How many ranks; needed without --session
    #[arg(short = 'n', long, value_name = "N", required_unless_present = "session")]
    pub ranks: Option<usize>,

    /// Hosts that the ranks go to in turn; `localhost` is this one
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub hosts: Vec<String>,

    /// Where ranks on other hosts reach this one
    #[arg(long)]
    pub address: Option<String>,

    /// What starts ranks on other hosts, called with the host and a line for its shell. It has to pass its standard
    /// input on, the end of which ends the rank
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    pub remote_shell: String,

    /// What messages go by: vi=NIC, tcp=ADDRESS:PORT or shared; several for several rails [default: vi= on shm: of a
    /// name of its own, for ranks on this host]
    #[arg(long, value_name = "RAIL", conflicts_with = "session")]
    pub rail: Vec<String>,

    /// A description of the session (TOML), which README.md shows and `uvia_message::Description` tells all of
    #[arg(long, value_name = "FILE", conflicts_with = "ranks")]
    pub session: Option<PathBuf>,

    /// Have messages described, so that the first piece that is unpacked otherwise than it was packed is named
    #[arg(long, conflicts_with = "session")]
    pub describe: bool,

    /// How ranks wait: polling (latency), sleeping (cpu), or by what is observed (adaptive) [default:
    /// adaptive]
    #[arg(long, value_name = "POLICY", conflicts_with = "session",
          value_parser = ["latency", "cpu", "adaptive"])]
    pub policy: Option<String>,

    /// Seconds that a rank's call waits before it fails; 0: for ever [default: 0]
    #[arg(long, value_name = "SECONDS", conflicts_with = "session")]
    pub patience: Option<u64>,

    /// Tell on standard output how each rank has ended, an object a line
    #[arg(long)]
    pub json: bool,

    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// What cannot stand in a string of the description as it is.
fn is_plain(word: &str) -> bool {
    !word.contains(['"', '\\']) && !word.contains(|letter: char| letter.is_control())
}

impl Cli {
    /// The session's description.
    pub fn description(&self) -> Result<String, Failure> {
        if let Some(path) = &self.session {
            return text::read(path).map_err(|e| Failure::failed(format!("reading {}: {e}", path.display())));
        }
        let name = format!("job-{}", std::process::id());
        let mut text = format!("name = \"{name}\"\nranks = {}\n", self.ranks.unwrap_or(1));
        text += &format!("describe = {}\n", self.describe);
        if let Some(policy) = &self.policy {
            text += &format!("policy = \"{policy}\"\n");
        }
        if let Some(patience) = self.patience {
            text += &format!("patience = {patience}\n");
        }
        if self.rail.is_empty() && self.ranks.is_some_and(|ranks| ranks > MEMORY_NICS) {
            return Err(Failure::usage(format!(
                "virtual interfaces on shared memory are for {MEMORY_NICS} ranks at most; give --rail shared for more"
            )));
        }
        let usual = [format!("vi=shm:{name}")];
        let rails = if self.rail.is_empty() { &usual[..] } else { &self.rail };
        for (n, rail) in rails.iter().enumerate() {
            let (port, device) = rail.split_once('=').unwrap_or((rail, ""));
            if !matches!(port, "vi" | "tcp" | "shared") || !is_plain(device) {
                return Err(Failure::usage(format!(
                    "--rail {rail}: a rail is vi=NIC, tcp=ADDRESS:PORT or shared"
                )));
            }
            text += &format!("[[rail]]\nname = \"rail{n}\"\nport = \"{port}\"\n");
            if !device.is_empty() {
                text += &format!("device = \"{device}\"\n");
            }
        }
        Ok(text)
    }

    /// The host of each rank.
    pub fn hosts(&self, description: &Description) -> Vec<String> {
        (0..description.ranks)
            .map(|rank| {
                let written = description.rank.get(&rank.to_string()).and_then(|rank| rank.host.clone());
                let given = self.hosts.get(rank % self.hosts.len().max(1)).cloned();
                given.or(written).unwrap_or_else(|| "localhost".to_owned())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["uvia-launch"]),
            [""; 0]
        );
    }
}
