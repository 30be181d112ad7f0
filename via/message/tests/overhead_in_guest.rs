//! What the layer adds to the interfaces below it, over a guest's two adapters: both in one run, in batches in turn, a thread
//! for each end. Under emulation times are for comparison with each other only, so that nothing depends on them here: what is
//! judged is what can be counted, copies and what the adapter has sent.
//!
//! A mebibyte goes by bare interfaces in two ways. In one the ends have told each other once for all where to write to. What
//! is like it by the layer is an exchange, by which each end names its place before it sends. In the other a place is
//! written into only once it was named for this message, and sending ends when the memory may be written again: as by the
//! layer with a message that is sent and one that is received behind it. All of them, and the layer, use the same memory: how far the system joins its pages is much of what an IOMMU
//! takes, and differs from one allocation to the next.

mod common;

use std::time::{Duration, Instant};

use common::{Kind, device};
use uvia::{
    CompletionQueue, Descriptor, MemoryAttributes, MemoryHandle, MemoryRegion, NetAddress, Operation,
    RemoteMemory, Vi, ViAttributes, WorkQueue,
};
use uvia_message::{
    Board, Channel, Directory, Policy, ReceiveMode, Result, SendMode, Session, SessionOptions,
};

const LONG: usize = 1 << 20;

/// A rank's memory to send from, and to receive into.
#[derive(Clone, Copy)]
struct Buffers([*mut u8; 2]);

// SAFETY: bytes that are never freed, and belong to whoever has this: the kinds that share them take turns.
unsafe impl Send for Buffers {}

impl Buffers {
    fn new() -> Self {
        Self([vec![7; LONG], vec![0; LONG]].map(|bytes| bytes.leak().as_mut_ptr()))
    }
}

/// An end of bare interfaces, which does what the layer does: sends what is short, and writes what is long with word of it.
struct Bare {
    vi: Vi,
    cq: CompletionQueue,
    /// What is sent and written from, and what the other end writes into.
    from: MemoryRegion,
    into: MemoryRegion,
    other: Option<RemoteMemory>,
    came: usize,
    going: usize,
    /// Each place is named by who receives, once it does.
    names: bool,
    /// Receives of 64 bytes each, and behind them what names a place.
    words: MemoryRegion,
    named: Option<RemoteMemory>,
    writing: bool,
}

/// Receives that are posted.
const DEPTH: usize = 4;
/// Bytes of each.
const WORD: usize = 64;

impl Bare {
    fn new(rank: usize, names: bool, Buffers([from, into]): Buffers) -> uvia::Result<Self> {
        let nic = device(rank);
        let tag = nic.create_tag()?;
        let cq = nic.create_cq(256)?;
        let mut attributes = ViAttributes::new(tag);
        attributes.max_transfer_size = LONG as u32;
        let vi = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
        // SAFETY: they are never freed, and nobody touches them while a message of ours is under way.
        let [from, into] = unsafe {
            [
                nic.register(from, LONG, MemoryAttributes::local(tag))?,
                nic.register(into, LONG, MemoryAttributes::remote_write(tag))?,
            ]
        };
        let words = nic.allocate((DEPTH + 1) * WORD, MemoryAttributes::local(tag))?;
        for n in 0..DEPTH {
            let mut receive = Descriptor::new(vec![words.segment(n * WORD..(n + 1) * WORD)?]);
            receive.context = n as u64;
            vi.post_receive(receive).map_err(|e| e.error)?;
        }
        Ok(Self {
            vi,
            cq,
            from,
            into,
            other: None,
            came: 0,
            going: 0,
            names,
            words,
            named: None,
            writing: false,
        })
    }

