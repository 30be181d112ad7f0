//! Many connected interfaces on two NICs, driven from one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia::{
    Clock, Completion, CompletionQueue, Completions, Descriptor, MemoryAttributes, MemoryRegion, NetAddress,
    Nic, NicOptions, Vi, ViAttributes, WorkQueue,
};
use uvia_driver::dma::DmaDomain;

use crate::{MemoryNic, PATIENCE};

/// Bytes of a message.
const SIZE: usize = 64;
/// Descriptors of each work queue.
const DEPTH: usize = 2;
/// Messages each way over one connection, before the next has its turn.
const STRETCH: usize = 64;
/// Sends of each side, so that nobody waits for the last one's acknowledgement, which comes by itself.
const SENDS: usize = 16;
/// Requests under way at a time.
const REQUESTS: usize = 64;

/// One end of all connections.
struct Side {
    nic: Nic,
    cq: CompletionQueue,
    vis: Vec<Vi>,
    memory: MemoryRegion,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    sends: Vec<Box<Descriptor>>,
    completions: Completions,
}

/// All of them: of each pair of interfaces, both have a receive posted.
pub struct Crowd {
    sides: [Side; 2],
    next: usize,
    /// How long it took to create them, and to connect them.
    pub times: [Duration; 2],
}

impl Side {
    fn new(nic: Nic, count: usize) -> uvia::Result<Self> {
        let tag = nic.create_tag()?;
        let cq = nic.create_cq(2 * DEPTH * count)?;
        let attributes = ViAttributes { send_depth: DEPTH, receive_depth: DEPTH, ..ViAttributes::new(tag) };
        let vis = (0..count)
            .map(|_| nic.create_vi(&attributes, Some(&cq), Some(&cq)))
            .collect::<uvia::Result<Vec<_>>>()?;
        let memory = nic.allocate(2 * SIZE, MemoryAttributes::local(tag))?;
        Ok(Self { nic, cq, vis, memory, sends: Vec::new(), completions: Completions::with_capacity(8) })
    }

    fn receive(&self) -> uvia::Result<Box<Descriptor>> {
        Ok(Descriptor::new(vec![self.memory.segment(SIZE..2 * SIZE)?]))
    }
}

impl Crowd {
    /// So many connections over two adapters made of memory, by a clock.
    ///
    /// # Errors
    /// What keeps them from being made.
    pub fn over_memory_at(
        (a, b, domain): (Box<MemoryNic>, Box<MemoryNic>, Arc<impl DmaDomain + 'static>),
        clock: Clock,
        count: usize,
    ) -> uvia::Result<Self> {
        let open = |adapter, name: &str| {
            let clock = clock.clone();
            let options = NicOptions { name: Some(name.to_owned()), clock, ..NicOptions::default() };
            Nic::with_adapter(adapter, domain.clone(), options)
        };
        let start = Instant::now();
        let sides = [Side::new(open(a, "a")?, count)?, Side::new(open(b, "b")?, count)?];
        let created = start.elapsed();
        let mut crowd = Self { sides, next: 0, times: [created, Duration::ZERO] };
        let start = Instant::now();
        crowd.connect()?;
        crowd.times[1] = start.elapsed();
        for side in &mut crowd.sides {
            for vi in &side.vis {
                vi.post_receive(side.receive()?).map_err(|refused| refused.error)?;
            }
            for _ in 0..SENDS {
                side.sends.push(Descriptor::new(vec![side.memory.segment(0..SIZE)?]));
            }
        }
        Ok(crowd)
    }

    /// Connects the n-th of one side to the n-th of the other.
    fn connect(&mut self) -> uvia::Result<()> {
        let [a, b] = &self.sides;
        let listener = b.nic.listen(b"crowd", REQUESTS)?;
        let there = NetAddress::new(b.nic.properties().mac, b"crowd")?;
        let start = Instant::now();
        let mut taken = 0;
        for group in a.vis.chunks(REQUESTS) {
            for vi in group {
                vi.connect_start(&there, PATIENCE, &[])?;
            }
            let mut waiting: Vec<_> = group.iter().collect();
            while !waiting.is_empty() {
                while let Some(request) = listener.poll()? {
                    request.accept(&b.vis[taken], &[]).map_err(|(_, e)| e)?;
                    taken += 1;
                }
                a.nic.poll()?;
                let mut failed = None;
                waiting.retain(|vi| match vi.connect_done() {
                    Ok(done) => done.is_none(),
                    Err(e) => {
                        failed = Some(e);
                        false
                    }
                });
                if let Some(e) = failed {
                    return Err(e);
                }
                assert!(start.elapsed() < PATIENCE * 4, "only {taken} were connected");
            }
        }
        Ok(())
    }

    /// Connections.
    pub fn count(&self) -> usize {
        self.sides[0].vis.len()
    }

    /// One message each way; every connection has a stretch of them.
    pub fn round(&mut self) {
        let n = self.next / STRETCH % self.count();
        self.next += 1;
        let [a, b] = &mut self.sides;
        leg(a, b, n);
        leg(b, a, n);
    }
}

/// A message over the n-th connection; the receive is posted again.
#[inline]
fn leg(from: &mut Side, to: &mut Side, n: usize) {
    while from.sends.is_empty() {
        assert!(!reap(from, n), "a message that nobody sent");
        to.nic.poll().expect("the adapter works");
    }
    if let Some(descriptor) = from.sends.pop() {
        from.vis[n].post_send(descriptor).expect("a send is posted");
    }
    while !reap(to, n) {}
}

/// Takes what has completed; whether a message has come over the n-th connection.
#[inline]
fn reap(side: &mut Side, n: usize) -> bool {
    side.cq.poll_into(&mut side.completions).expect("the adapter works");
    let mut came = false;
    while let Some(Completion { queue, descriptor, vi }) = side.completions.pop() {
        let status = descriptor.status();
        assert!(status.is_success(), "{status:?} of {vi:?}; {n} was lost for {:?}", side.vis[n].loss());
        match queue {
            WorkQueue::Send => side.sends.push(descriptor),
            WorkQueue::Receive => {
                assert!(!came && vi == side.vis[n].id(), "a message for another");
                side.vis[n].post_receive(descriptor).expect("a receive is posted");
                came = true;
            }
        }
    }
    came
}
