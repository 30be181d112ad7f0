//! The driver against the modelled chip: what is special to it. What every NIC does is in the conformance suite.

use std::sync::Arc;

use super::descriptor::{DD, EOP, RxWord, TxWord, WORD};
use super::model::Chip;
use super::regs::Rctl;
use super::*;
use crate::Error;
use crate::dma::Rights;
use crate::nic::testing::{
    Model, Modelled, Payload, adapter_memory, carries_its_longest, put, received, reclaimed, send_bursts,
};

type Device = Arc<Modelled<Chip>>;

fn bring_up(tx_ring: usize, rx_ring: usize) -> (Device, Box<dyn Nic>, Payload) {
    bring_up_with(NicConfig { tx_ring, rx_ring, ..NicConfig::default() })
}

fn bring_up_with(config: NicConfig) -> (Device, Box<dyn Nic>, Payload) {
    let device = Modelled::new(Chip::new());
    let nic = crate::nic::open(device.clone(), &config).unwrap();
    let payload = Payload::new(device.domain().clone());
    (device, nic, payload)
}

fn deliver(device: &Device, frame: &[u8]) {
    device.with(|chip, bus| chip.deliver(bus, frame.to_vec()));
}

fn fault(outcome: Result<impl std::fmt::Debug>) -> DeviceFault {
    match outcome {
        Err(Error::Device { fault, .. }) => fault,
        other => panic!("no device fault but {other:?}"),
    }
}

#[test]
fn says_what_it_is() {
    let (_device, mut nic, _) = bring_up(100, 4);
    let p = nic.properties().clone();
    assert_eq!((p.driver, p.mtu, p.max_frame), ("e1000", 1500, 8188));
    assert_eq!(p.mac.to_string(), "52:54:00:12:34:56");
    assert_eq!((p.tx_slots, p.rx_slots, p.max_segments), (103, 7, 16));
    assert_eq!(nic.link().unwrap(), Link { up: true, speed: Some(1000), full_duplex: Some(true) });
}

#[test]
fn ready_once_a_frame_came_or_the_deaf_second_is_over() {
    let (device, mut nic, _) = bring_up(8, 8);
    assert!(!nic.ready().unwrap());
    deliver(&device, &[1; 60]);
    assert_eq!(received(&mut *nic, 9).len(), 1);
    assert!(nic.ready().unwrap());
    nic.set_filter(RxFilter { promiscuous: true, all_multicast: false }).unwrap();
    assert!(!nic.ready().unwrap());
    let rctl = Rctl::from_bits_truncate(device.with(|chip, _| chip.get(regs::RCTL)));
    assert!(rctl.contains(Rctl::UPE | Rctl::MPE | Rctl::EN));
    nic.wait_ready(Duration::from_secs(3)).unwrap();
}

#[test]
fn only_the_receiver_of_qemu_is_waited_for() {
    let mut chip = Chip::new();
    chip.subsystem = [0x86, 0x80, 0x1e, 0x00];
    let mut nic = open(Modelled::new(chip), &NicConfig::default()).unwrap();
    assert!(nic.ready().unwrap());
    nic.set_filter(RxFilter { promiscuous: true, all_multicast: false }).unwrap();
    assert!(nic.ready().unwrap());
}

#[test]
fn receive_control_is_written_once_beside_the_stop() {
    let (device, _nic, _) = bring_up(8, 8);
    assert_eq!(device.with(|chip, _| chip.written(regs::RCTL)), 2);
}

#[test]
fn the_eeprom_is_asked_when_no_address_was_loaded() {
    let device = Modelled::new(Chip::new());
    device.with(|chip, _| chip.set(regs::RAH, 0));
    let nic = open(device.clone(), &NicConfig::default()).unwrap();
    assert_eq!(nic.properties().mac.to_string(), "52:54:00:12:34:56");
    drop(nic);
    device.with(|chip, _| {
        chip.set(regs::RAH, 0);
        chip.eeprom = [0xffff; 3];
    });
    assert!(matches!(fault(open(device, &NicConfig::default()).map(|_| ())), DeviceFault::Layout(_)));
}

