//! The driver against the modelled device: what is special to it. What every NIC does is in the conformance suite.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::model::Device;
use super::transport::Status;
use super::*;
use crate::dma::Rights;
use crate::nic::testing::{
    Modelled, Payload, adapter_memory, carries_its_longest, put, received, reclaimed, send_bursts, tagged,
};

type Function = Arc<Modelled<Device>>;

/// All that QEMU's device offers without the offloads.
fn all() -> Features {
    Features::NET_F_MAC
        | Features::NET_F_STATUS
        | Features::NET_F_MTU
        | Features::NET_F_CTRL_VQ
        | Features::NET_F_CTRL_RX
        | Features::RING_EVENT_IDX
        | Features::VERSION_1
        | Features::ACCESS_PLATFORM
        | Features::from_bits_retain(1 << 28 | 1 << 15 | 1)
}

/// As little as is enough.
fn least() -> Features {
    Features::VERSION_1 | Features::ACCESS_PLATFORM
}

fn bring_up_with(device: Device, tx_ring: usize, rx_ring: usize) -> (Function, Box<dyn Nic>, Payload) {
    bring_up_by(device, &NicConfig { tx_ring, rx_ring, ..NicConfig::default() })
}

fn bring_up_by(device: Device, config: &NicConfig) -> (Function, Box<dyn Nic>, Payload) {
    let function = Modelled::new(device);
    let nic = crate::nic::open(function.clone(), config).unwrap();
    let payload = Payload::new(function.domain().clone());
    (function, nic, payload)
}

fn bring_up(tx_ring: usize, rx_ring: usize) -> (Function, Box<dyn Nic>, Payload) {
    bring_up_with(Device::new(all()), tx_ring, rx_ring)
}

fn deliver(function: &Function, frame: &[u8]) {
    function.with(|device, bus| device.deliver(bus, frame.to_vec()));
}

fn fault(outcome: Result<impl std::fmt::Debug>) -> DeviceFault {
    match outcome {
        Err(Error::Device { fault, .. }) => fault,
        other => panic!("no device fault but {other:?}"),
    }
}

/// What opening the device comes to.
fn refusal(device: Device) -> String {
    match open(Modelled::new(device), &NicConfig::default()) {
        Ok(_) => panic!("it was opened"),
        Err(e) => e.to_string(),
    }
}

