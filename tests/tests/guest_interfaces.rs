//! Virtual interfaces on two real NICs, back to back: named by UVIA_NIC_A and UVIA_NIC_B, attached to vfio-pci.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvia::{Descriptor, Nic, NicOptions, WorkQueue};
use uvia_tests::{PATIENCE, PingPong, Sealed, ViPair, without_system_calls};

fn nics() -> [Nic; 2] {
    let open = |variable: &str, name: &str| {
        let device = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"));
        let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
        Nic::open(&device, options).unwrap_or_else(|e| panic!("{e}"))
    };
    [open("UVIA_NIC_A", "a"), open("UVIA_NIC_B", "b")]
}

fn pair() -> ViPair {
    let [a, b] = nics();
    ViPair::connect(a, b, |_| ()).unwrap_or_else(|e| panic!("{e}"))
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251) as u8).collect()
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn messages_and_writes_of_every_kind_of_size_arrive_whole() {
    let pair = pair();
    let most = 1 << 20;
    let data = bytes(most);
    let from = pair.a.memory(most).unwrap();
    from.write(0, &data).unwrap();
    let (received, written) = (pair.b.memory(most).unwrap(), pair.b.memory(most).unwrap());
    for size in [0, 1, 60, 128, 129, 1400, 1460, 1500, 9000, 65_536, most] {
        pair.b.vi.post_receive(Descriptor::new(vec![received.segment(0..size).unwrap()])).unwrap();
        pair.a.vi.post_send(Descriptor::new(vec![from.segment(0..size).unwrap()])).unwrap();
        let write = Descriptor::rdma_write(vec![from.segment(0..size).unwrap()], written.remote(0).unwrap());
        pair.a.vi.post_send(write).unwrap();
        let got = pair.drive(|pair| pair.b.cq.poll().unwrap());
        assert!(got.queue == WorkQueue::Receive && got.descriptor.status().is_success());
        assert_eq!(got.descriptor.length() as usize, size);
        for _ in 0..2 {
            let done = pair.drive(|pair| pair.a.cq.poll().unwrap());
            assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
        }
        for memory in [&received, &written] {
            let mut there = vec![0; size];
            memory.read(0, &mut there).unwrap();
            assert!(there == data[..size], "{size} bytes differ");
        }
    }
}

/// Sent from the same 4 MiB again and again, a little further on each time, since guests are small.
/// What QEMU joins two NICs by carries whatever they send.
#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn long_frames_are_found_to_come() {
    // What a frame of 8188 bytes has beside a message.
    const LONG: usize = 8188 - 14 - 34;
    let pair = pair();
    let size = 1 << 20;
    let (from, into) = (pair.a.memory(size).unwrap(), pair.b.memory(size).unwrap());
    let start = Instant::now();
    while pair.a.vi.path_mtu() != Some(LONG) {
        assert!(start.elapsed() < PATIENCE, "frames carry {:?} bytes still", pair.a.vi.path_mtu());
        let write = Descriptor::rdma_write(vec![from.segment(0..size).unwrap()], into.remote(0).unwrap());
        pair.a.vi.post_send(write).unwrap();
        let done = pair.drive(|pair| pair.a.cq.poll().unwrap());
        assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_message_of_64_mebibytes_arrives_whole() {
    const SIZE: usize = 64 << 20;
    const PIECE: usize = 4 << 20;
    const PIECES: usize = SIZE / PIECE;
    let [a, b] = nics();
    let pair = ViPair::connect(a, b, |attributes| attributes.max_transfer_size = SIZE as u32);
    let pair = pair.unwrap_or_else(|e| panic!("{e}"));
    let data = bytes(PIECE + PIECES);
    let (from, to) = (pair.a.memory(data.len()).unwrap(), pair.b.memory(SIZE).unwrap());
    from.write(0, &data).unwrap();
    pair.b.vi.post_receive(Descriptor::new(vec![to.segment(0..SIZE).unwrap()])).unwrap();
    let pieces = (0..PIECES).map(|n| from.segment(n..n + PIECE).unwrap()).collect();
    pair.a.vi.post_send(Descriptor::new(pieces)).unwrap();
    for end in [&pair.b, &pair.a] {
        let done = pair.drive(|_| end.cq.poll().unwrap());
        assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
        assert_eq!(done.descriptor.length() as usize, SIZE);
    }
    let mut there = vec![0; PIECE];
    for n in 0..PIECES {
        to.read(n * PIECE, &mut there).unwrap();
        assert!(there == data[n..n + PIECE], "piece {n} differs");
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_nic_connects_to_itself_while_it_talks_to_another() {
    let pair = pair();
    let nic = pair.a.nic.clone();
    let mut own = PingPong::new(ViPair::connect(nic.clone(), nic, |_| ()).unwrap(), 64, 4);
    let mut other = PingPong::new(pair, 64, 4);
    for _ in 0..100 {
        own.round();
        other.driven_round();
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_message_over_real_nics_takes_no_system_call() {
    let outcome =
        without_system_calls(|| PingPong::new(pair(), 64, 1), |ping| (0..2000).for_each(|_| ping.round()));
    assert_eq!(outcome.unwrap(), Sealed::Clean);
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_wait_sleeps_on_the_interrupt_and_is_woken() {
    let pair = pair();
    let pair = &pair;
    let memory = pair.b.memory(64).unwrap();
    pair.b.vi.post_receive(Descriptor::new(vec![memory.whole()])).unwrap();
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let got = pair.b.cq.wait(PATIENCE).unwrap();
            // The acknowledgement is sent by whoever drives the NIC next.
            while !done.load(Ordering::Relaxed) {
                assert!(pair.b.cq.wait(Duration::from_millis(1)).unwrap().is_none());
            }
            got
        });
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        pair.a.vi.post_send(Descriptor::new(vec![])).unwrap();
        let sent = pair.a.cq.wait(PATIENCE).unwrap().expect("the send completes");
        done.store(true, Ordering::Relaxed);
        let status = sent.descriptor.status();
        assert!(status.is_success(), "{status:?} {:?} {:?}", pair.a.vi.loss(), pair.b.vi.loss());
        let got = waiter.join().unwrap().expect("the message");
        assert!(got.descriptor.status().is_success());
        println!("woken and acknowledged after {:?}", start.elapsed());
    });
}
