//! Two connected virtual interfaces in one process, driven from one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia::{
    Clock, CompletionQueue, Descriptor, MemoryAttributes, MemoryRegion, NetAddress, Nic, NicOptions,
    ProtectionTag, Vi, ViAttributes, WorkQueue,
};
use uvia_driver::dma::DmaDomain;

use crate::MemoryNic;

/// How long set-up steps may take; far beyond what they need, also under emulation.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// One end.
pub struct End {
    /// Its NIC.
    pub nic: Nic,
    /// The tag of all that follows.
    pub tag: ProtectionTag,
    /// For both of its work queues.
    pub cq: CompletionQueue,
    /// Its interface.
    pub vi: Vi,
}

/// Both ends, connected.
pub struct ViPair {
    /// The one that asked.
    pub a: End,
    /// The one that waited.
    pub b: End,
}

impl End {
    /// An end on `nic`, not connected yet.
    pub fn new(nic: Nic, change: impl Fn(&mut ViAttributes)) -> uvia::Result<Self> {
        let tag = nic.create_tag()?;
        let mut attributes = ViAttributes::new(tag);
        change(&mut attributes);
        let cq = nic.create_cq(attributes.send_depth + attributes.receive_depth)?;
        let vi = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
        Ok(Self { nic, tag, cq, vi })
    }

    /// Registered memory of this end that its peer may write.
    pub fn memory(&self, len: usize) -> uvia::Result<MemoryRegion> {
        self.nic.allocate(len, MemoryAttributes::remote_write(self.tag))
    }
}

impl ViPair {
    /// Over two adapters made of memory.
    pub fn over_memory(nics: (Box<MemoryNic>, Box<MemoryNic>, Arc<impl DmaDomain + 'static>)) -> Self {
        Self::over_memory_at(nics, Clock::system())
    }

    /// Over two adapters made of memory, by a clock.
    pub fn over_memory_at(
        (a, b, domain): (Box<MemoryNic>, Box<MemoryNic>, Arc<impl DmaDomain + 'static>),
        clock: Clock,
    ) -> Self {
        let open = |adapter, name: &str| {
            let clock = clock.clone();
            let options = NicOptions { name: Some(name.to_owned()), clock, ..NicOptions::default() };
            Nic::with_adapter(adapter, domain.clone(), options).expect("a NIC of memory opens")
        };
        Self::connect(open(a, "a"), open(b, "b"), |_| ()).expect("the pair connects")
    }

    /// Over two NICs.
    ///
    /// # Errors
    /// What keeps them from being connected.
    pub fn connect(a: Nic, b: Nic, change: impl Fn(&mut ViAttributes)) -> uvia::Result<Self> {
        let start = Instant::now();
        while !(a.ready()? && b.ready()?) {
            if start.elapsed() > PATIENCE {
                return Err(uvia::Error::Timeout { what: "the links".to_owned(), millis: 30_000 });
            }
        }
        let (a, b) = (End::new(a, &change)?, End::new(b, &change)?);
        join(&a, &b, b"pair")?;
        Ok(Self { a, b })
    }

    /// Drives both until `ready` answers.
    pub fn drive<T>(&self, mut ready: impl FnMut(&Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(answer) = ready(self) {
                return answer;
            }
            self.a.nic.poll().expect("adapter a works");
            self.b.nic.poll().expect("adapter b works");
            assert!(start.elapsed() < PATIENCE, "nothing happened for {PATIENCE:?}");
        }
    }
}

/// Connects two ends whose NICs are both driven by this thread.
///
/// # Errors
/// What the connection came to.
pub fn join(a: &End, b: &End, discriminator: &[u8]) -> uvia::Result<()> {
    let listener = b.nic.listen(discriminator, 4)?;
    a.vi.connect_start(&NetAddress::new(b.nic.properties().mac, discriminator)?, PATIENCE, &[])?;
    loop {
        if let Some(request) = listener.poll()? {
            request.accept(&b.vi, &[]).map_err(|(_, e)| e)?;
        }
        if a.vi.connect_done()?.is_some() {
            return Ok(());
        }
    }
}

/// A ping-pong of sends over a connected pair, all set up: each round moves one message each way.
pub struct PingPong {
    pair: ViPair,
    a: Idle,
    b: Idle,
}

/// One end's descriptors while they are not posted.
struct Idle {
    send: Option<Box<Descriptor>>,
}

impl PingPong {
    /// Messages of `size` bytes, with the first receives posted.
    pub fn new(pair: ViPair, size: usize) -> Self {
        let prepare = |end: &End| {
            let memory = end.memory(2 * size.max(1)).expect("memory is registered");
            let segment = |start: usize| memory.segment(start..start + size).expect("within the region");
            end.vi.post_receive(Descriptor::new(vec![segment(size)])).expect("a receive is posted");
            Idle { send: Some(Descriptor::new(vec![segment(0)])) }
        };
        let (a, b) = (prepare(&pair.a), prepare(&pair.b));
        Self { pair, a, b }
    }

    /// One message from a to b and one back.
    #[inline]
    pub fn round(&mut self) {
        leg(&self.pair.a, &mut self.a, &self.pair.b, &mut self.b);
        leg(&self.pair.b, &mut self.b, &self.pair.a, &mut self.a);
    }

    /// The pair.
    pub fn pair(&self) -> &ViPair {
        &self.pair
    }
}

/// One message from `from` to `to`; the receive is posted again.
#[inline]
fn leg(from: &End, mine: &mut Idle, to: &End, theirs: &mut Idle) {
    let descriptor = mine.send.take().unwrap_or_else(|| {
        // The last send completes with the answer's acknowledgement, which has come with the answer itself.
        loop {
            if let Some(completion) = from.cq.poll().expect("the adapter works") {
                assert!(completion.descriptor.status().is_success());
                assert_eq!(completion.queue, WorkQueue::Send);
                return completion.descriptor;
            }
        }
    });
    from.vi.post_send(descriptor).map_err(|e| e.error).expect("a send is posted");
    loop {
        let Some(completion) = to.cq.poll().expect("the adapter works") else { continue };
        assert!(completion.descriptor.status().is_success(), "{:?}", completion.descriptor.status());
        match completion.queue {
            WorkQueue::Send => theirs.send = Some(completion.descriptor),
            WorkQueue::Receive => {
                to.vi.post_receive(completion.descriptor).map_err(|e| e.error).expect("a receive is posted");
                return;
            }
        }
    }
}
