//! Bring-up: what a NIC says of itself, when it is ready, and rings of any size.

use uvia_driver::nic::{NicConfig, NicStatistics};

use super::super::frame::{HEADER, SHORTEST};
use super::super::{Bench, PATIENCE, Pair};

/// Properties make sense, the link is up, counters are at zero, and frames go both ways as soon as it says so.
pub fn comes_up(bench: &dyn Bench) {
    let mut pair = Pair::open(bench, &NicConfig::default());
    for end in [&mut pair.a, &mut pair.b] {
        assert_eq!(end.nic.statistics().tx_frames, 0);
        let before = end.nic.properties().clone();
        end.nic.wait_ready(PATIENCE).unwrap();
        let link = end.nic.link().unwrap();
        assert!(link.up && end.nic.ready().unwrap());
        let p = end.nic.properties();
        println!("{p:?} {link:?}");
        assert_eq!(*p, before, "properties are constant");
        assert!(p.mac.is_unicast() && !p.device.is_empty() && !p.driver.is_empty());
        assert!(p.mtu >= SHORTEST - HEADER && p.max_frame >= p.mtu + HEADER);
        assert!(p.tx_slots >= 64 && p.rx_slots >= 64 && p.max_segments >= 4);
        assert!(end.nic.interrupt().is_some());
        assert_eq!(end.take(64), Vec::<Vec<u8>>::new(), "frames before anybody sent one");
        assert_eq!(end.reclaim(), 0);
        let counted = end.nic.statistics();
        let idle = NicStatistics { doorbells: counted.doorbells, ..NicStatistics::default() };
        assert_eq!(counted, idle, "counters count before there is anything");
    }
    assert_ne!(pair.a.mac(), pair.b.mac());
    // Ready means that the very next frame arrives.
    pair.exchange();
}

/// Whatever sizes are asked for: there is room for a frame at least, and it works.
pub fn takes_rings_of_any_size(bench: &dyn Bench) {
    let sizes: &[usize] = &[0, 1, 2, 3, 7, 9, 100, 255, 1000, 4096, usize::MAX];
    for size in &sizes[..bench.effort().of(sizes.len(), sizes.len(), 5)] {
        let config = NicConfig { tx_ring: *size, rx_ring: *size, interrupts: false, ..NicConfig::default() };
        let mut pair = Pair::ready(bench, &config);
        for end in [&pair.a, &pair.b] {
            let p = end.nic.properties();
            assert!(p.tx_slots >= 1 && p.rx_slots >= 1 && p.max_segments >= 1, "{size}: {p:?}");
            assert!(end.nic.interrupt().is_none(), "interrupts that were not asked for");
        }
        pair.exchange();
    }
}
