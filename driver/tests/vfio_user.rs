//! PCI functions that are served over vfio-user, through the same doors as those of the kernel.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uvia_driver::dma::{DeviceAccess, DmaDomain, DmaMemory, DmaRegion, Rights};
use uvia_driver::mmio::Registers;
use uvia_driver::pci::{self, InterruptKind, ResetOutcome, config};
use uvia_driver::{DeviceFault, Error};
use uvia_vfio_user::memory::SharedMemory;
use uvia_vfio_user::server::{Description, Device, DmaSpace, Interrupts, Region, Server, ServerOptions};
use uvia_vfio_user::wire::{irq, region};

const BAR: usize = 0x3000;
/// The page that is mapped.
const SHARED: usize = 0x1000;
const FROM: u64 = 0x00;
const TO: u64 = 0x08;
const GO: u64 = 0x10;
const STATUS: u64 = 0x14;
const LEVEL: u64 = 0x18;
const SCRATCH: usize = 0x20;

/// Copies 64 bytes from one address to another when told to, and has a pin.
struct Copier {
    dma: DmaSpace,
    interrupts: Interrupts,
    config: Vec<u8>,
    registers: Vec<u8>,
    messages: Arc<Mutex<Vec<u64>>>,
}

impl Copier {
    fn u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.registers[at as usize..at as usize + 8].try_into().unwrap())
    }

    fn copy(&self) -> u32 {
        if self.config[4] & 4 == 0 {
            return 2;
        }
        let mut bytes = [0; 64];
        let copied =
            self.dma.read(self.u64(FROM), &mut bytes).and_then(|()| self.dma.write(self.u64(TO), &bytes));
        u32::from(copied.is_err())
    }
}

impl Device for Copier {
    fn region_read(&mut self, index: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = if index == region::CONFIG { &self.config } else { &self.registers };
        into.copy_from_slice(&bytes[offset as usize..offset as usize + into.len()]);
        Ok(())
    }

    fn region_write(&mut self, index: u32, offset: u64, from: &[u8]) -> io::Result<()> {
        let at = offset as usize;
        if index == region::CONFIG {
            self.config[at..at + from.len()].copy_from_slice(from);
            return Ok(());
        }
        self.messages.lock().unwrap().push(offset);
        self.registers[at..at + from.len()].copy_from_slice(from);
        match offset {
            GO => {
                let status = self.copy();
                self.registers[STATUS as usize..STATUS as usize + 4].copy_from_slice(&status.to_le_bytes());
            }
            LEVEL => self.interrupts.set_intx(from[0] != 0),
            _ => {}
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.registers.fill(0);
        self.config[4] = 0;
    }

    fn detached(&mut self) {
        self.reset();
    }
}

/// A device that is served, until it is dropped.
struct Served {
    name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    messages: Arc<Mutex<Vec<u64>>>,
    shared: SharedMemory,
    dma: DmaSpace,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("nic");
        let shared = SharedMemory::create("copier", BAR).unwrap();
        let areas = Some(SHARED as u64..SHARED as u64 + 0x1000);
        let bar = Region::registers(BAR as u64).with_shared(shared.clone(), areas);
        let described = Description::pci(256).with_bar(0, bar).with_vectors(irq::INTX, 1);
        let mut server = Server::bind(&path, described, ServerOptions::default()).unwrap();
        let mut config = vec![0; 256];
        config[..4].copy_from_slice(&[0x86, 0x80, 0x34, 0x12]);
        let (messages, stop) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::new(AtomicBool::new(false)));
        let mut device = Copier {
            dma: server.dma(),
            interrupts: server.interrupts(),
            config,
            registers: vec![0; BAR],
            messages: messages.clone(),
        };
        let (dma, stopped) = (server.dma(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                server.poll(&mut device, Duration::from_millis(5)).unwrap();
            }
        });
        let name = format!("vfio-user:{}", path.display());
        Self { name, stop, thread: Some(thread), messages, shared, dma, _folder: folder }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

fn event() -> OwnedFd {
    // SAFETY: makes a descriptor, which is nobody else's.
    unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) }
}

fn signalled(event: &OwnedFd) -> bool {
    use std::io::Read;
    let mut file = std::fs::File::from(event.try_clone().unwrap());
    file.read(&mut [0; 8]).is_ok()
}

fn copy(regs: &Registers, from: u64, to: u64) -> u32 {
    regs.write64(FROM as usize, from);
    regs.write64(TO as usize, to);
    regs.write32(GO as usize, 1);
    regs.read32(STATUS as usize)
}

