//! Two connected virtual interfaces in one process, driven from one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia::{
    Clock, Completion, CompletionQueue, Completions, Descriptor, MemoryAttributes, MemoryRegion, NetAddress,
    Nic, NicOptions, ProtectionTag, Template, Vi, ViAttributes, WorkQueue,
};
use uvia_driver::dma::DmaDomain;

use crate::{Idle, MemoryNic};

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
        let (start, mut idle) = (Instant::now(), Idle::default());
        while !(a.ready()? && b.ready()?) {
            idle.pause();
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
        let (start, mut idle) = (Instant::now(), Idle::default());
        loop {
            if let Some(answer) = ready(self) {
                return answer;
            }
            let done = [&self.a, &self.b].map(|end| end.nic.poll().expect("its adapter works"));
            if done == [0; 2] {
                idle.pause();
            } else {
                idle = Idle::default();
            }
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
    let mut idle = Idle::default();
    loop {
        if let Some(request) = listener.poll()? {
            request.accept(&b.vi, &[]).map_err(|(_, e)| e)?;
        }
        if a.vi.connect_done()?.is_some() {
            return Ok(());
        }
        idle.pause();
    }
}

/// Receives are posted again so many at a time: as drivers give buffers back to their adapters, those of raw frames too.
const BACK: usize = 8;

/// A ping-pong of sends over a connected pair, all set up: each round moves as many messages each way.
pub struct PingPong {
    pair: ViPair,
    a: Hand,
    b: Hand,
}

/// What one end holds while it is not posted.
struct Hand {
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    sends: Vec<Box<Descriptor>>,
    /// Receives that messages came into; others are posted.
    #[expect(clippy::vec_box)]
    emptied: Vec<Box<Descriptor>>,
    completions: Completions,
    /// What it sends in their place, if it does.
    template: Option<Template>,
}

impl PingPong {
    /// Messages of `size` bytes, `burst` of them each way in turn, with the first receives posted.
    pub fn new(pair: ViPair, size: usize, burst: usize) -> Self {
        let prepare = |end: &End| {
            let receives = burst + BACK;
            let memory = end.memory((receives + burst) * size.max(1)).expect("memory is registered");
            let descriptor = |n: usize| {
                let segment = memory.segment(n * size..(n + 1) * size).expect("within the region");
                Descriptor::new(vec![segment])
            };
            for n in 0..receives {
                end.vi.post_receive(descriptor(n)).expect("a receive is posted");
            }
            Hand {
                sends: (receives..receives + burst).map(descriptor).collect(),
                emptied: Vec::with_capacity(receives),
                completions: Completions::with_capacity(2 * burst),
                template: None,
            }
        };
        let (a, b) = (prepare(&pair.a), prepare(&pair.b));
        Self { pair, a, b }
    }

    /// A burst from a to b and one back.
    #[inline]
    pub fn round(&mut self) {
        let burst = self.a.sends.capacity();
        leg::<false, false>(&self.pair.a, &mut self.a, &self.pair.b, &mut self.b, burst);
        leg::<false, false>(&self.pair.b, &mut self.b, &self.pair.a, &mut self.a, burst);
    }

    /// As [`PingPong::round`], on a wire that is no memory: messages of several frames do not leave at once, so that
    /// the end that sends is driven too.
    pub fn driven_round(&mut self) {
        let burst = self.a.sends.capacity();
        leg::<true, false>(&self.pair.a, &mut self.a, &self.pair.b, &mut self.b, burst);
        leg::<true, false>(&self.pair.b, &mut self.b, &self.pair.a, &mut self.a, burst);
    }

    /// As [`PingPong::new`], with templates, of which each message has a word changed: for [`PingPong::template_round`].
    ///
    /// # Errors
    /// The interfaces are not of class Pio.
    pub fn of_templates(pair: ViPair, size: usize, burst: usize) -> uvia::Result<Self> {
        let message = vec![0x5a; size.max(8)];
        let templates = [pair.a.vi.template(&message)?, pair.b.vi.template(&message)?];
        let mut ping = Self::new(pair, message.len(), burst);
        [ping.a.template, ping.b.template] = templates.map(Some);
        Ok(ping)
    }

    /// As [`PingPong::round`], by templates.
    #[inline]
    pub fn template_round(&mut self) {
        let burst = self.a.sends.capacity();
        leg::<false, true>(&self.pair.a, &mut self.a, &self.pair.b, &mut self.b, burst);
        leg::<false, true>(&self.pair.b, &mut self.b, &self.pair.a, &mut self.a, burst);
    }

    /// The pair.
    pub fn pair(&self) -> &ViPair {
        &self.pair
    }
}

/// A burst from `from` to `to`; the receives are posted again, a few at a time.
#[inline]
fn leg<const DRIVE: bool, const TEMPLATE: bool>(
    from: &End,
    mine: &mut Hand,
    to: &End,
    theirs: &mut Hand,
    burst: usize,
) {
    // The last sends complete with the answers' acknowledgements, which have come with the answers themselves.
    while mine.sends.len() < burst {
        assert_eq!(mine.reap(from), 0, "messages that nobody sent");
    }
    while let Some(descriptor) = mine.sends.pop() {
        match &mut mine.template {
            Some(template) if TEMPLATE => {
                let number = (theirs.sends.len() as u64).to_le_bytes();
                template.patch(0, &number).expect("it is long enough");
                from.vi.send_template(template, descriptor).expect("a template is sent");
            }
            _ => from.vi.post_send(descriptor).expect("a send is posted"),
        }
    }
    let mut received = 0;
    while received < burst {
        received += theirs.reap(to);
        if DRIVE {
            from.nic.poll().expect("the adapter works");
        }
    }
}

impl Hand {
    /// Takes what has completed: sends are kept, receives are counted, and posted again when there are a few.
    #[inline(always)]
    fn reap(&mut self, end: &End) -> usize {
        end.cq.poll_into(&mut self.completions).expect("the adapter works");
        let mut received = 0;
        while let Some(Completion { queue, descriptor, .. }) = self.completions.pop() {
            assert!(descriptor.status().is_success(), "{:?}", descriptor.status());
            match queue {
                WorkQueue::Send => self.sends.push(descriptor),
                WorkQueue::Receive => {
                    self.emptied.push(descriptor);
                    received += 1;
                }
            }
        }
        if self.emptied.len() >= BACK {
            end.vi.post_receives(&mut self.emptied).expect("receives are posted");
        }
        received
    }
}
