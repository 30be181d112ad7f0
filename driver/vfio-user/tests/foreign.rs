//! Peers that nobody here wrote: client and server of the crate vfio_user.

mod toy;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use toy::{BAR, DOORBELLS, FROM, GO, LEN, SCRATCH, STATUS, Served, TO, TRIGGER};
use uvia_vfio_user::Rights;
use uvia_vfio_user::client::{Client, ClientOptions, NoMemory};
use uvia_vfio_user::memory::SharedMemory;
use uvia_vfio_user::server::{Server, ServerOptions};
use uvia_vfio_user::wire::{RegionAreas, irq, irq_set, region};
use vfio_bindings::bindings::vfio::vfio_region_info;

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

#[test]
fn their_client_and_our_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy");
    let doorbells = toy::doorbells();
    let server = Server::bind(&path, toy::description(&doorbells), ServerOptions::default()).unwrap();
    let served = Served::start(server, doorbells);
    let mut client = vfio_user::Client::new(&path).unwrap();
    let bar = client.region(0).unwrap();
    assert_eq!((bar.size, bar.sparse_areas.len()), (BAR, 1));
    assert_eq!((bar.sparse_areas[0].offset, bar.sparse_areas[0].size), (DOORBELLS, 0x1000));
    assert!(bar.file_offset.is_some());

    client.region_write(0, SCRATCH, &77u64.to_le_bytes()).unwrap();
    let mut bytes = [0; 8];
    client.region_read(0, SCRATCH, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 77);

    let memory = SharedMemory::create("client", 0x2000).unwrap();
    memory.write(0, b"over there");
    client.dma_map(0, 0x10000, 0x2000, memory.fd().as_raw_fd()).unwrap();
    for (register, value) in [(FROM, 0x10000u64), (TO, 0x11000), (LEN, 10), (GO, 1)] {
        client.region_write(0, register, &value.to_le_bytes()).unwrap();
    }
    client.region_read(0, STATUS, &mut bytes).unwrap();
    let mut copied = [0; 10];
    memory.read(0x1000, &mut copied);
    assert_eq!((bytes, &copied), ([0; 8], b"over there"));

    assert_eq!(client.get_irq_info(irq::MSIX).unwrap().count, 70);
    let vector = event();
    let route = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    client.set_irqs(irq::MSIX, route, 2, 1, &[vector.as_raw_fd()]).unwrap();
    client.region_write(0, TRIGGER, &2u64.to_le_bytes()).unwrap();
    rustix::io::read(&vector, &mut bytes[..]).unwrap();
    assert_eq!(bytes, 1u64.to_ne_bytes());

    client.reset().unwrap();
    client.dma_unmap(0x10000, 0x2000).unwrap();
    assert_eq!((served.dma.mappings(), served.seen.lock().unwrap().resets), (0, 1));
    client.shutdown().unwrap();
}

/// What their server was told.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Write(u32, u64, Vec<u8>),
    Map(u64, u64, u64, bool),
    Unmap(u64, u64),
    Irqs(u32, u32, u32, usize),
    Reset,
}

struct Backend(Arc<Mutex<Vec<Told>>>);

impl Backend {
    fn told(&self, what: Told) -> Result<(), io::Error> {
        self.0.lock().unwrap().push(what);
        Ok(())
    }
}

impl vfio_user::ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), io::Error> {
        data.fill(region as u8 + offset as u8);
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.told(Told::Write(region, offset, data.to_vec()))
    }

    fn dma_map(
        &mut self,
        _flags: vfio_user::DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), io::Error> {
        self.told(Told::Map(offset, address, size, fd.is_some()))
    }

    fn dma_unmap(
        &mut self,
        _flags: vfio_user::DmaUnmapFlags,
        address: u64,
        size: u64,
    ) -> Result<(), io::Error> {
        self.told(Told::Unmap(address, size))
    }

    fn reset(&mut self) -> Result<(), io::Error> {
        self.told(Told::Reset)
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        _count: u32,
        fds: Vec<File>,
    ) -> Result<(), io::Error> {
        self.told(Told::Irqs(index, flags, start, fds.len()))
    }
}

#[test]
fn our_client_and_their_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs");
    let described = |index, size| vfio_user::ServerRegion {
        region_info: vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            flags: 3,
            index,
            cap_offset: 0,
            size,
            offset: 0,
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    };
    let regions =
        (0..region::COUNT).map(|index| described(index, if index == 0 { 0x1000 } else { 0 })).collect();
    let irqs = (0..3)
        .map(|index| vfio_user::IrqInfo { index, flags: 1, count: if index == 2 { 4 } else { 0 } })
        .collect();
    let server = vfio_user::Server::new(&path, true, irqs, regions).unwrap();
    let told = Arc::<Mutex<Vec<Told>>>::default();
    let mut backend = Backend(told.clone());
    let thread = std::thread::spawn(move || server.run(&mut backend));

    let client = Client::connect(&path, Arc::new(NoMemory), ClientOptions::default()).unwrap();
    let info = client.device_info().unwrap();
    assert_eq!((info.num_regions, info.num_irqs), (9, 3));
    assert!(client.is_resettable().unwrap());
    let bar = client.region_info(0).unwrap();
    assert_eq!((bar.size, bar.rights, bar.areas), (0x1000, Rights::all(), RegionAreas::None));
    assert_eq!(client.irq_info(irq::MSIX).unwrap().count, 4);
    let mut bytes = [0; 4];
    client.region_read(0, 9, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 4]);
    client.region_write(0, 16, &[1, 2, 3, 4]).unwrap();
    client.region_post(0, 20, &[5, 6]).unwrap();
    let memory = SharedMemory::create("client", 0x2000).unwrap();
    client.dma_map(0x10000, 0x1000, Rights::all(), Some((memory.fd(), 0x1000))).unwrap();
    client.dma_map(0x20000, 0x1000, Rights::READ, None).unwrap();
    let vector = event();
    client.route_irqs(irq::MSIX, 1, &[vector.as_fd()]).unwrap();
    client.unroute_irqs(irq::MSIX).unwrap();
    client.dma_unmap(0x10000, 0x1000).unwrap();
    client.reset().unwrap();
    assert!(client.closed().is_none());
    drop(client);
    let ended = thread.join().unwrap();
    assert!(ended.is_ok(), "{ended:?}");
    let route = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    assert_eq!(
        *told.lock().unwrap(),
        [
            Told::Write(0, 16, vec![1, 2, 3, 4]),
            Told::Write(0, 20, vec![5, 6]),
            Told::Map(0x1000, 0x10000, 0x1000, true),
            Told::Map(0, 0x20000, 0x1000, false),
            Told::Irqs(irq::MSIX, route, 1, 1),
            Told::Irqs(irq::MSIX, irq_set::DATA_NONE | irq_set::ACTION_TRIGGER, 0, 0),
            Told::Unmap(0x10000, 0x1000),
            Told::Reset,
        ]
    );
}