fn readable(nic: &dyn Nic) -> bool {
    let mut poll =
        libc::pollfd { fd: nic.interrupt().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor in a local, no waiting.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[test]
fn says_what_it_is() {
    let (function, mut nic, _) = bring_up(100, 100);
    let p = nic.properties().clone();
    assert_eq!((p.driver, p.mtu, p.max_frame), ("virtio", 1500, 1514));
    assert_eq!(p.mac.to_string(), "52:54:00:12:34:56");
    assert_eq!((p.tx_slots, p.rx_slots, p.max_segments), (128, 128, 16));
    assert_eq!(nic.link().unwrap(), Link { up: true, speed: None, full_duplex: None });
    function.with(|device, _| device.config[6] = 0);
    assert!(!nic.ready().unwrap());
    // What was agreed on: nothing that the driver does not do.
    let taken = function.with(|device, _| device.taken);
    assert_eq!(taken, all() - Features::from_bits_retain(1 << 28 | 1 << 15 | 1));
}

#[test]
fn a_device_with_the_least_features_works() {
    let (function, mut nic, payload) = bring_up_with(Device::new(least()), 8, 8);
    assert!(nic.properties().mac.is_unicast());
    assert!(nic.ready().unwrap());
    for n in 0..100 {
        let bytes = put(&mut *nic, &payload, n, 100, 3).unwrap();
        nic.flush().unwrap();
        assert_eq!(reclaimed(&mut *nic), [n]);
        assert!(function.with(|device, _| device.wire.sent.pop_front()).unwrap() == bytes);
        deliver(&function, &bytes);
        assert!(received(&mut *nic, 1) == [bytes]);
    }
    let unsupported = nic.set_filter(RxFilter { promiscuous: true, all_multicast: true });
    assert!(matches!(unsupported, Err(Error::Unsupported { .. })));
}

#[test]
fn what_is_not_offered_but_needed_is_named() {
    assert!(refusal(Device::new(Features::ACCESS_PLATFORM)).contains("VERSION_1"));
    assert!(refusal(Device::new(Features::VERSION_1)).contains("ACCESS_PLATFORM"));
    let mut refuses = Device::new(all());
    refuses.refuses = true;
    assert!(refusal(refuses).contains("refused the features"));
}

#[test]
fn structures_in_wrong_places_are_refused() {
    let with = |n: usize, capability: (u8, u8, u32, u32)| {
        let mut device = Device::new(all());
        device.capabilities[n] = capability;
        refusal(device)
    };
    assert!(with(0, (1, 4, 0xfff0, 0x38)).contains("lies beyond BAR 4"));
    assert!(with(0, (1, 4, 0xffff_fffc, 0xffff_ffff)).contains("lies beyond BAR 4"));
    assert!(with(0, (1, 4, 2, 0x38)).contains("not aligned"));
    assert!(with(0, (1, 4, 0, 0x20)).contains("has 32 bytes of 56"));
    assert!(with(0, (1, 6, 0, 0x38)).contains("no common configuration"));
    assert!(with(1, (7, 4, 0, 1)).contains("no interrupt status"));
    assert!(with(2, (4, 4, 0x2000, 6)).contains("network configuration has 6 bytes"));
    assert!(with(3, (2, 4, 0x3000, 2)).contains("notification address at offset 4"));
    let mut huge = Device::new(all());
    huge.multiplier = u32::MAX;
    assert!(refusal(huge).contains("notification address"));
}

#[test]
fn queues_of_impossible_sizes_are_refused() {
    for most in [0, 2, 48, 0xffff] {
        let mut device = Device::new(all());
        device.sized([256, most, 64]);
        assert!(refusal(device).contains(&format!("a queue size of {most},")));
    }
    let mut few = Device::new(all());
    few.queues.pop();
    assert!(refusal(few).contains("number of queues of 2"));
}

#[test]
fn a_large_mtu_gets_large_buffers() {
    let mut device = Device::new(all());
    device.config[10..].copy_from_slice(&9000u16.to_le_bytes());
    let (function, mut nic, _) = bring_up_with(device, 8, 8);
    assert_eq!(nic.properties().max_frame, 9014);
    deliver(&function, &[7; 9014]);
    assert!(received(&mut *nic, 1) == [vec![7; 9014]]);
    let mut device = Device::new(all());
    device.config[10..].copy_from_slice(&67u16.to_le_bytes());
    assert!(refusal(device).contains("an MTU of 67"));
}

#[test]
fn the_longest_frame_and_no_longer_one() {
    let mute = all() - Features::NET_F_MTU;
    // What the device tells, the limit wanted, and what it comes to.
    for (features, told, max_frame, longest) in [
        (mute, 0, None, 8188),
        (mute, 0, Some(8188), 8188),
        (mute, 0, Some(2096), 2096),
        (mute, 0, Some(1514), 1514),
        // The device knows its network, whatever is wanted.
        (all(), 1500, None, 1514),
        (all(), 1500, Some(8188), 1514),
        (all(), 4000, None, 4014),
        (all(), 4000, Some(1514), 4014),
        (all(), 9000, None, 9014),
    ] {
        let mut device = Device::new(features);
        device.config[10..].copy_from_slice(&u16::to_le_bytes(told));
        let (function, mut nic, payload) =
            bring_up_by(device, &NicConfig { max_frame, ..NicConfig::default() });
        let mtu = if features == mute { 1500 } else { usize::from(told) };
        assert_eq!((nic.properties().mtu, nic.properties().max_frame), (mtu, longest));
        let sent = || function.with(|device, _| device.wire.sent.pop_front());
        carries_its_longest(&mut *nic, &payload, longest, sent, |frame| deliver(&function, frame));
        // One that the device has cut to the buffer is dropped and counted too.
        deliver(&function, &tagged(20_000));
        assert!(received(&mut *nic, 16).is_empty());
        assert_eq!(nic.statistics().rx_errors, 3, "{longest}");
    }
}

/// More than 65,536 frames, so that all indices wrap; sent ones done with backwards.
#[test]
fn many_laps_of_odd_bursts_out_of_order() {
    for features in [all(), all() - Features::RING_EVENT_IDX] {
        let (function, mut nic, payload) = bring_up_with(Device::new(features), 16, 16);
        function.with(|device, _| device.backwards = true);
        let mut token = 0;
        for round in 0..20_000 {
            let mut expected = HashMap::new();
            for n in 0..1 + round % 7 {
                let parts = 1 + (round + n) % 3;
                let Some(bytes) = put(&mut *nic, &payload, token, 60 + n * 31, parts) else { break };
                expected.insert(token, bytes);
                token += 1;
            }
            nic.flush().unwrap();
            let done = reclaimed(&mut *nic);
            assert_eq!(done.len(), expected.len());
            assert!(done.is_sorted_by(|a, b| a > b), "the model did them backwards");
            for token in done.into_iter().rev() {
                let bytes = expected.remove(&token).unwrap();
                let sent = function.with(|device, _| device.wire.sent.pop_front()).unwrap();
                assert!(sent == bytes);
                deliver(&function, &sent);
            }
            received(&mut *nic, 64);
        }
        assert!(token > 70_000);
        let statistics = nic.statistics();
        assert_eq!((statistics.tx_frames, statistics.rx_frames), (token, token));
    }
}

#[test]
fn a_full_queue_says_so_and_still_drains_without_a_flush() {
    let (function, mut nic, payload) = bring_up(16, 8);
    function.with(|device, _| device.stalled = true);
    let taken = (0..40).take_while(|n| put(&mut *nic, &payload, *n, 60, 1).is_some()).count();
    assert_eq!(taken, 16);
    assert!(reclaimed(&mut *nic).is_empty());
    function.with(|device, bus| {
        device.stalled = false;
        device.transmit(bus);
    });
    assert_eq!(reclaimed(&mut *nic), (0..16).collect::<Vec<_>>());
    assert_eq!(function.with(|device, _| device.descriptors), 32);
}

#[test]
fn a_burst_costs_one_notification_and_reception_none() {
    let (function, mut nic, payload) = bring_up(256, 256);
    let before = nic.statistics().doorbells;
    for burst in 0..10 {
        for n in 0..32 {
            put(&mut *nic, &payload, burst * 32 + n, 64, 1).unwrap();
        }
        nic.flush().unwrap();
        nic.flush().unwrap();
        assert_eq!(reclaimed(&mut *nic).len(), 32);
    }
    assert_eq!(function.with(|device, _| device.queues[1].notified), 10);
    assert_eq!(nic.statistics().doorbells - before, 10);
}

#[test]
fn a_device_that_looks_by_itself_is_not_notified() {
    for features in [all(), all() - Features::RING_EVENT_IDX] {
        let (function, mut nic, payload) = bring_up_with(Device::new(features), 256, 256);
        put(&mut *nic, &payload, 0, 64, 1).unwrap();
        nic.flush().unwrap();
        // It says that it is at it: by an avail_event that is long past, or by the flag.
        function.with(|device, bus| {
            let used = device.queues[1].addresses[2];
            if features.contains(Features::RING_EVENT_IDX) {
                bus.write(used + 4 + 8 * 256, &0xfff0u16.to_le_bytes());
            } else {
                bus.write(used, &1u16.to_le_bytes());
            }
        });
        for n in 1..100 {
            put(&mut *nic, &payload, n, 64, 1).unwrap();
            nic.flush().unwrap();
        }
        assert_eq!(function.with(|device, _| device.queues[1].notified), 1);
        function.with(|device, bus| device.transmit(bus));
        assert_eq!(reclaimed(&mut *nic).len(), 100);
    }
}

#[test]
fn tokens_come_back_once_also_after_a_reset() {
    let (function, mut nic, payload) = bring_up(32, 32);
    put(&mut *nic, &payload, 1, 60, 1).unwrap();
    nic.flush().unwrap();
    function.with(|device, _| device.stalled = true);
    put(&mut *nic, &payload, 2, 60, 3).unwrap();
    nic.flush().unwrap();
    put(&mut *nic, &payload, 3, 60, 2).unwrap();
    // One reset that fails half way, one that does not.
    function.with(|device, _| device.offered -= Features::VERSION_1);
    assert!(matches!(fault(nic.reset()), DeviceFault::Layout(_)));
    assert!(nic.reclaim(&mut |_| panic!("given a token")).is_err());
    function.with(|device, _| device.offered |= Features::VERSION_1);
    nic.reset().unwrap();
    let mut tokens = reclaimed(&mut *nic);
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2, 3]);
    assert!(reclaimed(&mut *nic).is_empty());
    // And it works again.
    function.with(|device, _| device.stalled = false);
    function.with(|device, _| device.wire.sent.clear());
    let bytes = put(&mut *nic, &payload, 4, 99, 2).unwrap();
    nic.flush().unwrap();
    assert_eq!(reclaimed(&mut *nic), [4]);
    assert!(function.with(|device, _| device.wire.sent.pop_front()).unwrap() == bytes);
    deliver(&function, &bytes);
    assert!(received(&mut *nic, 1) == [bytes]);
}

