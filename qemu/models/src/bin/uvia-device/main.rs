//! Serves models of network adapters over vfio-user.

mod cli;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use cli::Cli;
use signal_hook::consts::{SIGINT, SIGTERM};
use uvia_driver::nic::MacAddress;
use uvia_driver::text;
use uvia_models::AdapterMemory;
use uvia_models::faults::Plan;
use uvia_models::machine::Machine;
use uvia_models::serve::{Doorbells, Service, Worker};
use uvia_models::switch::{Waker, link, tap};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match serve(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("uvia-device: {what}");
            ExitCode::FAILURE
        }
    }
}

/// A station address of ours for an adapter that was given none: locally administered, by its number and by this
/// process, so that two processes on a link do not have the same.
fn station(n: usize) -> MacAddress {
    let [a, b, ..] = std::process::id().to_le_bytes();
    MacAddress([0x02, 0x75, 0x76, b, a, n as u8])
}

fn serve(cli: &Cli) -> Result<(), String> {
    let plan = match &cli.faults {
        None => Plan::default(),
        Some(path) => {
            let text = text::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            Plan::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?
        }
    };
    if let Some(highest) = plan.highest().filter(|highest| *highest >= cli.nics.len()) {
        return Err(format!("the faults name adapter {highest}, but there are only {}", cli.nics.len()));
    }
    // Before any thread: they all leave signals to this flag.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|e| format!("signals: {e}"))?;
    }
    let mut machine = Machine::new(cli.seed, plan);
    for (n, nic) in cli.nics.iter().enumerate() {
        let mac = nic.mac.unwrap_or_else(|| station(n));
        let model = nic.kind.build(mac, nic.mtu).map_err(|e| format!("adapter {n}: {e}"))?;
        machine.add_model(model);
    }
    for memory in &cli.memories {
        let model = AdapterMemory::new(memory.size).map_err(|e| format!("adapter memory: {e}"))?;
        machine.add_model(Box::new(model));
    }
    let machine = Arc::new(machine);
    let doorbells = if cli.trap { Doorbells::Trapped } else { Doorbells::Polled };
    let worker = Worker::start(machine.clone(), doorbells).map_err(|e| format!("a thread: {e}"))?;
    let mut services = Vec::new();
    let sockets =
        cli.nics.iter().map(|nic| &nic.socket).chain(cli.memories.iter().map(|memory| &memory.socket));
    for (function, socket) in machine.nics().iter().zip(sockets) {
        services.push(Service::bind(socket, &machine, function, &worker).map_err(|e| e.to_string())?);
    }
    let waker: Waker = Arc::new(worker.waker());
    if let Some(name) = &cli.tap {
        tap::join(name, machine.add_port(), waker.clone()).map_err(|e| format!("TAP {name}: {e}"))?;
    }
    let join = |path: &PathBuf| {
        link::join(path, machine.add_port(), waker.clone())
            .map_err(|e| format!("link {}: {e}", path.display()))
    };
    let _links = cli.links.iter().map(join).collect::<Result<Vec<_>, _>>()?;
    println!("ready");
    std::thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> =
            services.into_iter().map(|service| scope.spawn(move || service.run(stop))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome.map_err(|e| e.to_string()),
            Err(_) => Err("a thread that serves panicked".to_owned()),
        })
    })
}