#[test]
fn a_function_like_any_other() {
    let served = Served::new();
    let device = pci::open(&served.name).unwrap();
    assert_eq!(device.name(), served.name);
    assert_eq!(config::ids(&*device).unwrap(), (0x8086, 0x1234));
    let info = device.region(0).unwrap();
    assert!(info.size == BAR as u64 && info.readable && info.writable && info.mappable);
    assert_eq!(device.region(1).unwrap().size, 0);
    assert!(device.region(6).is_err() && device.region_read(0, 2, &mut [0; 4]).is_err());
    assert!(device.config_read(254, &mut [0; 4]).is_err());
    assert_eq!((device.interrupts().intx, device.interrupts().msix), (1, 0));
    device.set_bus_master(true).unwrap();
    assert_eq!(config::read_u16(&*device, config::COMMAND).unwrap(), 6);
    assert_eq!(device.reset().unwrap(), ResetOutcome::Done);
    assert_eq!(config::read_u16(&*device, config::COMMAND).unwrap(), 2);
}

#[test]
fn registers_that_are_mapped_take_no_message() {
    let served = Served::new();
    let device = pci::open(&served.name).unwrap();
    let regs = Registers::open(&device, 0).unwrap();
    served.messages.lock().unwrap().clear();
    regs.write32(SHARED + 8, 0x1234_5678);
    regs.window(SHARED, 0x100).unwrap().write16(16, 7);
    assert_eq!((served.shared.load_u32(SHARED + 8), served.shared.load_u16(SHARED + 16)), (0x1234_5678, 7));
    served.shared.store_u32(SHARED + 12, 99);
    assert_eq!(regs.read32(SHARED + 12), 99);
    assert!(served.messages.lock().unwrap().is_empty());
    regs.write32(SCRATCH, 5);
    assert_eq!(*served.messages.lock().unwrap(), [SCRATCH as u64], "it does not overtake, so is not posted");
    assert_eq!(regs.read32(SCRATCH), 5);
    regs.write64(SHARED - 8, 1);
    assert_eq!(served.messages.lock().unwrap().len(), 2);
}

#[test]
fn interrupts_by_the_pin() {
    let served = Served::new();
    let device = pci::open(&served.name).unwrap();
    let regs = Registers::open(&device, 0).unwrap();
    let pin = event();
    assert!(device.enable_interrupts(InterruptKind::Msix, &[pin.as_fd()]).is_err());
    device.enable_interrupts(InterruptKind::Intx, &[pin.as_fd()]).unwrap();
    regs.write32(LEVEL as usize, 1);
    assert!(signalled(&pin) && !signalled(&pin));
    device.unmask_intx().unwrap();
    assert!(signalled(&pin), "still asserted");
    device.disable_interrupts(InterruptKind::Intx).unwrap();
    regs.write32(LEVEL as usize, 0);
    regs.write32(LEVEL as usize, 1);
    assert!(!signalled(&pin));
}

#[test]
fn memory_of_ours_is_shared_and_memory_of_the_caller_is_asked_for() {
    let served = Served::new();
    let device = pci::open(&served.name).unwrap();
    let domain = device.domain().clone();
    let regs = Registers::open(&device, 0).unwrap();
    let ours = DmaMemory::allocate(domain.clone(), 8192, Rights::READ | Rights::WRITE).unwrap();
    assert_eq!(ours.device_access(), DeviceAccess::Direct);
    ours.write_bytes(0, &[7; 64]);
    assert_eq!(copy(&regs, ours.iova(), ours.iova() + 4096), 2, "not without bus mastering");
    device.set_bus_master(true).unwrap();
    assert_eq!(copy(&regs, ours.iova(), ours.iova() + 4096), 0);
    let mut bytes = [0; 64];
    ours.read_bytes(4096, &mut bytes);
    assert_eq!(bytes, [7; 64]);

    let mut theirs = vec![9u8; 300];
    let address = theirs.as_mut_ptr();
    // SAFETY: `theirs` outlives the region, and is reached by pointer until it is gone.
    let region = unsafe { DmaRegion::register(domain.clone(), address, 300, Rights::READ) }.unwrap();
    assert_eq!(region.device_access(), DeviceAccess::Messages);
    assert_eq!(copy(&regs, region.iova() + 100, ours.iova()), 0);
    ours.read_bytes(0, &mut bytes);
    assert_eq!(bytes, [9; 64]);
    assert_eq!(copy(&regs, ours.iova(), region.iova()), 1, "it is for reading only");
    let iova = region.iova();
    drop(region);
    assert_eq!(copy(&regs, iova, ours.iova()), 1, "it is mapped no more");
    drop(ours);
    assert_eq!(served.dma.mappings(), 0);
}