#[test]
fn an_impossible_length_is_a_fault_until_reset() {
    for length in [0, 11, 2049, u32::MAX] {
        let (function, mut nic, payload) = bring_up(8, 8);
        function.with(|device, _| device.lie = Some(length));
        deliver(&function, &[0; 60]);
        let found = fault(nic.receive(1, &mut |_| panic!("given a frame")));
        assert!(found.to_string().contains(&format!("used length of {length},")), "{found}");
        // Nothing more is done with it.
        let (segments, _) = payload.frame(0, 60, 1);
        let frame = TxFrame { segments: &segments, token: 1 };
        assert_eq!(fault(nic.transmit(&frame)), found);
        assert_eq!(fault(nic.reclaim(&mut |_| ())), found);
        assert_eq!(fault(nic.flush()), found);
        assert_eq!(fault(nic.arm(true)), found);
        assert_eq!(fault(nic.link()), found);
        function.with(|device, _| device.lie = None);
        nic.reset().unwrap();
        deliver(&function, &[9; 60]);
        assert!(received(&mut *nic, 1) == [vec![9; 60]]);
    }
}

#[test]
fn a_device_that_asks_for_a_reset_is_found_out_by_a_look_and_only_when_nothing_comes() {
    let (function, mut nic, _) = bring_up(8, 8);
    nic.look_after().unwrap();
    deliver(&function, &[1; 60]);
    assert_eq!(received(&mut *nic, 8).len(), 1);
    function.with(|device, _| device.status |= Status::DEVICE_NEEDS_RESET.bits());
    // Something came since the last look, so that no register is read for this one.
    nic.look_after().unwrap();
    assert!(received(&mut *nic, 8).is_empty());
    assert!(matches!(fault(nic.look_after()), DeviceFault::NeedsReset { .. }));
    assert!(nic.reclaim(&mut |_| ()).is_err());
    nic.reset().unwrap();
    nic.look_after().unwrap();
}

