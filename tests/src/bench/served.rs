//! Models behind sockets: all that there is between a driver and a device of another process, but for the process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use uvia_driver::Result;
use uvia_driver::nic::{self, NicConfig};
use uvia_driver::pci;
use uvia_models::faults::Plan;
use uvia_models::machine::{Kind, Machine};
use uvia_models::serve::{Doorbells, Service, Worker};

use super::station;
use crate::conformance::{Bench, Effort, Line, Opened};

/// Two models on a switch, each served over vfio-user by a thread.
pub struct Served {
    machine: Arc<Machine>,
    effort: Effort,
    folder: PathBuf,
    servers: Mutex<Vec<Option<Server>>>,
    wake: Box<dyn Fn() + Send + Sync>,
    _worker: Worker,
}

struct Server {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Server {
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a server ends without a panic");
    }
}

/// A folder of its own for each bench of each process.
fn folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("uvia-bench-{}-{n}", std::process::id()))
}

impl Served {
    /// A bench with models of these kinds, which learn of doorbells in this way.
    ///
    /// # Panics
    /// When the system has no socket or thread for it.
    pub fn new(kinds: [Kind; 2], doorbells: Doorbells) -> Self {
        let mut machine = Machine::new(1, Plan::default());
        for (n, kind) in kinds.into_iter().enumerate() {
            machine.add(kind, station(n)).expect("there is memory for registers");
        }
        let machine = Arc::new(machine);
        let worker = Worker::start(machine.clone(), doorbells).expect("there is a thread");
        let folder = folder();
        std::fs::create_dir(&folder).expect("there is a folder for sockets");
        let serve = |n: usize| {
            let path = folder.join(n.to_string());
            let service = Service::bind(&path, &machine, &machine.nics()[n], &worker).expect("it listens");
            let stop = Arc::new(AtomicBool::new(false));
            let until = stop.clone();
            let thread = std::thread::spawn(move || service.run(&until).expect("it serves"));
            Some(Server { stop, thread })
        };
        let servers = Mutex::new((0..kinds.len()).map(serve).collect());
        let effort = Effort::native();
        Self { machine, effort, folder, servers, wake: Box::new(worker.waker()), _worker: worker }
    }

    /// The same, of which a sample is enough.
    #[must_use]
    pub fn sampled(mut self) -> Self {
        self.effort = Effort::sample();
        self
    }
}

impl Bench for Served {
    fn effort(&self) -> Effort {
        self.effort
    }

    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]> {
        let open = |n: usize| -> Result<Opened> {
            let device = pci::open(&format!("vfio-user:{}", self.folder.join(n.to_string()).display()))?;
            let domain = device.domain().clone();
            Ok(Opened { nic: nic::open(device, config)?, domain })
        };
        Ok([open(0)?, open(1)?])
    }

    fn cable(&self, end: usize, line: Line) {
        self.machine.switch().lock().set_pulled(end, line == Line::Pulled);
        (self.wake)();
    }

    /// The process that serves it ends.
    fn remove(&self, end: usize) {
        let server = self.servers.lock().unwrap_or_else(PoisonError::into_inner)[end].take();
        server.expect("it is removed once").end();
    }

    fn dropped(&self, end: usize) -> Option<u64> {
        Some(self.machine.switch().lock().counts(end).dropped)
    }

    fn stray(&self) -> Option<u64> {
        Some(self.machine.nics().iter().map(|nic| nic.with(|function| function.dma_log().blocked())).sum())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for server in self.servers.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..).flatten() {
            server.end();
        }
        if let Err(e) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("{}: {e}", self.folder.display());
        }
    }
}
