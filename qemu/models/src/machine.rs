//! Adapters joined by a switch, and the time that they live in.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use uvia_driver::nic::MacAddress;

use crate::bus::{Bus, DmaFault};
use crate::e1000::E1000;
use crate::faults::{FaultyWire, Lies, Plan};
use crate::function::{Function, Outside};
use crate::model::{Model, Work};
use crate::random::Random;
use crate::switch::{Switch, SwitchPort};
use crate::virtio::VirtioNet;

/// Descriptors or frames that an adapter deals with before the next one has its turn.
const BUDGET: usize = 64;

/// Which model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Intel 82540EM.
    E1000,
    /// virtio-net with split queues.
    Virtio,
    /// virtio-net that offers packed queues, too.
    VirtioPacked,
}

impl Kind {
    /// All of them.
    pub const ALL: &[Self] = &[Self::E1000, Self::Virtio, Self::VirtioPacked];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::E1000 => "e1000",
            Self::Virtio => "virtio",
            Self::VirtioPacked => "virtio-packed",
        }
    }

    /// A model of this kind; with an `mtu`, of 68 at least, it knows that of its network, and tells it.
    ///
    /// # Errors
    /// No memory for its register pages; a kind that can tell no MTU.
    pub fn build(self, mac: MacAddress, mtu: Option<u16>) -> io::Result<Box<dyn Model>> {
        let virtio = |packed| -> io::Result<Box<dyn Model>> {
            let device = VirtioNet::new(mac, packed)?;
            Ok(Box::new(match mtu {
                Some(mtu) => device.with_mtu(mtu),
                None => device,
            }))
        };
        match (self, mtu) {
            (Self::E1000, None) => Ok(Box::new(E1000::new(mac)?)),
            (Self::E1000, Some(_)) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "an e1000 tells no MTU"))
            }
            (Self::Virtio, _) => virtio(false),
            (Self::VirtioPacked, _) => virtio(true),
        }
    }
}

/// Where time comes from.
enum Clock {
    /// The system.
    Real(Instant),
    /// Nanoseconds that pass when told to.
    Virtual(AtomicU64),
}

/// Adapters and the switch between them.
pub struct Machine {
    nics: Vec<Arc<Nic>>,
    switch: Arc<Mutex<Switch>>,
    clock: Clock,
    seed: u64,
    plan: Plan,
}

/// One adapter, for whoever serves it.
pub struct Nic {
    name: String,
    state: Mutex<State>,
}

struct State {
    function: Function,
    bus: Box<dyn Bus + Send>,
    port: SwitchPort,
}

/// A bus without a client: nothing is mapped, and nobody hears interrupts.
struct Detached;

impl Bus for Detached {
    fn read(&mut self, _address: u64, _into: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault::NotMapped)
    }

    fn write(&mut self, _address: u64, _from: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault::NotMapped)
    }

    fn intx(&mut self, _asserted: bool) {}

    fn message(&mut self, _vector: u16) {}

    fn messages_routed(&self) -> bool {
        false
    }
}

impl Machine {
    /// A machine in the system's time.
    pub fn new(seed: u64, plan: Plan) -> Self {
        Self::with_clock(seed, plan, Clock::Real(Instant::now()))
    }

    /// A machine whose time passes only by [`Machine::advance`]: all that happens in it depends on the calls
    /// made and on the seed.
    pub fn virtual_time(seed: u64, plan: Plan) -> Self {
        Self::with_clock(seed, plan, Clock::Virtual(AtomicU64::new(0)))
    }

    fn with_clock(seed: u64, plan: Plan, clock: Clock) -> Self {
        Self { nics: Vec::new(), switch: Switch::new(), clock, seed, plan }
    }

    /// Adds an adapter; its number is how many there were before.
    ///
    /// # Errors
    /// No memory for its register pages.
    pub fn add(&mut self, kind: Kind, mac: MacAddress) -> io::Result<Arc<Nic>> {
        Ok(self.add_model(kind.build(mac, None)?))
    }

    /// Adds an adapter of any model.
    pub fn add_model(&mut self, model: Box<dyn Model>) -> Arc<Nic> {
        let index = self.nics.len();
        let part = index as u64 * 2;
        let lies = Lies::new(&self.plan.lies(index), Random::part(self.seed, part + 1));
        let wire = FaultyWire::new(
            self.plan.wire(index),
            self.plan.outages(index),
            Random::part(self.seed, part + 2),
        );
        let function = Function::new(model, lies);
        let name = format!("{}-{index}", function.kind());
        let port = Switch::add(&self.switch, wire);
        let nic =
            Arc::new(Nic { name, state: Mutex::new(State { function, bus: Box::new(Detached), port }) });
        self.nics.push(nic.clone());
        nic
    }

    /// Adds a port to the switch for something that is no adapter.
    pub fn add_port(&self) -> SwitchPort {
        Switch::add(&self.switch, FaultyWire::new(Vec::new(), Vec::new(), Random::new(0)))
    }

    /// The adapters.
    pub fn nics(&self) -> &[Arc<Nic>] {
        &self.nics
    }

    /// The switch.
    pub fn switch(&self) -> &Arc<Mutex<Switch>> {
        &self.switch
    }

    /// Time since the machine was made.
    pub fn now(&self) -> Duration {
        match &self.clock {
            Clock::Real(start) => start.elapsed(),
            Clock::Virtual(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Lets virtual time pass; the system's passes by itself.
    pub fn advance(&self, by: Duration) {
        if let Clock::Virtual(nanos) = &self.clock {
            nanos.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Gives every adapter one turn.
    pub fn step(&self) -> Work {
        let now = self.now();
        let mut work = Work { done: 0, deadline: self.switch.lock().advance(now) };
        for nic in &self.nics {
            work = work.and(nic.work(now, BUDGET));
        }
        work
    }

    /// Gives turns until there is nothing to do, or for `most` rounds.
    pub fn run(&self, most: usize) -> Work {
        let mut work = Work::default();
        for _ in 0..most {
            let step = self.step();
            work = Work { done: work.done + step.done, deadline: step.deadline };
            if step.done == 0 {
                break;
            }
        }
        work
    }
}

impl Nic {
    /// Its kind and number.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client is there: its memory and interrupts.
    pub fn attach(&self, bus: Box<dyn Bus + Send>) {
        self.state.lock().bus = bus;
    }

    /// The client is gone, and with it its memory. What the next one finds is a function at power-on.
    pub fn detach(&self, now: Duration) {
        let mut state = self.state.lock();
        state.bus = Box::new(Detached);
        state.call(now, |function, outside| function.power_on(outside));
    }

    /// Looks at the function, or changes it.
    pub fn with<T>(&self, f: impl FnOnce(&mut Function) -> T) -> T {
        f(&mut self.state.lock().function)
    }

    /// Calls the function with its client's bus and its wire.
    pub fn call<T>(&self, now: Duration, f: impl FnOnce(&mut Function, &mut Outside<'_>) -> T) -> T {
        self.state.lock().call(now, f)
    }

    /// One turn.
    pub fn work(&self, now: Duration, budget: usize) -> Work {
        let mut state = self.state.lock();
        let work = state.call(now, |function, outside| function.work(outside, budget));
        // Whoever calls this mostly calls it again at once: a client that waits for a register comes first.
        MutexGuard::unlock_fair(state);
        work
    }
}

impl State {
    fn call<T>(&mut self, now: Duration, f: impl FnOnce(&mut Function, &mut Outside<'_>) -> T) -> T {
        let mut outside = Outside { bus: &mut *self.bus, port: &mut self.port, now };
        f(&mut self.function, &mut outside)
    }
}