#[test]
fn a_device_that_somebody_else_has_reset_is_found_out_by_a_look() {
    let (function, mut nic, _) = bring_up(8, 8);
    nic.look_after().unwrap();
    function.with(|device, _| device.status = 0);
    assert_eq!(fault(nic.look_after()), DeviceFault::WasReset);
    assert_eq!(fault(nic.receive(8, &mut |_| ())), DeviceFault::WasReset);
    nic.reset().unwrap();
    nic.look_after().unwrap();
    deliver(&function, &[1; 60]);
    assert_eq!(received(&mut *nic, 8).len(), 1);
}

#[test]
fn an_empty_frame_is_counted_and_dropped() {
    let (function, mut nic, _) = bring_up(8, 8);
    deliver(&function, &[]);
    deliver(&function, &[1; 60]);
    assert!(received(&mut *nic, 8) == [vec![1; 60]]);
    assert_eq!(nic.statistics().rx_errors, 1);
}

#[test]
fn used_ids_and_indices_that_cannot_be_are_faults() {
    // Id, used index, and what the fault names.
    for (id, index, named) in [
        (300, 1, "used descriptor id of 300,"),
        (u32::MAX, 1, "used descriptor id of 4294967295,"),
        (0x1_0000, 1, "used descriptor id of 65536,"),
        (1, 1, "used descriptor id of 1,"), // in the middle of a chain
        (7, 1, "used descriptor id of 7,"), // free
        (0, 2, "used index of 2,"),
        (0, 0xffff, "used index of 65535,"),
        (0, 0x8000, "used index of 32768,"),
    ] {
        let (function, mut nic, payload) = bring_up(8, 8);
        function.with(|device, _| device.stalled = true);
        put(&mut *nic, &payload, 5, 60, 2).unwrap();
        nic.flush().unwrap();
        function.with(|device, bus| device.forge(bus, 1, 0, id, 0, index));
        let found = fault(nic.reclaim(&mut |_| panic!("given a token")));
        assert!(found.to_string().contains(named), "{found}");
    }
    // One id twice.
    let (function, mut nic, payload) = bring_up(8, 8);
    function.with(|device, _| device.stalled = true);
    for token in 0..2 {
        put(&mut *nic, &payload, token, 60, 1).unwrap();
    }
    nic.flush().unwrap();
    function.with(|device, bus| {
        device.forge(bus, 1, 0, 0, 0, 1);
        device.forge(bus, 1, 1, 0, 0, 2);
    });
    let mut tokens = Vec::new();
    assert!(matches!(fault(nic.reclaim(&mut |t| tokens.push(t))), DeviceFault::BadValue { value: 0, .. }));
    assert_eq!(tokens, [0]);
    // And in the receive queue.
    let (function, mut nic, _) = bring_up(8, 8);
    function.with(|device, bus| device.forge(bus, 0, 0, 8, 72, 1));
    assert!(matches!(fault(nic.receive(1, &mut |_| ())), DeviceFault::BadValue { value: 8, .. }));
}

