//! A PCI function: a model behind configuration space, with its accesses to memory checked and recorded.

use std::time::Duration;

use crate::bus::{Bus, DmaFault};
use crate::config::Config;
use crate::dma_log::{DmaAccess, DmaLog};
use crate::faults::{Lie, Lies};
use crate::model::{Context, Model, Vectors, Window, Work};
use crate::port::Port;

/// The world as a caller of a function sees it: how its client's memory and interrupts are reached, and the
/// wire.
pub struct Outside<'a> {
    /// The client's memory and interrupts.
    pub bus: &'a mut dyn Bus,
    /// The wire.
    pub port: &'a mut dyn Port,
    /// Time since the function was made.
    pub now: Duration,
}

/// A function of one model, as a client finds it: configuration space, registers, reset.
pub struct Function {
    model: Box<dyn Model>,
    config: Config,
    lies: Lies,
    log: DmaLog,
    /// Nothing answers: until the next reset, or for good.
    gone: bool,
    removed: bool,
}

impl Function {
    /// A function at power-on.
    pub fn new(model: Box<dyn Model>, lies: Lies) -> Self {
        let config = model.config();
        Self { model, config, lies, log: DmaLog::default(), gone: false, removed: false }
    }

    /// The model's kind.
    pub fn kind(&self) -> &'static str {
        self.model.kind()
    }

    /// Interrupt vectors.
    pub fn vectors(&self) -> Vectors {
        self.model.vectors()
    }

    /// Parts of BARs that may be mapped.
    pub fn windows(&self) -> Vec<Window> {
        self.model.windows()
    }

    /// Whether these parts are memory, and no doorbells.
    pub fn is_memory(&self) -> bool {
        self.model.is_memory()
    }

    /// Bytes of a BAR; 0 when there is none.
    pub fn bar(&self, bar: u8) -> u64 {
        self.config.bar(bar)
    }

    /// What it did to memory.
    pub fn dma_log(&self) -> &DmaLog {
        &self.log
    }

    /// What it did to memory, for switching the recording.
    pub fn dma_log_mut(&mut self) -> &mut DmaLog {
        &mut self.log
    }

    /// What it lied about.
    pub fn lies(&self) -> &Lies {
        &self.lies
    }

    /// Other lies, or none, from now on.
    pub fn set_lies(&mut self, lies: Lies) {
        self.lies = lies;
    }

    /// Reads configuration space.
    pub fn config_read(&mut self, offset: u64, into: &mut [u8]) {
        if self.gone {
            return into.fill(0xff);
        }
        self.config.read(offset, into);
    }

    /// Writes configuration space; a function-level reset is one of the things that may come of it.
    pub fn config_write(&mut self, outside: &mut Outside<'_>, offset: u64, from: &[u8]) {
        if self.removed {
            return;
        }
        let was_disabled = self.config.pin_disabled();
        if self.config.write(offset, from).reset {
            self.reset(outside);
        } else if self.config.pin_disabled() != was_disabled {
            // What the model has said of the pin meanwhile counts from now on, or no more.
            outside.bus.intx(self.config.interrupt() && was_disabled);
        }
    }

    /// Reads registers: all-ones beyond the BAR's end.
    pub fn read(&mut self, outside: &mut Outside<'_>, bar: u8, offset: u64, into: &mut [u8]) {
        self.may_vanish();
        let end = offset.checked_add(into.len() as u64);
        if self.gone || end.is_none_or(|end| end > self.config.bar(bar)) {
            return into.fill(0xff);
        }
        self.call(outside, |model, context| model.read(context, bar, offset, into));
    }

    /// Writes registers: nothing beyond the BAR's end.
    pub fn write(&mut self, outside: &mut Outside<'_>, bar: u8, offset: u64, from: &[u8]) {
        self.may_vanish();
        let end = offset.checked_add(from.len() as u64);
        if self.gone || end.is_none_or(|end| end > self.config.bar(bar)) {
            return;
        }
        self.call(outside, |model, context| model.write(context, bar, offset, from));
    }

    /// A reset of the function.
    pub fn reset(&mut self, outside: &mut Outside<'_>) {
        if self.removed || self.lies.tells(Lie::NoReset) {
            return;
        }
        self.power_on(outside);
    }

    /// As after power-on, whatever lies there are: another client comes.
    pub fn power_on(&mut self, outside: &mut Outside<'_>) {
        self.call(outside, |model, context| model.reset(context));
        self.config = self.model.config();
        (self.gone, self.removed) = (false, false);
    }

    /// Works on rings and the wire for about `budget` descriptors.
    pub fn work(&mut self, outside: &mut Outside<'_>, budget: usize) -> Work {
        if self.gone {
            // A wire that nobody listens to.
            while outside.port.receive().is_some() {}
            return Work::default();
        }
        self.call(outside, |model, context| model.work(context, budget))
    }

    fn may_vanish(&mut self) {
        self.removed |= self.lies.tells(Lie::Removed);
        self.gone |= self.removed || self.lies.tells(Lie::Gone);
    }

    fn call<T>(
        &mut self,
        outside: &mut Outside<'_>,
        f: impl FnOnce(&mut dyn Model, &mut Context<'_>) -> T,
    ) -> T {
        let mut interrupt = self.config.interrupt();
        let mut bus = Checked {
            bus: outside.bus,
            log: &mut self.log,
            master: self.config.bus_master(),
            pin: !self.config.pin_disabled(),
            interrupt: &mut interrupt,
        };
        let mut context = Context {
            bus: &mut bus,
            port: outside.port,
            lies: &mut self.lies,
            config: &self.config,
            now: outside.now,
        };
        let result = f(&mut *self.model, &mut context);
        self.config.set_interrupt(interrupt);
        result
    }
}