    fn reap(&mut self) -> uvia::Result<()> {
        while let Some(done) = self.cq.poll()? {
            let descriptor = done.descriptor;
            assert!(descriptor.status().is_success(), "{:?}", descriptor.status());
            match done.queue {
                WorkQueue::Receive => {
                    if self.names && descriptor.immediate.is_none() {
                        let mut place = [[0; 8]; 2];
                        self.words.read(descriptor.context as usize * WORD, place.as_flattened_mut())?;
                        let [address, handle] = place.map(u64::from_le_bytes);
                        self.named = Some(RemoteMemory { address, handle: MemoryHandle(handle as u32) });
                    } else {
                        self.came += 1;
                    }
                    self.vi.post_receive(descriptor).map_err(|e| e.error)?;
                }
                WorkQueue::Send => {
                    assert!(matches!(descriptor.operation, Operation::Send | Operation::RdmaWrite { .. }));
                    self.going -= 1;
                    self.writing &= descriptor.operation == Operation::Send;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, len: usize) -> uvia::Result<()> {
        while self.going > 2 {
            self.reap()?;
        }
        let segments = vec![self.from.segment(0..len)?];
        let descriptor = match self.other {
            Some(other) if len == LONG => {
                let mut write = Descriptor::rdma_write(segments, other);
                write.immediate = Some(0);
                write
            }
            _ => Descriptor::new(segments),
        };
        self.going += 1;
        self.vi.post_send(descriptor).map_err(|e| e.error)
    }

    /// Sends a mebibyte to where the other end wants it, until its memory may be written again.
    fn send_there(&mut self) -> uvia::Result<()> {
        let place = loop {
            match self.named.take() {
                Some(place) => break place,
                None => self.reap()?,
            }
        };
        let mut write = Descriptor::rdma_write(vec![self.from.segment(0..LONG)?], place);
        write.immediate = Some(0);
        self.going += 1;
        self.writing = true;
        self.vi.post_send(write).map_err(|e| e.error)?;
        while self.writing {
            self.reap()?;
        }
        Ok(())
    }

    /// Says where a mebibyte is wanted, and waits for it.
    fn receive_here(&mut self) -> uvia::Result<()> {
        let RemoteMemory { address, handle } = self.into.remote(0)?;
        let place = [address, handle.0.into()].map(u64::to_le_bytes);
        self.words.write(DEPTH * WORD, place.as_flattened())?;
        let name =
            Descriptor::new(vec![self.words.segment(DEPTH * WORD..DEPTH * WORD + size_of_val(&place))?]);
        self.going += 1;
        self.vi.post_send(name).map_err(|e| e.error)?;
        self.wait()
    }

    fn wait(&mut self) -> uvia::Result<()> {
        while self.came == 0 {
            self.reap()?;
        }
        self.came -= 1;
        Ok(())
    }
}

/// Two bare ends, connected.
fn bare_pair(name: &[u8], names: bool, buffers: [Buffers; 2]) -> uvia::Result<[Bare; 2]> {
    let [mut a, mut b] = [Bare::new(0, names, buffers[0])?, Bare::new(1, names, buffers[1])?];
    let listener = device(1).listen(name, 1)?;
    let remote = NetAddress::new(device(1).properties().mac, name)?;
    a.vi.connect_start(&remote, Duration::from_secs(30), b"")?;
    while a.vi.connect_done()?.is_none() {
        if let Some(request) = listener.poll()? {
            request.accept(&b.vi, b"").map_err(|(_, e)| e)?;
        }
    }
    (a.other, b.other) = (Some(b.into.remote(0)?), Some(a.into.remote(0)?));
    Ok([a, b])
}

/// An end of the layer.
struct Layer {
    channel: Channel,
    session: Session,
    other: usize,
    buffers: Buffers,
}

impl Layer {
    fn new(board: &Board, rank: usize, buffers: Buffers) -> Result<Self> {
        let mut options = SessionOptions::new("overhead", rank, 2);
        options.policy = Policy::Latency;
        let rails = vec![("vi".to_owned(), common::rail(Kind::Device, "overhead", 0, rank))];
        let session = Session::open(options, rails, &Directory::Local(board.clone()))?;
        let channel = session.channel(0, &[])?;
        Ok(Self { channel, session, other: 1 - rank, buffers })
    }

    fn send(&self, len: usize) -> Result<()> {
        // SAFETY: it is never freed, and nobody writes it.
        let from = unsafe { std::slice::from_raw_parts(self.buffers.0[0], len) };
        self.channel.send(self.other, |message| message.cheaper(from, ReceiveMode::Cheaper))
    }

    fn receive(&mut self, len: usize) -> Result<()> {
        // SAFETY: it is never freed, and ours while it is our turn.
        let into = unsafe { std::slice::from_raw_parts_mut(self.buffers.0[1], len) };
        self.channel.receive(self.other, |message| message.cheaper(into, SendMode::Cheaper))
    }

    /// Sends and receives, with the place to receive into named before what is sent.
    fn exchange(&mut self, len: usize) -> Result<()> {
        // SAFETY: they are never freed, and nobody else writes them while it is our turn.
        let (from, into) = unsafe {
            let [from, into] = self.buffers.0;
            (std::slice::from_raw_parts(from, len), std::slice::from_raw_parts_mut(into, len))
        };
        self.channel.exchange(self.other, from, self.other, into)
    }
}

/// What was measured, and what the adapter of rank 0 has sent meanwhile.
#[derive(Default)]
struct Measured {
    times: Vec<Duration>,
    frames: u64,
    bytes: u64,
}

impl Measured {
    /// Measures round trips, behind one that is not: what the IOMMU and its caches know is another kind's before.
    fn batch(&mut self, rounds: usize, mut round: impl FnMut()) {
        round();
        let sent = || {
            let sent = device(0).statistics().adapter;
            (sent.tx_frames, sent.tx_bytes)
        };
        let before = sent();
        for _ in 0..rounds {
            let start = Instant::now();
            round();
            self.times.push(start.elapsed() / 2);
        }
        let after = sent();
        self.frames += after.0.saturating_sub(before.0);
        self.bytes += after.1.saturating_sub(before.1);
    }

    /// In microseconds.
    fn percentile(&mut self, of_hundred: usize) -> f64 {
        self.times.sort_unstable();
        self.times[(self.times.len() * of_hundred / 100).min(self.times.len() - 1)].as_secs_f64() * 1e6
    }

    fn line(&mut self, what: &str) {
        let [p10, p50, p90, p99] = [10, 50, 90, 99].map(|n| self.percentile(n));
        let Self { frames, bytes, times } = self;
        println!(
            "  {what:<8} p10 {p10:.1}  p50 {p50:.1}  p90 {p90:.1}  p99 {p99:.1} us; {} round trips, {frames} frames of \
             {bytes} bytes sent",
            times.len()
        );
    }
}

/// What one kind takes more than another, in percent.
fn excess(kind: f64, than: f64) -> f64 {
    (kind / than - 1.0) * 100.0
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn what_the_layer_adds() {
    // Length, batches, round trips of each.
    let more = if std::env::var_os("UVIA_LONG").is_some() { 10 } else { 1 };
    let runs: [(usize, usize, usize); 2] = [(64, 5 * more, 60), (LONG, 60 * more, 3)];
    let buffers = [Buffers::new(), Buffers::new()];
    let [mut a, mut b] = bare_pair(b"bare", false, buffers).unwrap_or_else(|e| panic!("{e}"));
    let [mut c, mut d] = bare_pair(b"names", true, buffers).unwrap_or_else(|e| panic!("{e}"));
    let board = Board::default();
    let there = board.clone();
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut layer = Layer::new(&there, 1, buffers[1]).unwrap();
            for (len, batches, rounds) in runs {
                for _ in 0..batches {
                    (0..=rounds).for_each(|_| b.wait().and_then(|()| b.send(len)).unwrap());
                    if len == LONG {
                        layer.receive(len).unwrap();
                        (0..rounds).for_each(|_| layer.exchange(len).unwrap());
                        layer.send(len).unwrap();
                        (0..=rounds).for_each(|_| d.receive_here().and_then(|()| d.send_there()).unwrap());
                    }
                    (0..=rounds).for_each(|_| layer.receive(len).and_then(|()| layer.send(len)).unwrap());
                }
            }
            // What was sent last is acknowledged.
            while b.going > 0 {
                b.reap().unwrap();
            }
        });
        let mut layer = Layer::new(&board, 0, buffers[0]).unwrap();
        for (len, batches, rounds) in runs {
            let mut kinds = [(); 4].map(|()| Measured::default());
            let before = (layer.session.copied(), layer.session.module_counts());
            for batch in 0..batches {
                if batch == 1 {
                    // The first connects, and registers memory.
                    kinds = [(); 4].map(|()| Measured::default());
                }
                let [bare, exchanged, named, messages] = &mut kinds;
                bare.batch(rounds, || a.send(len).and_then(|()| a.wait()).unwrap());
                if len == LONG {
                    exchanged.batch(rounds, || layer.exchange(len).unwrap());
                    named.batch(rounds, || c.send_there().and_then(|()| c.receive_here()).unwrap());
                }
                messages.batch(rounds, || layer.send(len).and_then(|()| layer.receive(len)).unwrap());
            }
            let sent = (batches * (rounds + 1) * if len == LONG { 2 } else { 1 }) as u64;
            let (copied, modules) = (layer.session.copied(), layer.session.module_counts());
            let copied = (copied.0 - before.0.0, copied.1 - before.0.1);
            if len == LONG {
                // Whoever moved them, the layer has copied none.
                let long = modules.written + modules.read - before.1.written - before.1.read;
                assert_eq!((long, copied), (sent, (0, 0)), "{modules:?}");
            } else {
                // One packet each, copied once at each end.
                let packets = modules.copied + modules.inline - before.1.copied - before.1.inline;
                assert_eq!((packets, copied), (sent, (sent * len as u64, sent * len as u64)), "{modules:?}");
            }
            all.push((len, kinds));
        }
    });
    for (len, [mut bare, mut exchanged, mut named, mut messages]) in all {
        println!("{len} bytes, half a round trip:");
        bare.line("VI");
        let (mut layers, p50) = (vec![], [bare.percentile(50), messages.percentile(50)]);
        if len == LONG {
            exchanged.line("exchange");
            named.line("named");
            layers.push(exchanged.bytes);
        }
        messages.line("messages");
        layers.push(messages.bytes);
        if len == LONG {
            let [ahead, behind] = [exchanged.percentile(50), named.percentile(50)];
            let [ahead, behind] = [excess(ahead, p50[0]), excess(p50[1], behind)];
            println!(
                "  p50: {ahead:+.1} % with places that are known ahead, {behind:+.1} % with such that are named"
            );
        }
        println!("  p50: {:+.1} % by messages", excess(p50[1], p50[0]));
        // A header of 8 bytes more in a frame of 112, and a few frames more for a mebibyte; and what an adapter that is
        // late has sent again, which is why it is not less.
        let most = if len == LONG { 10.0 } else { 25.0 };
        for bytes in layers.into_iter().map(|bytes| excess(bytes as f64, bare.bytes as f64)) {
            println!("  bytes on the wire: {bytes:+.1} %");
            assert!(bytes <= most, "{len} bytes: {bytes:+.1} % more on the wire, {most} at most");
        }
    }
}
