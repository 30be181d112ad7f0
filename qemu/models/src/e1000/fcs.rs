//! The Ethernet check sequence.

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut value = n as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 != 0 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[n] = value;
        n += 1;
    }
    table
};

/// The four bytes that follow a frame on the wire.
pub fn fcs(frame: &[u8]) -> [u8; 4] {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize];
    (!frame.iter().fold(!0, step)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_known_value() {
        assert_eq!(super::fcs(b"123456789"), 0xcbf4_3926u32.to_le_bytes());
    }
}
