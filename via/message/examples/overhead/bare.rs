//! A program on bare interfaces, which does what the layer does: the yardstick.

use std::time::Duration;

use uvia::{
    Completion, CompletionQueue, Completions, Descriptor, Listener, MemoryAttributes, MemoryHandle,
    MemoryRegion, NetAddress, Nic, Operation, RemoteMemory, Result, Vi, ViAttributes, WorkQueue,
};

/// Receives that are posted.
const DEPTH: usize = 8;
/// Bytes of a short message at most.
const SHORT: usize = 4096;

/// One end.
pub struct Bare {
    vi: Vi,
    cq: CompletionQueue,
    completions: Completions,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    sends: Vec<Box<Descriptor>>,
    /// What long messages are written from, and what the other end writes into: memory of the program's, as the layer is
    /// given it.
    long: MemoryRegion,
    target: MemoryRegion,
    _own: [Vec<u8>; 2],
    #[expect(clippy::vec_box)]
    writes: Vec<Box<Descriptor>>,
    nic: Nic,
    /// Messages that came and were not waited for yet.
    came: usize,
}

impl Bare {
    /// An end, with memory for long messages of so many bytes.
    pub fn new(nic: Nic, long: usize) -> Result<Self> {
        let tag = nic.create_tag()?;
        let cq = nic.create_cq(256)?;
        let mut attributes = ViAttributes::new(tag);
        attributes.max_transfer_size = nic.properties().max_transfer_size.min(long.max(SHORT) as u32);
        let vi = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
        let memory = nic.allocate((DEPTH + 1) * SHORT, MemoryAttributes::local(tag))?;
        for n in 0..DEPTH {
            let descriptor = Descriptor::new(vec![memory.segment(n * SHORT..(n + 1) * SHORT)?]);
            vi.post_receive(descriptor).map_err(|e| e.error)?;
        }
        let sends = vec![Descriptor::new(vec![memory.segment(DEPTH * SHORT..(DEPTH + 1) * SHORT)?])];
        let mut own = [vec![7; long.max(1)], vec![0; long.max(1)]];
        // SAFETY: both outlive their regions, which are dropped before them, and nobody touches them.
        let [long, target] = unsafe {
            [
                nic.register(own[0].as_mut_ptr(), own[0].len(), MemoryAttributes::local(tag))?,
                nic.register(own[1].as_mut_ptr(), own[1].len(), MemoryAttributes::remote_write(tag))?,
            ]
        };
        let completions = Completions::with_capacity(64);
        Ok(Self { vi, cq, completions, sends, long, target, _own: own, writes: Vec::new(), nic, came: 0 })
    }

    /// Connects two ends that this thread drives, and tells each where the other's memory is.
    pub fn join(&mut self, other: &mut Self) -> Result<()> {
        let listener: Listener = other.nic.listen(b"bare", 1)?;
        let place = |end: &Self| -> Result<Vec<u8>> {
            let RemoteMemory { address, handle } = end.target.remote(0)?;
            Ok([&address.to_le_bytes()[..], &handle.0.to_le_bytes()].concat())
        };
        let (mine, theirs) = (place(self)?, place(other)?);
        let remote = NetAddress::new(other.nic.properties().mac, b"bare")?;
        self.vi.connect_start(&remote, Duration::from_secs(5), &mine)?;
        loop {
            if let Some(request) = listener.poll()? {
                other.learn(&request.peer().private_data)?;
                request.accept(&other.vi, &theirs).map_err(|(_, e)| e)?;
            }
            if let Some(peer) = self.vi.connect_done()? {
                return self.learn(&peer.private_data);
            }
        }
    }

    fn learn(&mut self, place: &[u8]) -> Result<()> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let to =
            RemoteMemory { address: number(&place[..8]), handle: MemoryHandle(number(&place[8..12]) as u32) };
        let mut write = Descriptor::rdma_write(vec![self.long.segment(0..self.long.len())?], to);
        write.immediate = Some(0);
        self.writes.push(write);
        Ok(())
    }

    /// Takes what has completed.
    #[inline]
    fn reap(&mut self) {
        self.cq.poll_into(&mut self.completions).expect("the NIC works");
        while let Some(Completion { queue, descriptor, .. }) = self.completions.pop() {
            assert!(descriptor.status().is_success(), "{:?}", descriptor.status());
            match (queue, descriptor.operation) {
                (WorkQueue::Receive, _) => {
                    self.came += 1;
                    self.vi.post_receive(descriptor).expect("a receive is posted");
                }
                (WorkQueue::Send, Operation::Send) => self.sends.push(descriptor),
                (WorkQueue::Send, _) => self.writes.push(descriptor),
            }
        }
    }

    /// Sends a message of `len` bytes, at most [`SHORT`].
    #[inline]
    pub fn send(&mut self, len: usize) {
        let mut descriptor = loop {
            match self.sends.pop() {
                Some(descriptor) => break descriptor,
                None => self.reap(),
            }
        };
        descriptor.segments[0].set_len(len as u32).expect("within the region");
        self.vi.post_send(descriptor).expect("a send is posted");
    }

    /// Writes the long memory into the other end's, which is told when it is there.
    #[inline]
    pub fn write(&mut self) {
        let descriptor = loop {
            match self.writes.pop() {
                Some(descriptor) => break descriptor,
                None => self.reap(),
            }
        };
        self.vi.post_send(descriptor).expect("a write is posted");
    }

    /// Waits until a message has come, or a write.
    #[inline]
    pub fn wait(&mut self) {
        while self.came == 0 {
            self.reap();
        }
        self.came -= 1;
    }
}