#[test]
fn a_full_ring_says_so_and_still_drains_without_a_flush() {
    let (device, mut nic, payload) = bring_up(16, 8);
    device.with(|chip, _| chip.stalled = true);
    let taken = (0..40).take_while(|n| put(&mut *nic, &payload, *n, 60, 1).is_some()).count();
    assert_eq!(taken, 15);
    assert!(reclaimed(&mut *nic).is_empty());
    device.with(|chip, bus| {
        chip.stalled = false;
        chip.transmit(bus);
    });
    assert_eq!(reclaimed(&mut *nic), (0..15).collect::<Vec<_>>());
}

#[test]
fn a_burst_costs_one_doorbell_and_one_report() {
    let (device, mut nic, payload) = bring_up(256, 256);
    for burst in 0..10 {
        for n in 0..32 {
            put(&mut *nic, &payload, burst * 32 + n, 64, 1).unwrap();
        }
        nic.flush().unwrap();
        nic.flush().unwrap();
        assert_eq!(reclaimed(&mut *nic).len(), 32);
    }
    let (doorbells, reports) = device.with(|chip, _| (chip.written(regs::TDT) - 1, chip.reports));
    assert_eq!((doorbells, reports), (10, 10));
    for n in 0..320u32 {
        deliver(&device, &[n as u8; 64]);
        assert_eq!(received(&mut *nic, 1).len(), 1);
    }
    assert_eq!(device.with(|chip, _| chip.written(regs::RDT)) - 1, 10);
    assert_eq!(nic.statistics().doorbells, 20);
}

#[test]
fn a_trickle_never_starves() {
    for ring in [8, 16, 256] {
        let (device, mut nic, _) = bring_up(8, ring);
        for _ in 0..5 * ring {
            deliver(&device, &[3; 100]);
            assert!(device.with(|chip, _| chip.wire.waiting.is_empty()));
            assert_eq!(received(&mut *nic, 8).len(), 1);
        }
    }
}

#[test]
fn tokens_come_back_once_also_after_a_reset() {
    let (device, mut nic, payload) = bring_up(32, 32);
    put(&mut *nic, &payload, 1, 60, 1).unwrap();
    nic.flush().unwrap();
    device.with(|chip, _| chip.stalled = true);
    put(&mut *nic, &payload, 2, 60, 3).unwrap();
    nic.flush().unwrap();
    put(&mut *nic, &payload, 3, 60, 2).unwrap();
    nic.reset().unwrap();
    let mut tokens = reclaimed(&mut *nic);
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2, 3]);
    assert!(reclaimed(&mut *nic).is_empty());
    // And it works again.
    device.with(|chip, _| chip.stalled = false);
    device.with(|chip, _| chip.wire.sent.clear());
    let bytes = put(&mut *nic, &payload, 4, 99, 2).unwrap();
    nic.flush().unwrap();
    assert_eq!(reclaimed(&mut *nic), [4]);
    assert!(device.with(|chip, _| chip.wire.sent.pop_front()).unwrap() == bytes);
    deliver(&device, &bytes);
    assert!(received(&mut *nic, 1) == [bytes]);
}

#[test]
fn frames_in_error_are_dropped_and_counted() {
    let (device, mut nic, _) = bring_up(8, 16);
    let broken = RxWord { length: 60.into(), status: DD | EOP, errors: 1, ..RxWord::default() };
    device.with(|chip, _| chip.lie = Some(broken));
    deliver(&device, &[0; 60]);
    device.with(|chip, _| chip.lie = None);
    // Longer than a buffer: of two descriptors, with little and with much in the second.
    deliver(&device, &[1; 8193]);
    deliver(&device, &[2; 16380]);
    // Beyond what the chip takes.
    deliver(&device, &[2; 16381]);
    deliver(&device, &[3; 77]);
    assert!(received(&mut *nic, 16) == [vec![3; 77]]);
    device.with(|chip, _| chip.set(regs::MPC, 5));
    assert_eq!((nic.statistics().rx_errors, nic.statistics().rx_missed), (4, 5));
}

