//! Configuration space: bytes with a mask of what a client may write, base address registers, capabilities.
//!
//! Offsets and bits are those of the PCI Local Bus Specification 3.0, chapter 6, and of the PCI Express Base
//! Specification, 7.8.

/// Bytes of configuration space, the extended part included (which is empty here).
pub const SIZE: usize = 4096;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const REVISION: usize = 0x08;
const CLASS: usize = 0x09;
const BAR0: usize = 0x10;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const INTERRUPT_PIN: usize = 0x3d;

/// I/O, memory, bus master, parity response, SERR, INTx disable: what software may switch.
const COMMAND_WRITABLE: u16 = 0x0547;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTX_DISABLE: u16 = 1 << 10;
const STATUS_INTERRUPT: u16 = 1 << 3;
const STATUS_CAPABILITIES: u16 = 1 << 4;

/// Capability ids.
const CAP_MSIX: u8 = 0x11;
const CAP_EXPRESS: u8 = 0x10;

/// Of the PCI Express capability: Device Capabilities, and in it function-level reset; Device Control, and in
/// it the bit that asks for one.
const EXPRESS_LENGTH: usize = 0x3c;
const DEVICE_CAPABILITIES: usize = 0x04;
const DEVICE_CAPABILITIES_FLR: u32 = 1 << 28;
const DEVICE_CONTROL: usize = 0x08;
const DEVICE_CONTROL_FLR: u16 = 1 << 15;

const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_WRITABLE: u16 = 0xc000;

/// What kind of space a BAR is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarKind {
    /// 32-bit memory, not prefetchable.
    Memory,
    /// I/O ports.
    Io,
}

/// Who a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Vendor and device.
    pub ids: (u16, u16),
    /// Vendor and device of the subsystem.
    pub subsystem: (u16, u16),
    /// Revision.
    pub revision: u8,
    /// Class, subclass, programming interface.
    pub class: [u8; 3],
}

/// What a write asks of the function beyond bytes that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effects {
    /// A function-level reset.
    pub reset: bool,
}

/// A function's configuration space.
#[derive(Debug, Clone)]
pub struct Config {
    bytes: Box<[u8; SIZE]>,
    writable: Box<[u8; SIZE]>,
    bars: [u64; 6],
    /// Where the list's last pointer lies, and where the next capability goes.
    last_pointer: usize,
    free: usize,
    express: Option<usize>,
    msix: Option<usize>,
}

impl Config {
    /// A header of type 0 without BARs and capabilities.
    pub fn new(identity: Identity) -> Self {
        let mut config = Self {
            bytes: Box::new([0; SIZE]),
            writable: Box::new([0; SIZE]),
            bars: [0; 6],
            last_pointer: CAPABILITIES,
            free: 0x40,
            express: None,
            msix: None,
        };
        config.put16(0, identity.ids.0);
        config.put16(2, identity.ids.1);
        config.bytes[REVISION] = identity.revision;
        let [class, subclass, interface] = identity.class;
        config.bytes[CLASS..CLASS + 3].copy_from_slice(&[interface, subclass, class]);
        config.put16(SUBSYSTEM, identity.subsystem.0);
        config.put16(SUBSYSTEM + 2, identity.subsystem.1);
        config.writable[COMMAND..COMMAND + 2].copy_from_slice(&COMMAND_WRITABLE.to_le_bytes());
        config.writable[INTERRUPT_LINE] = 0xff;
        config.writable[0x0c] = 0xff; // cache line size
        config.writable[0x0d] = 0xff; // latency timer
        config
    }

    /// Adds a BAR; `size` is a power of two, 16 at least.
    #[must_use]
    pub fn with_bar(mut self, bar: u8, kind: BarKind, size: u32) -> Self {
        debug_assert!(bar < 6 && size.is_power_of_two() && size >= 16);
        let at = BAR0 + 4 * usize::from(bar);
        self.bytes[at] = u8::from(kind == BarKind::Io);
        // All bits above the size can be written: that is how software learns it.
        self.writable[at..at + 4].copy_from_slice(&(!(size - 1)).to_le_bytes());
        self.bars[usize::from(bar)] = size.into();
        self
    }

    /// Gives it interrupt pin A.
    #[must_use]
    pub fn with_pin(mut self) -> Self {
        self.bytes[INTERRUPT_PIN] = 1;
        self
    }

    /// Adds a capability whose body (behind id and pointer) is `body`, of which nothing can be written.
    #[must_use]
    pub fn with_capability(mut self, id: u8, body: &[u8]) -> Self {
        self.add(id, body);
        self
    }

    fn add(&mut self, id: u8, body: &[u8]) -> usize {
        let at = self.free;
        debug_assert!(at + 2 + body.len() <= 256);
        self.bytes[at] = id;
        self.bytes[at + 2..at + 2 + body.len()].copy_from_slice(body);
        self.bytes[self.last_pointer] = at as u8;
        self.last_pointer = at + 1;
        self.free = (at + 2 + body.len()).next_multiple_of(4);
        self.put16(STATUS, self.get16(STATUS) | STATUS_CAPABILITIES);
        at
    }

    /// Adds the PCI Express capability of an endpoint that can be reset alone: the way by which clients ask
    /// for a function-level reset. A chip that is a conventional one otherwise loses nothing by it.
    #[must_use]
    pub fn with_express(mut self) -> Self {
        let mut body = [0; EXPRESS_LENGTH - 2];
        body[0] = 0x02; // version 2, endpoint
        let at = self.add(CAP_EXPRESS, &body);
        let capabilities = DEVICE_CAPABILITIES_FLR | 1 << 15; // role-based error reporting
        self.bytes[at + DEVICE_CAPABILITIES..at + DEVICE_CAPABILITIES + 4]
            .copy_from_slice(&capabilities.to_le_bytes());
        // Of Device Control all but the bit that resets is kept.
        self.writable[at + DEVICE_CONTROL..at + DEVICE_CONTROL + 2].copy_from_slice(&0x7fffu16.to_le_bytes());
        // Link: 2.5 GT/s, one lane.
        self.bytes[at + 0x0c] = 0x11;
        self.bytes[at + 0x12] = 0x11;
        self.express = Some(at);
        self
    }