#[test]
fn what_the_device_writes_over_our_part_of_the_rings_is_not_believed() {
    let (function, mut nic, payload) = bring_up(8, 8);
    for n in 0..50 {
        let bytes = put(&mut *nic, &payload, n, 200, 3).unwrap();
        nic.flush().unwrap();
        // All descriptors and the available ring: ones.
        function.with(|device, bus| {
            let [descriptors, available, _] = device.queues[1].addresses;
            bus.overwrite(descriptors, &[0xff; 16 * 16]);
            bus.overwrite(available, &[0xff; 2]);
        });
        assert_eq!(reclaimed(&mut *nic), [n]);
        assert!(function.with(|device, _| device.wire.sent.pop_front()).unwrap() == bytes);
    }
}

#[test]
fn a_device_that_is_gone_or_asks_for_a_reset() {
    let (function, mut nic, _) = bring_up(8, 8);
    function.with(|device, _| device.status |= Status::DEVICE_NEEDS_RESET.bits());
    assert_eq!(fault(nic.arm(true)), DeviceFault::NeedsReset { status: 0x4f });
    assert_eq!(fault(nic.flush()), DeviceFault::NeedsReset { status: 0x4f });
    nic.reset().unwrap();
    assert!(nic.ready().unwrap());
    function.with(|device, _| device.gone = true);
    assert_eq!(fault(nic.link()), DeviceFault::Gone);
    assert_eq!(fault(nic.reset()), DeviceFault::Gone);
    function.with(|device, _| device.gone = false);
    nic.reset().unwrap();
    assert!(nic.wait_ready(Duration::ZERO).is_ok());
}

