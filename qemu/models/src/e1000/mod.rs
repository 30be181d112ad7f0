//! Intel 82540EM, register by register from the 8254x manual: legacy and extended transmit descriptors with
//! checksums and segmentation, legacy receive descriptors, filters, EEPROM, PHY, statistics, INTx.
//!
//! Left out: interrupt delays by the kind of cause (ITR is there), wake-up, flow control, receive checksums (which
//! descriptors say were not looked at).

mod eeprom;
mod fcs;
mod filter;
mod offload;
mod phy;
mod regs;
mod ring;
mod rx;
mod statistics;
mod tx;

use std::io;
use std::time::Duration;

use eeprom::Eeprom;
use phy::Phy;
use regs::{Cause, Ctrl, Rctl, Status, Tctl};
use ring::Ring;
use rx::Receiver;
use statistics::Statistics;
use tx::Transmitter;
use uvia_driver::nic::MacAddress;

use crate::config::{BarKind, Config, Identity};
use crate::faults::Lie;
use crate::model::{Context, Model, Vectors, Window, Work};
use crate::shared::SharedPages;

/// Vendor and device.
const IDS: (u16, u16) = (0x8086, 0x100e);
const SUBSYSTEM: (u16, u16) = (0x8086, 0x001e);

const REGISTERS_BAR: u8 = 0;
/// Two registers, IOADDR and IODATA, by which all others are reached (13.3): Linux resets the chip so.
const IO_BAR: u8 = 1;
const IO_LENGTH: u32 = 64;
const IOADDR: u64 = 0;
const IODATA: u64 = 4;

/// The chip.
pub struct E1000 {
    /// What was written, below [`regs::REMEMBERED`]; the rings' registers are in `pages`.
    registers: Vec<u32>,
    pages: SharedPages,
    eeprom: Eeprom,
    phy: Phy,
    statistics: Statistics,
    tx: Transmitter,
    rx: Receiver,
    /// ICR and what IMS and IMC made of the mask.
    cause: Cause,
    mask: Cause,
    link: bool,
    io_address: u32,
    /// Whether a client was told of the interrupt that is pending.
    signalled: bool,
    /// ITR: no interrupt before this.
    quiet_until: Duration,
}

impl E1000 {
    /// A chip with a station address.
    ///
    /// # Errors
    /// No memory for its register pages.
    pub fn new(mac: MacAddress) -> io::Result<Self> {
        let mut chip = Self {
            registers: vec![0; regs::REMEMBERED / 4],
            pages: SharedPages::new(regs::LENGTH as usize, regs::RINGS..regs::RINGS_END)?,
            eeprom: Eeprom::new(mac.0, IDS, SUBSYSTEM),
            phy: Phy::new(),
            statistics: Statistics::new(),
            tx: Transmitter::default(),
            rx: Receiver::default(),
            cause: Cause::empty(),
            mask: Cause::empty(),
            link: false,
            io_address: 0,
            signalled: false,
            quiet_until: Duration::ZERO,
        };
        chip.reset_registers();
        Ok(chip)
    }

    fn get(&self, register: usize) -> u32 {
        self.registers[register / 4]
    }

    fn set(&mut self, register: usize, value: u32) {
        self.registers[register / 4] = value;
    }

    /// What CTRL.RST does, and power-on too. The PHY goes on as it was.
    fn reset_registers(&mut self) {
        self.registers.fill(0);
        self.pages.fill(0);
        self.tx.reset();
        self.rx.reset();
        self.statistics = Statistics::new();
        (self.cause, self.mask, self.signalled) = (Cause::empty(), Cause::empty(), false);
        self.quiet_until = Duration::ZERO;
        self.set(regs::CTRL, (Ctrl::FD | Ctrl::SLU | Ctrl::SPEED_1000).bits());
        self.set(regs::LEDCTL, 0x0706_8302);
        self.set(regs::PBA, 0x0010_0030);
        self.set(regs::VET, 0x8100);
        self.load_address();
    }

    /// The EEPROM's station address becomes receive address 0.
    fn load_address(&mut self) {
        let [a, b, c, d, e, f] = self.eeprom.mac();
        self.set(regs::RAL, u32::from_le_bytes([a, b, c, d]));
        self.set(regs::RAH, u32::from_le_bytes([e, f, 0, 0]) | regs::RAH_AV);
    }