#[test]
fn a_frame_of_several_small_buffers_is_dropped_whole() {
    let config = NicConfig { rx_ring: 16, max_frame: Some(2000), ..NicConfig::default() };
    let (device, mut nic, _) = bring_up_with(config);
    // Of two and of four descriptors.
    deliver(&device, &[1; 3000]);
    deliver(&device, &[2; 7000]);
    deliver(&device, &[3; 77]);
    assert!(received(&mut *nic, 16) == [vec![3; 77]]);
    assert_eq!(nic.statistics().rx_errors, 2);
}

#[test]
fn the_longest_frame_and_no_longer_one() {
    // The limit, what RCTL has of it, and the buffers' bytes.
    let (small, large) =
        (Rctl::LPE | Rctl::BSEX | Rctl::BSIZE_4096, Rctl::LPE | Rctl::BSEX | Rctl::BSIZE_8192);
    for (max_frame, longest, rctl) in [
        (None, 8188, large),
        (Some(8188), 8188, large),
        (Some(4093), 4093, large),
        (Some(4092), 4092, small),
        (Some(2045), 2045, small),
        (Some(2044), 2044, Rctl::LPE),
        (Some(1515), 1515, Rctl::LPE),
        (Some(1514), 1514, Rctl::empty()),
    ] {
        let (device, mut nic, payload) = bring_up_with(NicConfig { max_frame, ..NicConfig::default() });
        assert_eq!(nic.properties().max_frame, longest);
        let set = Rctl::from_bits_truncate(device.with(|chip, _| chip.get(regs::RCTL)));
        assert_eq!(set, rctl | Rctl::EN | Rctl::BAM | Rctl::SECRC);
        let sent = || device.with(|chip, _| chip.wire.sent.pop_front());
        carries_its_longest(&mut *nic, &payload, longest, sent, |frame| deliver(&device, frame));
    }
}

#[test]
fn the_packet_buffer_is_divided_as_at_power_on() {
    let device = Modelled::new(Chip::new());
    // As Linux leaves it for frames beyond 8 KiB.
    device.with(|chip, _| chip.set(regs::PBA, 40));
    let _nic = open(device.clone(), &NicConfig::default()).unwrap();
    // It counts from a reset on.
    assert_eq!(device.with(|chip, _| (chip.get(regs::PBA), chip.allocated)), (48, 48));
}

#[test]
fn a_limit_out_of_bounds_is_refused() {
    let config = NicConfig { max_frame: Some(8189), ..NicConfig::default() };
    let refused = crate::nic::open(Modelled::new(Chip::new()), &config).map(|_| ());
    assert!(
        matches!(&refused, Err(Error::Argument { what }) if what.contains("1514 to 8188")),
        "{refused:?}"
    );
}

#[test]
fn an_impossible_length_is_a_fault_until_reset() {
    for length in [0, 8193, 0xffff] {
        let (device, mut nic, payload) = bring_up(8, 8);
        let word = RxWord { length: length.into(), status: DD | EOP, ..RxWord::default() };
        device.with(|chip, _| chip.lie = Some(word));
        deliver(&device, &[0; 60]);
        let found = fault(nic.receive(1, &mut |_| panic!("given a frame")));
        assert!(found.to_string().contains(&format!("length of {length},")), "{found}");
        // Nothing more is done with it.
        let (segments, _) = payload.frame(0, 60, 1);
        let frame = TxFrame { segments: &segments, token: 1 };
        assert_eq!(fault(nic.transmit(&frame)), found);
        assert_eq!(fault(nic.reclaim(&mut |_| ())), found);
        assert_eq!(fault(nic.flush()), found);
        assert_eq!(fault(nic.arm(true)), found);
        assert_eq!(fault(nic.ready()), found);
        device.with(|chip, _| chip.lie = None);
        nic.reset().unwrap();
        deliver(&device, &[9; 60]);
        assert!(received(&mut *nic, 1) == [vec![9; 60]]);
    }
}

#[test]
fn a_report_on_what_was_not_sent_is_a_fault() {
    let done = TxWord { status: DD, ..TxWord::default() }.to_memory().to_ne_bytes();
    // On an empty ring, and on a frame that the device was not told of.
    for told in [true, false] {
        let (device, mut nic, payload) = bring_up(8, 8);
        if !told {
            for n in 0..2 {
                put(&mut *nic, &payload, n, 60, 1).unwrap();
            }
        }
        let n = if told { 0 } else { 1 };
        device.with(|chip, bus| bus.write(chip.descriptor(regs::TDBAL, n) + WORD as u64, &done));
        let found = fault(nic.reclaim(&mut |_| panic!("given a token")));
        assert!(found.to_string().contains(&format!("transmit descriptor {n},")), "{found}");
    }
}