#[test]
fn interrupts_only_while_armed() {
    for (features, msix) in [(all(), 3), (all(), 0), (least(), 3), (least(), 0)] {
        let mut device = Device::new(features);
        device.counts.msix = msix;
        let (function, mut nic, _) = bring_up_with(device, 8, 32);
        // The crate signals the first one in any case, as the specification allows.
        deliver(&function, &[0; 60]);
        nic.arm(false).unwrap();
        deliver(&function, &[0; 60]);
        assert!(!readable(&*nic));
        nic.arm(true).unwrap();
        assert!(!readable(&*nic));
        deliver(&function, &[0; 60]);
        // Armed for the next frame, but those before have not been taken.
        assert_eq!(received(&mut *nic, 9).len(), 3);
        nic.arm(true).unwrap();
        assert!(received(&mut *nic, 9).is_empty());
        deliver(&function, &[0; 60]);
        assert!(readable(&*nic));
        // Still armed after frames were taken.
        nic.arm(true).unwrap();
        assert_eq!(received(&mut *nic, 9).len(), 1);
        deliver(&function, &[0; 60]);
        assert!(readable(&*nic));
        nic.arm(false).unwrap();
        deliver(&function, &[0; 60]);
        assert!(!readable(&*nic));
        // A link change wakes, and arms survive a reset.
        nic.reset().unwrap();
        nic.arm(true).unwrap();
        function.with(|device, bus| device.reconfigured(bus));
        assert!(readable(&*nic));
    }
}

#[test]
fn receive_modes_go_through_the_control_queue() {
    let (function, mut nic, _) = bring_up(8, 8);
    nic.set_filter(RxFilter { promiscuous: true, all_multicast: false }).unwrap();
    let modes = function.with(|device, _| std::mem::take(&mut device.modes));
    assert_eq!(modes, [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]);
    function.with(|device, _| device.answer = 1);
    let refused = nic.set_filter(RxFilter::default());
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

#[test]
fn closing_quiets_the_device_before_memory_goes() {
    let (function, nic, payload) = bring_up(8, 8);
    drop(nic);
    assert!(!function.bus.is_master());
    assert_eq!(function.with(|device, _| device.status), 0);
    drop(payload);
    assert!(function.bus.space.is_empty());
}

/// Descriptors and the available ring lie in adapter memory, where the device may only read; the model's accesses are
/// checked against what is mapped.
#[test]
fn a_transmit_queue_in_adapter_memory_is_only_read() {
    for features in [all(), all() - Features::RING_EVENT_IDX, least()] {
        let memory = adapter_memory();
        let config = NicConfig {
            tx_ring: 16,
            tx_ring_place: RingPlace::Adapter(memory.clone()),
            ..NicConfig::default()
        };
        let function = Modelled::new(Device::new(features));
        let mut nic = crate::nic::open(function.clone(), &config).unwrap();
        assert_eq!(nic.properties().tx_ring_memory.as_deref(), Some("test"));
        let windows = memory.windows();
        assert_eq!(windows.windows - windows.left, 1);
        let space = &function.bus.space;
        let at = memory.last_window();
        assert_eq!(space.rights_of(at), Some(Rights::READ));
        let payload = Payload::new(function.domain().clone());
        let sent = || function.with(|device, _| device.wire.sent.pop_front());
        send_bursts(&mut *nic, &payload, 2000, sent);
        nic.reset().unwrap();
        send_bursts(&mut *nic, &payload, 20, sent);
        drop(nic);
        assert_eq!((space.rights_of(at), memory.windows().left), (None, windows.windows));
    }
}
