//! Adapter memory as it is: a second PCI function, named by UVIA_ADAPTER_MEMORY, that two NICs fetch from. Run as root in
//! a machine with an IOMMU: `tests/run` does so in guests.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread::sleep;
use std::time::{Duration, Instant};

use uvia::{Descriptor, Nic, NicOptions, ViAttributes, WorkQueue};
use uvia_driver::dma::{DmaMemory, Rights};
use uvia_driver::mmio::Registers;
use uvia_driver::nic::{self, MacAddress, NicConfig, TxFrame};
use uvia_driver::pci::{self, config};
use uvia_driver::pio::{Caching, SLOT, SLOTS};
use uvia_tests::conformance::Memory;
use uvia_tests::{End, Misdirected, PATIENCE, PingPong, Sealed, ViPair, join, without_system_calls};

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} names no device"))
}

fn memory() -> Memory {
    Memory::of_function(&variable("UVIA_ADAPTER_MEMORY"))
}

fn open(device: &str, name: &str, memory: &Memory) -> Nic {
    let options = NicOptions {
        name: Some(name.to_owned()),
        adapter_memory: Some(memory.memory.clone()),
        ..NicOptions::default()
    };
    Nic::open(&variable(device), options).unwrap_or_else(|e| panic!("{e}"))
}