#[test]
fn memory_of_the_caller_is_moved_in_place_where_that_is_safe() {
    let served = Served::new();
    let device = pci::open(&served.name).unwrap();
    let domain = device.domain().clone();
    let regs = Registers::open(&device, 0).unwrap();
    device.set_bus_master(true).unwrap();
    let ours = DmaMemory::allocate(domain.clone(), 4096, Rights::READ | Rights::WRITE).unwrap();
    let mut theirs = vec![0u8; 5 * 4096];
    let address = theirs.as_mut_ptr();
    for round in 0..3u8 {
        for n in 0..theirs.len() {
            // SAFETY: within `theirs`, whose pages nobody else has just now.
            unsafe { address.add(n).write_volatile(((n / 64) as u8).wrapping_add(round)) };
        }
        let rights = Rights::READ | Rights::WRITE;
        // SAFETY: `theirs` outlives the region, and is reached by pointer until it is gone.
        let region = unsafe { DmaRegion::register(domain.clone(), address, 5 * 4096, rights) }.unwrap();
        // Ends and middle alike, and across.
        for at in (0..5 * 4096 - 64).step_by(4096 - 16) {
            assert_eq!(copy(&regs, region.iova() + at as u64, ours.iova()), 0);
            for n in 0..64 {
                assert_eq!(ours.read::<u8>(n), (((at + n) / 64) as u8).wrapping_add(round));
            }
        }
        ours.write_bytes(0, &[0xee; 64]);
        assert_eq!(copy(&regs, ours.iova(), region.iova() + 2 * 4096 - 32), 0);
        // SAFETY: within `theirs`.
        assert_eq!(unsafe { address.add(2 * 4096 + 31).read_volatile() }, 0xee);
        drop(region);
        assert_eq!(theirs[2 * 4096 - 32..2 * 4096 + 32], [0xee; 64]);
    }
}

#[test]
fn devices_of_one_domain_share_what_is_mapped() {
    let (first, second) = (Served::new(), Served::new());
    let domain = pci::new_domain(&first.name).unwrap();
    let a = domain.clone().open(&first.name).unwrap();
    let dma: Arc<dyn DmaDomain> = domain.clone();
    let early = DmaMemory::allocate(dma.clone(), 4096, Rights::READ | Rights::WRITE).unwrap();
    let b = domain.clone().open(&second.name).unwrap();
    let late = DmaMemory::allocate(dma, 4096, Rights::READ | Rights::WRITE).unwrap();
    for (device, mark) in [(&a, 1), (&b, 2)] {
        device.set_bus_master(true).unwrap();
        early.write_bytes(0, &[mark; 64]);
        let regs = Registers::open(device, 0).unwrap();
        assert_eq!(copy(&regs, early.iova(), late.iova()), 0);
        assert_eq!(late.read::<u8>(63), mark);
    }
    drop(a);
    drop(early);
    assert_eq!(second.dma.mappings(), 1);
    drop(late);
    drop(b);
    // Closed, it can be opened again.
    for _ in 0..20 {
        pci::open(&first.name).unwrap();
    }
}

#[test]
fn a_device_whose_process_is_gone_was_pulled_out() {
    let mut served = Served::new();
    let device = pci::open(&served.name).unwrap();
    let regs = Registers::open(&device, 0).unwrap();
    let memory = DmaMemory::allocate(device.domain().clone(), 4096, Rights::READ).unwrap();
    let pin = event();
    device.enable_interrupts(InterruptKind::Intx, &[pin.as_fd()]).unwrap();
    assert!(!device.is_gone());
    served.end();
    assert_eq!(regs.read32(SCRATCH), u32::MAX);
    assert!(device.is_gone());
    let deadline = Instant::now() + Duration::from_secs(5);
    while !signalled(&pin) {
        assert!(Instant::now() < deadline, "whoever sleeps is woken");
        std::thread::yield_now();
    }
    assert!(matches!(regs.fault(), Some(Error::VfioUser(_))));
    assert!(config::ids(&*device).is_err());
    regs.write32(SCRATCH, 1);
    regs.write32(SHARED, 1);
    assert!(device.reset().is_err());
    drop(memory);
    DmaMemory::allocate(device.domain().clone(), 4096, Rights::READ).unwrap();
    drop((regs, device));
    assert!(pci::open(&served.name).is_err());
}

#[test]
fn an_inherited_socket() {
    use std::os::fd::AsRawFd;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let described = Description::pci(256);
        let mut server = Server::over(theirs, described, ServerOptions::default());
        let mut device = Copier {
            dma: server.dma(),
            interrupts: server.interrupts(),
            config: vec![0xff; 256],
            registers: Vec::new(),
            messages: Arc::default(),
        };
        while server.poll(&mut device, Duration::from_secs(5)).unwrap()
            != uvia_vfio_user::server::Activity::Finished
        {}
    });
    let name = format!("vfio-user:fd:{}", ours.as_raw_fd());
    let device = pci::open(&name).unwrap();
    assert!(matches!(config::ids(&*device), Err(Error::Device { fault: DeviceFault::Gone, .. })));
    drop(device);
    thread.join().unwrap();
}

#[test]
fn names() {
    for name in ["0000:01:00.0", "vfio-user:/run/nic", "vfio-user:nic", "vfio-user:fd:3"] {
        pci::check_name(name).unwrap();
    }
    for name in ["vfio-user:", "vfio-user:fd:x", "eth0", "/run/nic"] {
        assert!(matches!(pci::check_name(name), Err(Error::BadName { .. })), "{name}");
    }
    let nobody = pci::open("vfio-user:/nonexistent/nic").err().unwrap().to_string();
    assert!(nobody.contains("vfio-user:/nonexistent/nic") && nobody.contains("uvia-device"), "{nobody}");
}
