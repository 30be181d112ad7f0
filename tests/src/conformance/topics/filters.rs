//! Which frames are received.

use uvia_driver::Error;
use uvia_driver::nic::{MacAddress, RxFilter};

use super::super::{Bench, PATIENCE, Pair};

/// Frames to other stations come in promiscuous mode only, those to groups with all-multicast too, and those to us and
/// to all always.
pub fn frames_for_others_come_only_when_asked_for(bench: &dyn Bench) {
    let mut pair = Pair::usual(bench);
    let other = MacAddress([0x52, 0x54, 0, 0xff, 0xff, 0xfe]);
    let group = MacAddress([0x33, 0x33, 0, 0, 0, 0x77]);
    let none = RxFilter::default();
    let all = RxFilter { promiscuous: true, ..none };
    let groups = RxFilter { all_multicast: true, ..none };
    for backwards in [false, true] {
        let own = if backwards { pair.a.mac() } else { pair.b.mac() };
        let mut near = own;
        // Not by a low bit: the stations of a bench differ in those, and a switch keeps back what is for its sender.
        near.0[5] ^= 0x80;
        assert!(near != pair.a.mac() && near != pair.b.mac(), "a third station");
        for filter in [none, all, none, groups, RxFilter { promiscuous: true, all_multicast: true }, none] {
            let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
            if let Err(e) = to.nic.set_filter(filter) {
                assert!(matches!(e, Error::Unsupported { .. }), "{e}");
                println!("{}: {e}", to.nic.properties().driver);
                break;
            }
            to.nic.wait_ready(PATIENCE).unwrap();
            let mut expected = Vec::new();
            for (station, comes) in [
                (other, filter.promiscuous),
                (own, true),
                (group, filter.promiscuous || filter.all_multicast),
                (MacAddress::BROADCAST, true),
                (near, filter.promiscuous),
                (own, true),
            ] {
                from.peer = station;
                let sent = from.send_one(80, 1);
                expected.extend(comes.then_some(sent));
            }
            from.peer = own;
            to.expect(&expected);
            from.settle();
        }
    }
    // A reset brings the filter back to what it was at the beginning.
    let own = pair.b.mac();
    pair.b.nic.set_filter(all).ok();
    pair.b.nic.reset().unwrap();
    pair.sync();
    pair.a.peer = other;
    pair.a.send_one(80, 1);
    pair.a.peer = own;
    let sent = pair.a.send_one(80, 1);
    pair.b.expect(&[sent]);
    pair.a.settle();
}