    fn link_up(&self) -> bool {
        self.link && Ctrl::from_bits_retain(self.get(regs::CTRL)).contains(Ctrl::SLU)
    }

    fn status(&self) -> u32 {
        let mut status = Status::FD | Status::SPEED_1000 | Status::PCI66;
        status.set(Status::LU, self.link_up());
        status.bits()
    }

    fn follow_link(&mut self, context: &mut Context<'_>) {
        if context.port.link() != self.link {
            self.link = !self.link;
            self.cause |= Cause::LSC;
        }
    }

    /// Drives the pin as causes and mask have it.
    fn drive_pin(&mut self, context: &mut Context<'_>) {
        let pending = self.cause.intersects(self.mask);
        if pending && !self.signalled {
            if context.now < self.quiet_until {
                return;
            }
            // Least time between interrupts, in units of 256 ns (13.4.18).
            let interval = Duration::from_nanos(u64::from(self.get(regs::ITR) & 0xffff) * 256);
            self.quiet_until = context.now + interval;
        }
        if pending && !self.signalled && context.lies.tells(Lie::NoInterrupt) {
            // Not told of this one; of the next cause, if the client clears these.
            self.cause = Cause::empty();
            return;
        }
        self.signalled = pending;
        context.bus.intx(pending);
    }

    fn read_register(&mut self, context: &mut Context<'_>, register: usize) -> u32 {
        match register {
            regs::RINGS..regs::RINGS_END => self.pages.load(register - regs::RINGS),
            regs::STATISTICS..regs::STATISTICS_END => self.statistics.take(register),
            regs::CTRL_DUP => self.get(regs::CTRL),
            regs::STATUS => {
                self.follow_link(context);
                self.status()
            }
            regs::EECD => self.eeprom.eecd(),
            regs::EERD => self.eeprom.eerd(),
            regs::MDIC => self.phy.mdic(),
            regs::ICR => {
                let cause = std::mem::replace(&mut self.cause, Cause::empty());
                self.drive_pin(context);
                cause.bits()
            }
            regs::IMS => self.mask.bits(),
            regs::ICS | regs::IMC => 0,
            0..regs::REMEMBERED => self.get(register),
            _ => 0,
        }
    }

    fn write_register(&mut self, context: &mut Context<'_>, register: usize, value: u32) {
        match register {
            regs::RINGS..regs::RINGS_END => {
                self.pages.store(register - regs::RINGS, value);
                self.tx.unstick();
                self.rx.unstick();
            }
            regs::STATISTICS..regs::STATISTICS_END | regs::STATUS => (),
            regs::CTRL | regs::CTRL_DUP => self.control(context, Ctrl::from_bits_retain(value)),
            regs::EECD => self.eeprom.set_eecd(value),
            regs::EERD => self.eeprom.set_eerd(value),
            regs::CTRL_EXT => {
                if value & regs::CTRL_EXT_EE_RST != 0 {
                    self.load_address();
                }
                self.set(regs::CTRL_EXT, value & !regs::CTRL_EXT_EE_RST);
            }
            regs::MDIC => {
                self.follow_link(context);
                if self.phy.set_mdic(value, self.link) {
                    self.cause |= Cause::MDAC;
                }
            }
            regs::ICR => self.cause -= Cause::from_bits_retain(value),
            regs::ICS => self.cause |= Cause::from_bits_retain(value) & Cause::ALL,
            regs::IMS => self.mask |= Cause::from_bits_retain(value) & Cause::ALL,
            regs::IMC => self.mask -= Cause::from_bits_retain(value),
            0..regs::REMEMBERED => {
                self.set(register, value);
                if register == regs::TCTL {
                    self.tx.unstick();
                }
                if register == regs::RCTL {
                    self.rx.unstick();
                }
            }
            _ => (),
        }
        self.drive_pin(context);
    }

    fn control(&mut self, context: &mut Context<'_>, ctrl: Ctrl) {
        if ctrl.contains(Ctrl::RST) && !context.lies.tells(Lie::NoReset) {
            return self.reset_registers();
        }
        let up = self.link_up();
        self.set(regs::CTRL, (ctrl - (Ctrl::RST | Ctrl::PHY_RST)).bits());
        if self.link_up() != up {
            self.cause |= Cause::LSC;
        }
    }

