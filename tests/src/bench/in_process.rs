//! Models in the same process and, but where a test makes threads, in the same thread: what happens depends on the
//! calls and on the seed only.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use uvia::{Clock, NicOptions};
use uvia_driver::Result;
use uvia_driver::nic::{self, NicConfig};
use uvia_models::faults::{Lie, Lies, Plan, When};
use uvia_models::inprocess::ModelDomain;
use uvia_models::machine::{Kind, Machine};
use uvia_models::random::Random;

use super::station;
use crate::conformance::{Bench, Effort, Line, Opened};

/// Rounds that let what a cable does come to its end.
const ROUNDS: usize = 100;

/// Two models on a switch, in virtual time.
pub struct InProcess {
    machine: Arc<Machine>,
    /// Of all pairs that were opened, while anything refers to them.
    domains: Mutex<Vec<Weak<ModelDomain>>>,
}

impl InProcess {
    /// A bench with models of these kinds.
    ///
    /// # Panics
    /// When there is no memory for their registers.
    pub fn new(kinds: [Kind; 2]) -> Self {
        Self::with_faults(kinds, 1, Plan::default())
    }

    /// A bench where things go wrong, by a seed.
    ///
    /// # Panics
    /// When there is no memory for their registers.
    pub fn with_faults(kinds: [Kind; 2], seed: u64, plan: Plan) -> Self {
        let mut machine = Machine::virtual_time(seed, plan);
        for (n, kind) in kinds.into_iter().enumerate() {
            machine.add(kind, station(n)).expect("there is memory for registers");
        }
        Self { machine: Arc::new(machine), domains: Mutex::default() }
    }

    /// The models.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// What a model lies about from now on.
    pub fn set_lies(&self, end: usize, lies: Lies) {
        self.machine.nics()[end].with(|function| function.set_lies(lies));
    }

    /// NICs on both, by a clock that only passes when it is told to.
    ///
    /// # Panics
    /// When one of them does not open.
    pub fn nics(&self, now: &Arc<AtomicU64>) -> [uvia::Nic; 2] {
        self.open(&NicConfig::default()).expect("models open").map(|Opened { nic, domain }| {
            let name = nic.properties().mac.to_string().replace(':', "-");
            let clock = Clock::manual(now.clone());
            let options = NicOptions { name: Some(name), clock, ..NicOptions::default() };
            uvia::Nic::with_adapter(nic, domain, options).expect("a NIC on a model")
        })
    }

    /// Accesses to memory by all models, blocked ones included.
    pub fn accesses(&self) -> u64 {
        self.machine.nics().iter().map(|nic| nic.with(|function| function.dma_log().accesses())).sum()
    }
}

impl Bench for InProcess {
    fn effort(&self) -> Effort {
        Effort::native()
    }

    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]> {
        let domain = ModelDomain::new(self.machine.clone());
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        domains.retain(|domain| domain.strong_count() > 0);
        domains.push(Arc::downgrade(&domain));
        drop(domains);
        let open = |n: usize| -> Result<Opened> {
            let device = domain.open_model(self.machine.nics()[n].name())?;
            Ok(Opened { nic: nic::open(device, config)?, domain: domain.clone() })
        };
        Ok([open(0)?, open(1)?])
    }

    fn cable(&self, end: usize, line: Line) {
        self.machine.switch().lock().set_pulled(end, line == Line::Pulled);
        self.machine.run(ROUNDS);
    }

    fn remove(&self, end: usize) {
        self.set_lies(end, Lies::new(&[(Lie::Removed, When::At(1))], Random::new(1)));
    }

    fn dropped(&self, end: usize) -> Option<u64> {
        Some(self.machine.switch().lock().counts(end).dropped)
    }

    fn stray(&self) -> Option<u64> {
        // What is closed must not go on by itself, either.
        self.machine.run(ROUNDS);
        Some(self.machine.nics().iter().map(|nic| nic.with(|function| function.dma_log().blocked())).sum())
    }

    fn mapped(&self) -> Option<usize> {
        let domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        Some(domains.iter().filter_map(Weak::upgrade).map(|domain| domain.mapped()).sum())
    }
}
