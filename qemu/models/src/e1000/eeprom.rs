//! The EEPROM (8254x manual, 5): 64 words, read by EERD or bit by bit through EECD, a Microwire part.

/// Words.
const WORDS: usize = 64;
/// All words, the checksum included, add up to this (5.6.35).
const CHECKSUM: u16 = 0xbaba;

/// EECD (13.4.3).
const SK: u32 = 1 << 0;
const CS: u32 = 1 << 1;
const DI: u32 = 1 << 2;
const DO: u32 = 1 << 3;
const FWE: u32 = 3 << 4;
const REQ: u32 = 1 << 6;
const GNT: u32 = 1 << 7;
const PRES: u32 = 1 << 8;

/// EERD (13.4.4).
const START: u32 = 1 << 0;
const DONE: u32 = 1 << 4;

/// A start bit and READ; then six bits of address.
const READ: u16 = 0b110;
const COMMAND_BITS: u8 = 9;

/// The part and its wires.
#[derive(Debug)]
pub struct Eeprom {
    words: [u16; WORDS],
    /// What software drives.
    pins: u32,
    eerd: u32,
    shift: Shift,
}

/// What the part is shifting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shift {
    /// A command in: its bits so far, and how many. Bits before the start bit do not count.
    In(u16, u8),
    /// Data out: what is left of the word, its next bit on top; the bit on the wire; and the word's address.
    Out { left: u16, bits: u8, wire: bool, address: u8 },
    /// A command that is not for reading: ignored until the part is deselected.
    Deaf,
}

impl Eeprom {
    /// What a board with this station address has in it.
    pub fn new(mac: [u8; 6], ids: (u16, u16), subsystem: (u16, u16)) -> Self {
        let mut words = [0; WORDS];
        for (word, pair) in words.iter_mut().zip(mac.chunks_exact(2)) {
            *word = u16::from_le_bytes([pair[0], pair[1]]);
        }
        words[0x05] = 0xffff; // version: none
        words[0x08] = 0xffff; // board number: none
        words[0x09] = 0xffff;
        words[0x0a] = 0x4408; // initialization control 1
        words[0x0b] = subsystem.1;
        words[0x0c] = subsystem.0;
        words[0x0d] = ids.1;
        words[0x0e] = ids.0;
        words[0x0f] = 0x3040; // initialization control 2
        let sum = words.iter().fold(0u16, |sum, word| sum.wrapping_add(*word));
        words[WORDS - 1] = CHECKSUM.wrapping_sub(sum);
        Self { words, pins: 0, eerd: 0, shift: Shift::In(0, 0) }
    }

    fn word(&self, address: u8) -> u16 {
        self.words[usize::from(address) % WORDS]
    }

    /// The station address.
    pub fn mac(&self) -> [u8; 6] {
        let [a, b, c] = [0, 1, 2].map(|n| self.words[n].to_le_bytes());
        [a[0], a[1], b[0], b[1], c[0], c[1]]
    }

    /// Reads EERD.
    pub fn eerd(&self) -> u32 {
        self.eerd
    }

    /// Writes EERD: a read is done at once.
    pub fn set_eerd(&mut self, value: u32) {
        self.eerd = if value & START != 0 {
            u32::from(self.word((value >> 8) as u8)) << 16 | value & 0xff00 | DONE
        } else {
            value & !(START | DONE)
        };
    }

    /// Reads EECD. Access is granted to whoever asks.
    pub fn eecd(&self) -> u32 {
        let granted = if self.pins & REQ != 0 { GNT } else { 0 };
        let out = match self.shift {
            Shift::Out { wire, .. } => wire,
            // The line is pulled up: "ready", to who waits for the end of a write.
            _ => true,
        };
        self.pins | PRES | granted | if out { DO } else { 0 }
    }

    /// Writes EECD: the part looks at its data line when the clock rises.
    pub fn set_eecd(&mut self, value: u32) {
        let before = self.pins;
        self.pins = value & (SK | CS | DI | FWE | REQ);
        if self.pins & CS == 0 || before & CS == 0 {
            self.shift = Shift::In(0, 0);
        }
        let rises = self.pins & SK != 0 && before & SK == 0;
        if self.pins & CS == 0 || !rises {
            return;
        }
        self.shift = match self.shift {
            Shift::In(0, _) if self.pins & DI == 0 => Shift::In(0, 0),
            Shift::In(bits, count) => {
                let bits = bits << 1 | u16::from(self.pins & DI != 0);
                if count + 1 < COMMAND_BITS {
                    Shift::In(bits, count + 1)
                } else if bits >> 6 == READ {
                    let address = bits as u8 & 0x3f;
                    // A 0 comes first.
                    Shift::Out { left: self.word(address), bits: 16, wire: false, address }
                } else {
                    Shift::Deaf
                }
            }
            Shift::Out { left, bits, address, .. } => {
                let (left, bits, address) = match bits {
                    // The next word follows without another command.
                    0 => (self.word(address + 1), 16, (address + 1) & 0x3f),
                    _ => (left, bits, address),
                };
                Shift::Out { left: left << 1, bits: bits - 1, wire: left & 0x8000 != 0, address }
            }
            Shift::Deaf => Shift::Deaf,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    /// As software does it: select, clock a command in, clock data out.
    fn bit_by_bit(eeprom: &mut Eeprom, address: u16) -> u16 {
        eeprom.set_eecd(REQ);
        assert_ne!(eeprom.eecd() & GNT, 0);
        eeprom.set_eecd(REQ | CS);
        let command = READ << 6 | address;
        for n in (0..9).rev() {
            let data = if command >> n & 1 != 0 { DI } else { 0 };
            for clock in [0, SK, 0] {
                eeprom.set_eecd(REQ | CS | data | clock);
            }
        }
        let mut word = 0;
        for _ in 0..16 {
            eeprom.set_eecd(REQ | CS | SK);
            word = word << 1 | u16::from(eeprom.eecd() & DO != 0);
            eeprom.set_eecd(REQ | CS);
        }
        eeprom.set_eecd(0);
        assert_eq!(eeprom.eecd() & GNT, 0);
        word
    }

    #[test]
    fn both_ways_read_the_same_and_it_adds_up() {
        let mut eeprom = Eeprom::new(MAC, (0x8086, 0x100e), (1, 2));
        assert_eq!(eeprom.mac(), MAC);
        let mut sum = 0u16;
        for address in 0..64 {
            let word = bit_by_bit(&mut eeprom, address);
            eeprom.set_eerd(START | u32::from(address) << 8);
            assert_eq!(eeprom.eerd(), u32::from(word) << 16 | u32::from(address) << 8 | DONE);
            sum = sum.wrapping_add(word);
        }
        assert_eq!(sum, CHECKSUM);
        assert_eq!(bit_by_bit(&mut eeprom, 0), 0x5452);
    }

    #[test]
    fn any_sequence_of_pins_is_survived() {
        let mut eeprom = Eeprom::new(MAC, (0, 0), (0, 0));
        let mut random = crate::random::Random::new(1);
        for _ in 0..100_000 {
            eeprom.set_eecd(random.next() as u32);
            eeprom.set_eerd(random.next() as u32);
            eeprom.eecd();
        }
    }
}
