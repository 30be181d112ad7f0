//! The command line.

use std::path::PathBuf;

use clap::Parser;
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
  As it is written down
    uvia-launch --session job.toml ./ring

Exit codes: 0 all ranks ended well, 1 failure (the reason is on standard error), 2 wrong usage.";

/// Starts the ranks of a session
#[derive(Debug, Parser)]
#[command(name = "uvia-launch", version, after_help = EXAMPLES)]
pub struct Cli {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "N", required_unless_present = "session")]
    pub ranks: Option<usize>,

    /// Hosts that the ranks go to in turn; all but `localhost` by ssh
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub hosts: Vec<String>,

    /// Where ranks on other hosts reach this one
    #[arg(long)]
    pub address: Option<String>,

    /// What messages go by: vi=NIC, tcp=ADDRESS:PORT or shared; several for several rails
    #[arg(long, value_name = "RAIL", conflicts_with = "session")]
    pub rail: Vec<String>,

    /// A description of the session (TOML)
    #[arg(long, value_name = "FILE", conflicts_with = "ranks")]
    pub session: Option<PathBuf>,

    /// Have messages described, so that the first piece that is unpacked otherwise than it was packed is named
    #[arg(long)]
    pub describe: bool,

    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

impl Cli {
    /// The session's description.
    pub fn description(&self) -> Result<String, Failure> {
        if let Some(path) = &self.session {
            return std::fs::read_to_string(path)
                .map_err(|e| Failure::failed(format!("reading {}: {e}", path.display())));
        }
        let name = format!("job-{}", std::process::id());
        let mut text = format!("name = \"{name}\"\nranks = {}\n", self.ranks.unwrap_or(1));
        text += &format!("describe = {}\n", self.describe);
        let usual = [format!("vi=shm:{name}")];
        let rails = if self.rail.is_empty() { &usual[..] } else { &self.rail };
        for (n, rail) in rails.iter().enumerate() {
            let (port, device) = rail.split_once('=').unwrap_or((rail, ""));
            if device.contains(['"', '\\', '\n']) || port.contains(['"', '\\', '\n']) {
                return Err(Failure::usage(format!("--rail {rail}: no such device")));
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
