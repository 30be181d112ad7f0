//! Which frames are received (8254x manual, 3.2.1 and 13.5).

use super::regs::{self, Rctl};

/// What the VLAN ethertype of a tagged frame is.
const TAG_OFFSET: usize = 12;

/// Whether a frame passes; `register` reads a register.
pub fn accepts(frame: &[u8], rctl: Rctl, register: impl Fn(usize) -> u32) -> bool {
    let Some(&destination) = frame.first_chunk::<6>() else { return false };
    address_passes(destination, rctl, &register) && vlan_passes(frame, rctl, &register)
}

fn address_passes(destination: [u8; 6], rctl: Rctl, register: &impl Fn(usize) -> u32) -> bool {
    let multicast = destination[0] & 1 != 0;
    if destination == [0xff; 6] && rctl.contains(Rctl::BAM) {
        return true;
    }
    if if multicast { rctl.contains(Rctl::MPE) } else { rctl.contains(Rctl::UPE) } {
        return true;
    }
    let [a, b, c, d, e, f] = destination;
    let (low, high) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0]));
    let exact = (0..16).any(|n| {
        let rah = register(regs::RAH + 8 * n);
        rah & regs::RAH_AV != 0
            && rah & regs::RAH_ASEL == 0
            && rah & 0xffff == high
            && register(regs::RAL + 8 * n) == low
    });
    if exact {
        return true;
    }
    if !multicast {
        return false;
    }
    // MO: which 12 of the last 16 bits number a bit of the table.
    let shift = [4, 3, 2, 0][(rctl.bits() >> 12 & 3) as usize];
    let hash = (u16::from_le_bytes([e, f]) >> shift & 0xfff) as usize;
    register(regs::MTA + 4 * (hash >> 5)) >> (hash & 31) & 1 != 0
}

fn vlan_passes(frame: &[u8], rctl: Rctl, register: &impl Fn(usize) -> u32) -> bool {
    match tag(frame, register(regs::VET)) {
        Some(tag) if rctl.contains(Rctl::VFE) => {
            let id = usize::from(tag & 0xfff);
            register(regs::VFTA + 4 * (id >> 5)) >> (id & 31) & 1 != 0
        }
        _ => true,
    }
}

/// The VLAN tag of a frame with ethertype `vet`.
pub fn tag(frame: &[u8], vet: u32) -> Option<u16> {
    let bytes = frame.get(TAG_OFFSET..TAG_OFFSET + 4)?;
    (u32::from(u16::from_be_bytes([bytes[0], bytes[1]])) == vet & 0xffff)
        .then(|| u16::from_be_bytes([bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn addresses_by_table_by_hash_and_by_mode() {
        let ours = [0x52, 0x54, 0, 1, 2, 3];
        let group = [1, 0, 0x5e, 0, 0, 0xfb];
        let mut table =
            HashMap::from([(regs::RAL, 0x0100_5452), (regs::RAH, 0x8000_0302), (regs::VET, 0x8100)]);
        let accept = |table: &HashMap<usize, u32>, destination: [u8; 6], rctl| {
            let frame = [&destination[..], &[0; 54]].concat();
            accepts(&frame, rctl, |register| table.get(&register).copied().unwrap_or(0))
        };
        assert!(accept(&table, ours, Rctl::empty()));
        assert!(!accept(&table, [0x52, 0x54, 0, 1, 2, 4], Rctl::empty()));
        assert!(accept(&table, [0x52, 0x54, 0, 1, 2, 4], Rctl::UPE));
        assert!(!accept(&table, [0xff; 6], Rctl::UPE));
        assert!(accept(&table, [0xff; 6], Rctl::BAM));
        assert!(!accept(&table, group, Rctl::UPE));
        assert!(accept(&table, group, Rctl::MPE));
        table.insert(regs::MTA + 4 * (0xfb0 >> 5), 1 << (0xfb0 & 31));
        assert!(accept(&table, group, Rctl::empty()));
        assert!(!accepts(&[1, 2, 3], Rctl::UPE | Rctl::MPE, |_| 0));
    }

    #[test]
    fn tags_by_table() {
        let frame = [&[0xff; 12][..], &[0x81, 0, 0x20, 5], &[0; 46]].concat();
        let accept = |mode, bit: u32| {
            accepts(&frame, Rctl::BAM | mode, |register| match register {
                regs::VET => 0x8100,
                regs::VFTA => 1 << bit,
                _ => 0,
            })
        };
        assert!(accept(Rctl::empty(), 0) && accept(Rctl::VFE, 5) && !accept(Rctl::VFE, 6));
    }
}