    /// Adds MSI-X, with its table at the start of `bar` and its pending bits at `pending`.
    #[must_use]
    pub fn with_msix(mut self, vectors: u16, bar: u8, pending: u32) -> Self {
        let mut body = [0; 10];
        body[..2].copy_from_slice(&(vectors - 1).to_le_bytes());
        body[2..6].copy_from_slice(&u32::from(bar).to_le_bytes());
        body[6..10].copy_from_slice(&(pending | u32::from(bar)).to_le_bytes());
        let at = self.add(CAP_MSIX, &body);
        self.writable[at + 2..at + 4].copy_from_slice(&MSIX_WRITABLE.to_le_bytes());
        self.msix = Some(at);
        self
    }

    /// Bytes of a BAR; 0 when there is none.
    pub fn bar(&self, bar: u8) -> u64 {
        self.bars.get(usize::from(bar)).copied().unwrap_or(0)
    }

    /// Whether the function may master the bus.
    pub fn bus_master(&self) -> bool {
        self.get16(COMMAND) & COMMAND_BUS_MASTER != 0
    }

    /// Whether the function asks for an interrupt by its pin, whatever the command register says of it: software
    /// that shares the line with others, or that masks it here, looks at this.
    pub fn interrupt(&self) -> bool {
        self.get16(STATUS) & STATUS_INTERRUPT != 0
    }

    /// The function asks for an interrupt by its pin, or does no more.
    pub fn set_interrupt(&mut self, asserted: bool) {
        let others = self.get16(STATUS) & !STATUS_INTERRUPT;
        self.put16(STATUS, if asserted { others | STATUS_INTERRUPT } else { others });
    }

    /// Whether the pin is held down by the command register.
    pub fn pin_disabled(&self) -> bool {
        self.get16(COMMAND) & COMMAND_INTX_DISABLE != 0
    }

    /// Whether MSI-X is enabled.
    pub fn msix_enabled(&self) -> bool {
        self.msix.is_some_and(|at| self.get16(at + 2) & MSIX_ENABLE != 0)
    }

    /// Reads; what lies beyond the end reads all-ones, as an access that nobody answers.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (n, byte) in into.iter_mut().enumerate() {
            let at = offset.checked_add(n as u64).and_then(|at| usize::try_from(at).ok());
            *byte = at.and_then(|at| self.bytes.get(at)).copied().unwrap_or(0xff);
        }
    }

    /// Writes what can be written, and answers what else the write asks for.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Effects {
        let mut effects = Effects::default();
        let flr_byte = self.express.map(|at| at + DEVICE_CONTROL + 1);
        for (n, byte) in from.iter().enumerate() {
            let at = offset.checked_add(n as u64).and_then(|at| usize::try_from(at).ok());
            let Some(at) = at.filter(|at| *at < SIZE) else { break };
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            if flr_byte == Some(at) && byte & (DEVICE_CONTROL_FLR >> 8) as u8 != 0 {
                effects.reset = true;
            }
        }
        effects
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let identity = Identity { ids: (0x8086, 0x100e), subsystem: (1, 2), revision: 3, class: [2, 0, 0] };
        Config::new(identity)
            .with_bar(0, BarKind::Memory, 0x2_0000)
            .with_bar(1, BarKind::Io, 64)
            .with_pin()
            .with_express()
            .with_msix(3, 2, 0x800)
    }

    fn read32(config: &Config, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        config.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn sizes_of_bars_are_found_by_writing_ones() {
        let mut config = config();
        for (bar, sized) in [(0x10, 0xfffe_0000), (0x14, 0xffff_ffc1), (0x18, 0)] {
            config.write(bar, &[0xff; 4]);
            assert_eq!(read32(&config, bar), sized);
        }
        config.write(0, &[0; 64]);
        assert_eq!(read32(&config, 0), 0x100e_8086);
    }

    #[test]
    fn the_list_of_capabilities_ends() {
        let config = config();
        assert_eq!(read32(&config, 4) >> 20 & 1, 1);
        let express = read32(&config, 0x34) as u8;
        assert_eq!(express, 0x40);
        let head = read32(&config, express.into());
        assert_eq!((head as u8, (head >> 8) as u8), (0x10, 0x7c));
        let head = read32(&config, 0x7c);
        assert_eq!((head as u8, (head >> 8) as u8, head >> 16), (0x11, 0, 2));
    }

    #[test]
    fn a_reset_is_asked_for_by_device_control() {
        let mut config = config();
        assert!(!config.write(0x48, &[0xff, 0x7f]).reset);
        assert!(config.write(0x48, &[0, 0x80]).reset);
        assert!(config.write(0x49, &[0x80]).reset);
        assert_eq!(read32(&config, 0x48) & 0x8000, 0);
        assert!(!config.bus_master() && !config.msix_enabled());
        config.write(4, &[4]);
        config.write(0x7e, &[0, 0x80]);
        assert!(config.bus_master() && config.msix_enabled());
    }

    #[test]
    fn nothing_answers_beyond_the_end() {
        let mut config = config();
        assert_eq!(read32(&config, 4094) >> 16, 0xffff);
        assert_eq!(read32(&config, u64::MAX), u32::MAX);
        config.write(u64::MAX, &[1, 2, 3]);
        config.write(4095, &[1, 2, 3]);
    }
}