fn pair(memory: &Memory) -> ViPair {
    let (a, b) = (open("UVIA_NIC_A", "a", memory), open("UVIA_NIC_B", "b", memory));
    let pio = a.pio().unwrap();
    ViPair::connect(a, b, |attributes| *attributes = ViAttributes::pio(attributes.tag, &pio)).unwrap()
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn messages_lie_in_the_function_when_they_are_sent() {
    let memory = memory();
    println!("{:?}", memory.memory);
    assert_ne!(memory.memory.caching(), Caching::Cached);
    let pair = pair(&memory);
    let to = pair.b.memory(512).unwrap();
    let mut descriptor = Descriptor::new(Vec::new());
    for round in 0..100usize {
        let data: Vec<u8> = (0..1 + round * 37 % 448).map(|n| (n * 31 + round) as u8).collect();
        pair.b.vi.post_receive(Descriptor::new(vec![to.whole()])).unwrap();
        pair.a.vi.inject(descriptor, &data).unwrap();
        let got = pair.drive(|pair| pair.b.cq.poll().unwrap());
        assert!(got.queue == WorkQueue::Receive && got.descriptor.status().is_success());
        let mut there = vec![0; data.len()];
        to.read(0, &mut there).unwrap();
        assert!(there == data, "message {round} differs");
        descriptor = pair.drive(|pair| pair.a.cq.poll().unwrap()).descriptor;
        let all = memory.read(0, 64 << 10);
        assert!(data.len() < 8 || all.windows(data.len()).any(|part| part == data), "it came from elsewhere");
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_message_from_adapter_memory_takes_no_system_call() {
    let outcome = without_system_calls(
        || PingPong::new(pair(&memory()), 64, 1),
        |ping| (0..2000).for_each(|_| ping.round()),
    );
    assert_eq!(outcome.unwrap(), Sealed::Clean);
}

/// Memory decoding of the function, on or off.
fn set_decoding(on: bool) {
    let path = format!("/sys/bus/pci/devices/{}/config", variable("UVIA_ADAPTER_MEMORY"));
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let at = u64::from(config::COMMAND);
    let mut command = [0; 2];
    file.read_exact_at(&mut command, at).unwrap();
    let bits =
        u16::from_le_bytes(command) & !config::COMMAND_MEMORY | if on { config::COMMAND_MEMORY } else { 0 };
    file.write_all_at(&bits.to_le_bytes(), at).unwrap();
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn decoding_that_is_off_is_told_and_switched_on_again() {
    let memory = memory();
    let (a, b) = (open("UVIA_NIC_A", "a", &memory), open("UVIA_NIC_B", "b", &memory));
    let pio = ViAttributes::pio(a.create_tag().unwrap(), &a.pio().unwrap());
    let first = a.create_vi(&pio, None, None).unwrap();
    set_decoding(false);
    assert!(memory.memory.check().is_err(), "it does not answer");
    // Who drives the NIC is told.
    let far = End::new(b, |attributes| attributes.max_transfer_size = pio.max_transfer_size).unwrap();
    let near =
        End::new(a.clone(), |attributes| attributes.max_transfer_size = pio.max_transfer_size).unwrap();
    let outcome = join(&near, &far, b"decoding");
    let start = Instant::now();
    let e = loop {
        if let Err(e) = outcome.as_ref().map_or_else(|e| Err(e.to_string()), |()| Ok(())) {
            break e;
        }
        if let Err(e) = a.poll() {
            break e.to_string();
        }
        far.nic.poll().unwrap();
        assert!(start.elapsed() < PATIENCE, "nobody noticed");
    };
    assert!(e.contains("decoding"), "{e}");
    // Who asks for a window gets one that works.
    drop(first);
    let second = a.create_vi(&pio, None, None).unwrap();
    memory.memory.check().unwrap();
    drop(second);
    set_decoding(true);
}

/// Any NIC, whose driver gives it receive buffers that lie in adapter memory: where they are mapped as windows are, for
/// reading, nothing of what it receives comes there, whatever the device makes of that.
#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn no_nic_stores_where_it_may_only_read() {
    let memory = memory();
    let name = variable("UVIA_NIC_A");
    for (rights, comes) in [(Rights::READ | Rights::WRITE, true), (Rights::READ, false)] {
        let domain = pci::new_domain(&name).unwrap();
        let device = domain.clone().open(&name).unwrap();
        // Eight buffers for frames of no more than the MTU are of 2048 bytes each, whichever the device.
        let there = memory.memory.lease_ring(device.domain().clone(), &name, 32 << 10, rights).unwrap();
        let config =
            NicConfig { rx_ring: 8, interrupts: false, max_frame: Some(1514), ..NicConfig::default() };
        let mut nic = nic::open(Misdirected::new(device, &there), &config).unwrap();
        let (mut other, its_domain) = nic::open_named(&variable("UVIA_NIC_B"), &config).unwrap();
        let frame = DmaMemory::allocate(its_domain, 4096, Rights::READ).unwrap();
        frame.write_bytes(0, &[&MacAddress::BROADCAST.0[..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb6]].concat());
        frame.write_bytes(14, &[0x5a; 186]);
        let segment = frame.segment(0..200).unwrap();
        let start = Instant::now();
        // Until it says that it has received some, or that it can do so no more.
        let mut received = 0;
        while received < 3 {
            if other.transmit(&TxFrame { segments: &[segment], token: 0 }).unwrap() {
                other.flush().unwrap();
            }
            sleep(Duration::from_millis(20));
            other.reclaim(&mut |_| ()).unwrap();
            match nic.receive(8, &mut |_| ()).and_then(|count| nic.look_after().map(|()| count)) {
                Ok(count) => received += count,
                Err(e) => {
                    println!("with {rights:?}: {e}");
                    break;
                }
            }
            assert!(start.elapsed() < PATIENCE, "nothing is received");
        }
        let bytes = memory.read(there.offset(), there.len());
        let found = bytes.windows(186).any(|part| part == [0x5a; 186]);
        assert_eq!(found, comes, "with {rights:?}, of {received} frames");
        assert!(comes || bytes.iter().all(|byte| *byte == 0), "something was stored");
    }
}

const CTRL: usize = 0x0000;
const RCTL: usize = 0x0100;
const IMC: usize = 0x00d8;
const RDBAL: usize = 0x2800;
const RDBAH: usize = 0x2804;
const RDLEN: usize = 0x2808;
const RDH: usize = 0x2810;
const RDT: usize = 0x2818;
/// Set link up; receiver enabled, all stations, broadcast.
const SLU: u32 = 1 << 6;
const RECEIVE: u32 = 1 << 1 | 1 << 3 | 1 << 15;

/// An e1000 that is told to store what it receives into a window: the IOMMU keeps it from that.
#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_nic_cannot_store_into_a_window() {
    let memory = memory();
    let name = variable("UVIA_NIC_A");
    let domain = pci::new_domain(&name).unwrap();
    let device = domain.clone().open(&name).unwrap();
    if config::ids(&*device).unwrap() != (0x8086, 0x100e) {
        println!("only the e1000 is told here what it must not do");
        return;
    }
    let mut window = memory.memory.lease(device.domain().clone(), &name).unwrap();
    let into_window = window.slot(0).unwrap().send(0..SLOT).iova();
    let at = window.offset();
    let ring = DmaMemory::allocate(device.domain().clone(), 4096, Rights::READ | Rights::WRITE).unwrap();
    let page = DmaMemory::allocate(device.domain().clone(), 4096, Rights::READ | Rights::WRITE).unwrap();
    let registers = Registers::open(&device, 0).unwrap();
    // Eight descriptors: the first four store into the window, the others where it is allowed.
    const COUNT: usize = 8;
    for n in 0..COUNT {
        ring.write(n * 16, if n < 4 { into_window } else { page.iova() });
        ring.write(n * 16 + 8, 0u64);
    }
    registers.write32(IMC, u32::MAX);
    registers.write32(RDBAL, ring.iova() as u32);
    registers.write32(RDBAH, (ring.iova() >> 32) as u32);
    registers.write32(RDLEN, (COUNT * 16) as u32);
    registers.write32(RDH, 0);
    registers.write32(RDT, COUNT as u32 - 1);
    device.set_bus_master(true).unwrap();
    registers.write32(CTRL, SLU);
    registers.write32(RCTL, RECEIVE);

    let mut log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").unwrap();
    log.seek(SeekFrom::End(0)).unwrap();
    let (mut other, its_domain) = nic::open_named(&variable("UVIA_NIC_B"), &NicConfig::default()).unwrap();
    let frame = DmaMemory::allocate(its_domain, 4096, Rights::READ).unwrap();
    frame.write_bytes(0, &[&MacAddress::BROADCAST.0[..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb6]].concat());
    frame.write_bytes(14, &[0x5a; 186]);
    let segment = frame.segment(0..200).unwrap();
    let start = Instant::now();
    let done = |n: usize| ring.read::<u64>(n * 16 + 8) >> 32 & 1 != 0;
    while !(0..5).all(done) {
        if other.transmit(&TxFrame { segments: &[segment], token: 0 }).unwrap() {
            other.flush().unwrap();
        }
        sleep(Duration::from_millis(20));
        other.reclaim(&mut |_| ()).unwrap();
        assert!(start.elapsed() < PATIENCE, "nothing is received");
    }
    // The fifth shows that the NIC does store, and what.
    let mut stored = [0; 200];
    page.read_bytes(0, &mut stored);
    assert_eq!(stored[14..], [0x5a; 186]);
    let there = memory.read(at, SLOT * SLOTS);
    assert!(there.iter().all(|byte| *byte == 0), "the NIC has stored into the window");
    device.set_bus_master(false).unwrap();
    window.quieted();
    let mut said = Vec::new();
    let mut record = [0; 8192];
    while let Ok(len) = log.read(&mut record) {
        said.push(String::from_utf8_lossy(&record[..len]).into_owned());
    }
    assert!(
        env::var_os("UVIA_NICS_SERVED").is_some() || said.iter().any(|line| line.contains("DMAR")),
        "the IOMMU logged no fault: {said:?}"
    );
}
