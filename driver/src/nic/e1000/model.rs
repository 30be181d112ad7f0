//! The chip as the manual describes it, for the driver's tests: registers, both rings, and ways to lie.

use std::collections::HashMap;

use super::descriptor::{DD, EOP, RxWord, SIZE, TxCommand, TxWord, WORD};
use super::regs::{self, Cause, Ctrl, Eerd, Rctl, Status, Tctl};
use crate::nic::testing::{Bus, Model, Wire};
use crate::pci::InterruptCounts;

/// Bytes of the check sequence.
const FCS: usize = 4;

pub struct Chip {
    registers: HashMap<usize, u32>,
    pub wire: Wire,
    /// Of a frame in several descriptors, what was fetched so far.
    partial: Vec<u8>,
    /// How often each register was written.
    pub writes: HashMap<usize, usize>,
    /// What is written back for a received frame instead of the truth.
    pub lie: Option<RxWord>,
    /// Nothing is sent: the ring fills up.
    pub stalled: bool,
    /// Reads answer all-ones.
    pub gone: bool,
    pub eeprom: [u16; 3],
    /// Subsystem vendor and subsystem, as they lie in configuration space.
    pub subsystem: [u8; 4],
    /// Descriptors fetched, and reports written, by the transmitter.
    pub fetched: usize,
    pub reports: usize,
    /// Resets of the function.
    pub resets: usize,
    /// PBA, as it was when the chip was last reset.
    pub allocated: u32,
}

impl Chip {
    pub fn new() -> Self {
        let mut chip = Self {
            registers: HashMap::new(),
            wire: Wire::default(),
            partial: Vec::new(),
            writes: HashMap::new(),
            lie: None,
            stalled: false,
            gone: false,
            eeprom: [0x5452, 0x1200, 0x5634],
            // QEMU's.
            subsystem: [0xf4, 0x1a, 0x00, 0x11],
            fetched: 0,
            reports: 0,
            resets: 0,
            allocated: 0,
        };
        chip.reset();
        chip
    }

    pub fn get(&self, register: usize) -> u32 {
        self.registers.get(&register).copied().unwrap_or(0)
    }

    pub fn set(&mut self, register: usize, value: u32) {
        self.registers.insert(register, value);
    }

    pub fn written(&self, register: usize) -> usize {
        self.writes.get(&register).copied().unwrap_or(0)
    }

    /// Where descriptor `n` of the ring at `base` (the low register of its address) lies.
    pub fn descriptor(&self, base: usize, n: u32) -> u64 {
        (u64::from(self.get(base)) | u64::from(self.get(base + 4)) << 32) + u64::from(n) * SIZE as u64
    }

    fn advance(&mut self, head: usize, length: usize) {
        let size = self.get(length) / SIZE as u32;
        self.set(head, (self.get(head) + 1) % size);
    }

    fn cause(&mut self, bus: &Bus, cause: Cause) {
        let before = self.get(regs::ICR) & self.get(regs::IMS);
        self.set(regs::ICR, self.get(regs::ICR) | cause.bits());
        if before == 0 && self.get(regs::ICR) & self.get(regs::IMS) != 0 {
            bus.interrupt();
        }
    }

    /// The transmitter, until head meets tail.
    pub fn transmit(&mut self, bus: &Bus) {
        while !self.stalled
            && self.get(regs::TCTL) & Tctl::EN.bits() != 0
            && self.get(regs::TDH) != self.get(regs::TDT)
        {
            let at = self.descriptor(regs::TDBAL, self.get(regs::TDH));
            let (mut address, mut word) = ([0; 8], [0; 8]);
            bus.read(at, &mut address);
            bus.read(at + WORD as u64, &mut word);
            let mut word = TxWord::from_memory(u64::from_ne_bytes(word));
            assert_eq!(word.status, 0, "a stale status");
            let command = TxCommand::from_bits(word.cmd).unwrap();
            assert!(command.contains(TxCommand::IFCS));
            self.fetched += 1;
            let start = self.partial.len();
            self.partial.resize(start + usize::from(word.length.get()), 0);
            bus.read(u64::from_le_bytes(address), &mut self.partial[start..]);
            if command.contains(TxCommand::EOP) {
                self.wire.sent.push_back(std::mem::take(&mut self.partial));
            }
            if command.contains(TxCommand::RS) {
                word.status = DD;
                self.reports += 1;
                bus.write(at + WORD as u64, &word.to_memory().to_ne_bytes());
            }
            self.advance(regs::TDH, regs::TDLEN);
        }
    }

