//! A device for tests: registers, a doorbell page that can be mapped, DMA by command, interrupts.

#![allow(dead_code)] // Each test file uses a part of it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use uvia_vfio_user::client::{Client, ClientMemory, ClientOptions, NoMemory};
use uvia_vfio_user::memory::SharedMemory;
use uvia_vfio_user::server::{
    Activity, Description, Device, DmaSpace, Interrupts, Region, Server, ServerOptions, WriteEvent,
};
use uvia_vfio_user::wire::{irq, region};

/// BAR 0: registers by message, and a page of doorbells that can be mapped.
pub const BAR: u64 = 0x3000;
/// The page that can be mapped.
pub const DOORBELLS: u64 = 0x1000;

/// Source and target of a copy, bytes, and the command to do it.
pub const FROM: u64 = 0;
pub const TO: u64 = 8;
pub const LEN: u64 = 16;
pub const GO: u64 = 24;
/// What the copy came to: 0, or an errno.
pub const STATUS: u64 = 32;
/// Sets the pin's level.
pub const PIN: u64 = 40;
/// Triggers an MSI-X vector.
pub const TRIGGER: u64 = 48;
/// Any number, kept until reset.
pub const SCRATCH: u64 = 56;
/// Counts the writes to it.
pub const COUNT: u64 = 64;
/// Writes to it fail with ENXIO.
pub const REFUSED: u64 = 72;
/// Writes to it never end.
pub const HANG: u64 = 80;

/// What happened to a toy, for its test to see.
#[derive(Debug, Default)]
pub struct Seen {
    pub resets: usize,
    pub attached: usize,
    pub detached: usize,
    pub longest: usize,
}

pub struct Toy {
    pub dma: DmaSpace,
    pub interrupts: Interrupts,
    pub doorbells: SharedMemory,
    pub registers: Vec<u8>,
    pub config: Vec<u8>,
    pub seen: Arc<Mutex<Seen>>,
}

impl Toy {
    fn register(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.registers[at..at + 8].try_into().unwrap())
    }

    fn set(&mut self, at: u64, value: u64) {
        self.registers[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn copy(&mut self) -> u64 {
        let mut bytes = vec![0; self.register(LEN) as usize];
        let done = self
            .dma
            .read(self.register(FROM), &mut bytes)
            .and_then(|()| self.dma.write(self.register(TO), &bytes));
        match done {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("toy: {e}");
                14
            }
        }
    }
}

impl Device for Toy {
    fn region_read(&mut self, index: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut seen = self.seen.lock().unwrap();
        seen.longest = seen.longest.max(into.len());
        let bytes = if index == region::CONFIG { &self.config } else { &self.registers };
        let offset = offset as usize;
        match bytes.get(offset..offset + into.len()) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => into.fill(0xff),
        }
        Ok(())
    }

    fn region_write(&mut self, index: u32, offset: u64, from: &[u8]) -> io::Result<()> {
        let at = offset as usize;
        if index == region::CONFIG {
            self.config[at..at + from.len()].copy_from_slice(from);
            return Ok(());
        }
        if offset == REFUSED {
            return Err(io::Error::from_raw_os_error(6));
        }
        if offset == HANG {
            std::thread::sleep(Duration::from_millis(600));
        }
        if let Some(bytes) = self.registers.get_mut(at..at + from.len()) {
            bytes.copy_from_slice(from);
        }
        let value = from.first().copied().unwrap_or(0);
        match offset {
            GO => {
                let status = self.copy();
                self.set(STATUS, status);
            }
            PIN => self.interrupts.set_intx(value != 0),
            TRIGGER => {
                self.interrupts.trigger(irq::MSIX, value.into());
            }
            COUNT => {
                let count = self.register(COUNT + 16) + 1;
                self.set(COUNT + 16, count);
            }
            _ => {}
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.registers.fill(0);
        self.seen.lock().unwrap().resets += 1;
    }

    fn attached(&mut self) {
        self.seen.lock().unwrap().attached += 1;
    }

    fn detached(&mut self) {
        self.seen.lock().unwrap().detached += 1;
    }
}

/// What a toy is.
pub fn description(doorbells: &SharedMemory) -> Description {
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let mut bar = Region::registers(BAR).with_shared(doorbells.clone(), Some(DOORBELLS..DOORBELLS + 0x1000));
    bar.events.push(WriteEvent { offset: COUNT, size: 4, value: Some(7), event: Arc::new(event) });
    Description::pci(256).with_bar(0, bar).with_vectors(irq::INTX, 1).with_vectors(irq::MSIX, 70)
}

pub fn doorbells() -> SharedMemory {
    SharedMemory::create("toy", BAR as usize).unwrap()
}

pub fn toy(server: &Server, doorbells: SharedMemory) -> Toy {
    Toy {
        dma: server.dma(),
        interrupts: server.interrupts(),
        doorbells,
        registers: vec![0; 0x1000],
        config: (0..=255).collect(),
        seen: Arc::default(),
    }
}

/// A toy that is served by a thread of its own, until this is dropped or its only client is gone.
pub struct Served {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub seen: Arc<Mutex<Seen>>,
    pub dma: DmaSpace,
    pub doorbells: SharedMemory,
}

impl Served {
    pub fn start(mut server: Server, doorbells: SharedMemory) -> Self {
        let mut toy = toy(&server, doorbells.clone());
        let (seen, dma, stop) = (toy.seen.clone(), server.dma(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match server.poll(&mut toy, Duration::from_millis(5)).unwrap() {
                    Activity::Finished => break,
                    Activity::Disconnected(why) => eprintln!("toy: client gone: {why}"),
                    _ => {}
                }
            }
        });
        Self { stop, thread: Some(thread), seen, dma, doorbells }
    }

    /// Served over a socketpair.
    pub fn pair(patience: Duration) -> (Self, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let doorbells = doorbells();
        let server = Server::over(theirs, description(&doorbells), ServerOptions { patience });
        (Self::start(server, doorbells), ours)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            outcome.unwrap();
        }
    }
}

pub fn client(socket: UnixStream, memory: Arc<dyn ClientMemory>) -> Client {
    Client::over(socket, "toy", memory, ClientOptions { patience: Duration::from_secs(5) }).unwrap()
}

/// A toy, and a client of it.
pub fn pair() -> (Served, Client) {
    let (served, socket) = Served::pair(Duration::from_secs(5));
    (served, client(socket, Arc::new(NoMemory)))
}
