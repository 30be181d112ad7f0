//! The PHY behind MDIC (8254x manual, 13.4.6 and 11): an M88E1011 whose negotiation ends at once, at
//! 1000 Mb/s full duplex with flow control.

/// MDIC.
const OP_WRITE: u32 = 1;
const OP_READ: u32 = 2;
const READY: u32 = 1 << 28;
const INTERRUPT: u32 = 1 << 29;
const ERROR: u32 = 1 << 30;

/// The one address that answers.
const ADDRESS: u32 = 1;

/// Registers by their numbers.
const PCTRL: usize = 0;
const PSTATUS: usize = 1;
const PID1: usize = 2;
const PID2: usize = 3;
const ANA: usize = 4;
const ANLPA: usize = 5;
const ANE: usize = 6;
const GCON: usize = 9;
const GSTATUS: usize = 10;
const EXTENDED_STATUS: usize = 15;
const PSCON: usize = 16;
const PSSTAT: usize = 17;

const PCTRL_RESET: u16 = 1 << 15;
const PCTRL_RESTART: u16 = 1 << 9;
/// Autonegotiation on, full duplex, 1000 Mb/s.
const PCTRL_DEFAULT: u16 = 0x1140;
/// Autonegotiation complete and link, in PSTATUS.
const NEGOTIATED: u16 = 1 << 5;
const LINK: u16 = 1 << 2;
/// 1000 Mb/s, full duplex, resolved, link, in PSSTAT.
const PSSTAT_LINK: u16 = 0x8000 | 0x2000 | 0x0800 | 0x0400;
/// The partner does 1000BASE-T full duplex, and both receivers are fine, in GSTATUS.
const GSTATUS_LINK: u16 = 0x3800;
/// The partner does everything, in ANLPA.
const ANLPA_LINK: u16 = 0x45e1;

/// The PHY.
#[derive(Debug)]
pub struct Phy {
    registers: [u16; 32],
    mdic: u32,
}

impl Phy {
    /// After power-on.
    pub fn new() -> Self {
        let mut phy = Self { registers: [0; 32], mdic: READY };
        phy.reset();
        phy
    }

    fn reset(&mut self) {
        self.registers = [0; 32];
        self.registers[PCTRL] = PCTRL_DEFAULT;
        self.registers[PID1] = 0x0141;
        self.registers[PID2] = 0x0c20;
        self.registers[ANA] = 0x0de1;
        self.registers[GCON] = 0x0e00;
        self.registers[PSCON] = 0x0360;
        self.registers[EXTENDED_STATUS] = 0x3000;
    }

    /// Reads MDIC.
    pub fn mdic(&self) -> u32 {
        self.mdic
    }

    /// Writes MDIC, which is done at once; answers whether an interrupt was asked for.
    pub fn set_mdic(&mut self, value: u32, link: bool) -> bool {
        let register = (value >> 16 & 0x1f) as usize;
        let kept = value & !(READY | ERROR);
        self.mdic = match (value >> 26 & 3, value >> 21 & 0x1f) {
            (OP_READ, ADDRESS) => kept & !0xffff | u32::from(self.read(register, link)) | READY,
            (OP_WRITE, ADDRESS) => {
                self.write(register, value as u16);
                kept | READY
            }
            // Nobody drives the data line.
            (OP_READ, _) => kept | 0xffff | READY | ERROR,
            _ => kept | READY | ERROR,
        };
        value & INTERRUPT != 0
    }

    fn read(&self, register: usize, link: bool) -> u16 {
        let when_up = |value| if link { value } else { 0 };
        match register {
            // What it can do; extended registers are there.
            PSTATUS => 0x7949 | when_up(NEGOTIATED | LINK),
            ANLPA => when_up(ANLPA_LINK),
            ANE => when_up(1),
            GSTATUS => when_up(GSTATUS_LINK),
            PSSTAT => when_up(PSSTAT_LINK),
            _ => self.registers[register],
        }
    }

    fn write(&mut self, register: usize, value: u16) {
        match register {
            PCTRL if value & PCTRL_RESET != 0 => self.reset(),
            PCTRL => self.registers[PCTRL] = value & !PCTRL_RESTART,
            PSTATUS | PID1 | PID2 | ANLPA | ANE | GSTATUS | EXTENDED_STATUS | PSSTAT => (),
            _ => self.registers[register] = value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(phy: &mut Phy, address: u32, register: u32, link: bool) -> u32 {
        phy.set_mdic(OP_READ << 26 | address << 21 | register << 16, link);
        phy.mdic()
    }

    #[test]
    fn it_is_a_marvell_and_says_whether_there_is_link() {
        let mut phy = Phy::new();
        assert_eq!(read(&mut phy, 1, 2, true) & 0xffff, 0x0141);
        assert_eq!(read(&mut phy, 1, 3, true) & 0xffff, 0x0c20);
        assert_eq!(read(&mut phy, 1, 1, true) & 4, 4);
        assert_eq!(read(&mut phy, 1, 1, false) & 4, 0);
        assert_ne!(read(&mut phy, 2, 1, true) & ERROR, 0);
        assert!(phy.set_mdic(OP_WRITE << 26 | 1 << 21 | 4 << 16 | 0x1234 | INTERRUPT, true));
        assert_eq!(read(&mut phy, 1, 4, true) & 0xffff, 0x1234);
        phy.set_mdic(OP_WRITE << 26 | 1 << 21 | 0x8000, true);
        assert_eq!(read(&mut phy, 1, 4, true) & 0xffff, 0x0de1);
    }
}
