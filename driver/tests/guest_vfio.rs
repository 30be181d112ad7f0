//! VFIO as it is: two NICs on vfio-pci in a machine with an IOMMU, named by UVIA_NIC_A and UVIA_NIC_B. Run as
//! root. `tests/run` does so in a guest.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use uvia_driver::dma::{DmaMemory, DmaRegion, DmaSegment, PageKind, Rights};
use uvia_driver::mmio::Registers;
use uvia_driver::nic::{self, Nic, NicConfig, TxFrame};
use uvia_driver::pci::bind::{Attached, BindError, Binder, Host, Linux};
use uvia_driver::pci::{self, DeviceDomain, Function, InterruptKind, PciDevice, Sysfs, config};
use uvia_driver::{Error, Result};

const BOTH: Rights = Rights::READ.union(Rights::WRITE);
const PAGE: usize = 4096;

/// One test at a time: there is one pair of NICs, and limits of the process are changed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nic(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} names no device"))
}

fn a() -> String {
    nic("UVIA_NIC_A")
}

fn b() -> String {
    nic("UVIA_NIC_B")
}

fn domain_of(name: &str) -> Arc<dyn DeviceDomain> {
    pci::new_domain(name).unwrap_or_else(|e| panic!("{e}"))
}

fn open(domain: &Arc<dyn DeviceDomain>, name: &str) -> Arc<dyn PciDevice> {
    domain.clone().open(name).unwrap_or_else(|e| panic!("{e}"))
}

fn error<T>(result: Result<T>) -> Error {
    let Err(error) = result else { panic!("no error") };
    println!("as it should be: {error}");
    error
}

fn is_e1000(device: &dyn PciDevice) -> bool {
    config::ids(device).unwrap() == (0x8086, 0x100e)
}

fn function(name: &str) -> Function {
    Sysfs::default().function(name.parse().unwrap()).unwrap()
}

