//! Starts the ranks of a session, on this host and on others, and tells them where they are.

mod cli;
mod ranks;

use std::net::TcpListener;
use std::process::ExitCode;

use clap::Parser;
use cli::Cli;
use ranks::Ranks;
use uvia_tools::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    uvia_tools::run("uvia-launch", || {
        let text = cli.description()?;
        let description = uvia_message::Description::parse(&text)?;
        let hosts = cli.hosts(&description);
        let remote = hosts.iter().any(|host| !ranks::is_here(host));
        let bind = if remote { "0.0.0.0:0" } else { "127.0.0.1:0" };
        let listener = TcpListener::bind(bind)?;
        let port = listener.local_addr()?.port();
        let address = match (&cli.address, remote) {
            (Some(address), _) => format!("{address}:{port}"),
            (None, false) => format!("127.0.0.1:{port}"),
            (None, true) => {
                return Err(Failure::usage(
                    "ranks on other hosts need --address: where they reach this host",
                ));
            }
        };
        let size = description.ranks;
        // Ranks that find nobody there fail by themselves, so this thread is not waited for.
        std::thread::spawn(move || {
            if let Err(e) = uvia_message::directory::serve(&listener, size) {
                eprintln!("uvia-launch: {e}");
            }
        });
        let mut ranks = Ranks::default();
        for (rank, host) in hosts.iter().enumerate() {
            ranks.start(rank, host, &text, &address, &cli.command)?;
        }
        ranks.wait()
    })
}
