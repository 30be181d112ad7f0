//! A client and a device, over a socket.

mod toy;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use toy::{BAR, COUNT, DOORBELLS, FROM, GO, LEN, PIN, REFUSED, SCRATCH, STATUS, Served, TO, TRIGGER, pair};
use uvia_vfio_user::client::{Client, ClientMemory, ClientOptions, NoMemory};
use uvia_vfio_user::memory::SharedMemory;
use uvia_vfio_user::server::{DmaError, Server, ServerOptions};
use uvia_vfio_user::wire::{RegionAreas, irq, irq_flags, irq_set, region};
use uvia_vfio_user::{Error, Rights};

const BOTH: Rights = Rights::all();

fn read(client: &Client, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    client.region_read(0, offset, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

fn write(client: &Client, offset: u64, value: u64) {
    client.region_write(0, offset, &value.to_le_bytes()).unwrap();
}

fn copy(client: &Client, from: u64, to: u64, len: u64) -> u64 {
    write(client, FROM, from);
    write(client, TO, to);
    write(client, LEN, len);
    write(client, GO, 1);
    read(client, STATUS)
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn count(event: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(event, &mut bytes[..]).map_or(0, |_| u64::from_ne_bytes(bytes))
}

#[test]
fn the_device_is_described() {
    let (_served, client) = pair();
    let info = client.device_info().unwrap();
    assert_eq!((info.flags, info.num_regions, info.num_irqs), (3, 9, 5));
    assert!(client.is_resettable().unwrap());
    let bar = client.region_info(0).unwrap();
    assert_eq!((bar.size, bar.rights), (BAR, BOTH));
    assert_eq!(bar.areas, RegionAreas::Sparse(Vec::from_iter(Some(DOORBELLS..DOORBELLS + 0x1000))));
    assert_eq!(client.region_info(1).unwrap().size, 0);
    assert_eq!(client.region_info(region::CONFIG).unwrap().size, 256);
    assert_eq!(client.region_info(9).unwrap_err().errno(), Some(22));
    assert_eq!(client.irq_info(irq::MSIX).unwrap().count, 70);
    let pin = client.irq_info(irq::INTX).unwrap();
    assert!(pin.count == 1 && pin.flags & irq_flags::AUTOMASKED != 0);
    assert_eq!(client.irq_info(5).unwrap_err().errno(), Some(22));
    let events = client.region_events(0).unwrap();
    assert_eq!((events.len(), events[0].offset, events[0].value), (1, COUNT, Some(7)));
    assert!(client.region_events(region::CONFIG).unwrap().is_empty());
}

#[test]
fn registers_are_read_written_posted_and_refused() {
    let (served, client) = pair();
    let mut config = [0; 4];
    client.region_read(region::CONFIG, 8, &mut config).unwrap();
    assert_eq!(config, [8, 9, 10, 11]);
    write(&client, SCRATCH, 0x1234_5678_9abc);
    assert_eq!(read(&client, SCRATCH), 0x1234_5678_9abc);
    for _ in 0..1000 {
        client.region_post(0, COUNT, &[1]).unwrap();
    }
    assert_eq!(read(&client, COUNT + 16), 1000, "posted writes come before what follows");
    let refused = client.region_write(0, REFUSED, &[1]).unwrap_err();
    assert!(matches!(&refused, Error::Refused { what: "REGION_WRITE", .. }) && refused.errno() == Some(6));
    client.region_post(0, REFUSED, &[1]).unwrap();
    assert_eq!(client.region_read(0, BAR - 4, &mut [0; 8]).unwrap_err().errno(), Some(22));
    assert_eq!(client.region_read(0, u64::MAX, &mut [0; 8]).unwrap_err().errno(), Some(22));
    assert_eq!(client.region_read(3, 0, &mut [0; 8]).unwrap_err().errno(), Some(22));
    assert!(matches!(client.region_read(0, 0, &mut []), Err(Error::Argument { .. })));
    client.region_read(0, 0, &mut [0; 0x2001]).unwrap();
    assert_eq!(served.seen.lock().unwrap().longest, 0x2001);
    assert!(client.closed().is_none());
}

#[test]
fn doorbells_need_no_message() {
    let (served, client) = pair();
    let bar = client.region_info(0).unwrap();
    let offset = bar.offset + DOORBELLS;
    let mapped = SharedMemory::from_peer(bar.file.unwrap(), offset, 0x1000, true).unwrap();
    mapped.store_u32(8, 77);
    assert_eq!(served.doorbells.load_u32(DOORBELLS as usize + 8), 77);
    assert_eq!(read(&client, DOORBELLS + 8), 77, "by message it is the same");
    client.region_post(0, DOORBELLS + 8, &[5, 0, 0, 0]).unwrap();
    assert_eq!(read(&client, DOORBELLS + 8), 5);
    assert_eq!(mapped.load_u32(8), 5);
}

#[test]
fn dma_to_shared_memory() {
    let (served, client) = pair();
    let memory = SharedMemory::create("client", 0x4000).unwrap();
    client.dma_map(0x10000, 0x2000, Rights::READ, Some((memory.fd(), 0))).unwrap();
    client.dma_map(0x12000, 0x2000, BOTH, Some((memory.fd(), 0x2000))).unwrap();
    let again = client.dma_map(0x13000, 0x1000, BOTH, Some((memory.fd(), 0))).unwrap_err();
    assert_eq!(again.errno(), Some(17));
    memory.write(0x100, b"some bytes");
    assert_eq!(copy(&client, 0x10100, 0x12ffa, 10), 0);
    let mut bytes = [0; 10];
    memory.read(0x2ffa, &mut bytes);
    assert_eq!(&bytes, b"some bytes");
    for (from, to, len) in [
        (0x10000, 0x11000, 1), // not for writing
        (0x0ffff, 0x12000, 2), // begins before
        (0x10000, 0x13fff, 2), // ends behind
        (0x10000, 0x12000, 0x5000),
        (u64::MAX, 0x12000, 2),
    ] {
        assert_ne!(copy(&client, from, to, len), 0, "{from:#x} {to:#x} {len}");
    }
    let mut window = served.dma.window(0x12000, 0x2000, BOTH).unwrap();
    assert!(window.is_direct());
    window.store_u32(0, 7).unwrap();
    assert_eq!(memory.load_u32(0x2000), 7);
    assert!(matches!(window.load_u64(0x1ffc), Err(DmaError::Unmapped(_))));
    assert!(matches!(served.dma.window(0x10000, 8, BOTH), Err(DmaError::Denied { .. })));
    client.dma_unmap(0x12000, 0x2000).unwrap();
    client.dma_unmap(0x12000, 0x2000).unwrap();
    client.dma_unmap(1 << 63, 1 << 63).unwrap();
    assert!(window.load_u32(0).is_err(), "a window knows");
    assert_ne!(copy(&client, 0x10100, 0x12000, 10), 0);
    client.dma_map(0x12000, 0x2000, BOTH, Some((memory.fd(), 0))).unwrap();
    memory.store_u32(0, 9);
    assert_eq!(window.load_u32(0).unwrap(), 9);
}

/// Memory that only the client can reach.
struct Private(Mutex<Vec<u8>>);

impl ClientMemory for Private {
    fn read(&self, iova: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        let at = iova as usize - 0x10000;
        into.copy_from_slice(bytes.get(at..at + into.len()).ok_or_else(|| io::Error::from_raw_os_error(14))?);
        Ok(())
    }

    fn write(&self, iova: u64, from: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        let at = iova as usize - 0x10000;
        let into = bytes.get_mut(at..at + from.len()).ok_or_else(|| io::Error::from_raw_os_error(14))?;
        into.copy_from_slice(from);
        Ok(())
    }
}

#[test]
fn dma_by_messages() {
    let (served, socket) = Served::pair(Duration::from_secs(5));
    let memory = Arc::new(Private(Mutex::new((0..0x40_0000u32).map(|n| (n % 251) as u8).collect())));
    let client = toy::client(socket, memory.clone());
    client.dma_map(0x10000, 0x40_0000, BOTH, None).unwrap();
    // In several messages, each as long as may be; and posted writes in between.
    let len = 0x18_0000;
    client.region_post(0, COUNT, &[1]).unwrap();
    assert_eq!(copy(&client, 0x10000, 0x10000 + len, len), 0);
    {
        let bytes = memory.0.lock().unwrap();
        assert_eq!(bytes[..len as usize], bytes[len as usize..2 * len as usize]);
    }
    let mut window = served.dma.window(0x10001, 100, BOTH).unwrap();
    assert!(!window.is_direct());
    window.store_u32(0, 0x01020304).unwrap();
    assert_eq!(memory.0.lock().unwrap()[1..5], [4, 3, 2, 1]);
    assert_eq!(window.load_u32(0).unwrap(), 0x01020304);
    // What the client says it has, and has not.
    client.dma_map(0x100_0000, 0x1000, BOTH, None).unwrap();
    assert_ne!(copy(&client, 0x100_0000, 0x10000, 16), 0);
    assert_eq!(copy(&client, 0x10000, 0x10100, 16), 0, "and goes on");
}

#[test]
fn posted_writes_while_the_device_asks_for_memory() {
    let (_served, socket) = Served::pair(Duration::from_secs(5));
    let client = toy::client(socket, Arc::new(Private(Mutex::new(vec![1; 0x1000]))));
    client.dma_map(0x10000, 0x1000, BOTH, None).unwrap();
    write(&client, FROM, 0x10000);
    write(&client, TO, 0x10100);
    write(&client, LEN, 16);
    for _ in 0..300 {
        client.region_post(0, GO, &[1]).unwrap();
        client.region_post(0, COUNT, &[1]).unwrap();
    }
    assert_eq!((read(&client, COUNT + 16), read(&client, STATUS)), (300, 0));
}

#[test]
fn memory_that_may_be_cut_short_is_not_mapped_and_still_works() {
    let (served, client) = pair();
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x1000).unwrap();
    let memfd = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memfd, 0x2000).unwrap();
    client.dma_map(0x10000, 0x2000, BOTH, Some((memfd.as_fd(), 0))).unwrap();
    rustix::io::pwrite(&memfd, b"abcd", 0).unwrap();
    assert_eq!(copy(&client, 0x10000, 0x11000, 4), 0);
    let mut bytes = [0; 4];
    rustix::io::pread(&memfd, &mut bytes[..], 0x1000).unwrap();
    assert_eq!(&bytes, b"abcd");
    assert!(!served.dma.window(0x10000, 0x1000, BOTH).unwrap().is_direct());
    // The file goes: an error, and not a signal.
    rustix::fs::ftruncate(&memfd, 0).unwrap();
    assert_ne!(copy(&client, 0x10000, 0x11000, 4), 0);
    // Rights that the file does not give, and ranges beyond its end.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memfd));
    let read_only = std::fs::File::open(path).unwrap();
    assert!(client.dma_map(0x20000, 0x1000, BOTH, Some((read_only.as_fd(), 0))).is_err());
    assert!(client.dma_map(0x20000, 0x1000, BOTH, Some((memfd.as_fd(), 0))).is_err());
    // A file that may hang is not touched: the client is asked.
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    client.dma_map(0x30000, 0x1000, Rights::READ, Some((reader.as_fd(), 0))).unwrap();
    assert_ne!(copy(&client, 0x30000, 0x10000, 4), 0);
}

#[test]
fn interrupts_arrive() {
    let (_served, client) = pair();
    let pin = event();
    client.route_irqs(irq::INTX, 0, &[pin.as_fd()]).unwrap();
    write(&client, PIN, 1);
    assert_eq!(count(&pin), 1);
    client.act_on_irqs(irq_set::ACTION_UNMASK, irq::INTX, 0, 1).unwrap();
    assert_eq!(count(&pin), 1, "still asserted");
    write(&client, PIN, 0);
    client.act_on_irqs(irq_set::ACTION_UNMASK, irq::INTX, 0, 1).unwrap();
    assert_eq!(count(&pin), 0);
    // More vectors than fit into a message.
    let events: Vec<OwnedFd> = (0..70).map(|_| event()).collect();
    let fds: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    client.route_irqs(irq::MSIX, 0, &fds).unwrap();
    write(&client, TRIGGER, 69);
    write(&client, TRIGGER, 3);
    assert_eq!(events.iter().map(count).collect::<Vec<_>>().iter().sum::<u64>(), 2);
    client.unroute_irqs(irq::MSIX).unwrap();
    write(&client, TRIGGER, 69);
    assert_eq!(count(&events[69]), 0);
    client.route_irqs(irq::MSIX, 69, &fds[69..]).unwrap();
    assert_eq!(count(&events[69]), 1, "it waited");
    assert_eq!(client.route_irqs(irq::MSIX, 70, &fds[..1]).unwrap_err().errno(), Some(22));
}

#[test]
fn reset_and_several_threads() {
    let (served, client) = pair();
    write(&client, SCRATCH, 5);
    client.reset().unwrap();
    assert_eq!((read(&client, SCRATCH), served.seen.lock().unwrap().resets), (0, 1));
    std::thread::scope(|scope| {
        for n in 0..4u64 {
            let client = &client;
            scope.spawn(move || {
                for value in 0..200 {
                    write(client, 0x100 + n * 8, value);
                    assert_eq!(read(client, 0x100 + n * 8), value);
                }
            });
        }
    });
}

fn connect(path: &Path) -> Result<Client, Error> {
    Client::connect(path, Arc::new(NoMemory), ClientOptions { patience: Duration::from_secs(3) })
}

#[test]
fn one_client_after_the_other_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy");
    assert!(matches!(connect(&path), Err(Error::Connect { .. })));
    let serve = || {
        let doorbells = toy::doorbells();
        let server = Server::bind(&path, toy::description(&doorbells), ServerOptions::default()).unwrap();
        Served::start(server, doorbells)
    };
    // No socket: it is somebody's.
    std::fs::write(&path, "precious").unwrap();
    let refused = Server::bind(&path, toy::description(&toy::doorbells()), ServerOptions::default());
    assert!(matches!(refused, Err(Error::Listen { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
    // Left by a dead one.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let served = serve();
    let doorbells = toy::doorbells();
    let second = Server::bind(&path, toy::description(&doorbells), ServerOptions::default());
    assert!(matches!(second, Err(Error::Listen { .. })));
    let memory = SharedMemory::create("client", 0x1000).unwrap();
    for n in 1..=20 {
        let client = connect(&path).unwrap();
        client.dma_map(0x10000, 0x1000, BOTH, Some((memory.fd(), 0))).unwrap();
        assert_eq!(copy(&client, 0x10000, 0x10100, 4), 0);
        drop(client);
        let deadline = Instant::now() + Duration::from_secs(5);
        while served.seen.lock().unwrap().detached < n {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert_eq!(served.dma.mappings(), 0);
    }
    let client = connect(&path).unwrap();
    let waiting =
        Client::connect(&path, Arc::new(NoMemory), ClientOptions { patience: Duration::from_millis(100) });
    assert!(matches!(waiting.unwrap_err(), Error::Timeout { what: "VERSION", .. }));
    assert_eq!(read(&client, SCRATCH), 0, "the first one is not disturbed");
    drop(served);
    assert!(!path.exists());
    assert!(matches!(client.region_read(0, 0, &mut [0]), Err(Error::Closed { .. })));
}