fn masters_bus(device: &dyn PciDevice) -> bool {
    config::read_u16(device, config::COMMAND).unwrap() & config::COMMAND_BUS_MASTER != 0
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn two_nics_share_a_domain() {
    let _alone = alone();
    let domain = domain_of(&a());
    let devices = [open(&domain, &a()), open(&domain, &b())];
    for device in &devices {
        let device = device.as_ref();
        let (vendor, id) = config::ids(device).unwrap();
        println!("{}: {vendor:04x}:{id:04x} {:?}", device.name(), config::capabilities(device).unwrap());
        for bar in 0..6 {
            println!("  BAR {bar}: {:?}", device.region(bar).unwrap());
        }
        assert!(!masters_bus(device), "a NIC that masters the bus unasked");
        assert_ne!(config::read_u16(device, config::COMMAND).unwrap() & config::COMMAND_MEMORY, 0);
    }
    let memory = DmaMemory::allocate(domain.clone(), 3 * PAGE, BOTH).unwrap();
    let limits = domain.limits();
    println!("{limits:x?}");
    for range in &limits.apertures {
        assert!(*range.start() > 0 && !range.contains(&0xfee0_0000));
    }
    assert!(*limits.apertures.last().unwrap().end() >= (1 << 39) - 1);
    assert!(limits.apertures.iter().any(|range| range.contains(&memory.iova())));
    assert!(limits.max_mappings.is_none_or(|most| most > 1000));
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn registers_by_mapping_and_by_message_agree() {
    const STATUS: usize = 0x0008;
    const RDTR: usize = 0x2820; // receive delay timer: can be written without effect here
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    if !is_e1000(device.as_ref()) {
        println!("no e1000, so none of its registers");
        return;
    }
    let registers = Registers::open(&device, 0).unwrap();
    assert!(device.map_region(0).unwrap().is_some());
    let status = registers.read32(STATUS);
    println!("STATUS {status:#x}");
    assert!(status != 0 && status != u32::MAX);
    let mut bytes = [0; 4];
    device.region_read(0, STATUS as u64, &mut bytes).unwrap();
    assert_eq!(u32::from_le_bytes(bytes), status);
    registers.write32(RDTR, 0x1234);
    device.region_read(0, RDTR as u64, &mut bytes).unwrap();
    assert_eq!(u32::from_le_bytes(bytes), 0x1234);
    device.region_write(0, RDTR as u64, &0x4321u32.to_le_bytes()).unwrap();
    assert_eq!(registers.read32(RDTR), 0x4321);
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn accesses_that_make_no_sense_are_errors() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let mut bytes = [0; 8];
    error(device.region(6));
    error(device.region_read(7, 0, &mut bytes));
    error(device.region_read(0, 2, &mut bytes[..4]));
    error(device.region_read(0, 0, &mut bytes[..3]));
    error(device.region_read(0, u64::MAX - 7, &mut bytes));
    error(device.region_write(0, 1 << 40, &bytes));
    error(device.config_read(u16::MAX, &mut bytes));
    let events: Vec<_> = (0..device.interrupts().intx + 1).map(|_| eventfd()).collect();
    let fds: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    let refused = error(device.enable_interrupts(InterruptKind::Intx, &fds));
    assert!(matches!(refused, Error::Unsupported { .. }));
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn memory_is_mapped_and_unmapped() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let domain = device.domain().clone();
    let small: Vec<_> = (0..64).map(|_| DmaMemory::allocate(domain.clone(), PAGE, BOTH).unwrap()).collect();
    let mut at: Vec<_> = small.iter().map(DmaMemory::iova).collect();
    at.sort();
    at.dedup();
    assert_eq!(at.len(), small.len());
    drop(small);
    assert_eq!(DmaMemory::allocate(domain.clone(), PAGE, BOTH).unwrap().iova(), at[0], "free, so used again");

    let start = Instant::now();
    let large = DmaMemory::allocate(domain.clone(), 4 << 20, Rights::READ).unwrap();
    println!("4 MiB: {:?} at {:#x} in {:?}", large.page_kind(), large.iova(), start.elapsed());
    assert!(large.iova().is_multiple_of(2 << 20));
    if fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap().trim() == "0" {
        assert_eq!(large.page_kind(), PageKind::Ordinary);
    }

    // Two registrations that share a page; each has a mapping of its own.
    let mut bytes = vec![0u8; 3 * PAGE];
    let address = bytes.as_mut_ptr();
    // SAFETY: `bytes` lives until after both regions, and no device of this test reads or writes memory.
    let (one, two) = unsafe {
        (
            DmaRegion::register(domain.clone(), address.add(100), PAGE, Rights::READ).unwrap(),
            DmaRegion::register(domain.clone(), address.add(100 + PAGE), PAGE, BOTH).unwrap(),
        )
    };
    assert_ne!(one.iova(), two.iova());
    assert_eq!(one.iova() as usize % PAGE, (address as usize + 100) % PAGE);
    let iova = two.iova() & !(PAGE as u64 - 1);
    drop((one, two));
    error(domain.unmap(iova, 2 * PAGE));
    error(domain.unmap(0x7000_0000, PAGE));
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn huge_pages_are_used_and_run_out() {
    const RESERVE: &str = "/proc/sys/vm/nr_hugepages";
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let domain = device.domain();
    let before = fs::read_to_string(RESERVE).unwrap();
    fs::write(RESERVE, "4").unwrap();
    if fs::read_to_string(RESERVE).unwrap().trim() != "4" {
        println!("the kernel has no four free huge pages");
        fs::write(RESERVE, before.trim()).unwrap();
        return;
    }
    let start = Instant::now();
    let huge = DmaMemory::allocate(domain.clone(), 8 << 20, BOTH).unwrap();
    println!("8 MiB: {:?} in {:?}", huge.page_kind(), start.elapsed());
    let start = Instant::now();
    let ordinary = DmaMemory::allocate(domain.clone(), 8 << 20, BOTH).unwrap();
    println!("8 MiB: {:?} in {:?}", ordinary.page_kind(), start.elapsed());
    let kinds = (huge.page_kind(), ordinary.page_kind());
    drop((huge, ordinary));
    fs::write(RESERVE, before.trim()).unwrap();
    assert_eq!(kinds, (PageKind::Huge, PageKind::Ordinary));
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn what_cannot_be_mapped_is_told() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let domain = device.domain();
    let memory = DmaMemory::allocate(domain.clone(), PAGE, BOTH).unwrap();
    // SAFETY: nothing gets mapped, as the assertions say.
    let map = |address: *mut u8, len, rights| error(unsafe { domain.map(address, len, rights) });
    assert!(matches!(map(memory.as_ptr(), 1 << 50, BOTH), Error::ApertureExceeded { .. }));
    assert!(matches!(map(memory.as_ptr(), PAGE, Rights::empty()), Error::Argument { .. }));
    assert!(matches!(map(memory.as_ptr().wrapping_add(1), PAGE, BOTH), Error::Argument { .. }));
    assert!(matches!(map(memory.as_ptr(), 100, BOTH), Error::Argument { .. }));
    assert!(matches!(map(memory.as_ptr(), 0, BOTH), Error::Argument { .. }));
    let fault = map(ptr::without_provenance_mut(PAGE), PAGE, BOTH);
    assert!(fault.to_string().contains("not all mapped in this process"), "{fault}");

    // Memory that we may only read may be read by devices, and not be written.
    let file = fs::File::open("/proc/self/exe").unwrap();
    // SAFETY: a mapping of its own, never looked at.
    let text =
        unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(text, libc::MAP_FAILED);
    // SAFETY: bus mastering is off.
    let iova = unsafe { domain.map(text.cast(), PAGE, Rights::READ) }.unwrap();
    domain.unmap(iova, PAGE).unwrap();
    map(text.cast(), PAGE, BOTH);
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn the_limit_on_mappings_is_told() {
    const LIMIT: &str = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
    let _alone = alone();
    let before = fs::read_to_string(LIMIT).unwrap();
    fs::write(LIMIT, "5").unwrap();
    let device = pci::open(&a());
    fs::write(LIMIT, before.trim()).unwrap();
    let device = device.unwrap();
    let domain = device.domain();
    assert_eq!(domain.limits().max_mappings, Some(5));
    let mut held: Vec<_> = (0..5).map(|_| DmaMemory::allocate(domain.clone(), PAGE, BOTH).unwrap()).collect();
    let refused = error(DmaMemory::allocate(domain.clone(), PAGE, BOTH));
    assert!(matches!(refused, Error::MappingsExceeded { limit: 5 }));
    held.pop();
    DmaMemory::allocate(domain.clone(), PAGE, BOTH).unwrap();
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn the_limit_on_locked_memory_is_told() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let domain = device.domain();
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on values of ours.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut before), 0);
        let low = libc::rlimit { rlim_cur: 16 * PAGE as u64, ..before };
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &low), 0);
    }
    // Root is above the limit, so in a thread that has given that right up.
    let (fits, refused) = std::thread::scope(|scope| {
        let user = || {
            give_up_ipc_lock();
            let fits = DmaMemory::allocate(domain.clone(), 8 * PAGE, BOTH);
            let refused = DmaMemory::allocate(domain.clone(), 32 * PAGE, BOTH).map(drop);
            (fits.map(drop), refused)
        };
        scope.spawn(user).join().unwrap()
    });
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &before) }, 0);
    fits.unwrap();
    match error(refused) {
        Error::MemlockExceeded { need, limit } => {
            assert_eq!(limit, 16 * PAGE as u64);
            assert!(need >= 40 * PAGE as u64);
        }
        other => panic!("{other}"),
    }
}

