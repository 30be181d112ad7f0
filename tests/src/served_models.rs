//! Models of adapters, served over vfio-user by threads of this process, as `uvia-device` serves them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use uvia_driver::nic::MacAddress;
use uvia_models::AdapterMemory;
use uvia_models::faults::Plan;
use uvia_models::machine::{Kind, Machine};
use uvia_models::serve::{Doorbells, Service, Worker};

/// Adapters on one switch, each at a socket of its own, until dropped.
pub struct ServedModels {
    names: Vec<String>,
    memory: Option<String>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _worker: Worker,
}

impl ServedModels {
    /// Serves one adapter of each kind at sockets in `folder`, on perfect wires.
    pub fn start(folder: &Path, kinds: &[Kind], doorbells: Doorbells) -> Self {
        Self::start_with(folder, kinds, doorbells, 1, Plan::default())
    }

    /// As [`ServedModels::start`], with `size` bytes of adapter memory too.
    pub fn start_with_memory(folder: &Path, kinds: &[Kind], doorbells: Doorbells, size: usize) -> Self {
        let memory = AdapterMemory::new(size).expect("a size that adapter memory can have");
        Self::serve(folder, kinds, doorbells, (1, Plan::default()), Some(memory))
    }

    /// As [`ServedModels::start`], with all that goes wrong by plan and seed.
    pub fn start_with(folder: &Path, kinds: &[Kind], doorbells: Doorbells, seed: u64, plan: Plan) -> Self {
        Self::serve(folder, kinds, doorbells, (seed, plan), None)
    }

    fn serve(
        folder: &Path,
        kinds: &[Kind],
        doorbells: Doorbells,
        (seed, plan): (u64, Plan),
        memory: Option<AdapterMemory>,
    ) -> Self {
        let mut machine = Machine::new(seed, plan);
        for (n, kind) in kinds.iter().enumerate() {
            machine.add(*kind, Self::station(n)).expect("memory for a model's registers");
        }
        // Behind the adapters.
        let has_memory = memory.is_some();
        if let Some(memory) = memory {
            machine.add_model(Box::new(memory));
        }
        let machine = Arc::new(machine);
        let worker = Worker::start(machine.clone(), doorbells).expect("a thread");
        let stop = Arc::new(AtomicBool::new(false));
        let (mut names, mut threads) = (Vec::new(), Vec::new());
        for (n, nic) in machine.nics().iter().enumerate() {
            let path = Self::socket(folder, n);
            let service = Service::bind(&path, &machine, nic, &worker).expect("a socket to serve at");
            names.push(Self::name(folder, n));
            let stop = stop.clone();
            threads.push(std::thread::spawn(move || service.run(&stop).expect("the system works")));
        }
        let memory = if has_memory { names.pop() } else { None };
        Self { names, memory, stop, threads, _worker: worker }
    }

    fn socket(folder: &Path, n: usize) -> std::path::PathBuf {
        folder.join(format!("nic-{n}.sock"))
    }

    /// The name by which adapter `n` of those in `folder` is opened.
    pub fn name(folder: &Path, n: usize) -> String {
        format!("vfio-user:{}", Self::socket(folder, n).display())
    }

    /// Its station address.
    pub fn station(n: usize) -> MacAddress {
        MacAddress([2, 0x75, 0x76, 0, 0, n as u8])
    }

    /// The name of the adapter memory.
    ///
    /// # Panics
    /// When there is none.
    pub fn memory(&self) -> &str {
        self.memory.as_deref().expect("started with adapter memory")
    }

    /// The names of all adapters.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl Drop for ServedModels {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What it panicked over was said.
            let _ = thread.join();
        }
    }
}