    fn io_read(&mut self, context: &mut Context<'_>, offset: u64) -> u32 {
        match offset & !3 {
            IOADDR => self.io_address,
            IODATA => self.read_register(context, self.io_address as usize & !3),
            _ => u32::MAX,
        }
    }

    fn io_write(&mut self, context: &mut Context<'_>, offset: u64, value: u32) {
        match offset & !3 {
            IOADDR => self.io_address = value,
            IODATA => self.write_register(context, self.io_address as usize & !3, value),
            _ => (),
        }
    }
}

impl Model for E1000 {
    fn kind(&self) -> &'static str {
        "e1000"
    }

    fn config(&self) -> Config {
        let identity = Identity { ids: IDS, subsystem: SUBSYSTEM, revision: 2, class: [2, 0, 0] };
        Config::new(identity)
            .with_bar(REGISTERS_BAR, BarKind::Memory, regs::LENGTH)
            .with_bar(IO_BAR, BarKind::Io, IO_LENGTH)
            .with_pin()
            .with_express()
    }

    fn vectors(&self) -> Vectors {
        Vectors { intx: 1, msix: 0 }
    }

    fn windows(&self) -> Vec<Window> {
        vec![Window { bar: REGISTERS_BAR, pages: self.pages.clone() }]
    }

    fn read(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, into: &mut [u8]) {
        // Registers are of 32 bits: of a narrower access, the bytes of its register are answered.
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let word = match bar {
                REGISTERS_BAR => self.read_register(context, at as usize & !3),
                _ => self.io_read(context, at),
            };
            let within = (at & 3) as usize;
            let count = (4 - within).min(into.len() - done);
            into[done..done + count].copy_from_slice(&word.to_le_bytes()[within..within + count]);
            done += count;
        }
    }

    fn write(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, from: &[u8]) {
        // The chip takes whole registers only (13.2): of the rest of an access nothing is taken.
        let skip = (offset.wrapping_neg() & 3) as usize;
        let words = from.get(skip..).unwrap_or_default().chunks_exact(4);
        for (n, word) in words.enumerate() {
            let at = offset + (skip + 4 * n) as u64;
            let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            match bar {
                REGISTERS_BAR => self.write_register(context, at as usize, value),
                _ => self.io_write(context, at, value),
            }
        }
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        self.reset_registers();
        self.phy = Phy::new();
        self.io_address = 0;
        self.link = context.port.link();
        context.bus.intx(false);
    }

    fn work(&mut self, context: &mut Context<'_>, budget: usize) -> Work {
        self.follow_link(context);
        let ctrl = Ctrl::from_bits_retain(self.get(regs::CTRL));
        let strip = ctrl.contains(Ctrl::VME);
        let (tctl, vet) = (self.get(regs::TCTL), self.get(regs::VET));
        let mut around = tx::Around {
            pages: &self.pages,
            statistics: &mut self.statistics,
            tctl: Tctl::from_bits_retain(tctl),
            tags: strip.then_some(vet),
            cause: &mut self.cause,
        };
        let (sent, tx_due) = self.tx.work(context, &mut around, budget);
        let mut around = rx::Around {
            pages: &self.pages,
            statistics: &mut self.statistics,
            rctl: Rctl::from_bits_retain(self.registers[regs::RCTL / 4]),
            strip,
            registers: &self.registers,
            cause: &mut self.cause,
        };
        let (received, rx_due) = self.rx.work(context, &mut around, budget);
        self.drive_pin(context);
        let waits = self.cause.intersects(self.mask) && !self.signalled;
        let moderated = Work { done: 0, deadline: waits.then_some(self.quiet_until) };
        Work { done: sent, deadline: tx_due }.and(Work { done: received, deadline: rx_due }).and(moderated)
    }
}

/// A lie: random bytes over some of a ring.
fn garbage(context: &mut Context<'_>, ring: &Ring) {
    let mut bytes = [0; 16];
    let len = 1 + context.lies.random().below(16) as usize;
    context.lies.random().fill(&mut bytes);
    let at = context.lies.random().below(ring.size.into()) as u32;
    let offset = context.lies.random().below(17 - len as u64);
    let _ = context.bus.write(ring.descriptor(at).wrapping_add(offset), &bytes[..len]);
}