/// Takes CAP_IPC_LOCK from this thread's effective capabilities.
fn give_up_ipc_lock() {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let header = [VERSION_3, 0];
    let mut sets = [0u32; 6]; // effective, permitted, inheritable; twice
    // SAFETY: version 3 takes a header of two words and six words of sets.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        sets[0] &= !(1 << CAP_IPC_LOCK);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_device_is_opened_once() {
    let _alone = alone();
    let domain = domain_of(&a());
    let device = open(&domain, &a());
    for refused in [error(domain.clone().open(&a())), error(pci::open(&a()))] {
        match refused {
            Error::GroupBusy { holders, .. } => assert_eq!(holders[0].0, std::process::id()),
            other => panic!("{other}"),
        }
    }
    drop(device);
    drop(open(&domain, &a()));
    drop(pci::open(&a()).unwrap());
}

/// A program that has the group of a device open.
struct Holder(Child);

impl Holder {
    fn of(name: &str) -> Self {
        let path = format!("/dev/vfio/{}", function(name).group.unwrap());
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        Self(Command::new("sleep").arg("60").stdin(file).spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn who_uses_a_device_is_told_by_name() {
    let _alone = alone();
    let holder = Holder::of(&a());
    let expected = [(holder.0.id(), "sleep".to_owned())];
    match error(pci::open(&a())) {
        Error::GroupBusy { holders, .. } => assert_eq!(holders, expected),
        other => panic!("{other}"),
    }
    match Binder::system().detach(a().parse().unwrap()) {
        Err(BindError::InUse { holders, .. }) => assert_eq!(holders, expected),
        other => panic!("{other:?}"),
    }
    drop(holder);
    drop(pci::open(&a()).unwrap());
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn an_unbind_of_a_device_in_use_is_not_waited_for() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let driver = function(&a()).driver.unwrap();
    let unbind = Sysfs::default().driver_path(&driver).join("unbind");
    let start = Instant::now();
    let late = Linux.unbind(&unbind, &a(), Duration::from_millis(500)).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{late}");
    assert!(start.elapsed() < Duration::from_secs(5));
    drop(device);
    // The kernel looks for users every now and then.
    let deadline = Instant::now() + Duration::from_secs(30);
    while function(&a()).driver.is_some() {
        assert!(Instant::now() < deadline, "the kernel does not finish it");
        thread::sleep(Duration::from_millis(20));
    }
    println!("unbound after {:?}", start.elapsed());
    let attached = Binder::system().attach(a().parse().unwrap(), false).unwrap();
    assert!(matches!(attached, Attached::Done { former: None, .. }), "{attached:?}");
    drop(pci::open(&a()).unwrap());
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn who_may_not_is_told() {
    const NOBODY: libc::uid_t = 65534;
    const UNCHANGED: libc::uid_t = libc::uid_t::MAX;
    let _alone = alone();
    // The system call, unlike the library's function, changes this thread only.
    let user = || {
        // SAFETY: three numbers.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, UNCHANGED, NOBODY, UNCHANGED) }, 0);
        pci::open(&a()).map(drop)
    };
    let refused = error(thread::scope(|scope| scope.spawn(user).join().unwrap()));
    assert!(matches!(refused, Error::Permission { .. }));
    drop(pci::open(&a()).unwrap());
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn two_nics_send_from_one_mapping() {
    const LEN: usize = 256;
    let _alone = alone();
    let domain = domain_of(&a());
    let mut a = nic::open(open(&domain, &a()), &NicConfig::default()).unwrap();
    let locked = locked_memory();
    let memory = DmaMemory::allocate(domain.clone(), PAGE, Rights::READ).unwrap();
    assert_eq!(locked_memory() - locked, PAGE as u64);
    // Opened after the memory was mapped, and reaches it all the same.
    let mut b = nic::open(open(&domain, &b()), &NicConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !(a.ready().unwrap() && b.ready().unwrap()) {
        assert!(Instant::now() < deadline, "no link");
        thread::sleep(Duration::from_millis(10));
    }
    let macs = [a.properties().mac, b.properties().mac];
    for (n, (from, to)) in [(macs[0], macs[1]), (macs[1], macs[0])].into_iter().enumerate() {
        let mut frame = [n as u8 + 1; LEN];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&from.0);
        frame[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
        // The device sees what was written after the mapping, too.
        memory.write_bytes(0, &frame);
        let segments = [memory.segment(0..LEN).unwrap()];
        let (sender, receiver) = if n == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        exchange(sender.as_mut(), receiver.as_mut(), &segments, &frame);
    }
}

/// Sends a frame and waits until it has arrived and the sender is done with it.
fn exchange(sender: &mut dyn Nic, receiver: &mut dyn Nic, segments: &[DmaSegment], frame: &[u8]) {
    assert!(sender.transmit(&TxFrame { segments, token: 7 }).unwrap());
    sender.flush().unwrap();
    let (mut arrived, mut done) = (false, false);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !(arrived && done) {
        assert!(Instant::now() < deadline, "arrived {arrived}, reclaimed {done}");
        sender.reclaim(&mut |token| done = token == 7).unwrap();
        receiver
            .receive(32, &mut |received| {
                let mut bytes = vec![0; received.len()];
                assert!(received.read(0, &mut bytes));
                arrived |= bytes == frame;
            })
            .unwrap();
    }
}

/// Bytes of this process that are pinned.
fn locked_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn mappings_outlive_devices() {
    let _alone = alone();
    let domain = domain_of(&a());
    error(DmaMemory::allocate(domain.clone(), PAGE, BOTH)); // no device, so no IOMMU yet
    let device = open(&domain, &a());
    device.set_bus_master(true).unwrap();
    assert!(masters_bus(device.as_ref()));
    let memory = DmaMemory::allocate(domain.clone(), PAGE, BOTH).unwrap();
    drop(device);
    // The domain keeps what holds its mappings, so that nobody else gets the device.
    assert!(matches!(error(pci::open(&a())), Error::GroupBusy { .. }));
    let device = open(&domain, &a());
    assert!(!masters_bus(device.as_ref()));
    let other = DmaMemory::allocate(domain.clone(), PAGE, BOTH).unwrap();
    assert_ne!(other.iova(), memory.iova());
    drop(device);
    // Another device takes its place as what holds the mappings.
    let device = open(&domain, &b());
    // The kernel still has both mapped: it answers how many bytes it unmapped, and that is checked.
    let (one, two) = (memory.iova(), other.iova());
    domain.unmap(one, PAGE).unwrap();
    domain.unmap(two, PAGE).unwrap();
    error(domain.unmap(two, PAGE));
    std::mem::forget((memory, other)); // they would unmap once more, and say so in the log
    drop(device);
    // With nothing mapped nothing is kept.
    drop(pci::open(&a()).unwrap());
    drop(pci::open(&b()).unwrap());
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_mapped_bar_may_outlive_its_device() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let Some(bar) = (0..6).find(|bar| device.region(*bar).unwrap().mappable) else { return };
    let mapping = device.map_region(bar).unwrap().unwrap();
    assert!(Arc::ptr_eq(&mapping, &device.map_region(bar).unwrap().unwrap()));
    drop(device);
    // The mapping keeps the device in use: the kernel would wait for it, so a detach is refused.
    let itself = |holders: &[(u32, String)]| assert_eq!(holders[0].0, std::process::id(), "{holders:?}");
    match error(pci::open(&a())) {
        Error::GroupBusy { holders, .. } => itself(&holders),
        other => panic!("{other}"),
    }
    match Binder::system().detach(a().parse().unwrap()) {
        Err(BindError::InUse { holders, .. }) => itself(&holders),
        other => panic!("{other:?}"),
    }
    // SAFETY: mapped as long as `mapping` lives. What is read does not matter: it must not crash.
    let _ = unsafe { (mapping.place(0, 4).unwrap() as *const u32).read_volatile() };
    drop(mapping);
    drop(pci::open(&a()).unwrap());
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_reset_leaves_bus_mastering_off() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    device.set_bus_master(true).unwrap();
    assert!(masters_bus(device.as_ref()));
    let start = Instant::now();
    let outcome = device.reset().unwrap();
    println!("{}: reset {outcome:?} in {:?}", device.name(), start.elapsed());
    assert!(!masters_bus(device.as_ref()));
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn interrupts_arrive() {
    let _alone = alone();
    let device = pci::open(&a()).unwrap();
    let counts = device.interrupts();
    println!("{counts:?}");
    let kinds = [
        (InterruptKind::Intx, counts.intx),
        (InterruptKind::Msi, counts.msi),
        (InterruptKind::Msix, counts.msix),
    ];
    for (kind, count) in kinds {
        let events: Vec<_> = (0..count).map(|_| eventfd()).collect();
        let fds: Vec<_> = events.iter().map(AsFd::as_fd).collect();
        // Replaces the kind before, and then itself.
        device.enable_interrupts(kind, &fds).unwrap();
        device.enable_interrupts(kind, &fds).unwrap();
        if kind == InterruptKind::Intx && is_e1000(device.as_ref()) {
            intx_of_e1000(&device, &events[0]);
        }
        device.disable_interrupts(kind).unwrap();
        device.disable_interrupts(kind).unwrap();
    }
    // A reset takes routing away, and what is routed when a device is closed does no harm.
    if counts.intx == 1 {
        let event = eventfd();
        device.enable_interrupts(InterruptKind::Intx, &[event.as_fd()]).unwrap();
        device.reset().unwrap();
        device.enable_interrupts(InterruptKind::Intx, &[event.as_fd()]).unwrap();
    }
}

/// The e1000 can be told to interrupt.
fn intx_of_e1000(device: &Arc<dyn PciDevice>, event: &OwnedFd) {
    const ICR: usize = 0xc0; // causes; cleared by reading
    const ICS: usize = 0xc8; // set causes
    const IMS: usize = 0xd0; // enable causes
    const IMC: usize = 0xd8; // disable causes
    const LINK: u32 = 1 << 2;
    let registers = Registers::open(device, 0).unwrap();
    registers.write32(IMS, LINK);
    for _ in 0..3 {
        registers.write32(ICS, LINK);
        assert!(signalled(event, 2000), "no interrupt within 2 s");
        assert!(!signalled(event, 20), "not masked after the first");
        assert_ne!(registers.read32(ICR) & LINK, 0);
        device.unmask_intx().unwrap();
    }
    registers.write32(IMC, u32::MAX);
}

fn eventfd() -> OwnedFd {
    // SAFETY: a new file descriptor, owned by nobody else.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Waits for an eventfd and consumes what it has.
fn signalled(event: &OwnedFd, millis: i32) -> bool {
    let mut poll = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut count = 0u64;
    // SAFETY: both calls write to values of ours, of the sizes that they are told.
    unsafe {
        libc::poll(&mut poll, 1, millis) == 1
            && libc::read(event.as_raw_fd(), ptr::from_mut(&mut count).cast(), 8) == 8
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn devices_that_cannot_be_opened_say_why() {
    let _alone = alone();
    assert!(matches!(error(pci::open("eth0")), Error::BadName { .. }));
    assert!(matches!(error(pci::open("0000:ff:1f.7")), Error::NotFound { .. }));
    let functions = Sysfs::default().functions().unwrap();
    let unbound = functions.iter().find(|f| !f.is_on_vfio() && f.group.is_some()).unwrap();
    let refused = error(pci::open(&unbound.address.to_string()));
    assert!(matches!(refused, Error::NotBound { .. }));
    // Into a domain of another device, too; which then still takes that one.
    let domain = domain_of(&a());
    error(domain.clone().open("0000:ff:1f.7"));
    drop(open(&domain, &a()));
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn opening_and_closing_again_and_again() {
    let _alone = alone();
    for _ in 0..3 {
        let start = Instant::now();
        let device = pci::open(&a()).unwrap();
        let opened = start.elapsed();
        drop(device);
        println!("open {opened:?}, close {:?}", start.elapsed() - opened);
    }
}
