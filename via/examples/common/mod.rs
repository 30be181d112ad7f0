//! What all examples have in common: a NIC, and a connection between two of them.
//!
//! `EXAMPLE NIC` waits for another; `EXAMPLE NIC example` connects to that one, which calls itself so. A NIC is a PCI
//! address, `vfio-user:PATH`, or with no adapter at all `shm:NAME`, between programs of one host.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uvia::{
    Completion, CompletionQueue, Descriptor, Error, MemoryAttributes, MemoryRegion, NetAddress, Nic,
    NicOptions, Result, Vi, ViAttributes, WorkQueue,
};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
const DEPTH: usize = 16;

/// How the program ends: with what was wrong, in the error's own words.
pub fn tell<E: Display>(outcome: std::result::Result<(), E>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// One end of a connection.
pub struct End {
    /// The queue that both work queues are tied to.
    pub cq: CompletionQueue,
    /// The interface. Dropped after it, the queue is there for what comes back.
    pub vi: Vi,
    /// 64 bytes for messages that come, and 64 for those that go.
    pub memory: MemoryRegion,
    /// It has connected, and begins.
    pub begins: bool,
    /// Sends that have not completed. Relaxed: a count, which orders nothing else.
    sending: AtomicU32,
}

impl End {
    /// Opens and connects as the arguments say.
    pub fn connect() -> Result<Self> {
        let mut arguments = std::env::args().skip(1);
        let Some(device) = arguments.next() else {
            return Err(Error::Parameter("usage: EXAMPLE NIC [HOST]".to_owned()));
        };
        let peer = arguments.next();
        // Each end needs a name of its own, also where both are on one host.
        let name = peer.is_none().then(|| "example".to_owned());
        let nic = Nic::open(&device, NicOptions { name, ..NicOptions::default() })?;
        nic.wait_ready(PATIENCE)?;
        let tag = nic.create_tag()?;
        let cq = nic.create_cq(2 * DEPTH)?;
        let attributes = ViAttributes { send_depth: DEPTH, receive_depth: DEPTH, ..ViAttributes::new(tag) };
        let vi = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
        let memory = nic.allocate(128, MemoryAttributes::local(tag))?;
        // Before it is connected: whoever is connected may send.
        vi.post_receive(Descriptor::new(vec![memory.segment(0..64)?])).map_err(|e| e.error)?;
        match &peer {
            Some(host) => {
                let there = NetAddress::new(nic.resolve(host, PATIENCE)?, b"example")?;
                let start = Instant::now();
                // A host answers to its name a moment before its program listens: then it is asked again.
                loop {
                    match vi.connect(&there, PATIENCE, &[]) {
                        Ok(_) => break,
                        Err(Error::NoMatch(_)) if start.elapsed() < PATIENCE => std::thread::yield_now(),
                        Err(e) => return Err(e),
                    }
                }
            }
            None => {
                let waiting =
                    || Error::Timeout { what: "a peer".to_owned(), millis: PATIENCE.as_millis() as u64 };
                let request = nic.listen(b"example", 1)?.wait(PATIENCE)?.ok_or_else(waiting)?;
                request.accept(&vi, &[]).map_err(|(_, e)| e)?;
            }
        }
        Ok(Self { cq, vi, memory, begins: peer.is_some(), sending: AtomicU32::new(0) })
    }

    /// Sends the number.
    pub fn send(&self, number: u32) -> Result<()> {
        self.memory.write(64, &number.to_le_bytes())?;
        self.sending.fetch_add(1, Ordering::Relaxed);
        self.vi.post_send(Descriptor::new(vec![self.memory.segment(64..68)?])).map_err(|e| e.error)
    }

    /// Takes a completion: the number that was received, if it is of a receive, whose descriptor then receives again.
    pub fn take(&self, Completion { queue, descriptor, .. }: Completion) -> Result<Option<u32>> {
        if !descriptor.status().is_success() {
            return Err(Error::Parameter(format!("a {queue:?} ended with {:?}", descriptor.status())));
        }
        if queue == WorkQueue::Send {
            self.sending.fetch_sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        let mut number = [0; 4];
        self.memory.read(0, &mut number)?;
        self.vi.post_receive(descriptor).map_err(|e| e.error)?;
        Ok(Some(u32::from_le_bytes(number)))
    }

    /// Waits until all that was sent has arrived: who leaves takes what is still to be sent along.
    pub fn finish(&self) -> Result<()> {
        while self.sending.load(Ordering::Relaxed) > 0 {
            let waiting = || Error::Timeout {
                what: "the last acknowledgement".to_owned(),
                millis: PATIENCE.as_millis() as u64,
            };
            self.take(self.cq.wait(PATIENCE)?.ok_or_else(waiting)?)?;
        }
        Ok(())
    }
}

/// A number that comes is answered by the next, up to this one.
pub const LAST: u32 = 1000;

/// What is to be answered to a number.
pub fn answer(number: u32) -> Option<u32> {
    (number < LAST).then_some(number + 1)
}
