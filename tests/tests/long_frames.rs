//! Frames that one end sends and the other does not take: they are dropped and counted, and those behind them arrive.

use std::sync::Arc;

use uvia_driver::dma::{DmaMemory, Rights};
use uvia_driver::nic::{self, MacAddress, Nic, NicConfig, TxFrame};
use uvia_driver::pci::PciDevice;
use uvia_models::faults::Plan;
use uvia_models::inprocess::ModelDomain;
use uvia_models::machine::{Kind, Machine};

const SENDER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const RECEIVER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

struct Pair {
    machine: Arc<Machine>,
    sender: Box<dyn Nic>,
    receiver: Box<dyn Nic>,
    memory: DmaMemory,
}

/// A sender of the longest frames, and a receiver that was asked for no more than `max_frame`, or told of an MTU.
fn pair(kinds: [Kind; 2], max_frame: Option<usize>, mtu: Option<u16>) -> Pair {
    let mut machine = Machine::virtual_time(1, Plan::default());
    machine.add(kinds[0], SENDER).unwrap();
    machine.add_model(kinds[1].build(RECEIVER, mtu).unwrap());
    let machine = Arc::new(machine);
    let domain = ModelDomain::new(machine.clone());
    let open = |n: usize, max_frame| {
        let device: Arc<dyn PciDevice> = domain.open_model(machine.nics()[n].name()).unwrap();
        let packed_rings = kinds[n] == Kind::VirtioPacked;
        nic::open(device, &NicConfig { max_frame, packed_rings, ..NicConfig::default() }).unwrap()
    };
    let (sender, receiver) = (open(0, None), open(1, max_frame));
    let memory = DmaMemory::allocate(domain.clone(), 8192, Rights::READ).unwrap();
    Pair { machine, sender, receiver, memory }
}

impl Pair {
    /// Sends a frame of `len` bytes; answers what the receiver shows for it.
    fn send(&mut self, len: usize, tagged: bool) -> Vec<Vec<u8>> {
        let mut bytes: Vec<u8> = (0..len).map(|n| (n * 31 + len) as u8).collect();
        bytes[..6].copy_from_slice(&RECEIVER.0);
        bytes[6..12].copy_from_slice(&SENDER.0);
        let ethertype = if tagged { [0x81, 0x00] } else { [0x88, 0xb6] };
        bytes[12..14].copy_from_slice(&ethertype);
        self.memory.write_bytes(0, &bytes);
        let segments = [self.memory.segment(0..len).unwrap()];
        assert!(self.sender.transmit(&TxFrame { segments: &segments, token: 1 }).unwrap());
        self.sender.flush().unwrap();
        self.machine.run(1000);
        assert_eq!(self.sender.reclaim(&mut |_| ()).unwrap(), 1);
        let mut frames = Vec::new();
        let show = &mut |frame: nic::RxFrame<'_>| {
            let mut copy = vec![0; frame.len()];
            assert!(frame.read(0, &mut copy));
            assert!(copy == bytes, "a frame of {} bytes came where {len} were sent", frame.len());
            frames.push(copy);
        };
        self.receiver.receive(64, show).unwrap();
        frames
    }
}

#[test]
fn what_is_too_long_is_dropped_and_counted_and_the_next_one_arrives() {
    for sender in [Kind::E1000, Kind::Virtio] {
        for receiver in Kind::ALL {
            for longest in [1514, 2000, 2044, 2045, 4000, 8187] {
                let mut pair = pair([sender, *receiver], Some(longest), None);
                assert_eq!(pair.receiver.properties().max_frame, longest);
                let what = format!("{sender:?} to {receiver:?}, {longest}");
                let mut errors = 0;
                for len in
                    [longest + 1, longest + 4, longest + 5, 4200, 8188].into_iter().filter(|n| *n <= 8188)
                {
                    if len > longest {
                        assert!(pair.send(len, false).is_empty(), "{what}: {len} bytes came");
                        errors += 1;
                    }
                    assert_eq!(
                        pair.send(longest, false).len(),
                        1,
                        "{what}: the next one is lost after {len}"
                    );
                    assert_eq!(pair.send(60, false).len(), 1, "{what}: a short one is lost after {len}");
                }
                // A tag comes on top.
                if longest + 4 <= 8188 {
                    assert_eq!(pair.send(longest + 4, true).len(), 1, "{what}: a tagged one");
                }
                let counted = pair.receiver.statistics();
                // What a virtio device has no buffer for it drops itself, and nobody counts it: the longest, at any rate.
                let seen = counted.rx_errors;
                let right = match receiver {
                    Kind::E1000 => seen == errors,
                    _ if longest <= 4000 => 0 < seen && seen < errors,
                    _ => 0 < seen && seen <= errors,
                };
                assert!(right, "{what}: {seen} of {errors}");
                assert_eq!(counted.rx_missed, 0, "{what}");
            }
        }
    }
}

#[test]
fn a_virtio_device_that_knows_its_network_passes_on_no_more() {
    for receiver in [Kind::Virtio, Kind::VirtioPacked] {
        for mtu in [1500, 4000] {
            let mut pair = pair([Kind::E1000, receiver], None, Some(mtu));
            let properties = pair.receiver.properties().clone();
            let longest = usize::from(mtu) + 14;
            assert_eq!((properties.mtu, properties.max_frame), (mtu.into(), longest));
            assert!(pair.send(longest + 1, false).is_empty());
            assert!(pair.send(8188, false).is_empty());
            assert_eq!(pair.send(longest, false).len(), 1);
            assert_eq!(pair.send(longest + 4, true).len(), 1);
            // The device itself dropped them.
            assert_eq!(pair.receiver.statistics().rx_errors, 0);
        }
    }
}