#[test]
fn a_frame_in_a_descriptor_not_given_is_a_fault() {
    let (device, mut nic, _) = bring_up(8, 8);
    let word = RxWord { length: 60.into(), status: DD | EOP, ..RxWord::default() };
    let gap = device.with(|chip, _| chip.get(regs::RDT));
    device.with(|chip, bus| {
        bus.write(chip.descriptor(regs::RDBAL, gap) + WORD as u64, &word.to_memory().to_ne_bytes());
    });
    deliver(&device, &[0; 60]);
    deliver(&device, &[0; 60]);
    let found = fault(nic.receive(8, &mut |_| ()));
    assert!(found.to_string().contains("receive descriptor 7,"), "{found}");
}

#[test]
fn a_device_that_is_gone() {
    let (device, mut nic, _) = bring_up(8, 8);
    device.with(|chip, _| {
        chip.set(regs::MPC, 3);
        chip.gone = true;
    });
    assert_eq!(nic.statistics().rx_missed, 0);
    assert_eq!(fault(nic.link()), DeviceFault::Gone);
    assert_eq!(fault(nic.reset()), DeviceFault::Gone);
    assert_eq!(fault(nic.flush()), DeviceFault::Gone);
    device.with(|chip, _| chip.gone = false);
    nic.reset().unwrap();
    assert!(nic.link().unwrap().up);
    drop(nic);
    device.with(|chip, _| chip.gone = true);
    assert_eq!(fault(open(device, &NicConfig::default()).map(|_| ())), DeviceFault::Gone);
}

#[test]
fn closing_quiets_the_device_before_memory_goes() {
    let (device, nic, payload) = bring_up(8, 8);
    drop(nic);
    assert!(!device.bus.is_master());
    device.with(|chip, _| assert_eq!((chip.get(regs::RCTL), chip.get(regs::TCTL)), (0, 0)));
    drop(payload);
    assert!(device.bus.space.is_empty());
}

#[test]
fn a_chip_that_somebody_else_has_reset_is_found_out_by_a_look() {
    let (device, mut nic, _) = bring_up(8, 8);
    nic.look_after().unwrap();
    device.with(|chip, _| chip.reset());
    assert_eq!(fault(nic.look_after()), DeviceFault::WasReset);
    assert_eq!(fault(nic.receive(8, &mut |_| ())), DeviceFault::WasReset);
    nic.reset().unwrap();
    nic.look_after().unwrap();
    deliver(&device, &[1; 60]);
    assert_eq!(received(&mut *nic, 8).len(), 1);
}

/// The device writes its reports into the ring, in adapter memory: it may, there and in no slot.
#[test]
fn a_transmit_ring_in_adapter_memory_is_written_by_the_device() {
    let memory = adapter_memory();
    let config =
        NicConfig { tx_ring: 16, tx_ring_place: RingPlace::Adapter(memory.clone()), ..NicConfig::default() };
    let function = Modelled::new(Chip::new());
    let mut nic = crate::nic::open(function.clone(), &config).unwrap();
    assert_eq!(nic.properties().tx_ring_memory.as_deref(), Some("test"));
    let space = &function.bus.space;
    let window = memory.lease(function.domain().clone(), "model").unwrap();
    assert_eq!(space.rights_of(memory.last_window()), Some(Rights::READ | Rights::WRITE));
    assert_eq!(space.rights_of(memory.first_window()), Some(Rights::READ));
    let payload = Payload::new(function.domain().clone());
    let sent = || function.with(|chip, _| chip.wire.sent.pop_front());
    send_bursts(&mut *nic, &payload, 2000, sent);
    nic.reset().unwrap();
    send_bursts(&mut *nic, &payload, 20, sent);
    drop((nic, window));
    assert_eq!(space.rights_of(memory.last_window()), None);
    assert_eq!(memory.windows().left, memory.windows().windows);
}