    /// The receiver, until the wire is empty or buffers run out.
    pub fn receive(&mut self, bus: &Bus) {
        while self.get(regs::RCTL) & Rctl::EN.bits() != 0 && self.get(regs::RDH) != self.get(regs::RDT) {
            let Some(frame) = self.wire.waiting.pop_front() else { return };
            let rctl = Rctl::from_bits_retain(self.get(regs::RCTL));
            assert!(rctl.contains(Rctl::SECRC));
            let (buffer, longest) = (buffer_size(rctl), if rctl.contains(Rctl::LPE) { 16384 } else { 1522 });
            if frame.len() + FCS > longest {
                self.set(regs::ROC, self.get(regs::ROC) + 1);
                continue;
            }
            let mut left = &frame[..];
            loop {
                let (part, rest) = left.split_at(left.len().min(buffer));
                let at = self.descriptor(regs::RDBAL, self.get(regs::RDH));
                let mut address = [0; 8];
                bus.read(at, &mut address);
                bus.write(u64::from_le_bytes(address), part);
                let word = self.lie.unwrap_or(RxWord {
                    length: (part.len() as u16).into(),
                    status: if rest.is_empty() { DD | EOP } else { DD },
                    ..RxWord::default()
                });
                bus.write(at + WORD as u64, &word.to_memory().to_ne_bytes());
                self.advance(regs::RDH, regs::RDLEN);
                left = rest;
                if left.is_empty() {
                    break;
                }
            }
            self.cause(bus, Cause::RXT0);
        }
    }

    /// A frame comes in.
    pub fn deliver(&mut self, bus: &Bus, frame: Vec<u8>) {
        self.wire.waiting.push_back(frame);
        self.receive(bus);
    }
}

/// Bytes of a buffer, by BSIZE and BSEX (13.4.22).
fn buffer_size(rctl: Rctl) -> usize {
    match ((rctl.bits() >> 16) & 3, rctl.contains(Rctl::BSEX)) {
        (bsize, false) => 2048 >> bsize,
        (bsize @ 1.., true) => 32768 >> bsize,
        (_, true) => panic!("BSIZE 0 with BSEX is reserved"),
    }
}

impl Model for Chip {
    fn config(&self) -> Vec<u8> {
        let mut config = vec![0; 256];
        config[..4].copy_from_slice(&[0x86, 0x80, 0x0e, 0x10]);
        config[0x2c..0x30].copy_from_slice(&self.subsystem);
        config
    }

    fn bar(&self, bar: u8) -> u64 {
        if bar == 0 { 0x20000 } else { 0 }
    }

    fn read(&mut self, bar: u8, offset: u64, into: &mut [u8]) {
        assert_eq!(bar, 0);
        let register = offset as usize;
        let value = self.get(register);
        into.copy_from_slice(&if self.gone { u32::MAX } else { value }.to_le_bytes());
        if [regs::ICR, regs::MPC, regs::CRCERRS, regs::RXERRC, regs::ROC].contains(&register) {
            self.set(register, 0);
        }
    }

    fn write(&mut self, bus: &Bus, bar: u8, offset: u64, from: &[u8]) {
        assert_eq!(bar, 0);
        let register = offset as usize;
        let value = u32::from_le_bytes(from.try_into().unwrap());
        *self.writes.entry(register).or_default() += 1;
        match register {
            regs::IMS => self.set(regs::IMS, self.get(regs::IMS) | value),
            regs::IMC => self.set(regs::IMS, self.get(regs::IMS) & !value),
            regs::CTRL => {
                if value & Ctrl::RST.bits() != 0 {
                    self.allocated = self.get(regs::PBA);
                }
                self.set(regs::CTRL, value & !Ctrl::RST.bits());
            }
            regs::EERD => {
                assert_eq!(value & 0xff, Eerd::START.bits());
                let data = self.eeprom[(value >> 8 & 0xff) as usize];
                self.set(regs::EERD, u32::from(data) << 16 | Eerd::DONE.bits());
            }
            _ => self.set(register, value),
        }
        match register {
            regs::TDT => self.transmit(bus),
            regs::RDT => self.receive(bus),
            _ => (),
        }
    }

    fn reset(&mut self) {
        self.registers.clear();
        self.partial.clear();
        self.resets += 1;
        self.set(regs::STATUS, (Status::LU | Status::FD | Status::SPEED_1000).bits());
        self.set(regs::RAL, 0x1200_5452);
        self.set(regs::RAH, regs::RAH_AV | 0x5634);
    }

    fn interrupts(&self) -> InterruptCounts {
        InterruptCounts { intx: 1, ..InterruptCounts::default() }
    }
}