/// The bus as the command register lets the function at it.
struct Checked<'a> {
    bus: &'a mut dyn Bus,
    log: &'a mut DmaLog,
    master: bool,
    pin: bool,
    /// What the model says of the pin.
    interrupt: &'a mut bool,
}

impl Bus for Checked<'_> {
    #[inline]
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let outcome = if self.master { self.bus.read(address, into) } else { Err(DmaFault::NotMaster) };
        self.log.note(DmaAccess { address, len: into.len(), write: false, fault: outcome.err() });
        outcome
    }

    #[inline]
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        let outcome = if self.master { self.bus.write(address, from) } else { Err(DmaFault::NotMaster) };
        self.log.note(DmaAccess { address, len: from.len(), write: true, fault: outcome.err() });
        outcome
    }

    fn intx(&mut self, asserted: bool) {
        *self.interrupt = asserted;
        self.bus.intx(asserted && self.pin);
    }

    fn message(&mut self, vector: u16) {
        // A message is a write to memory: not without bus mastering.
        if self.master {
            self.bus.message(vector);
        }
    }

    fn messages_routed(&self) -> bool {
        self.bus.messages_routed()
    }

    fn fence(&mut self) {
        self.bus.fence();
    }
}

#[cfg(test)]
mod tests {
    use uvia_driver::nic::MacAddress;

    use super::*;
    use crate::e1000::E1000;
    use crate::port::Unplugged;
    use crate::random::Random;

    /// A client that only looks at the pin.
    #[derive(Default)]
    struct Pin(bool);

    impl Bus for Pin {
        fn read(&mut self, _address: u64, _into: &mut [u8]) -> Result<(), DmaFault> {
            Err(DmaFault::NotMapped)
        }

        fn write(&mut self, _address: u64, _from: &[u8]) -> Result<(), DmaFault> {
            Err(DmaFault::NotMapped)
        }

        fn intx(&mut self, asserted: bool) {
            self.0 = asserted;
        }

        fn message(&mut self, _vector: u16) {}

        fn messages_routed(&self) -> bool {
            false
        }
    }

    #[test]
    fn the_status_register_tells_of_the_pin_also_while_it_is_disabled() {
        const ICR: u64 = 0xc0;
        const ICS: u64 = 0xc8;
        const IMS: u64 = 0xd0;
        const LINK: [u8; 4] = [4, 0, 0, 0];
        let model = E1000::new(MacAddress([2, 0, 0, 0, 0, 1])).unwrap();
        let mut function = Function::new(Box::new(model), Lies::new(&[], Random::new(0)));
        let mut port = Unplugged;
        let mut pin = Pin::default();
        let mut now = Duration::ZERO;
        let mut act = |pin: &mut Pin, what: &mut dyn FnMut(&mut Outside<'_>)| {
            now += Duration::from_secs(1);
            what(&mut Outside { bus: pin, port: &mut port, now });
        };
        let command = |function: &mut Function, outside: &mut Outside<'_>, high: u8| {
            function.config_write(outside, 0x05, &[high]);
        };
        let status = |function: &mut Function| {
            let mut byte = [0];
            function.config_read(0x06, &mut byte);
            byte[0] & 1 << 3 != 0
        };
        act(&mut pin, &mut |outside| function.write(outside, 0, IMS, &LINK));
        act(&mut pin, &mut |outside| command(&mut function, outside, 4));
        act(&mut pin, &mut |outside| function.write(outside, 0, ICS, &LINK));
        assert!(status(&mut function) && !pin.0);
        act(&mut pin, &mut |outside| command(&mut function, outside, 0));
        assert!(status(&mut function) && pin.0, "what was asked for meanwhile");
        act(&mut pin, &mut |outside| command(&mut function, outside, 4));
        assert!(!pin.0);
        act(&mut pin, &mut |outside| function.read(outside, 0, ICR, &mut [0; 4]));
        act(&mut pin, &mut |outside| command(&mut function, outside, 0));
        assert!(!status(&mut function) && !pin.0, "the cause is cleared");
    }
}
