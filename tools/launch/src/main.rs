//! Starts the ranks of a session, on this host and on others, and tells them where they are.

mod cli;
mod program;
mod ranks;
mod remote;

use std::net::TcpListener;
use std::process::ExitCode;

use clap::Parser;
use cli::Cli;
use ranks::{Job, Ranks};
use uvia_tools::{Failure, Tied};

fn main() -> ExitCode {
    if let Some(command) = Tied::from_arguments(std::env::args_os()) {
        let error = command.become_it();
        eprintln!("uvia-launch: {error}");
        return ExitCode::from(127);
    }
    let cli = Cli::parse();
    uvia_tools::run("uvia-launch", || launch(&cli))
}

fn launch(cli: &Cli) -> Result<(), Failure> {
    let text = cli.description()?;
    let description = uvia_message::Description::parse(&text).map_err(|e| match cli.session {
        // What comes of options is what the options say.
        None => Failure::usage(e.to_string()),
        Some(_) => e.into(),
    })?;
    let hosts = cli.hosts(&description);
    let is_remote = hosts.iter().any(|host| !remote::is_here(host));
    let bind = if is_remote { "0.0.0.0:0" } else { "127.0.0.1:0" };
    let listener = TcpListener::bind(bind)?;
    let port = listener.local_addr()?.port();
    let launcher = match (&cli.address, is_remote) {
        (Some(address), _) => format!("{address}:{port}"),
        (None, false) => format!("127.0.0.1:{port}"),
        (None, true) => {
            return Err(Failure::usage("ranks on other hosts need --address: where they reach this host"));
        }
    };
    let size = description.ranks;
    // Ranks that find nobody there fail by themselves, so this thread is not waited for.
    std::thread::spawn(move || {
        if let Err(e) = uvia_message::directory::serve(&listener, size) {
            eprintln!("uvia-launch: {e}");
        }
    });
    let job =
        Job { session: text, launcher, command: cli.command.clone(), remote_shell: cli.remote_shell.clone() };
    let mut ranks = Ranks::new(cli.json)?;
    for (rank, host) in hosts.iter().enumerate() {
        ranks.start(rank, host, &job)?;
    }
    ranks.wait()
}
